//! What an MCP server writes, read line by line, and what it is written.
//!
//! Only answers to our own requests go further. Whatever else a server sends is settled here: what
//! it asks for is refused, what it tells is dropped but for a changed list of tools, and one that
//! sends too much or nothing that makes sense has its connection ended, with the reason kept.

use std::{
    io,
    sync::{Arc, OnceLock},
};

use rmcp::{
    RoleClient,
    model::{ErrorCode, ErrorData, JsonRpcMessage, RequestId},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader},
    sync::{Notify, mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::secrets::Secrets;

/// Bytes of one message of a server (4 MiB): more than a tool may hand on, in JSON.
pub(super) const MESSAGE_BYTES: usize = 4 << 20;
/// Lines that are no messages, since the last one that is (100): programs print what they should
/// not.
const NOISE: u32 = 100;
/// Why a connection is over whose program is gone.
const ENDED: &str = "its process ended";
/// Messages that answer nothing, at once (2,000), and those that are forgiven each second (200).
const UNASKED: f64 = 2_000.0;
const UNASKED_PER_SECOND: f64 = 200.0;
/// Characters that are shown of an error.
const SHOWN: usize = 500;
/// Bytes of the id of a request.
const ID_BYTES: usize = 256;
/// Messages that wait to be written. A server that asks without reading has its connection ended.
const OUTBOX: usize = 64;

/// The end of a connection, and why it came.
#[derive(Debug, Default)]
pub(super) struct ConnectionEnd {
    why: OnceLock<String>,
    secrets: Arc<Secrets>,
    over: CancellationToken,
}

/// The connection to a program, by its standard streams.
pub(super) struct StdioConnection<R> {
    read: BufReader<R>,
    line: Vec<u8>,
    out: Option<mpsc::Sender<WrittenLine>>,
    judge: MessageJudge,
    ending: Arc<ConnectionEnd>,
}

/// A line to be written, and who waits for it.
struct WrittenLine(Vec<u8>, Option<oneshot::Sender<io::Result<()>>>);

/// What is done about a message.
pub(super) enum MessageAction {
    /// It answers a request of ours.
    Pass(Box<RxJsonRpcMessage<RoleClient>>),
    /// It asks for something; this is the answer.
    Answer(Vec<u8>),
    /// It needs nothing.
    Drop,
    /// The connection ends.
    End(String),
}

/// Judges one message after the other.
pub(super) struct MessageJudge {
    noise: u32,
    unasked: Unasked,
    /// Notified when the server's list of tools has changed.
    relist: Arc<Notify>,
}

/// How much unrequested output a server has sent.
pub(super) struct Unasked {
    said: f64,
    since: Instant,
}

#[derive(Deserialize)]
struct RpcShape<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: Option<String>,
}

// === impl ConnectionEnd ===

impl ConnectionEnd {
    /// Of a connection to the server that has these secrets.
    pub(super) fn new(secrets: Arc<Secrets>) -> Self {
        Self { secrets, ..Self::default() }
    }

    /// What the transport or the server says, as it may be logged, shown and handed on: bounded, on
    /// one line, without the server's secrets.
    pub(super) fn shown(&self, text: &str) -> String {
        self.secrets.hide(text, SHOWN)
    }

    /// The connection has ended; the first reason counts.
    pub(super) fn come(&self, why: &str) {
        drop(self.why.set(self.shown(why)));
        self.over.cancel();
    }

    /// Waits for it.
    pub(super) async fn over(&self) {
        self.over.cancelled().await;
    }

    /// Whether it has come by itself.
    pub(super) fn has_come(&self) -> bool {
        self.why.get().is_some()
    }

    /// Why it came.
    pub(super) fn why(&self) -> String {
        self.why.get().cloned().unwrap_or_else(|| "its connection was closed".to_owned())
    }
}

// === impl StdioConnection ===

impl<R: AsyncRead + Unpin + Send> StdioConnection<R> {
    /// A connection over these streams; it notes in `ending` when and why it ends.
    pub(super) fn new<W>(read: R, write: W, relist: Arc<Notify>, ending: Arc<ConnectionEnd>) -> Self
    where
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let (out, lines) = mpsc::channel(OUTBOX);
        tokio::spawn(write_all(write, lines));
        let read = BufReader::new(read);
        Self { read, line: Vec::new(), out: Some(out), judge: MessageJudge::new(relist), ending }
    }

    fn end(&self, why: &str) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.ending.come(why);
        None
    }
}

impl<R: AsyncRead + Unpin + Send> Transport<RoleClient> for StdioConnection<R> {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let (out, ending) = (self.out.clone(), Arc::clone(&self.ending));
        async move {
            let closed = || io::Error::from(io::ErrorKind::NotConnected);
            let line = serde_json::to_vec(&item).map_err(io::Error::other)?;
            let (written, done) = oneshot::channel();
            let out = out.ok_or_else(closed)?;
            out.send(WrittenLine(line, Some(written))).await.map_err(|_closed| closed())?;
            let written = done.await.map_err(|_closed| closed())?;
            if written.is_err() {
                // Who reads nothing any more has ended, whether that is seen at its output yet or not.
                ending.come(ENDED);
            }
            written
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        // Dropping this future loses nothing: a line that is not whole yet stays in `line`.
        loop {
            let available = match self.read.fill_buf().await {
                Ok([]) => return self.end(ENDED),
                Ok(available) => available,
                Err(failure) => return self.end(&format!("its output cannot be read: {failure}")),
            };
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(available.len(), |end| end + 1);
            if self.line.len() + taken > MESSAGE_BYTES {
                return self.end(&format!("it sent a message of more than {MESSAGE_BYTES} bytes"));
            }
            self.line.extend_from_slice(available.get(..taken).unwrap_or_default());
            self.read.consume(taken);
            if end.is_none() {
                continue;
            }
            let line = std::mem::take(&mut self.line);
            match self.judge.judge(&line, Instant::now()) {
                MessageAction::Pass(message) => return Some(*message),
                MessageAction::Drop => {}
                MessageAction::Answer(answer) => {
                    let sent = self.out.as_ref().map(|out| out.try_send(WrittenLine(answer, None)));
                    if !matches!(sent, Some(Ok(()))) {
                        return self.end("it sends requests, but does not read the answers");
                    }
                }
                MessageAction::End(why) => return self.end(&why),
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        // Its input ends once what waits is written.
        self.out = None;
        self.ending.over.cancel();
        Ok(())
    }
}

/// Writes line after line; ends with the connection, or when it cannot.
async fn write_all<W: AsyncWrite + Unpin>(mut write: W, mut lines: mpsc::Receiver<WrittenLine>) {
    while let Some(WrittenLine(mut line, written)) = lines.recv().await {
        line.push(b'\n');
        let result = async {
            write.write_all(&line).await?;
            write.flush().await
        };
        let result = result.await;
        let failed = result.is_err();
        if let Some(written) = written
            && written.send(result).is_err()
        {
            debug!("no task waits for a written message");
        }
        if failed {
            return;
        }
    }
}

// === impl MessageJudge ===

impl MessageJudge {
    pub(super) fn new(relist: Arc<Notify>) -> Self {
        Self { noise: 0, unasked: Unasked::default(), relist }
    }

    /// What is done about this message at this time.
    pub(super) fn judge(&mut self, line: &[u8], now: Instant) -> MessageAction {
        let line = line.trim_ascii();
        if line.is_empty() {
            return MessageAction::Drop;
        }
        // A list would be read as a shape too.
        let shape = line.starts_with(b"{").then(|| serde_json::from_slice::<RpcShape<'_>>(line));
        let Some(Ok(shape)) = shape else { return self.is_noise() };
        self.noise = 0;
        let Some(method) = shape.method else { return self.answers(line, shape.id) };
        if !self.unasked.may_say_more(now) {
            return MessageAction::End("it floods".to_owned());
        }
        match shape.id {
            Some(id) if id.get().len() <= ID_BYTES => MessageAction::Answer(refusal(id, &method)),
            Some(_) => self.is_noise(),
            None => {
                if method == "notifications/tools/list_changed" {
                    self.relist.notify_one();
                }
                MessageAction::Drop
            }
        }
    }

    /// A message without a method: an answer, if it is one to us.
    fn answers(&mut self, line: &[u8], id: Option<&RawValue>) -> MessageAction {
        if let Ok(message) = serde_json::from_slice::<RxJsonRpcMessage<RoleClient>>(line)
            && matches!(message, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_))
        {
            return MessageAction::Pass(Box::new(message));
        }
        // The caller that waits for this answer gets the error now.
        let id = id.and_then(|id| serde_json::from_str::<RequestId>(id.get()).ok());
        let Some(id) = id else { return self.is_noise() };
        let what = "the answer is not a valid MCP answer";
        let error = ErrorData::new(ErrorCode::INVALID_REQUEST, what, None);
        MessageAction::Pass(Box::new(JsonRpcMessage::error(error, Some(id))))
    }

    fn is_noise(&mut self) -> MessageAction {
        self.noise += 1;
        if self.noise > NOISE {
            return MessageAction::End("its output is not MCP".to_owned());
        }
        MessageAction::Drop
    }
}

// === impl Unasked ===

impl Default for Unasked {
    fn default() -> Self {
        Self { said: 0.0, since: Instant::now() }
    }
}

impl Unasked {
    /// Counts one more at this time; whether it is not too much.
    pub(super) fn may_say_more(&mut self, now: Instant) -> bool {
        let passed = now.duration_since(self.since);
        self.since = now;
        self.said = (self.said - passed.as_secs_f64() * UNASKED_PER_SECOND).max(0.0) + 1.0;
        self.said <= UNASKED
    }
}

/// The answer to a server that asks for something. Only pings are answered; the rest is refused.
fn refusal(id: &RawValue, method: &str) -> Vec<u8> {
    let id = id.get();
    let answer = if method == "ping" {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
    } else {
        let code = ErrorCode::METHOD_NOT_FOUND.0;
        let error = format!(r#"{{"code":{code},"message":"this client serves no requests"}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
    };
    answer.into_bytes()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::session::McpSession, *};

    fn judge() -> (MessageJudge, Arc<Notify>) {
        let relist = Arc::new(Notify::new());
        (MessageJudge::new(Arc::clone(&relist)), relist)
    }

    fn said(verdict: &MessageAction) -> String {
        match verdict {
            MessageAction::Pass(message) => {
                format!("pass {}", serde_json::to_string(message).unwrap())
            }
            MessageAction::Answer(bytes) => format!("answer {}", String::from_utf8_lossy(bytes)),
            MessageAction::Drop => "drop".to_owned(),
            MessageAction::End(why) => format!("end {why}"),
        }
    }

    /// Its input is closed before its output is: the reason is the same either way.
    #[tokio::test]
    async fn one_that_cannot_be_greeted_has_ended() {
        let (read, _output) = tokio::io::duplex(64);
        let (write, input) = tokio::io::duplex(64);
        drop(input);
        let ending = Arc::new(ConnectionEnd::default());
        let wire = StdioConnection::new(read, write, Arc::new(Notify::new()), Arc::clone(&ending));
        let greeted = McpSession::greet(wire, ending, Duration::from_secs(30)).await;
        assert_eq!(greeted.unwrap_err().to_string(), ENDED);
    }

    #[tokio::test]
    async fn only_answers_go_further() {
        let (mut judge, relist) = judge();
        for (line, wanted) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#,
                r#"pass {"jsonrpc":"2.0","id":1"#,
            ),
            (r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}"#, "pass "),
            (r#"{"jsonrpc":"2.0","id":1,"result":7}"#, "pass "),
            (r#"{"jsonrpc":"2.0","id":1,"error":"all wrong"}"#, "is not a valid MCP answer"),
            (r#"{"jsonrpc":"2.0","id":"x","method":"ping"}"#, r#""id":"x","result":{}"#),
            (r#"{"jsonrpc":"2.0","id":9,"method":"sampling/createMessage","params":{}}"#, "-32601"),
            (r#"{"jsonrpc":"2.0","id":9,"method":"roots/list"}"#, "-32601"),
            (r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"data":1}}"#, "drop"),
            ("", "drop"),
            ("Server started!", "drop"),
            ("[1]", "drop"),
            ("{}", "drop"),
        ] {
            let verdict = said(&judge.judge(line.as_bytes(), Instant::now()));
            assert!(verdict.contains(wanted), "{line}: {verdict}");
        }
        let line = br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        assert_eq!(said(&judge.judge(line, Instant::now())), "drop");
        relist.notified().await;
    }

    #[tokio::test]
    async fn who_makes_no_sense_or_floods_is_ended() {
        let (mut judge, _) = judge();
        let now = Instant::now();
        let ends = (0..=NOISE).map(|_| said(&judge.judge(b"\xff\x00garbage", now))).last();
        assert_eq!(ends.unwrap(), "end its output is not MCP");
        let (mut judge, _) = self::judge();
        let line = br#"{"jsonrpc":"2.0","method":"notifications/progress"}"#;
        let mut said_first = 0;
        while matches!(judge.judge(line, now), MessageAction::Drop) {
            said_first += 1;
        }
        assert_eq!(said_first, 2_000);
        let later = now + Duration::from_secs(1);
        assert_eq!(said(&judge.judge(line, later)), "drop", "it may calm down");
    }

    #[tokio::test]
    async fn a_line_without_an_end_is_ended() {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (read, write) = tokio::io::split(ours);
        let ending = Arc::new(ConnectionEnd::default());
        let mut wire = StdioConnection::new(read, write, Arc::default(), Arc::clone(&ending));
        let (_, mut theirs) = tokio::io::split(theirs);
        let flood =
            tokio::spawn(async move { while theirs.write_all(&[b'x'; 4_096]).await.is_ok() {} });
        assert!(wire.receive().await.is_none());
        assert!(ending.why().contains("more than 4194304 bytes"), "{ending:?}");
        flood.abort();
    }
}
