//! Files that clients name by their URLs. The node fetches them as it fetches anything for an agent: by the rules
//! of `[egress]`, and not while an operator stops that.

use std::time::Duration;

use clawnode_gateway::RemoteFile;
use clawnode_guard::kill_switch::SwitchGate;
use clawnode_proto::{
    AgentName, ErrorBody, ErrorChain, ErrorCode,
    limits::ATTACHMENT_BYTES,
    media::{Content, MediaError, MediaType},
};
use clawnode_tool::egress::{Egress, EgressError, EgressOptions, EgressRequest};
use reqwest::{Method, Url, header::HeaderMap};
use tokio::time::{Instant, timeout_at};

/// How long all files of one request may take: its client waits for the answer meanwhile.
const REQUEST_TIME: Duration = Duration::from_mins(1);

/// Fetches files for messages.
#[derive(Clone, Debug)]
pub struct RemoteFiles {
    egress: Egress,
}

/// The files of one request.
#[derive(Debug)]
pub(super) struct RequestFiles<'a> {
    egress: &'a Egress,
    agent: &'a AgentName,
    until: Instant,
}

// === impl RemoteFiles ===

impl RemoteFiles {
    /// They may come from where agents may fetch from, unless `switch_gate` stops that. `max_body_bytes` is about
    /// what a model reads as text: an attachment may be larger.
    pub fn new(options: &EgressOptions, switch_gate: SwitchGate) -> Self {
        let options = EgressOptions { max_body_bytes: ATTACHMENT_BYTES, ..options.clone() };
        Self { egress: Egress::new(options).behind(switch_gate) }
    }

    /// For the files of a request to this agent, whose time begins now.
    pub(super) fn of_request<'a>(&'a self, agent: &'a AgentName) -> RequestFiles<'a> {
        RequestFiles { egress: &self.egress, agent, until: Instant::now() + REQUEST_TIME }
    }
}

// === impl RequestFiles ===

impl RequestFiles<'_> {
    /// The content of a file, judged by its bytes.
    pub(super) async fn fetch(&self, file: &RemoteFile) -> Result<Content, ErrorBody> {
        let request = EgressRequest {
            url: file.url.clone(),
            method: Method::GET,
            body: None,
            headers: HeaderMap::new(),
            max_bytes: ATTACHMENT_BYTES,
        };
        // The rest of a URL may be a secret.
        let url = Url::parse(&file.url).ok();
        let host = url.as_ref().and_then(Url::host_str).unwrap_or("a URL");
        let refused = |code, why: &dyn std::fmt::Display| {
            ErrorBody::new(code, format!("a file at `{host}` cannot be attached: {why}"))
        };
        let reply = match timeout_at(self.until, self.egress.fetch(Some(self.agent), request)).await
        {
            Ok(Ok(reply)) => reply,
            Ok(Err(error @ (EgressError::Stopped(_) | EgressError::Interrupted(_)))) => {
                return Err(refused(ErrorCode::Stopped, &error));
            }
            Ok(Err(error)) => {
                let refused = refused(ErrorCode::InvalidParams, &ErrorChain(&error));
                return Err(refused.hint("send its content as a data URL, or upload it"));
            }
            Err(_elapsed) => {
                let why = format!("all files took over {} s", REQUEST_TIME.as_secs());
                return Err(refused(ErrorCode::InvalidParams, &why)
                    .hint("send their content as data URLs, or upload them"));
            }
        };
        if !reply.status.is_success() {
            let why = format!("the server answers {}", reply.status);
            return Err(refused(ErrorCode::InvalidParams, &why));
        }
        if reply.body.is_cut {
            let why = format!("it takes more than {ATTACHMENT_BYTES} bytes");
            return Err(refused(ErrorCode::TooLarge, &why).hint("attach a smaller one"));
        }
        let named = url.as_ref().and_then(|url| url.path_segments()?.next_back());
        let name = file.name.as_deref().or(named.filter(|name| !name.is_empty()));
        Content::new(name, reply.body.bytes).map_err(|error| {
            let code = match error {
                MediaError::TooLarge(_) => ErrorCode::TooLarge,
                MediaError::Empty | MediaError::Unknown(_) => ErrorCode::InvalidParams,
            };
            let hint = format!("its bytes decide; attach {}", MediaType::ACCEPTED);
            refused(code, &error).hint(hint)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clawnode_proto::{
        Digest, Position, SwitchId, Timestamp,
        kill_switch::{KillSwitch, SwitchRecord, SwitchScope},
    };
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

    /// A server that answers each request for this path with this status and body.
    async fn server(answers: BTreeMap<&'static str, (&'static str, Vec<u8>)>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut asked = Vec::new();
                while !asked.ends_with(b"\r\n\r\n") {
                    asked.push(stream.read_u8().await.unwrap());
                }
                let asked = String::from_utf8(asked).unwrap();
                let path = asked.split(' ').nth(1).unwrap().split('?').next().unwrap();
                let (status, body) = answers.get(path).unwrap();
                let head = format!(
                    "HTTP/1.1 {status}\r\nLocation: /red.png\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                stream.write_all(head.as_bytes()).await.unwrap();
                // A client that has enough closes the connection.
                drop(stream.write_all(body).await);
            }
        });
        format!("http://{address}")
    }

    fn files(options: &EgressOptions) -> RemoteFiles {
        RemoteFiles::new(options, SwitchGate::default())
    }

    /// Options under which a server of the test may be asked.
    fn loopback(url: &str) -> EgressOptions {
        let port = url.rsplit(':').next().unwrap().parse().unwrap();
        EgressOptions {
            ports: [port].into(),
            allow_private: vec!["127.0.0.0/8".parse().unwrap()],
            ..EgressOptions::default()
        }
    }

    async fn fetch(files: &RemoteFiles, url: &str) -> Result<Content, ErrorBody> {
        let (agent, file) = ("main".parse().unwrap(), RemoteFile { url: url.into(), name: None });
        files.of_request(&agent).fetch(&file).await
    }

    #[tokio::test]
    async fn a_file_is_what_its_bytes_are_and_has_its_own_name() {
        // Larger than what a tool may fetch.
        let large = [PNG, &vec![7; 2 << 20]].concat();
        let at =
            server([("/red.png", ("200 OK", large)), ("/moved", ("302 Found", Vec::new()))].into())
                .await;
        let files = files(&loopback(&at));
        for path in ["/red.png?key=secret", "/moved"] {
            let content = fetch(&files, &format!("{at}{path}")).await.unwrap();
            let media = content.stored(Digest::ZERO);
            let size = PNG.len() as u64 + (2 << 20);
            assert_eq!((media.media_type, media.bytes), (MediaType::Png, size), "{path}");
            let name = if path == "/moved" { "moved" } else { "red.png" };
            assert_eq!(media.name.as_deref(), Some(name), "{path}");
        }
        let (agent, name) = ("main".parse().unwrap(), Some("a.png".to_owned()));
        let file = RemoteFile { url: format!("{at}/red.png"), name };
        let content = files.of_request(&agent).fetch(&file).await.unwrap();
        assert_eq!(content.stored(Digest::ZERO).name.as_deref(), Some("a.png"));
    }

    #[tokio::test]
    async fn what_cannot_be_attached_is_refused_without_the_rest_of_its_url() {
        let exact = [PNG, &vec![7; ATTACHMENT_BYTES - PNG.len()]].concat();
        let over = [&exact[..], b"7"].concat();
        let answers = [
            ("/exact", ("200 OK", exact)),
            ("/over", ("200 OK", over)),
            ("/text", ("200 OK", b"hello".to_vec())),
            ("/empty", ("200 OK", Vec::new())),
            ("/absent", ("404 Not Found", PNG.to_vec())),
        ];
        let at = server(answers.into()).await;
        let files = files(&loopback(&at));
        assert!(fetch(&files, &format!("{at}/exact")).await.is_ok());
        for (path, code, says) in [
            ("/over", ErrorCode::TooLarge, "more than 5000000 bytes"),
            ("/text", ErrorCode::InvalidParams, "not a PNG"),
            ("/empty", ErrorCode::InvalidParams, "empty"),
            ("/absent", ErrorCode::InvalidParams, "404"),
        ] {
            let error = fetch(&files, &format!("{at}{path}?key=secret")).await.unwrap_err();
            assert_eq!(error.code, code, "{error:?}");
            assert!(error.message.contains(says), "{error:?}");
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
    }

    #[tokio::test]
    async fn the_rules_for_agents_hold() {
        let at = server([("/red.png", ("200 OK", PNG.to_vec()))].into()).await;
        let url = format!("{at}/red.png");
        assert!(fetch(&files(&loopback(&at)), &url).await.is_ok());
        let hosts = [("main".parse().unwrap(), Vec::new())].into();
        for options in [
            EgressOptions { allow_private: Vec::new(), ..loopback(&at) },
            EgressOptions { ports: [].into(), ..loopback(&at) },
            EgressOptions { hosts, ..loopback(&at) },
        ] {
            let error = fetch(&files(&options), &url).await.unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidParams, "{error:?}");
        }
        let gate = SwitchGate::default();
        let files = RemoteFiles::new(&loopback(&at), gate.clone());
        let switch = KillSwitch {
            id: SwitchId::from_u128(1),
            scope: SwitchScope::Egress,
            by: "ada".to_owned(),
            at: Timestamp(1),
            why: String::new(),
        };
        gate.take(Position(1), SwitchRecord::Set { switch });
        assert_eq!(fetch(&files, &url).await.unwrap_err().code, ErrorCode::Stopped);
    }
}
