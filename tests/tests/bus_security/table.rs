//! GRANT-2: what a stolen credential can do is what `docs/stolen-credentials.md` says. Each role's
//! credential tries every subject of the topology in every way, against a real server, and what
//! succeeds is compared with the document's table, both ways round.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use async_nats::{Event, HeaderMap, Request, ServerError, Subscriber};
use clawnode_nats::auth::{Authority, BusRole, push};
use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::support::{Operator, PATIENCE, Result, User, now};

/// A subject of the topology, as the document names it, and the stream that keeps it, if one does.
/// A name between braces is the credential's own user.
const SUBJECTS: [(&str, Option<&str>); 29] = [
    ("cn.j.0.ses_x", Some("CN_JOURNAL")),
    ("cn.in.0.ses_x", Some("CN_INBOX")),
    ("cn.job.exec.job_x", Some("CN_JOBS")),
    ("cn.tmr.0.ses_x.tmr_x", Some("CN_TIMERS")),
    ("cn.due.0.ses_x.tmr_x", Some("CN_TIMERS")),
    ("cn.blob.d.0", Some("CN_BLOBS")),
    ("cn.kv.agent.x", Some("CN_BUCKET")),
    ("cn.kv.approval.x", Some("CN_BUCKET")),
    ("cn.kv.archive.x", Some("CN_BUCKET")),
    ("cn.kv.budget.x", Some("CN_BUCKET")),
    ("cn.kv.file.x.y", Some("CN_BUCKET")),
    ("cn.kv.js.x", Some("CN_BUCKET")),
    ("cn.kv.latch.all", Some("CN_BUCKET")),
    ("cn.kv.letter.x", Some("CN_BUCKET")),
    ("cn.kv.mcp.x", Some("CN_BUCKET")),
    ("cn.kv.memory.x", Some("CN_BUCKET")),
    ("cn.kv.outage.x", Some("CN_BUCKET")),
    ("cn.kv.probation.x", Some("CN_BUCKET")),
    ("cn.kv.ssh.x", Some("CN_BUCKET")),
    ("cn.kv.store.p.s.k", Some("CN_BUCKET")),
    ("cn.kv.usage.x", Some("CN_BUCKET")),
    ("cn.birth", Some("CN_BIRTH")),
    ("cn.offer.x", Some("CN_OFFERS")),
    ("cn.tok.ses_x", None),
    ("cn.hb.proc_x", None),
    ("cn.rpc.proc_x", None),
    ("cn.name.n", None),
    ("cn.ev", None),
    ("cn.usage", None),
];
/// How soon something is said again to one who may have begun to listen.
const SAID_AGAIN: Duration = Duration::from_millis(50);
const DOCUMENT: &str = "../docs/stolen-credentials.md";
/// Its columns.
const ROLES: [BusRole; 5] =
    [BusRole::Worker, BusRole::Gateway, BusRole::Node, BusRole::Admin, BusRole::Admission];

/// The result, by subject: the letters that the document explains.
type Powers = BTreeMap<String, BTreeSet<char>>;

/// What the document says that `role` can do.
fn written(role: BusRole) -> Result<Powers> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCUMENT);
    let text = std::fs::read_to_string(path)?;
    let column = ROLES.iter().position(|other| *other == role).ok_or("a role")? + 2;
    let rows = text.lines().filter(|line| line.starts_with("| `cn."));
    let powers: Powers = rows
        .map(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let letters = cells[column + 1].chars().filter(char::is_ascii_alphabetic).collect();
            (cells[1].trim_matches('`').to_owned(), letters)
        })
        .collect();
    Ok(powers)
}

/// A user whose credential is tried, and a user who sees everything.
struct Trial {
    thief: User,
    witness: User,
    /// All that is published in the account.
    seen: Subscriber,
    powers: Powers,
}

impl Trial {
    async fn new(operator: &Operator, role: BusRole) -> Result<Self> {
        let mut authority = operator.authority()?;
        let other = if role == BusRole::Admin { BusRole::Gateway } else { BusRole::Admin };
        let (own, all) = credentials(&mut authority, role, other)?;
        authority.widen(other, ">");
        push(&authority, &operator.options(&all), 1, now()).await?;
        let (thief, witness) = (operator.user(&own).await?, operator.user(&all).await?);
        let seen = witness.client.subscribe(">").await?;
        witness.client.request("$JS.API.INFO", "".into()).await?;
        let powers = SUBJECTS.iter().map(|(subject, _)| ((*subject).to_owned(), BTreeSet::new()));
        Ok(Self { thief, witness, seen, powers: powers.collect() })
    }

    fn can(&mut self, subject: &str, letter: char) {
        self.powers.entry(subject.to_owned()).or_default().insert(letter);
    }

    /// Whether what the thief has just sent arrives at `subject`, or is refused.
    async fn arrives(&mut self, subject: &str, asked: &str) -> Result<bool> {
        let Self { thief, seen, .. } = self;
        tokio::time::timeout(PATIENCE, async {
            loop {
                tokio::select! {
                    message = seen.next() => {
                        let message = message.ok_or("the witness is blind")?;
                        if message.subject.as_str() == subject {
                            return Ok(true);
                        }
                    }
                    event = thief.told.recv() => {
                        let event = event.ok_or("the thief is gone")?;
                        if is_refusal(&event, asked) || is_refusal(&event, subject) {
                            return Ok(false);
                        }
                    }
                }
            }
        })
        .await?
    }

    /// An answer of the server to the thief; `None` if it may not even ask.
    async fn asks(
        &mut self,
        subject: &str,
        headers: HeaderMap,
        body: Value,
    ) -> Result<Option<Value>> {
        let request = Request::new()
            .headers(headers)
            .payload(body.to_string().into())
            .timeout(Some(PATIENCE));
        let client = self.thief.client.clone();
        let answer = client.send_request(subject.to_owned(), request);
        let refused = async {
            while let Some(event) = self.thief.told.recv().await {
                if is_refusal(&event, subject) || is_refusal(&event, "_INBOX") {
                    return;
                }
            }
        };
        tokio::select! {
            answer = answer => Ok(serde_json::from_slice(&answer?.payload).ok()),
            () = refused => Ok(None),
        }
    }

    /// Publishes itself, by its own right and, having asked itself for an answer there, by no right.
    async fn writes(&mut self, role: BusRole) -> Result {
        let inbox = self.thief.client.new_inbox();
        for (subject, _) in SUBJECTS {
            self.thief.client.publish(subject, "direct".into()).await?;
            if self.arrives(subject, subject).await? {
                self.can(subject, 'W');
                continue;
            }
            if role == BusRole::Admission {
                continue;
            }
            let mut requests = self.thief.client.subscribe(inbox.clone()).await?;
            self.thief.client.publish_with_reply(inbox.clone(), subject, "".into()).await?;
            tokio::time::timeout(PATIENCE, requests.next()).await?.ok_or("no request")?;
            self.thief.client.publish(subject, "answer".into()).await?;
            assert!(!self.arrives(subject, subject).await?, "{role} answered at {subject}");
        }
        Ok(())
    }

    /// Has the server write: as the answer to a question, and as an acknowledgement.
    async fn has_written(&mut self, role: BusRole) -> Result {
        let stored = if role == BusRole::Admin { "cn.offer.q" } else { "cn.in.0.ses_q" };
        for (subject, _) in SUBJECTS {
            let mut ways = BTreeSet::new();
            for asked in ["$JS.API.INFO", stored] {
                self.thief.client.publish_with_reply(asked, subject, "".into()).await?;
                ways.insert(self.arrives(subject, asked).await?);
            }
            assert_eq!(ways.len(), 1, "{role}: both ways, or neither, at {subject}");
            if ways.contains(&true) {
                self.can(subject, 'S');
            }
        }
        Ok(())
    }

    /// Reads what is stored, or listens to what is not.
    async fn reads(&mut self) -> Result {
        for (subject, stream) in SUBJECTS {
            if let Some(stream) = stream {
                let question = json!({ "last_by_subj": subject });
                let get = format!("$JS.API.STREAM.MSG.GET.{stream}");
                let got = self.asks(&get, HeaderMap::new(), question).await?.is_some();
                // A work queue is read by its consumers as well.
                let consumer = match stream {
                    "CN_INBOX" => "p0",
                    "CN_JOBS" => "exec",
                    _ => "x",
                };
                let next = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}");
                let question = json!({ "batch": 1, "no_wait": true });
                let pulls = matches!(stream, "CN_INBOX" | "CN_JOBS")
                    && self.may_ask(&next, question).await?;
                if got || pulls {
                    self.can(subject, 'R');
                }
            }
            let mut heard = self.thief.client.subscribe(subject).await?;
            // It is refused, or heard. It is sent repeatedly, because the time from which it
            // listens is unknown.
            let answer = async {
                loop {
                    self.witness.client.publish(subject, "said".into()).await?;
                    let word = async {
                        tokio::select! {
                            message = heard.next() => Some(message.is_some()),
                            event = self.thief.told.recv() => {
                                event.filter(|event| is_refusal(event, subject)).map(|_| false)
                            }
                        }
                    };
                    if let Ok(Some(word)) = tokio::time::timeout(SAID_AGAIN, word).await {
                        return Ok::<bool, Box<dyn std::error::Error>>(word);
                    }
                }
            };
            if tokio::time::timeout(PATIENCE, answer).await?? {
                self.can(subject, 'R');
            }
        }
        Ok(())
    }

    /// Whether a question is let through, whatever its answer.
    async fn may_ask(&mut self, subject: &str, question: Value) -> Result<bool> {
        let reply = "cn.table.answers";
        let body = question.to_string().into();
        self.thief.client.publish_with_reply(subject.to_owned(), reply, body).await?;
        self.arrives(subject, subject).await
    }

    /// Destroys more than it writes: all of a stream, by one message or by a purge.
    async fn destroys(&mut self) -> Result {
        for (subject, stream) in SUBJECTS {
            let Some(stream) = stream else { continue };
            let mut all = HeaderMap::new();
            all.insert("Nats-Rollup", "all");
            let wiped = self.asks(subject, all, json!("wiped")).await?;
            let wiped = wiped.is_some_and(|answer| answer["error"].is_null());
            let purge = format!("$JS.API.STREAM.PURGE.{stream}");
            let purged = self.asks(&purge, HeaderMap::new(), json!({ "filter": subject })).await?;
            if wiped || purged.is_some_and(|answer| answer["success"] == true) {
                self.can(subject, 'D');
            }
        }
        Ok(())
    }
}

fn credentials(
    authority: &mut Authority,
    role: BusRole,
    other: BusRole,
) -> Result<(clawnode_nats::auth::Credential, clawnode_nats::auth::Credential)> {
    let now = now();
    Ok((authority.brief(role, None, now, 3_600)?, authority.brief(other, None, now, 3_600)?))
}

fn is_refusal(event: &Event, subject: &str) -> bool {
    matches!(event, Event::ServerError(ServerError::Other(text))
        if text.to_lowercase().contains("permissions violation")
            && text.contains(&format!("\"{subject}")))
}

async fn the_document_tells_the_truth_about(role: BusRole) -> Result {
    let operator = Operator::new(1).await?;
    operator.token("worker").await?;
    let mut trial = Trial::new(&operator, role).await?;
    trial.writes(role).await?;
    trial.has_written(role).await?;
    trial.reads().await?;
    trial.destroys().await?;
    assert_eq!(trial.powers, written(role)?, "{role}");
    Ok(())
}

#[tokio::test]
async fn grant_2_nats_worker() -> Result {
    the_document_tells_the_truth_about(BusRole::Worker).await
}

#[tokio::test]
async fn grant_2_nats_gateway() -> Result {
    the_document_tells_the_truth_about(BusRole::Gateway).await
}

#[tokio::test]
async fn grant_2_nats_node_with_both_roles() -> Result {
    the_document_tells_the_truth_about(BusRole::Node).await
}

#[tokio::test]
async fn grant_2_nats_admin() -> Result {
    the_document_tells_the_truth_about(BusRole::Admin).await
}

#[tokio::test]
async fn grant_2_nats_admission() -> Result {
    the_document_tells_the_truth_about(BusRole::Admission).await
}
