//! Two gateways before the same worker: one is killed in the middle of a turn, and every kind of
//! client goes on at the other. GATE-5: nothing is missed, nothing repeated.

mod nats {
    use std::{process::Stdio, time::Duration};

    use clawnode_proto::view::StatusView;
    use clawnode_tests::{
        model::{Reply, Script, Step},
        nats::free_port,
        process::{Client, Message, Node, ProcessError, Start},
    };
    use serde_json::{Value, json};
    use tokio::{
        io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader, Lines},
        process::Child,
        time::timeout,
    };

    use crate::support::{Outcome, Scene, Under};

    /// Reaching it means a bug, not a slow machine.
    const PATIENCE: Duration = Duration::from_mins(1);
    /// The reply to `it`, whole.
    const WHOLE: &str = "reply to: it goes on and on and ends";

    /// The reply to `it` stops at gates: before its first word, if `first`, and twice within.
    fn script(first: bool) -> Script {
        let text = |text: &str| Step::Text { text: text.to_owned() };
        let gate = |name: &str| Step::Gate { name: name.to_owned() };
        let mut steps = vec![text("reply to: it "), text("goes on "), Step::Flush];
        steps.extend([gate("middle"), text("and on "), Step::Flush]);
        steps.extend([gate("last"), text("and ends")]);
        if first {
            steps.insert(0, gate("first"));
        }
        let acts = [Reply::steps(steps).into()];
        Script { on: [("it".to_owned(), acts.into())].into(), ..Script::default() }
    }

    /// Two gateways and a worker.
    struct Pair {
        scene: Scene,
        gateways: Vec<Node>,
        worker: Node,
    }

    impl Pair {
        async fn start(script: Script) -> Result<Self, ProcessError> {
            Self::start_with(script, Start::role("gateway")).await
        }

        /// The first gateway is started so.
        async fn start_with(script: Script, first: Start) -> Result<Self, ProcessError> {
            let scene = Scene::on(Under::Nats, script).await;
            let worker = Node::start(&scene.home, Start::role("worker")).await?;
            let mut gateways = Vec::new();
            // Below the ports of outgoing connections, one of which could have it when the gateway comes back.
            let listen = Some(format!("127.0.0.1:{}", free_port().unwrap()));
            for start in [first, Start { listen, ..Start::role("gateway") }] {
                gateways.push(Node::start(&scene.home, start).await?);
            }
            Ok(Self { scene, gateways, worker })
        }

        fn client(&self, at: usize) -> Client {
            self.gateways[at].client().unwrap()
        }

        fn urls(&self) -> String {
            let urls: Vec<&str> = self.gateways.iter().map(Node::url).collect();
            urls.join(",")
        }

        /// Lets the reply go on to its end.
        fn open_all(&self) {
            for gate in ["first", "middle", "last"] {
                self.scene.server.open(gate);
            }
        }

        /// `kill -9` of the first gateway.
        async fn kill_first(&mut self) -> Outcome {
            self.gateways.remove(0).kill().await
        }

        /// The message was answered once, by one call, and everything ends in order.
        async fn settle(self, message: &Message) -> Outcome {
            let client = self.client(0);
            let found = self.scene.judge(&client, std::slice::from_ref(message)).await?;
            assert_eq!((found.turns, found.requests, found.lost), (1, 1, 0));
            for node in self.gateways {
                node.stop().await?;
            }
            self.worker.stop().await
        }
    }

    /// The command line's chat, its frames a line each.
    struct Chat {
        child: Child,
        lines: Lines<BufReader<Box<dyn AsyncRead + Unpin + Send>>>,
        talk: Lines<BufReader<Box<dyn AsyncRead + Unpin + Send>>>,
        text: String,
        resets: u32,
    }

    impl Chat {
        async fn start(pair: &Pair, urls: &str) -> Self {
            let token = pair.scene.home.data().join("token");
            let token = token.to_string_lossy();
            let session = Message::typed("").session();
            let args =
                ["chat", "--session", &session, "--url", urls, "--token-file", &token, "--json"];
            let mut command = pair.scene.home.command(&args);
            command.args(["--log", "clawnode=debug"]).stdin(Stdio::piped());
            let mut child = command.spawn().unwrap();
            child.stdin.take().unwrap().write_all(b"it\n").await.unwrap();
            let boxed = |stream| BufReader::new(stream).lines();
            let out: Box<dyn AsyncRead + Unpin + Send> = Box::new(child.stdout.take().unwrap());
            let err: Box<dyn AsyncRead + Unpin + Send> = Box::new(child.stderr.take().unwrap());
            let (lines, talk) = (boxed(out), boxed(err));
            Self { child, lines, talk, text: String::new(), resets: 0 }
        }

        /// The next frame's name; none once the chat is over.
        async fn next(&mut self) -> Option<String> {
            let line = timeout(PATIENCE, self.lines.next_line()).await.unwrap().unwrap()?;
            let frame: Value = serde_json::from_str(&line).unwrap();
            match frame["event"].as_str() {
                Some("text") => self.text.push_str(frame["data"].as_str().unwrap()),
                Some("reset") => {
                    frame["data"]["text"].as_str().unwrap().clone_into(&mut self.text);
                    self.resets += 1;
                }
                _ => {}
            }
            frame["event"].as_str().map(str::to_owned)
        }

        async fn until(&mut self, name: &str) {
            while self.next().await.unwrap() != name {}
        }

        /// Waits until it shows this on its screen.
        async fn says(&mut self, words: &str) {
            loop {
                let line = timeout(PATIENCE, self.talk.next_line()).await.unwrap().unwrap();
                if line.unwrap().contains(words) {
                    return;
                }
            }
        }

        /// Reads to the end: the reply is whole, and came without a reset.
        async fn ends(self) {
            assert_eq!(self.ends_somehow().await, 0, "GATE-5");
        }

        /// Reads to the end: the reply is whole; says how often it began again.
        async fn ends_somehow(mut self) -> u32 {
            while self.next().await.is_some() {}
            let ended = self.child.wait().await.unwrap();
            assert!(ended.success(), "{ended}");
            assert_eq!(self.text, WHOLE, "GATE-5");
            self.resets
        }
    }

    #[tokio::test]
    async fn gate_5_a_websocket_goes_on_at_the_other_gateway() -> Outcome {
        let mut pair = Pair::start(script(false)).await?;
        let message = Message::new("ada", "it");
        let mut turn = pair.client(0).send(&message).await?;
        turn.begun().await?;
        pair.kill_first().await?;
        assert!(turn.completed().await.is_err_and(|error| error.is_lost()));
        let mut again = pair.client(0).resume_from(&turn).await?;
        pair.scene.server.open("middle");
        // A turn that ended meanwhile would be told again, because no owner has its frames.
        assert_eq!(again.next().await?.event, "text");
        pair.scene.server.open("last");
        assert_eq!(again.completed().await?, WHOLE);
        assert_eq!(again.resets, 0, "GATE-5");
        pair.settle(&message).await
    }

    #[tokio::test]
    async fn gate_5_server_sent_events_go_on_at_the_other_gateway() -> Outcome {
        let mut pair = Pair::start(script(true)).await?;
        let message = Message::new("ada", "it");
        let turn = pair.client(0).send(&message).await?;
        let mut events = pair.client(0).events(&turn, None).await?;
        let first = events.next().await?.unwrap();
        assert_eq!((first.event.as_str(), &first.data["turn"]), ("accepted", &json!(turn.turn)));
        pair.scene.server.open("first");
        let (mut text, mut last) = (String::new(), first.cursor);
        while text.is_empty() {
            let event = events.next().await?.unwrap();
            assert_eq!(event.event, "text");
            text.push_str(event.data.as_str().unwrap());
            last = event.cursor;
        }
        pair.kill_first().await?;
        while let Ok(Some(_)) = events.next().await {}

        let other = pair.client(0);
        let mut events = other.events(&turn, last.as_deref()).await?;
        pair.scene.server.open("middle");
        let mut names = Vec::new();
        while let Some(event) = events.next().await? {
            if event.event == "text" {
                text.push_str(event.data.as_str().unwrap());
                pair.scene.server.open("last");
            }
            last = event.cursor.or(last);
            names.push(event.event);
        }
        assert_eq!(text, WHOLE, "GATE-5");
        assert!(!names.iter().any(|name| name == "reset"), "GATE-5: {names:?}");
        assert_eq!(names.last().map(String::as_str), Some("done"));
        // A browser reconnects by itself, and learns that there is no more.
        assert_eq!(other.events(&turn, last.as_deref()).await?.status, 204);
        assert_eq!(other.events(&turn, Some("nonsense")).await?.status, 400);
        pair.settle(&message).await
    }

    #[tokio::test]
    async fn gate_5_the_command_line_goes_on_at_the_other_gateway() -> Outcome {
        let mut pair = Pair::start(script(false)).await?;
        let mut chat = Chat::start(&pair, &pair.urls()).await;
        chat.until("text").await;
        pair.kill_first().await?;
        chat.until("accepted").await;
        pair.scene.server.open("middle");
        chat.until("text").await;
        pair.scene.server.open("last");
        chat.ends().await;
        pair.settle(&Message::typed("it")).await
    }

    #[tokio::test]
    async fn gate_5_the_other_gateway_is_learnt_from_the_first() -> Outcome {
        let mut pair = Pair::start(script(false)).await?;
        let (first, url) = (pair.client(0), pair.gateways[1].url().to_owned());
        let knows = async {
            loop {
                let status: StatusView = first.call("status", json!({})).await?;
                if status.nodes.iter().any(|node| node.url.as_ref() == Some(&url)) {
                    return Ok::<(), ProcessError>(());
                }
            }
        };
        timeout(PATIENCE, knows).await.unwrap()?;
        let mut chat = Chat::start(&pair, first.url()).await;
        chat.says("gateways are known").await;
        chat.until("text").await;
        pair.kill_first().await?;
        chat.until("accepted").await;
        pair.scene.server.open("middle");
        chat.until("text").await;
        pair.scene.server.open("last");
        chat.ends().await;
        pair.settle(&Message::typed("it")).await
    }

    #[tokio::test]
    async fn c1_a_gateway_dies_before_it_says_accepted() -> Outcome {
        for point in ["before-put", "after-put"] {
            let start = Start { role: Some("gateway"), ..Start::killed(point) };
            let mut pair = Pair::start_with(script(false), start).await?;
            pair.open_all();
            let chat = Chat::start(&pair, &pair.urls()).await;
            let mut first = pair.gateways.remove(0);
            pair.scene.died(&mut first).await?;
            // Sent again under the same key: one message, one turn. It may have ended meanwhile.
            chat.ends_somehow().await;
            pair.settle(&Message::typed("it")).await?;
        }
        Ok(())
    }

    #[tokio::test]
    async fn a_gateway_dies_between_accepted_and_the_first_word() -> Outcome {
        let mut pair = Pair::start(script(true)).await?;
        let mut chat = Chat::start(&pair, &pair.urls()).await;
        chat.until("accepted").await;
        pair.kill_first().await?;
        chat.until("accepted").await;
        pair.scene.server.open("first");
        chat.until("text").await;
        pair.open_all();
        chat.ends().await;
        pair.settle(&Message::typed("it")).await
    }

    #[tokio::test]
    async fn both_gateways_die_and_one_comes_back() -> Outcome {
        let mut pair = Pair::start(script(false)).await?;
        let mut chat = Chat::start(&pair, &pair.urls()).await;
        chat.until("text").await;
        let listen = pair.gateways[1].url().trim_start_matches("http://").to_owned();
        pair.kill_first().await?;
        pair.kill_first().await?;
        chat.says("lost the node").await;
        let again = Start { listen: Some(listen), ..Start::role("gateway") };
        pair.gateways.push(Node::start(&pair.scene.home, again).await?);
        chat.until("accepted").await;
        pair.scene.server.open("middle");
        chat.until("text").await;
        pair.scene.server.open("last");
        chat.ends().await;
        pair.settle(&Message::typed("it")).await
    }

    /// GATE-3 with real sockets: the one reads nothing at all, the other misses nothing.
    #[tokio::test]
    async fn gate_3_a_reader_that_never_reads_slows_nobody() -> Outcome {
        // More than all queues and buffers between the two hold, at most 2 MiB of it in one reply.
        let piece = "x".repeat(64 << 10);
        let steps = |name: String| {
            let mut steps = vec![Step::Text { text: format!("reply to: {name}") }, Step::Flush];
            for _ in 0..32 {
                steps.extend([Step::Delay { ms: 11 }, Step::Text { text: piece.clone() }]);
                steps.push(Step::Flush);
            }
            Reply::steps(steps).into()
        };
        let names: Vec<String> = (0..8).map(|n| format!("long {n}")).collect();
        let replies =
            names.iter().map(|name| (name.clone(), [steps(name.clone())].into())).collect();
        let pair = Pair::start(Script { on: replies, ..Script::default() }).await?;
        let (client, other) = (pair.client(0), pair.client(0));
        let messages: Vec<Message> =
            names.iter().map(|name| Message::new(&name.replace(' ', "-"), name)).collect();
        let mut slow = client.send_all(&messages).await?;
        // The other reader of the same turns has each of them whole, before the slow one reads.
        for message in &messages {
            let history =
                other.history_when(&message.session(), |history| !history.turns.is_empty()).await?;
            let turn = history.turns[0].turn.to_string();
            let reply = other.resume(&message.session(), &turn).await?.completed().await?;
            assert_eq!(reply.len(), 32 * piece.len() + "reply to: long 0".len());
        }
        let told = slow.read_all().await?;
        assert!(told.lags > 0, "GATE-3: it got `lagged`");
        for (text, name) in told.texts.iter().zip(&names) {
            assert_eq!(text.len(), 32 * piece.len() + "reply to: long 0".len(), "{name}");
            assert!(text.starts_with(&format!("reply to: {name}")), "GATE-3: {name}");
        }
        for node in pair.gateways {
            node.stop().await?;
        }
        pair.worker.stop().await
    }
}
