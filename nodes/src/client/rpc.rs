//! Calls: one JSON-RPC request over `POST /v1/rpc`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clawnode_proto::{
    ErrorBody, ErrorChain, ErrorCode,
    api::{Call, Method, Nothing, calls},
    media::FileView,
};
use reqwest::{StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};

use super::ClientError;
use crate::{
    api_token::{TOKEN_FILE, read_token},
    node_file::NodeFile,
    secret::Secret,
};

/// How long a connection may take; a node on the same machine takes a millisecond.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a call may take: `journal.verify` of everything is the longest.
const CALL_TIMEOUT: Duration = Duration::from_mins(5);
/// Most bytes of an answer (256 MiB): an export of a very long session.
const ANSWER_BYTES: usize = 256 << 20;

/// Which node is meant.
#[derive(Clone, Debug)]
pub struct NodeTarget {
    /// The data directory, where a node on this machine says where it is.
    pub data_dir: PathBuf,
    /// An address that goes before the data directory's, or several, comma-separated.
    pub url: Option<String>,
    /// A token that goes before the data directory's.
    pub token: Option<Secret>,
    /// A file with the token, before both.
    pub token_file: Option<PathBuf>,
    /// A certificate to trust besides the system's: the node's own, where it has one.
    pub certificate: Option<PathBuf>,
}

/// A node within reach. Cheap to clone.
#[derive(Clone, Debug)]
pub struct NodeClient {
    pub(super) http: reqwest::Client,
    /// HTTP/1.1 only, because a WebSocket begins as an upgrade.
    pub(super) upgrade: reqwest::Client,
    pub(super) url: String,
    /// The way over the node's socket file, and the address that is meant there.
    local: Option<(reqwest::Client, String)>,
    token: Option<Secret>,
    certificate: Option<PathBuf>,
}

/// A JSON-RPC answer.
#[derive(Deserialize)]
struct RpcAnswer {
    #[serde(default)]
    result: Option<Value>,
    #[serde(default)]
    error: Option<RpcError>,
}

/// A JSON-RPC error.
#[derive(Deserialize)]
pub(super) struct RpcError {
    code: i32,
    message: String,
    #[serde(default)]
    data: Option<ErrorBody>,
}

impl RpcError {
    /// Its body; one without is made from the code, for servers that leave it out.
    pub(super) fn into_body(self) -> ErrorBody {
        let Self { code, message, data } = self;
        data.unwrap_or_else(|| {
            let known = ErrorCode::ALL.iter().find(|known| known.rpc_code() == code);
            ErrorBody::new(known.copied().unwrap_or(ErrorCode::Internal), message)
        })
    }
}

impl NodeClient {
    /// The nodes that `target` means, one at least. Nothing is sent yet.
    pub fn find_all(target: &NodeTarget) -> Result<Vec<Self>, ClientError> {
        let mut socket = None;
        let urls = match &target.url {
            Some(urls) => urls.clone(),
            None => match NodeFile::read(&target.data_dir)? {
                Some(node) => {
                    socket = node.socket;
                    node.url
                }
                None => {
                    return Err(ClientError::NotRunning { data_dir: target.data_dir.clone() });
                }
            },
        };
        let token = match (&target.token_file, &target.token) {
            (Some(path), _) => {
                let Some(token) = read_token(path)? else {
                    let detail = "there is no such file".to_owned();
                    return Err(ClientError::Local { path: path.clone(), detail });
                };
                Some(token)
            }
            (None, Some(token)) => Some(token.clone()),
            // A token of this machine's node is not for other machines' nodes.
            (None, None) if target.url.is_some() => None,
            (None, None) => read_token(&target.data_dir.join(TOKEN_FILE))?,
        };
        let certificate = target.certificate.as_ref();
        let client = |url: &str| {
            let client = Self::new(url.trim(), token.clone(), certificate)?;
            socket.as_ref().map_or(Ok(client.clone()), |socket| client.with_socket(socket))
        };
        urls.split(',').map(client).collect()
    }

    /// The same node, over its socket file if it listens there.
    fn with_socket(self, socket: &Path) -> Result<Self, ClientError> {
        let builder = reqwest::Client::builder().timeout(CALL_TIMEOUT).unix_socket(socket);
        let http = builder.no_proxy().tls_certs_only([]).build();
        let http = http.map_err(|error| self.unreachable(&error))?;
        let port = reqwest::Url::parse(&self.url).ok().and_then(|url| url.port_or_known_default());
        let Some(port) = port else { return Ok(self) };
        Ok(Self { local: Some((http, format!("http://127.0.0.1:{port}"))), ..self })
    }

    /// The node at another address, with the same token.
    pub(super) fn at(&self, url: &str) -> Result<Self, ClientError> {
        Self::new(url, self.token.clone(), self.certificate.as_ref())
    }

    /// The node at `url`.
    pub fn new(
        url: &str,
        token: Option<Secret>,
        certificate: Option<&PathBuf>,
    ) -> Result<Self, ClientError> {
        let url = url.trim_end_matches('/').to_owned();
        let parsed = reqwest::Url::parse(&url)
            .ok()
            .filter(|parsed| matches!(parsed.scheme(), "http" | "https") && parsed.has_host());
        let Some(parsed) = parsed else {
            return Err(ClientError::Address { url });
        };
        let loopback = is_loopback(&parsed);
        let extra = certificate.map(read_certificates).transpose()?.unwrap_or_default();
        let builder = || {
            let mut builder = reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT);
            if loopback {
                builder = builder.no_proxy();
            }
            if parsed.scheme() == "http" {
                // Reading the system's certificates takes longer than most calls.
                builder = builder.tls_certs_only([]);
            } else if !extra.is_empty() {
                builder = builder.tls_certs_merge(extra.clone());
            }
            builder
        };
        let fault = |error: reqwest::Error| ClientError::Unreachable {
            url: url.clone(),
            detail: ErrorChain(&error).to_string(),
        };
        let http = builder().timeout(CALL_TIMEOUT).build().map_err(fault)?;
        let upgrade = builder().http1_only().build().map_err(fault)?;
        Ok(Self { http, upgrade, url, local: None, token, certificate: certificate.cloned() })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether a node answers there, and takes our token.
    pub async fn ping(&self) -> Result<(), ClientError> {
        self.call(calls::Ping, &Nothing {}).await.map(drop)
    }

    /// Calls a method and waits for its answer.
    pub async fn call<C: Call>(&self, _: C, params: &C::Params) -> Result<C::Answer, ClientError> {
        let answer = self.request(C::METHOD, json!(params)).await?;
        serde_json::from_value(answer)
            .map_err(|error| self.protocol(format!("`{}`: {error}", C::METHOD.as_str())))
    }

    async fn request(&self, method: Method, params: Value) -> Result<Value, ClientError> {
        let request = json!({ "id": 1, "method": method.as_str(), "params": params });
        let post = |http: &reqwest::Client, url: &str| {
            self.authorize(http.post(format!("{url}/v1/rpc")).json(&request)).send()
        };
        let over_network = || post(&self.http, &self.url);
        let sent = match &self.local {
            // Nothing was sent where no connection came about.
            Some((http, url)) => match post(http, url).await {
                Err(error) if error.is_connect() => over_network().await,
                sent => sent,
            },
            None => over_network().await,
        };
        let mut response = sent.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| self.unreachable(&error))? {
            if body.len() + part.len() > ANSWER_BYTES {
                return Err(self.protocol(format!("it has over {ANSWER_BYTES} bytes")));
            }
            body.extend_from_slice(&part);
        }
        self.answer(status, &body)
    }

    /// Uploads a file to a session.
    pub async fn upload(
        &self,
        session: &str,
        name: &str,
        content: Vec<u8>,
    ) -> Result<FileView, ClientError> {
        let content = bytes::Bytes::from(content);
        let post = |http: &reqwest::Client, url: &str| {
            let url = reqwest::Url::parse(url);
            let mut url = url.map_err(|error| self.protocol(format!("its address: {error}")))?;
            if let Ok(mut path) = url.path_segments_mut() {
                path.pop_if_empty().extend(["v1", "sessions", session, "files"]);
            }
            url.query_pairs_mut().append_pair("name", name);
            Ok::<_, ClientError>(self.authorize(http.post(url).body(content.clone())).send())
        };
        let sent = match &self.local {
            Some((http, url)) => match post(http, url)?.await {
                Err(error) if error.is_connect() => post(&self.http, &self.url)?.await,
                sent => sent,
            },
            None => post(&self.http, &self.url)?.await,
        };
        let response = sent.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        let body = response.bytes().await.map_err(|error| self.unreachable(&error))?;
        match serde_json::from_slice(&body) {
            Ok(file) if status.is_success() => Ok(file),
            _ => Err(self.refused(status, &body)),
        }
    }

    fn answer(&self, status: StatusCode, body: &[u8]) -> Result<Value, ClientError> {
        if let Ok(RpcAnswer { error: Some(error), .. }) = serde_json::from_slice::<RpcAnswer>(body)
        {
            return Err(ClientError::Answered(error.into_body()));
        }
        match serde_json::from_slice::<RpcAnswer>(body) {
            Ok(RpcAnswer { result: Some(result), .. }) if status.is_success() => Ok(result),
            _ => Err(self.refused(status, body)),
        }
    }

    /// An answer outside JSON-RPC: from the gateway's checks (401, 403, 413) or from another program.
    pub(super) fn refused(&self, status: StatusCode, body: &[u8]) -> ClientError {
        /// REST bodies carry the error under `error`; a bare one is taken too.
        #[derive(Deserialize)]
        struct Wrapped {
            error: ErrorBody,
        }
        /// A problem of RFC 9457.
        #[derive(Deserialize)]
        struct Problem {
            code: ErrorCode,
            detail: String,
            hint: Option<String>,
        }
        if let Ok(Problem { code, detail, hint }) = serde_json::from_slice(body) {
            let body = ErrorBody::new(code, detail);
            return ClientError::Answered(ErrorBody { hint, ..body });
        }
        let wrapped = serde_json::from_slice::<Wrapped>(body).map(|wrapped| wrapped.error);
        if let Ok(body) = wrapped.or_else(|_| serde_json::from_slice::<ErrorBody>(body)) {
            return ClientError::Answered(body);
        }
        let code = match status {
            StatusCode::UNAUTHORIZED => ErrorCode::Unauthorized,
            StatusCode::FORBIDDEN => ErrorCode::Forbidden,
            StatusCode::SERVICE_UNAVAILABLE => ErrorCode::Unavailable,
            _ => return self.protocol(format!("HTTP status {status}")),
        };
        ClientError::Answered(ErrorBody::new(code, format!("`{}` answered {status}", self.url)))
    }

    pub(super) fn authorize(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        let Some(token) = &self.token else { return request };
        // Marked sensitive, so that no debug output shows it.
        match header::HeaderValue::from_str(&format!("Bearer {}", token.expose())) {
            Ok(mut value) => {
                value.set_sensitive(true);
                request.header(header::AUTHORIZATION, value)
            }
            Err(_) => request,
        }
    }

    pub(super) fn unreachable(&self, error: &reqwest::Error) -> ClientError {
        let mut cause: &dyn std::error::Error = error;
        while let Some(next) = cause.source() {
            cause = next;
        }
        // The innermost cause says it; the outer ones repeat the address.
        ClientError::Unreachable { url: self.url.clone(), detail: cause.to_string() }
    }

    pub(super) fn protocol(&self, detail: impl Into<String>) -> ClientError {
        ClientError::Protocol { url: self.url.clone(), detail: detail.into() }
    }
}

/// Whether an address is this machine's own.
pub(super) fn is_loopback(url: &reqwest::Url) -> bool {
    match url.host_str() {
        Some("localhost") => true,
        Some(host) => host
            .trim_matches(['[', ']'])
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback()),
        None => false,
    }
}

fn read_certificates(path: &PathBuf) -> Result<Vec<reqwest::Certificate>, ClientError> {
    let local = |detail: String| ClientError::Local { path: path.clone(), detail };
    let pem = std::fs::read(path).map_err(|error| local(error.to_string()))?;
    reqwest::Certificate::from_pem_bundle(&pem)
        .map_err(|error| local(ErrorChain(&error).to_string()))
}
