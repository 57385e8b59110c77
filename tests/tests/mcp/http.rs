//! A server that is a service, by streamable HTTP.

use std::{
    net::SocketAddr,
    process::{Child, Command, Stdio},
    time::Duration,
};

use clawnode_executors::mcp::{HttpOptions, McpOptions, McpTransport};
use clawnode_proto::{agents::AgentLimits, tool::ToolFailure};
use clawnode_tests::{mcp::reference, nats::free_port};
use clawnode_tool::{Egress, EgressOptions, Executor as _};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::mpsc,
    task::JoinHandle,
};

use super::bench::Bench;

const LONG: Duration = Duration::from_secs(30);

/// The reference server as a service; ended when dropped.
struct Service(Child);

impl Service {
    fn start(port: u16) -> Self {
        let mut node = Command::new("node");
        node.arg(reference("everything").unwrap()).arg("streamableHttp");
        node.env("PORT", port.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(node.spawn().unwrap())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A service that refuses everybody with the request that it was sent, headers and all.
async fn refusing() -> (SocketAddr, JoinHandle<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = vec![0; 4_096];
            let read = stream.read(&mut bytes).await.unwrap();
            let heard = String::from_utf8_lossy(&bytes[..read]).into_owned();
            let answer = format!(
                "HTTP/1.1 401 Unauthorized\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\
                 connection: close\r\n\r\n{heard}",
                heard.len()
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (here, serving)
}

fn options(url: String) -> McpOptions {
    let http = HttpOptions {
        url: url.into(),
        headers: [("x-team".to_owned(), "hunter22".to_owned().into())].into(),
        egress: Egress::new(EgressOptions::default()),
    };
    let mut options = McpOptions::new("web".parse().unwrap(), McpTransport::Http(http));
    options.start_timeout = Duration::from_secs(5);
    options.restart_first = Duration::from_millis(50);
    options.restart_most = Duration::from_millis(200);
    options
}

#[tokio::test]
async fn a_service_is_called_and_called_again_when_it_is_back() {
    let port = free_port().unwrap();
    let service = Service::start(port);
    let bench = Bench::start(options(format!("http://127.0.0.1:{port}/mcp")));
    bench.up().await;
    let image = bench.call("web__get-tiny-image", LONG).await;
    assert_eq!(image.failure, None, "{image:?}");
    assert!(image.content.inline().unwrap().contains("[an image, image/png, "), "{image:?}");
    drop(service);
    let lost = bench.call("web__get-tiny-image", LONG).await;
    assert_eq!(lost.failure, Some(ToolFailure::Crashed), "{lost:?}");
    assert!(lost.content.inline().unwrap().contains("`web`"), "{lost:?}");
    bench.down("it is down").await;
    let _back = Service::start(port);
    bench.up().await;
    assert_eq!(bench.call("web__get-tiny-image", LONG).await.failure, None);
    bench.stop().await;
}

#[tokio::test]
async fn what_a_service_is_sent_and_answers_counts_as_egress_of_the_agent() {
    let port = free_port().unwrap();
    let _service = Service::start(port);
    let bench = Bench::start(options(format!("http://127.0.0.1:{port}/mcp")));
    bench.up().await;
    let limit = |bytes| {
        let limits = AgentLimits { egress_bytes_per_day: Some(bytes), ..AgentLimits::default() };
        bench.gate.limit(&[("main".parse().unwrap(), limits)].into());
    };
    limit(1 << 30);
    let image = bench.call("web__get-tiny-image", LONG).await;
    assert_eq!(image.failure, None, "{image:?}");
    let counted = bench.gate.counts()[0].egress_bytes;
    assert!(counted > 500, "a picture in base64: {counted} bytes");
    // The arguments alone are one byte too much.
    limit(counted + 1);
    let refused = bench.call("web__get-tiny-image", LONG).await;
    assert_eq!(refused.failure, Some(ToolFailure::Refused), "{refused:?}");
    let why = refused.content.inline().unwrap();
    assert!(why.contains("egress_bytes_per_day"), "{why}");
    assert_eq!(bench.gate.counts()[0].egress_bytes, counted);
    bench.stop().await;
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_headers_are_sent_to_the_configured_place_alone() {
    let (tell, mut heard) = mpsc::channel(64);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let other = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (here, there) = (listener.local_addr().unwrap(), other.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = vec![0; 4_096];
            let read = stream.read(&mut bytes).await.unwrap();
            let text = String::from_utf8_lossy(&bytes[..read]).into_owned();
            let answer = format!(
                "HTTP/1.1 307 Moved\r\nlocation: http://{there}/mcp\r\ncontent-length: 0\r\n\
                 connection: close\r\n\r\n"
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
            // Only the first is looked at.
            drop(tell.try_send(text));
        }
    });
    let bench = Bench::start(options(format!("http://{here}/mcp")));
    let request = heard.recv().await.unwrap();
    assert!(request.contains("x-team: hunter22"), "{request}");
    let why = bench.down("it is down").await;
    assert!(!why.contains("hunter22"), "{why}");
    assert!(bench.tools.health_check().await.is_err());
    let followed = tokio::time::timeout(Duration::from_millis(1), other.accept()).await;
    assert!(followed.is_err(), "the redirect was followed");
    bench.stop().await;
    serving.abort();
}

#[tokio::test]
async fn what_a_service_echoes_and_where_it_is_are_shown_without_secrets() {
    let (here, serving) = refusing().await;
    let unused = free_port().unwrap();
    for port in [here.port(), unused] {
        let url = format!("http://127.0.0.1:{port}/mcp?key=hunter2query");
        let mut options = options(url);
        if let McpTransport::Http(http) = &mut options.transport {
            let bearer = "Bearer hunter2header".to_owned();
            http.headers.insert("authorization".to_owned(), bearer.into());
        }
        let bench = Bench::start(options);
        let why = bench.down("it is down").await;
        let told = bench.call("web__any", Duration::from_millis(100)).await;
        let told = format!("{why} {told:?}");
        assert!(!told.contains("hunter2"), "{told}");
        bench.stop().await;
    }
    serving.abort();
}
