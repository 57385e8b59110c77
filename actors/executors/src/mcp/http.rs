//! An MCP server that is a service: the same rules for what it sends as for a program.

use std::sync::Arc;

use clawnode_proto::ErrorChain;
use reqwest::{
    Client,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use rmcp::{
    RoleClient,
    model::{
        ClientResult, ErrorCode, ErrorData, JsonRpcMessage, JsonRpcRequest, ServerNotification,
        ServerRequest,
    },
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::{
        StreamableHttpClientTransport, Transport,
        streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use secrecy::ExposeSecret as _;
use tokio::{sync::Notify, time::Instant};
use tracing::debug;

use super::{
    options::HttpOptions,
    wire::{ConnectionEnd, MESSAGE_BYTES, Unasked},
};

/// The connection to a service.
pub(super) struct HttpConnection {
    inner: StreamableHttpClientTransport<Client>,
    unasked: Unasked,
    relist: Arc<Notify>,
    ending: Arc<ConnectionEnd>,
}

impl HttpConnection {
    /// To this service; nothing is sent yet. Redirects are not followed.
    pub(super) async fn new(
        options: &HttpOptions,
        relist: Arc<Notify>,
        ending: Arc<ConnectionEnd>,
    ) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in &options.headers {
            let wrong = |what: &str| format!("the header `{name}` cannot be sent: {what}");
            let parsed =
                HeaderName::try_from(name.as_str()).map_err(|error| wrong(&error.to_string()))?;
            let mut value = HeaderValue::from_str(value.expose_secret())
                .map_err(|_secret| wrong("its value has characters that a header cannot have"))?;
            value.set_sensitive(true);
            headers.append(parsed, value);
        }
        let told = |error| ending.shown(&ErrorChain(&error).to_string());
        let (client, url) =
            options.egress.configured(options.url.expose_secret(), headers).await.map_err(told)?;
        let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str());
        config.max_sse_event_size = MESSAGE_BYTES;
        let inner = StreamableHttpClientTransport::with_client(client, config);
        Ok(Self { inner, unasked: Unasked::default(), relist, ending })
    }

    fn end(&self, why: &str) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.ending.come(why);
        None
    }
}

impl Transport<RoleClient> for HttpConnection {
    type Error = <StreamableHttpClientTransport<Client> as Transport<RoleClient>>::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let Some(message) = self.inner.receive().await else {
                return self.end("its connection was closed");
            };
            let answer = match message {
                JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => return Some(message),
                JsonRpcMessage::Notification(notification) => {
                    if matches!(
                        notification.notification,
                        ServerNotification::ToolListChangedNotification(_)
                    ) {
                        self.relist.notify_one();
                    }
                    None
                }
                JsonRpcMessage::Request(request) => Some(refusal(request)),
            };
            if !self.unasked.may_say_more(Instant::now()) {
                return self.end("it floods");
            }
            if let Some(answer) = answer {
                // As many at once as may be asked: the rate bounds them.
                let sending = self.inner.send(answer);
                tokio::spawn(async move {
                    if let Err(failure) = sending.await {
                        debug!(%failure, "cannot tell an MCP server that its request is refused");
                    }
                });
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.ending.come("its connection was closed");
        self.inner.close().await
    }
}

/// The answer to a server that asks for something. Only pings are answered; the rest is refused.
fn refusal(asked: JsonRpcRequest<ServerRequest>) -> TxJsonRpcMessage<RoleClient> {
    if matches!(asked.request, ServerRequest::PingRequest(_)) {
        return JsonRpcMessage::response(ClientResult::empty(()), asked.id);
    }
    let what = "this client serves no requests";
    let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, what, None);
    JsonRpcMessage::error(error, Some(asked.id))
}
