//! A plain client of a server, as the pins use it.

use std::time::Duration;

use async_nats::{
    Client, HeaderMap, HeaderValue, Request, StatusCode,
    header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, jetstream,
};
use clawnode_tests::nats::{NatsServer, ServerOptions};
use futures_util::StreamExt;
use serde_json::{Value, json};

pub(crate) type Result<T = (), E = Box<dyn std::error::Error + Send + Sync>> =
    std::result::Result<T, E>;

/// Long enough that reaching it means a bug, not a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// How long one request waits in a cluster that elects; longer than a busy machine takes for one.
const SHORT: Duration = Duration::from_secs(5);
/// The server's words for a stale expectation.
pub(crate) const WRONG_LAST_SEQUENCE: u64 = 10_071;

/// A client, and what it asks most.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) client: Client,
}

impl Peer {
    pub(crate) async fn connect(urls: &[String]) -> Result<Self> {
        Ok(Self { client: async_nats::connect(urls).await? })
    }

    /// Asks the `JetStream` API; an error of the server is an answer.
    pub(crate) async fn api(&self, subject: &str, question: &Value) -> Result<Value> {
        let request = Request::new().payload(question.to_string().into()).timeout(Some(SHORT));
        let answer = self.client.send_request(format!("$JS.API.{subject}"), request).await?;
        Ok(serde_json::from_slice(&answer.payload)?)
    }

    /// Creates a stream, or fails.
    pub(crate) async fn stream(&self, name: &str, subjects: &[&str], rest: Value) -> Result {
        let mut config = json!({ "name": name, "subjects": subjects, "storage": "file" });
        for (key, value) in rest.as_object().ok_or("not an object")? {
            config[key] = value.clone();
        }
        good(&self.api(&format!("STREAM.CREATE.{name}"), &config).await?)
    }

    /// Creates a consumer, or fails.
    pub(crate) async fn consumer(&self, stream: &str, name: &str, rest: Value) -> Result {
        let mut config = json!({ "durable_name": name, "ack_policy": "explicit" });
        for (key, value) in rest.as_object().ok_or("not an object")? {
            config[key] = value.clone();
        }
        let question = json!({ "stream_name": stream, "config": config });
        good(&self.api(&format!("CONSUMER.DURABLE.CREATE.{stream}.{name}"), &question).await?)
    }

    /// Publishes; an error of the server is an answer.
    pub(crate) async fn publish(
        &self,
        subject: &str,
        headers: HeaderMap,
        text: &str,
    ) -> Result<Value> {
        let request =
            Request::new().headers(headers).payload(text.to_owned().into()).timeout(Some(SHORT));
        let answer = self.client.send_request(subject.to_owned(), request).await?;
        Ok(serde_json::from_slice(&answer.payload)?)
    }

    /// Publishes and says the sequence.
    pub(crate) async fn store(&self, subject: &str, headers: HeaderMap, text: &str) -> Result<u64> {
        let answer = self.publish(subject, headers, text).await?;
        answer["seq"]
            .as_u64()
            .filter(|_| answer["error"].is_null())
            .ok_or(answer.to_string().into())
    }

    /// How many messages a stream has.
    pub(crate) async fn count(&self, stream: &str) -> Result<u64> {
        let info = self.api(&format!("STREAM.INFO.{stream}"), &json!({})).await?;
        info["state"]["messages"].as_u64().ok_or(info.to_string().into())
    }

    pub(crate) async fn get(&self, stream: &str, question: Value) -> Result<Value> {
        self.api(&format!("STREAM.MSG.GET.{stream}"), &question).await
    }

    /// Sends one pull, with its answers in a subscription of its own.
    pub(crate) async fn pull(&self, stream: &str, consumer: &str, rest: Value) -> Result<Pulled> {
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
    pub(crate) async fn settle(&self) -> Result {
        let unheard = self.client.request(self.client.new_inbox(), "".into()).await;
        if unheard.is_ok() { Err("an unknown inbox answered".into()) } else { Ok(()) }
    }
}

/// What a pull brings.
pub(crate) struct Pulled {
    pub(crate) answers: async_nats::Subscriber,
    pub(crate) context: jetstream::Context,
}

impl Pulled {
    /// The next message, past the server's words about the pull itself.
    pub(crate) async fn next(&mut self) -> Result<jetstream::Message> {
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

pub(crate) fn expecting(sequence: u64) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, HeaderValue::from(sequence));
    headers
}

pub(crate) fn text(message: &jetstream::Message) -> String {
    String::from_utf8_lossy(&message.payload).into_owned()
}

pub(crate) fn delivered(message: &jetstream::Message) -> Result<i64> {
    Ok(message.info()?.delivered)
}

pub(crate) async fn one() -> Result<(NatsServer, Peer)> {
    let server = NatsServer::start(ServerOptions::default()).await?;
    let peer = Peer::connect(&[server.url()]).await?;
    Ok((server, peer))
}

/// Repeats what fails while servers elect, until it works.
pub(crate) async fn until_it_works<T, F>(mut call: impl FnMut() -> F) -> Result<T>
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
