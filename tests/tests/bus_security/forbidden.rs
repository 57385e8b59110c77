//! GRANT-1: each role is refused everything that it does not need. The table here is written by
//! hand, and knows nothing of the one in the product.

use std::collections::BTreeSet;

use async_nats::{Event, ServerError};
use clawnode_nats::auth::{BusRole, push};
use futures_util::StreamExt;

use crate::support::{Operator, PATIENCE, Result, User, now};

/// What no user may publish: the server answers in order, and its refusal of this ends a look.
const MARK: &str = "mark.of.the.end";
/// Tries between two looks at what the server said; the client keeps twice as many of its words.
const AT_ONCE: usize = 64;
/// The streams of the cluster.
const STREAMS: [&str; 8] = [
    "CN_JOURNAL",
    "CN_INBOX",
    "CN_JOBS",
    "CN_TIMERS",
    "CN_BUCKET",
    "CN_BLOBS",
    "CN_BIRTH",
    "CN_OFFERS",
];

/// An action that a thief tries.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Try {
    Publish(String),
    Subscribe(String),
    Queue(String),
}

/// Everything that `role` must not do; at least 200 of each.
#[expect(clippy::too_many_lines, reason = "one flat table")]
fn forbidden(role: BusRole, account: &str, other: &str) -> BTreeSet<Try> {
    let mut subscribe: Vec<String> = [
        ">",
        "*",
        "*.>",
        "*.*",
        "*.*.*",
        "$SYS.>",
        "$SYS.ACCOUNT.>",
        "$SYS.SERVER.>",
        "$SYS.REQ.>",
        "$JS.>",
        "$JS.API.>",
        "$JS.API.INFO",
        "$JS.API.STREAM.INFO.*",
        "$JS.ACK.>",
        "$JS.FC.>",
        "$JS.EVENT.>",
        "$JS.EVENT.ADVISORY.>",
        "$JS.EVENT.ADVISORY.API",
        "$JS.EVENT.METRIC.>",
        "$KV.>",
        "$O.>",
        "$G.>",
        "$NRG.>",
        "$MQTT.>",
        "$SRV.>",
        "_INBOX.>",
        "_INBOX.*",
        "_INBOX.*.>",
        "_INBOX.*.*.*",
        "_R_.>",
        "_GR_.>",
        "cn.>",
        "cn.*",
        "cn.*.>",
        "cn.*.*",
        "cn.in.>",
        "cn.in.*.*",
        "cn.in.0.*",
        "cn.in.0.ses_x",
        "cn.job.>",
        "cn.job.*.*",
        "cn.job.exec.*",
        "cn.job.exec.job_x",
        "cn.kv.js.>",
        "cn.kv.js.*",
        "cn.kv.js.job_x",
        "cn.kv.archive.>",
        "cn.kv.archive.*",
        "cn.kv.archive.job_x",
        "cn.j.>",
        "cn.j.*.*",
        "cn.j.0.*",
        "cn.j.0.ses_x",
        "cn.tmr.>",
        "cn.due.>",
        "cn.feed.>",
        "cn.feed.due",
        "cn.kv.>",
        "cn.kv.*",
        "cn.kv.join.>",
        "cn.kv.agent.>",
        "cn.kv.agent.default",
        "cn.kv.latch.>",
        "cn.kv.latch.all",
        "cn.kv.mcp.>",
        "cn.kv.mcp.*",
        "cn.kv.mcp.clock",
        "cn.kv.ssh.>",
        "cn.kv.ssh.*",
        "cn.kv.ssh.web",
        "cn.kv.store.>",
        "cn.kv.store.*.*",
        "cn.kv.store.echo.notes.k",
        "cn.birth",
        "cn.offer.>",
        "cn.offer.*",
        "cn.join.>",
        "cn.join.*",
        "cn.blob.>",
        "cn.blob.*.*",
        "cn.usage",
        "other.>",
        "other.hb.*",
        "other.rpc.*",
        "other.tok.*",
        "other.name.*",
        "CN.hb.*",
        "cnx.hb.*",
    ]
    .map(str::to_owned)
    .to_vec();
    subscribe.extend([
        format!("_INBOX.{other}.>"),
        format!("_INBOX.{other}.*"),
        format!("_INBOX.{other}.*.*"),
        format!("cn.offer.{other}"),
        format!("cn.join.{other}"),
        format!("$SYS.ACCOUNT.{account}.>"),
        format!("$SYS.ACCOUNT.{account}.CONNECT"),
        format!("$SYS.REQ.ACCOUNT.{account}.CLAIMS.UPDATE"),
    ]);
    let mut publish: Vec<String> = [
        "$SYS.REQ.CLAIMS.UPDATE",
        "$SYS.REQ.CLAIMS.LIST",
        "$SYS.REQ.CLAIMS.DELETE",
        "$SYS.REQ.SERVER.PING",
        "$SYS.REQ.SERVER.PING.CONNZ",
        "$SYS.REQ.SERVER.PING.JSZ",
        "$SYS.REQ.SERVER.X.KICK",
        "$SYS.REQ.SERVER.X.RELOAD",
        "$SYS.REQ.SERVER.X.LDM",
        "$JS.API.STREAM.NAMES",
        "$JS.API.STREAM.LIST",
        "$JS.API.STREAM.TEMPLATE.NAMES",
        "$JS.API.META.LEADER.STEPDOWN",
        "$JS.API.SERVER.REMOVE",
        "$JS.API.CONSUMER.X",
        "$JS.API.STREAM.CREATE.OTHER",
        "$JS.API.STREAM.INFO.OTHER",
        "$JS.API.STREAM.DELETE.OTHER",
        "$JS.API.STREAM.INFO.OTHER_JOURNAL",
        "$JS.API.STREAM.MSG.GET.OTHER_JOURNAL",
        "$JS.API.STREAM.RESTORE.OTHER",
        "$JS.ACK.CN_JOURNAL.a.1.1.1.1.0",
        "$JS.ACK.CN_BUCKET.a.1.1.1.1.0",
        "$JS.FC.CN_TIMERS.inbox.x",
        "$JS.EVENT.ADVISORY.API",
        "_INBOX",
        "cn",
        "cn.x",
        "cn.feed.due",
        "cn.join.x",
        "cn.kv.join.x",
        "$JS.API.STREAM.MSG.GET.CN_OFFERS",
        "$JS.API.CONSUMER.MSG.NEXT.CN_OFFERS.x",
        "cn.due.0.ses_x.tmr_x",
        "cn.kv.x",
        "cn.kv.other.x",
        "cn.kv.agent",
        "cn.kv.latch",
        "cn.kv.mcp",
        "cn.kv.mcp.clock.y",
        "cn.kv.ssh",
        "cn.kv.ssh.web.y",
        "cn.kv.store",
        "cn.kv.store.echo",
        "cn.kv.store.echo.notes.k.y",
        "cn.kv.js",
        "cn.kv.js.job_x.y",
        "cn.kv.archive",
        "cn.kv.archive.job_x.y",
        "cn.job.exec",
        "cn.job.exec.job_x.y",
        "other.job.exec.job_x",
        "other.kv.js.job_x",
        "other.kv.archive.job_x",
        "other.birth",
        "other.in.0.ses_x",
        "other.j.0.ses_x",
        "other.kv.agent.default",
        "other.kv.mcp.clock",
        "other.blob.d.0",
        "other.hb.proc_x",
        "other.rpc.proc_x",
        "other.tok.ses_x",
        "other.usage",
        "other.name.n",
    ]
    .map(str::to_owned)
    .to_vec();
    publish.extend([
        format!("cn.kv.join.{other}.x"),
        format!("$SYS.REQ.ACCOUNT.{account}.INFO"),
        format!("$SYS.REQ.ACCOUNT.{account}.CONNZ"),
        format!("$SYS.REQ.ACCOUNT.{account}.CLAIMS.UPDATE"),
        format!("$JS.API.ACCOUNT.PURGE.{account}"),
    ]);
    let is_worker = matches!(role, BusRole::Worker | BusRole::Node);
    let is_gateway = matches!(role, BusRole::Gateway | BusRole::Node);
    let is_node = is_worker || is_gateway;
    for stream in STREAMS {
        for operation in [
            "STREAM.DELETE",
            "STREAM.MSG.DELETE",
            "STREAM.SNAPSHOT",
            "STREAM.RESTORE",
            "STREAM.LEADER.STEPDOWN",
            "STREAM.PEER.REMOVE",
            "CONSUMER.NAMES",
            "CONSUMER.CREATE",
            "DIRECT.GET",
        ] {
            publish.push(format!("$JS.API.{operation}.{stream}"));
        }
        for end in [
            "CONSUMER.CREATE.{}.spy",
            "CONSUMER.CREATE.{}.spy.>",
            "CONSUMER.CREATE.{}.spy.cn.j.>",
            "CONSUMER.CREATE.{}.spy.cn.kv.>",
            "CONSUMER.CREATE.{}.spy.cn.kv.js.*",
            "CONSUMER.CREATE.{}.spy.cn.job.>",
            "CONSUMER.CREATE.{}.spy.cn.job.*.*.*",
            "CONSUMER.DURABLE.CREATE.{}.spy.x",
            "CONSUMER.PAUSE.{}.p0",
            "CONSUMER.UNPIN.{}.p0",
            "CONSUMER.RESET.{}.p0",
            "CONSUMER.LEADER.STEPDOWN.{}.p0",
            "DIRECT.GET.{}.cn.j.0.ses_x",
        ] {
            publish.push(format!("$JS.API.{}", end.replace("{}", stream)));
        }
        // What older builds made otherwise is changed by the operator.
        if !(role == BusRole::Admin && ["CN_BUCKET", "CN_JOBS"].contains(&stream)) {
            publish.push(format!("$JS.API.STREAM.UPDATE.{stream}"));
        }
        // A gateway sees how much waits in each partition.
        if !(is_gateway && stream == "CN_INBOX") {
            publish.push(format!("$JS.API.CONSUMER.LIST.{stream}"));
        }
        if stream != "CN_BUCKET" {
            publish.push(format!("$JS.API.CONSUMER.DELETE.{stream}.p0"));
        }
    }
    // The server takes a last `>` for a token that `*` allows; subjects have no more tokens than that.
    let both = |is: bool, all: &[&str]| {
        if is { Vec::new() } else { all.iter().map(|name| (*name).to_owned()).collect() }
    };
    subscribe.extend(both(
        is_worker,
        &[
            "$JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED.CN_INBOX.*",
            "$JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED.CN_JOBS.*",
            "$JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED.CN_JOBS.exec",
        ],
    ));
    subscribe
        .extend(both(is_gateway, &["cn.tok.*", "cn.tok.>", "cn.tok.ses_x", "cn.ev", "cn.ev.x"]));
    subscribe.extend(both(
        is_node,
        &[
            "cn.hb.*",
            "cn.hb.proc_x",
            "cn.hb.*.gone",
            "cn.hb.proc_x.gone",
            "cn.rpc.*",
            "cn.rpc.>",
            "cn.rpc.proc_x",
            "cn.name.*",
            "cn.name.>",
            "cn.name.n",
        ],
    ));
    publish.extend(both(
        is_worker,
        &[
            "cn.j.0.ses_x",
            "cn.tok.ses_x",
            "cn.usage",
            "$JS.ACK.CN_INBOX.p0.1.1.1.1.0",
            "cn.kv.letter.x",
            "$JS.API.CONSUMER.MSG.NEXT.CN_INBOX.p0",
            "$JS.API.STREAM.PURGE.CN_BLOBS",
            "cn.job.exec.job_x",
            "cn.kv.js.job_x",
            "cn.kv.archive.job_x",
            "cn.kv.probation.ent_x",
            "cn.kv.ssh.web",
            "cn.kv.store.echo.notes",
            "cn.kv.store.echo.notes.k",
            "cn.kv.store.=.notes.k",
            "$JS.ACK.CN_JOBS.exec.1.1.1.1.0",
            "$JS.API.CONSUMER.CREATE.CN_JOBS.exec.cn.job.exec.*",
            "$JS.API.CONSUMER.INFO.CN_JOBS.exec",
            "$JS.API.CONSUMER.MSG.NEXT.CN_JOBS.exec",
            "cn.tmr.0.ses_x.tmr_x",
            "$JS.API.STREAM.PURGE.CN_TIMERS",
        ],
    ));
    let of_both = [
        "cn.in.0.ses_x",
        "cn.kv.approval.call_x",
        "cn.kv.mcp.clock",
        "$JS.API.STREAM.MSG.GET.CN_INBOX",
    ];
    publish.extend(both(is_worker || is_gateway, &of_both));
    publish.extend(both(
        is_gateway,
        &["cn.kv.agent.default", "cn.kv.latch.all", "cn.kv.latch.tool.exec"],
    ));
    let inboxes = [&format!("_INBOX.{other}.x"), "_INBOX.x", "_INBOX.x.y"];
    // Nodes answer each other, and no other user has anything to answer.
    publish.extend(both(is_node, &inboxes));
    publish.extend(both(
        is_node,
        &[
            "cn.hb.proc_x",
            "cn.hb.proc_x.gone",
            "cn.rpc.proc_x",
            "cn.ev",
            "cn.name.n",
            "cn.blob.d.0",
            "$JS.API.STREAM.MSG.GET.CN_JOURNAL",
            "$JS.API.STREAM.MSG.GET.CN_BLOBS",
            "$JS.API.CONSUMER.CREATE.CN_BUCKET.spy.cn.kv.agent.>",
            "$JS.API.CONSUMER.CREATE.CN_BUCKET.spy.cn.kv.latch.>",
            "$JS.API.CONSUMER.CREATE.CN_BUCKET.spy.cn.kv.mcp.>",
        ],
    ));
    let of_admin = [
        "cn.birth",
        "cn.offer.x",
        "$JS.API.CONSUMER.CREATE.CN_OFFERS.x.cn.offer.x",
        "$JS.API.CONSUMER.INFO.CN_OFFERS.x",
        "$JS.API.CONSUMER.DURABLE.CREATE.CN_INBOX.p0",
    ];
    publish.extend(both(role == BusRole::Admin, &of_admin));
    for stream in STREAMS {
        publish.extend(both(role == BusRole::Admin, &[&format!("$JS.API.STREAM.CREATE.{stream}")]));
        if !["CN_BLOBS", "CN_TIMERS"].contains(&stream) {
            publish.push(format!("$JS.API.STREAM.PURGE.{stream}"));
        }
    }
    publish.push("$JS.API.CONSUMER.DURABLE.CREATE.CN_JOBS.exec".to_owned());
    // An admission may say nothing at all.
    publish.extend(both(
        role != BusRole::Admission,
        &["$JS.API.INFO", "$JS.API.STREAM.MSG.GET.CN_BIRTH", "$JS.API.STREAM.MSG.GET.CN_BUCKET"],
    ));
    for stream in STREAMS {
        let looks = match stream {
            "CN_OFFERS" => role == BusRole::Admin,
            _ => role != BusRole::Admission,
        };
        publish.extend(both(looks, &[&format!("$JS.API.STREAM.INFO.{stream}")]));
    }
    publish.push("$JS.API.STREAM.MSG.GET.CN_JOBS".to_owned());
    publish.extend(both(is_worker, &["$JS.API.STREAM.MSG.GET.CN_TIMERS"]));
    let queues = subscribe.iter().cloned().map(Try::Queue).collect::<Vec<_>>();
    subscribe
        .into_iter()
        .map(Try::Subscribe)
        .chain(queues)
        .chain(publish.into_iter().map(Try::Publish))
        .collect()
}

/// Which of `tries` the server refuses. At most [`AT_ONCE`] of them: its words wait in a queue of the
/// client, which forgets what does not fit.
async fn refused(user: &mut User, tries: &[Try]) -> Result<BTreeSet<Try>> {
    while user.told.try_recv().is_ok() {}
    for attempt in tries {
        match attempt {
            Try::Publish(subject) => user.client.publish(subject.clone(), "{}".into()).await?,
            Try::Subscribe(subject) => drop(user.client.subscribe(subject.clone()).await?),
            Try::Queue(subject) => {
                drop(user.client.queue_subscribe(subject.clone(), "q".to_owned()).await?);
            }
        }
    }
    user.client.publish(MARK, "{}".into()).await?;
    user.client.flush().await?;
    let mark = Try::Publish(MARK.to_owned());
    let words = async {
        let mut refused = BTreeSet::new();
        while let Some(event) = user.told.recv().await {
            let Event::ServerError(ServerError::Other(text)) = &event else { continue };
            let word = text.to_lowercase();
            if mark.is_meant(text, &word) {
                return Ok(refused);
            }
            refused.extend(tries.iter().filter(|attempt| attempt.is_meant(text, &word)).cloned());
        }
        Err("the client is gone")
    };
    Ok(tokio::time::timeout(PATIENCE, words).await??)
}

impl Try {
    /// Whether the server's word is the refusal of this.
    fn is_meant(&self, text: &str, word: &str) -> bool {
        let (subject, about, with_queue) = match self {
            Self::Publish(subject) => (subject, "publish to", false),
            Self::Subscribe(subject) => (subject, "subscription to", false),
            Self::Queue(subject) => (subject, "subscription to", true),
        };
        word.contains("permissions violation")
            && word.contains(about)
            && text.contains(&format!("\"{subject}\""))
            && word.contains("using queue") == with_queue
    }
}

/// What of the table is not refused.
async fn allowed(user: &mut User, table: &BTreeSet<Try>) -> Result<Vec<Try>> {
    let table: Vec<Try> = table.iter().cloned().collect();
    let mut allowed = Vec::new();
    for tries in table.chunks(AT_ONCE) {
        let refused = refused(user, tries).await?;
        allowed.extend(tries.iter().filter(|attempt| !refused.contains(attempt)).cloned());
    }
    Ok(allowed)
}

/// What of the table may be published once a request came that asks for an answer there: the user
/// sends such requests to itself.
async fn allowed_as_answers(user: &mut User, table: &BTreeSet<Try>) -> Result<Vec<Try>> {
    let inbox = user.client.new_inbox();
    let mut requests = user.client.subscribe(inbox.clone()).await?;
    let publish = table.iter().filter(|attempt| matches!(attempt, Try::Publish(_))).cloned();
    let mut allowed = Vec::new();
    for tries in publish.collect::<Vec<_>>().chunks(AT_ONCE) {
        for attempt in tries {
            let Try::Publish(subject) = attempt else { continue };
            let asked = user.client.publish_with_reply(inbox.clone(), subject.clone(), "".into());
            asked.await?;
        }
        // The last one asks for nothing. The server delivers none that asks for an answer at an
        // acknowledgement's subject, and so on.
        user.client.publish(inbox.clone(), "".into()).await?;
        while let Some(request) = tokio::time::timeout(PATIENCE, requests.next()).await? {
            if request.reply.is_none() {
                break;
            }
        }
        let refused = refused(user, tries).await?;
        allowed.extend(tries.iter().filter(|attempt| !refused.contains(attempt)).cloned());
    }
    Ok(allowed)
}

async fn grant_1_holds_for(role: BusRole) -> Result {
    let operator = Operator::new(1).await?;
    let authority = operator.authority()?;
    let other = authority.brief(role, None, now(), 60)?;
    let own = authority.brief(role, None, now(), 3_600)?;
    let mut table = forbidden(role, &authority.account_id(), other.user());
    let own_inbox = format!("_INBOX.{}.x", own.user());
    if role == BusRole::Admission {
        // Of the node with the same user, which may be there by now, it neither hears nor answers.
        table.extend([Try::Publish(own_inbox.clone()), Try::Subscribe(own_inbox)]);
    }
    // Its own offer is for one who waits for it in a group, and for no listener.
    let offered = format!("cn.join.{}", own.user());
    table.extend([Try::Subscribe(offered.clone()), Try::Queue(offered)]);
    assert!(table.len() >= 200, "{role}: {}", table.len());
    let mut user = operator.user(&own).await?;
    assert_eq!(allowed(&mut user, &table).await?, Vec::new(), "{role}");
    // An admission cannot send itself anything.
    if role != BusRole::Admission {
        let answers = allowed_as_answers(&mut user, &table).await?;
        assert_eq!(answers, Vec::new(), "{role} answers wherever it likes");
    }
    Ok(())
}

#[tokio::test]
async fn grant_1_nats_worker() -> Result {
    grant_1_holds_for(BusRole::Worker).await
}

#[tokio::test]
async fn grant_1_nats_gateway() -> Result {
    grant_1_holds_for(BusRole::Gateway).await
}

#[tokio::test]
async fn grant_1_nats_node_with_both_roles() -> Result {
    grant_1_holds_for(BusRole::Node).await
}

#[tokio::test]
async fn grant_1_nats_admin() -> Result {
    grant_1_holds_for(BusRole::Admin).await
}

#[tokio::test]
async fn grant_1_nats_admission() -> Result {
    grant_1_holds_for(BusRole::Admission).await
}

/// The twin of the tests above: where permissions are too wide, they say so, and say where.
#[tokio::test]
async fn a_permission_that_is_too_wide_is_found_on_nats() -> Result {
    let operator = Operator::new(1).await?;
    let mut authority = operator.authority()?;
    authority.widen(BusRole::Worker, "cn.in.*.*");
    let own = authority.brief(BusRole::Worker, None, now(), 3_600)?;
    push(&authority, &operator.options(&own), 1, now()).await?;
    let table = forbidden(BusRole::Worker, &authority.account_id(), "UX");
    let mut user = operator.user(&own).await?;
    let found = allowed(&mut user, &table).await?;
    let wide = |text: &str| text.to_owned();
    assert_eq!(
        found,
        [
            Try::Subscribe(wide("cn.in.*.*")),
            Try::Subscribe(wide("cn.in.0.*")),
            Try::Subscribe(wide("cn.in.0.ses_x")),
            Try::Queue(wide("cn.in.*.*")),
            Try::Queue(wide("cn.in.0.*")),
            Try::Queue(wide("cn.in.0.ses_x")),
        ]
    );
    Ok(())
}
