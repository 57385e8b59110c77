//! One small test for each fact of NATS that the design relies on. A server upgrade that changes a
//! fact fails its test. Facts, not our code: these speak to the server through its plain client.

use std::time::Duration;

use async_nats::{
    Client, HeaderMap, HeaderValue, Request, StatusCode,
    header::{
        NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_MARKER_REASON, NATS_MESSAGE_TTL, NATS_ROLLUP,
        NATS_SCHEDULE, NATS_SCHEDULE_TARGET,
    },
    jetstream::{self, AckKind},
};
use clawnode_tests::nats::{NatsCluster, NatsServer, ServerOptions};
use futures_util::StreamExt;
use serde_json::{Value, json};

type Result<T = (), E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// Long enough that reaching it means a bug, not a slow machine.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long one request waits in a cluster that elects.
const SHORT: Duration = Duration::from_secs(2);
/// The server's words for a stale expectation.
const WRONG_LAST_SEQUENCE: u64 = 10_071;

/// A client, and what it asks most.
#[derive(Clone)]
struct Peer {
    client: Client,
}

impl Peer {
    async fn connect(urls: &[String]) -> Result<Self> {
        Ok(Self { client: async_nats::connect(urls).await? })
    }

    /// Asks the `JetStream` API; an error of the server is an answer.
    async fn api(&self, subject: &str, question: &Value) -> Result<Value> {
        let request = Request::new().payload(question.to_string().into()).timeout(Some(SHORT));
        let answer = self.client.send_request(format!("$JS.API.{subject}"), request).await?;
        Ok(serde_json::from_slice(&answer.payload)?)
    }

    /// Creates a stream, or fails.
    async fn stream(&self, name: &str, subjects: &[&str], rest: Value) -> Result {
        let mut config = json!({ "name": name, "subjects": subjects, "storage": "file" });
        for (key, value) in rest.as_object().ok_or("not an object")? {
            config[key] = value.clone();
        }
        good(&self.api(&format!("STREAM.CREATE.{name}"), &config).await?)
    }

    /// Creates a consumer, or fails.
    async fn consumer(&self, stream: &str, name: &str, rest: Value) -> Result {
        let mut config = json!({ "durable_name": name, "ack_policy": "explicit" });
        for (key, value) in rest.as_object().ok_or("not an object")? {
            config[key] = value.clone();
        }
        let question = json!({ "stream_name": stream, "config": config });
        good(&self.api(&format!("CONSUMER.DURABLE.CREATE.{stream}.{name}"), &question).await?)
    }

    /// Publishes; an error of the server is an answer.
    async fn publish(&self, subject: &str, headers: HeaderMap, text: &str) -> Result<Value> {
        let request =
            Request::new().headers(headers).payload(text.to_owned().into()).timeout(Some(SHORT));
        let answer = self.client.send_request(subject.to_owned(), request).await?;
        Ok(serde_json::from_slice(&answer.payload)?)
    }

    /// Publishes and says the sequence.
    async fn store(&self, subject: &str, headers: HeaderMap, text: &str) -> Result<u64> {
        let answer = self.publish(subject, headers, text).await?;
        answer["seq"]
            .as_u64()
            .filter(|_| answer["error"].is_null())
            .ok_or(answer.to_string().into())
    }

    /// How many messages a stream has.
    async fn count(&self, stream: &str) -> Result<u64> {
        let info = self.api(&format!("STREAM.INFO.{stream}"), &json!({})).await?;
        info["state"]["messages"].as_u64().ok_or(info.to_string().into())
    }

    async fn get(&self, stream: &str, question: Value) -> Result<Value> {
        self.api(&format!("STREAM.MSG.GET.{stream}"), &question).await
    }

    /// Sends one pull, with its answers in a subscription of its own.
    async fn pull(&self, stream: &str, consumer: &str, rest: Value) -> Result<Pulled> {
        let inbox = self.client.new_inbox();
        let answers = self.client.subscribe(inbox.clone()).await?;
        let mut pull = json!({ "batch": 100, "expires": 60_000_000_000_u64 });
        for (key, value) in rest.as_object().ok_or("not an object")? {
            pull[key] = value.clone();
        }
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}");
        self.client.publish_with_reply(subject, inbox, pull.to_string().into()).await?;
        self.settle().await?;
        let context = jetstream::new(self.client.clone());
        Ok(Pulled { answers, context })
    }

    /// Waits until the server has taken all that was sent: it answers in order.
    async fn settle(&self) -> Result {
        let nobody = self.client.request(self.client.new_inbox(), "".into()).await;
        if nobody.is_ok() { Err("somebody answered".into()) } else { Ok(()) }
    }
}

/// What a pull brings.
struct Pulled {
    answers: async_nats::Subscriber,
    context: jetstream::Context,
}

impl Pulled {
    /// The next message, past the server's words about the pull itself.
    async fn next(&mut self) -> Result<jetstream::Message> {
        loop {
            let message = tokio::time::timeout(PATIENCE, self.answers.next())
                .await?
                .ok_or("the subscription ended")?;
            if message.status.is_none_or(|status| status == StatusCode::OK) {
                return Ok(jetstream::Message { message, context: self.context.clone() });
            }
        }
    }
}

fn good(answer: &Value) -> Result {
    if answer["error"].is_null() { Ok(()) } else { Err(answer["error"].to_string().into()) }
}

fn expecting(sequence: u64) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, HeaderValue::from(sequence));
    headers
}

fn text(message: &jetstream::Message) -> String {
    String::from_utf8_lossy(&message.payload).into_owned()
}

fn delivered(message: &jetstream::Message) -> Result<i64> {
    Ok(message.info()?.delivered)
}

async fn one() -> Result<(NatsServer, Peer)> {
    let server = NatsServer::start(ServerOptions::default()).await?;
    let peer = Peer::connect(&[server.url()]).await?;
    Ok((server, peer))
}

/// Repeats what fails while servers elect, until it works.
async fn until_it_works<T, F>(mut call: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    tokio::time::timeout(PATIENCE, async {
        loop {
            if let Ok(value) = call().await {
                return value;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .map_err(Into::into)
}

#[tokio::test]
async fn a_literal_subject_fences_and_a_stale_append_is_10071() -> Result {
    let (_server, peer) = one().await?;
    peer.stream("J", &["j.>"], json!({ "deny_delete": true, "allow_rollup_hdrs": true })).await?;
    let first = peer.store("j.a", expecting(0), "one").await?;
    peer.store("j.b", expecting(0), "other subjects do not count").await?;
    let second = peer.store("j.a", expecting(first), "two").await?;
    for stale in [0, first, second + 1] {
        let answer = peer.publish("j.a", expecting(stale), "stale").await?;
        assert_eq!(answer["error"]["err_code"], WRONG_LAST_SEQUENCE, "{answer}");
    }
    assert_eq!(peer.count("J").await?, 3);
    Ok(())
}

#[tokio::test]
async fn a_rollup_replaces_its_subject_only_if_the_expectation_holds() -> Result {
    let (_server, peer) = one().await?;
    peer.stream("J", &["j.>"], json!({ "deny_delete": true, "allow_rollup_hdrs": true })).await?;
    let first = peer.store("j.a", expecting(0), "one").await?;
    let second = peer.store("j.a", expecting(first), "two").await?;
    peer.store("j.b", expecting(0), "other").await?;
    let mut stale = expecting(first);
    stale.insert(NATS_ROLLUP, "sub");
    let answer = peer.publish("j.a", stale, "stale").await?;
    assert_eq!(answer["error"]["err_code"], WRONG_LAST_SEQUENCE, "{answer}");
    assert_eq!(peer.count("J").await?, 3);
    let mut rollup = expecting(second);
    rollup.insert(NATS_ROLLUP, "sub");
    let third = peer.store("j.a", rollup, "all").await?;
    assert_eq!(peer.count("J").await?, 2, "what it replaced, and nothing else, is gone");
    peer.store("j.a", expecting(third), "four").await?;
    Ok(())
}

#[tokio::test]
async fn the_next_message_of_a_subject_is_read_at_the_leader() -> Result {
    let (_server, peer) = one().await?;
    peer.stream("J", &["j.>"], json!({})).await?;
    for subject in ["j.a", "j.b", "j.a"] {
        peer.store(subject, HeaderMap::new(), "x").await?;
    }
    let next = peer.get("J", json!({ "seq": 2, "next_by_subj": "j.a" })).await?;
    assert_eq!(next["message"]["seq"], 3, "{next}");
    let any = peer.get("J", json!({ "seq": 2, "next_by_subj": "j.*" })).await?;
    assert_eq!(any["message"]["seq"], 2, "{any}");
    let none = peer.get("J", json!({ "seq": 4, "next_by_subj": "j.a" })).await?;
    assert_eq!(none["error"]["err_code"], 10_037, "{none}");
    Ok(())
}

async fn work_queue(peer: &Peer, ack_wait: Duration) -> Result {
    peer.stream("Q", &["q.>"], json!({ "retention": "workqueue" })).await?;
    let nanos = u64::try_from(ack_wait.as_nanos())?;
    let config = json!({
        "ack_wait": nanos, "max_deliver": -1, "max_ack_pending": -1, "filter_subject": "q.0.*",
    });
    peer.consumer("Q", "c", config).await
}

#[tokio::test]
async fn what_is_not_acknowledged_comes_again_unless_progress_is_told() -> Result {
    let (_server, peer) = one().await?;
    work_queue(&peer, Duration::from_secs(1)).await?;
    let mut pulled = peer.pull("Q", "c", json!({})).await?;
    peer.store("q.0.held", HeaderMap::new(), "held").await?;
    peer.store("q.0.left", HeaderMap::new(), "left").await?;
    let (held, left) = (pulled.next().await?, pulled.next().await?);
    assert_eq!((text(&held), text(&left)), ("held".to_owned(), "left".to_owned()));
    let mut beat = tokio::time::interval(Duration::from_millis(100));
    // Thrice the one that is left alone comes again, and never the one in hand.
    for expected in 2..=4 {
        let again = loop {
            tokio::select! {
                _ = beat.tick() => held.ack_with(AckKind::Progress).await?,
                again = pulled.next() => break again?,
            }
        };
        assert_eq!((text(&again), delivered(&again)?), ("left".to_owned(), expected));
    }
    held.double_ack().await?;
    assert_eq!(peer.count("Q").await?, 1, "an acknowledgement removes");
    // Also a late one, by the first holder: acknowledgements are not fenced.
    left.double_ack().await?;
    assert_eq!(peer.count("Q").await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_nak_brings_a_message_back_after_its_delay_and_at_once_without() -> Result {
    let (_server, peer) = one().await?;
    work_queue(&peer, PATIENCE).await?;
    let mut pulled = peer.pull("Q", "c", json!({})).await?;
    peer.store("q.0.a", HeaderMap::new(), "late").await?;
    peer.store("q.0.b", HeaderMap::new(), "soon").await?;
    let (late, soon) = (pulled.next().await?, pulled.next().await?);
    late.ack_with(AckKind::Nak(Some(Duration::from_secs(2)))).await?;
    soon.ack_with(AckKind::Nak(Some(Duration::ZERO))).await?;
    let first = pulled.next().await?;
    let second = pulled.next().await?;
    assert_eq!((text(&first), text(&second)), ("soon".to_owned(), "late".to_owned()));
    assert_eq!(delivered(&second)?, 2);
    Ok(())
}

#[tokio::test]
async fn a_message_with_a_time_to_live_leaves_a_marker() -> Result {
    let (_server, peer) = one().await?;
    let config = json!({
        "max_msgs_per_subject": 1, "allow_msg_ttl": true, "allow_rollup_hdrs": true,
        "subject_delete_marker_ttl": 60_000_000_000_u64,
    });
    peer.stream("B", &["b.>"], config).await?;
    peer.consumer("B", "w", json!({ "filter_subject": "b.>" })).await?;
    let mut watch = peer.pull("B", "w", json!({})).await?;
    let mut headers = expecting(0);
    headers.insert(NATS_MESSAGE_TTL, "1s");
    let first = peer.store("b.key", headers, "brief").await?;
    assert_eq!(text(&watch.next().await?), "brief");
    let marker = watch.next().await?;
    let reason = marker.headers.as_ref().and_then(|headers| headers.get(NATS_MARKER_REASON));
    assert_eq!(reason.map(HeaderValue::as_str), Some("MaxAge"));
    // The marker is in the way of who expects nothing, and of who expects the old one.
    for expected in [0, first] {
        let answer = peer.publish("b.key", expecting(expected), "x").await?;
        assert_eq!(answer["error"]["err_code"], WRONG_LAST_SEQUENCE, "{answer}");
    }
    // On top of it a message has its own time to live.
    let mut headers = expecting(marker.info()?.stream_sequence);
    headers.insert(NATS_MESSAGE_TTL, "1s");
    peer.store("b.key", headers, "again").await?;
    assert_eq!(text(&watch.next().await?), "again");
    assert!(watch.next().await?.payload.is_empty(), "it expires too");
    Ok(())
}

/// Streams as timers need them: schedules, moved to a work queue when due.
async fn schedules(peer: &Peer, replicas: u8) -> Result {
    let config = json!({
        "allow_msg_schedules": true, "allow_msg_ttl": true, "allow_rollup_hdrs": true,
        "num_replicas": replicas,
    });
    peer.stream("T", &["tmr.>", "due.>"], config).await?;
    let config = json!({
        "deliver_policy": "all", "deliver_subject": "feed", "filter_subject": "due.>",
        "ack_policy": "flow_control", "max_deliver": -1,
    });
    peer.consumer("T", "mover", config).await?;
    let config = json!({
        "retention": "workqueue", "num_replicas": replicas,
        "sources": [{
            "name": "T",
            "consumer": { "name": "mover", "deliver_subject": "feed" },
            "subject_transforms": [{ "src": "due.*", "dest": "in.{{wildcard(1)}}" }],
        }],
    });
    peer.stream("I", &["in.>"], config).await?;
    peer.consumer("I", "c", json!({ "max_ack_pending": -1 })).await
}

async fn schedule(peer: &Peer, name: &str, at: &str) -> Result<u64> {
    let mut headers = HeaderMap::new();
    headers.insert(NATS_SCHEDULE, format!("@at {at}"));
    headers.insert(NATS_SCHEDULE_TARGET, format!("due.{name}"));
    headers.insert(NATS_ROLLUP, "sub");
    peer.store(&format!("tmr.{name}"), headers, name).await
}

#[tokio::test]
async fn a_schedule_in_the_past_arrives_through_the_source_and_removes_itself() -> Result {
    let (_server, peer) = one().await?;
    schedules(&peer, 1).await?;
    schedule(&peer, "far", "2099-01-01T00:00:00.000Z").await?;
    schedule(&peer, "moved", "2099-01-01T00:00:00.000Z").await?;
    // A schedule under the same subject replaces the first.
    schedule(&peer, "moved", "2001-01-01T00:00:00.000Z").await?;
    let mut pulled = peer.pull("I", "c", json!({})).await?;
    let due = pulled.next().await?;
    assert_eq!((due.subject.as_str(), text(&due)), ("in.moved", "moved".to_owned()));
    let left = peer.get("T", json!({ "seq": 1, "next_by_subj": "tmr.*" })).await?;
    assert_eq!(left["message"]["subject"], "tmr.far", "{left}");
    let none = peer.get("T", json!({ "last_by_subj": "tmr.moved" })).await?;
    assert_eq!(none["error"]["err_code"], 10_037, "{none}");
    Ok(())
}

async fn ranked(peer: &Peer, replicas: u8) -> Result {
    peer.stream("Q", &["q.>"], json!({ "retention": "workqueue", "num_replicas": replicas }))
        .await?;
    let config = json!({
        "max_deliver": -1, "max_ack_pending": -1, "ack_wait": 1_000_000_000_u64,
        "priority_policy": "prioritized", "priority_groups": ["g"],
    });
    peer.consumer("Q", "c", config).await
}

#[tokio::test]
async fn the_lowest_rank_that_pulls_is_served() -> Result {
    let (server, first) = one().await?;
    ranked(&first, 1).await?;
    let second = Peer::connect(&[server.url()]).await?;
    let mut high = second.pull("Q", "c", json!({ "group": "g", "priority": 1 })).await?;
    let mut low = first.pull("Q", "c", json!({ "group": "g", "priority": 0 })).await?;
    for number in 0..10 {
        second.store("q.a", HeaderMap::new(), &number.to_string()).await?;
        let message = low.next().await?;
        assert_eq!(text(&message), number.to_string());
        message.double_ack().await?;
    }
    // What it leaves unacknowledged comes again to the lowest rank that pulls then.
    second.store("q.a", HeaderMap::new(), "left").await?;
    assert_eq!(text(&low.next().await?), "left");
    first.client.drain().await?;
    let again = high.next().await?;
    assert_eq!((text(&again), delivered(&again)?), ("left".to_owned(), 2));
    Ok(())
}

#[tokio::test]
async fn ranks_hold_on_after_the_consumers_leader_is_killed() -> Result {
    let mut cluster = NatsCluster::start(3, ServerOptions::default()).await?;
    let peer = Peer::connect(&cluster.urls()).await?;
    until_it_works(|| ranked(&peer, 3)).await?;
    let mut elections =
        peer.client.subscribe("$JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED.Q.c").await?;
    peer.settle().await?;
    let leader = cluster.consumer_leader_of("Q", "c").await?;
    // A client of the server that dies would be a test of reconnecting.
    let survivors: Vec<String> = cluster
        .urls()
        .into_iter()
        .enumerate()
        .filter_map(|(index, url)| (index != leader).then_some(url))
        .collect();
    let peer = Peer::connect(&survivors).await?;
    cluster.server(leader)?.kill()?;
    tokio::time::timeout(PATIENCE, elections.next()).await?.ok_or("no word of an election")?;
    let mut high = peer.pull("Q", "c", json!({ "group": "g", "priority": 1 })).await?;
    let mut low = peer.pull("Q", "c", json!({ "group": "g", "priority": 0 })).await?;
    until_it_works(|| peer.store("q.a", HeaderMap::new(), "after")).await?;
    tokio::select! {
        message = low.next() => assert_eq!(text(&message?), "after"),
        message = high.next() => return Err(format!("high rank got {}", text(&message?)).into()),
    }
    Ok(())
}

#[tokio::test]
async fn an_append_outlives_its_leader_and_is_stored_once() -> Result {
    let mut cluster = NatsCluster::start(3, ServerOptions::default()).await?;
    let peer = Peer::connect(&cluster.urls()).await?;
    until_it_works(|| async {
        peer.stream("J", &["j.>"], json!({ "num_replicas": 3, "deny_delete": true })).await
    })
    .await?;
    let first = until_it_works(|| peer.store("j.a", expecting(0), "one")).await?;
    let leader = cluster.leader_of("J").await?;
    cluster.server(leader)?.kill()?;
    // Errors until somebody leads; then it is stored, or an earlier try of the same append was.
    let answer = until_it_works(|| async {
        let answer = peer.publish("j.a", expecting(first), "two").await?;
        let code = answer["error"]["err_code"].as_u64();
        if answer["error"].is_null() || code == Some(WRONG_LAST_SEQUENCE) {
            Ok(answer)
        } else {
            Err(answer.to_string().into())
        }
    })
    .await?;
    let last = until_it_works(|| async {
        let last = peer.get("J", json!({ "last_by_subj": "j.a" })).await?;
        last["message"]["seq"].as_u64().ok_or(last.to_string().into())
    })
    .await?;
    if answer["error"].is_null() {
        assert_eq!(answer["seq"], last);
    }
    assert!(last > first);
    cluster.server(leader)?.restart().await?;
    until_it_works(|| async {
        match peer.count("J").await? {
            2 => Ok(()),
            other => Err(format!("{other} messages").into()),
        }
    })
    .await
}

#[tokio::test]
async fn a_thousand_timers_arrive_although_both_leaders_die() -> Result {
    const TIMERS: usize = 1_000;
    let mut cluster = NatsCluster::start(3, ServerOptions::default()).await?;
    let peer = Peer::connect(&cluster.urls()).await?;
    until_it_works(|| schedules(&peer, 3)).await?;
    // Due while the leaders die: the clock of the server decides, so ask it for its time.
    let question = json!({});
    let info = until_it_works(|| peer.api("STREAM.INFO.T", &question)).await?;
    let now = info["ts"].as_str().ok_or("no time")?.to_owned();
    let due = later(&now, 4)?;
    for number in 0..TIMERS {
        // A stream this young may have no leader that answers yet.
        let name = format!("t{number}");
        until_it_works(|| schedule(&peer, &name, &due)).await?;
    }
    let mut arrived = std::collections::BTreeSet::new();
    let mut kills = 0;
    let all = tokio::time::timeout(3 * PATIENCE, async {
        while arrived.len() < TIMERS {
            let pull = json!({ "batch": 100, "expires": 2_000_000_000_u64 });
            let Ok(mut pulled) = peer.pull("I", "c", pull).await else { continue };
            while let Ok(Ok(message)) =
                tokio::time::timeout(Duration::from_secs(1), pulled.next()).await
            {
                // Acknowledged, so that the inbox is mostly empty when its leader dies.
                message.double_ack().await.ok();
                arrived.insert(text(&message));
            }
            // First the origin's leader, then the inbox's, each restarted.
            let stream = ["T", "I"].get(kills).filter(|_| arrived.len() > 100 * (kills + 1));
            if let Some(stream) = stream {
                let leader = cluster.leader_of(stream).await?;
                cluster.server(leader)?.restart().await?;
                kills += 1;
            }
        }
        Result::<()>::Ok(())
    })
    .await;
    match all {
        Ok(all) => all?,
        Err(_) => {
            return Err(format!("{} of {TIMERS} came, {kills} kills", arrived.len()).into());
        }
    }
    assert_eq!(kills, 2, "both leaders died while timers were on their way");
    Ok(())
}

/// The time that is `seconds` after an RFC 3339 time, within its day.
fn later(now: &str, seconds: u32) -> Result<String> {
    let (date, time) = now.split_once('T').ok_or("no time")?;
    let mut parts = time.split(['.', 'Z', ':']).map(str::parse::<u32>);
    let mut next = || parts.next().ok_or("too short");
    let total = next()?? * 3_600 + next()?? * 60 + next()?? + seconds;
    let (hour, minute, second) = (total / 3_600 % 24, total / 60 % 60, total % 60);
    // Past midnight it is in the past, which is due at once: the fact under test stands.
    Ok(format!("{date}T{hour:02}:{minute:02}:{second:02}.000Z"))
}

/// What membership relies on where it is given a system account (`cluster/src/nats/parting.rs`).
#[tokio::test]
async fn the_system_account_hears_whose_connection_has_ended() -> Result {
    let extra = "system_account: SYS\nno_auth_user: me\naccounts {\n  \
                 SYS { users: [{ user: sys, password: sys }] }\n  \
                 A { jetstream: enabled, users: [{ user: me, password: me }] }\n}"
        .to_owned();
    let server = NatsServer::start(ServerOptions { extra, ..ServerOptions::default() }).await?;
    let sys = async_nats::ConnectOptions::with_user_and_password("sys".into(), "sys".into());
    let sys = sys.connect(server.url()).await?;
    let mut partings = sys.subscribe("$SYS.ACCOUNT.*.DISCONNECT").await?;
    Peer { client: sys.clone() }.settle().await?;
    let named = async_nats::ConnectOptions::new().name("proc_7").connect(server.url()).await?;
    Peer { client: named.clone() }.settle().await?;
    named.drain().await?;
    let event = tokio::time::timeout(PATIENCE, partings.next()).await?.ok_or("no event")?;
    let event: Value = serde_json::from_slice(&event.payload)?;
    assert_eq!(event["client"]["name"], "proc_7", "{event}");
    assert_eq!(event["reason"], "Client Closed", "{event}");
    Ok(())
}

/// Servers tell their clients which servers there are; the client library takes it only when it
/// connects. So membership does not know by it whether a server has gone, and asks who is
/// connected to it instead (`cluster/src/membership/mod.rs`).
#[tokio::test]
async fn servers_tell_who_is_left_and_the_client_library_keeps_it_to_itself() -> Result {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    let mut cluster = NatsCluster::start(3, ServerOptions::default()).await?;
    let url = cluster.urls()[0].clone();
    let client = async_nats::connect(&url).await?;
    // The same server, spoken to without the library.
    let socket = tokio::net::TcpStream::connect(url.trim_start_matches("nats://")).await?;
    let mut raw = BufReader::new(socket);
    raw.write_all(b"CONNECT {\"verbose\":false,\"protocol\":1}\r\nPING\r\n").await?;
    let known = client.server_info().connect_urls;
    assert_eq!(known.len(), 3);
    let mut killed = false;
    loop {
        let mut line = String::new();
        tokio::time::timeout(PATIENCE, raw.read_line(&mut line)).await??;
        if line.starts_with("PING") {
            raw.write_all(b"PONG\r\n").await?;
        }
        if line.starts_with("PONG") && !killed {
            killed = true;
            cluster.server(2)?.kill()?;
        }
        let Some(info) = line.strip_prefix("INFO ") else { continue };
        let info: Value = serde_json::from_str(info)?;
        if killed && info["connect_urls"].as_array().is_some_and(|urls| urls.len() == 2) {
            break;
        }
    }
    // The library has the same word by now: what its server sends comes in order.
    Peer { client: client.clone() }.settle().await?;
    assert_eq!(client.server_info().connect_urls, known, "the library tells by now: use it");
    Ok(())
}
