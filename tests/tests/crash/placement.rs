//! Workers come, go and lose their server while others run turns: who runs a turn keeps it, and what
//! the dead ran goes on elsewhere.

mod nats {
    use std::time::Instant;

    use clawnode_tests::{
        model::{DefaultReply, Reply, Script, Step},
        nats::{NatsCluster, ServerOptions},
        process::{Message, ProcessError, TestBackend, Turn},
    };

    use crate::{
        cluster::nats::Cluster,
        support::{Outcome, Scene, Under},
    };

    /// Sessions with a turn that runs.
    const SESSIONS: usize = 6;
    /// What their first answers wait for.
    const GATE: &str = "open";
    /// Sessions that are tried until a newcomer has one: with a third of them it has one by then.
    const TRIES: usize = 100;

    fn messages() -> Vec<Message> {
        (0..SESSIONS).map(|n| Message::new(&format!("peer{n}"), &format!("slow {n}"))).collect()
    }

    /// The first answer to each of them stops at the gate.
    fn script(messages: &[Message]) -> Script {
        let stuck = |message: &Message| {
            let text = format!("reply to: {}", message.content);
            let steps = vec![Step::Text { text }, Step::Gate { name: GATE.to_owned() }];
            (message.content.clone(), [Reply::steps(steps).into()].into())
        };
        Script { on: messages.iter().map(stuck).collect(), ..Script::default() }
    }

    /// All of them are sent, and have begun to be answered.
    async fn begin(cluster: &Cluster, messages: &[Message]) -> Result<Vec<Turn>, ProcessError> {
        let mut turns = Vec::new();
        for message in messages {
            let mut turn = cluster.client.send(message).await?;
            turn.begun().await?;
            turns.push(turn);
        }
        Ok(turns)
    }

    #[tokio::test]
    async fn an_owner_dies_and_only_its_own_turns_move() -> Outcome {
        let messages = messages();
        let mut scene = Scene::on(Under::Nats, script(&messages)).await;
        let mut cluster = Cluster::start(&scene, 3).await?;
        let turns = begin(&cluster, &messages).await?;
        let owner = cluster.owner(&messages[0].session()).await?;
        let dead = owner.process().unwrap();
        let mut its = Vec::new();
        for message in &messages {
            its.push(cluster.claims(&message.session()).await? == [dead]);
        }
        owner.kill().await?;
        scene.kills += 1;
        let mut open = Vec::new();
        for ((mut turn, message), moves) in turns.into_iter().zip(&messages).zip(&its) {
            if *moves {
                assert_eq!(turn.completed().await?, format!("reply to: {}", message.content));
            } else {
                open.push(turn);
            }
        }
        scene.server.open(GATE);
        for mut turn in open {
            turn.completed().await?;
        }
        for (message, moved) in messages.iter().zip(&its) {
            let claims = cluster.claims(&message.session()).await?;
            assert_eq!(claims.len(), if *moved { 2 } else { 1 }, "`{}`", message.content);
        }
        let lost = its.iter().filter(|moved| **moved).count();
        let found = scene.judge(&cluster.client, &messages).await?;
        assert_eq!((found.requests, found.lost as usize), (SESSIONS + lost, lost));
        cluster.stop().await
    }

    #[tokio::test]
    async fn a_worker_joins_in_mid_turn_and_robs_nobody() -> Outcome {
        let mut messages = messages();
        let scene = Scene::on(Under::Nats, script(&messages)).await;
        // A third process is first for some of so many; of 8, for none in one run of 25.
        let scene = scene.with_var("CLAWNODE_CLUSTER__PARTITIONS", "32");
        let mut cluster = Cluster::start(&scene, 2).await?;
        let turns = begin(&cluster, &messages).await?;
        let newcomer = cluster.join(&scene).await?;
        // It has taken its place once a session of its own is there.
        let mut tries = 0;
        loop {
            assert!(tries < TRIES, "the newcomer gets nothing");
            let message = Message::new(&format!("new{tries}"), &format!("quick {tries}"));
            cluster.client.chat(&message).await?;
            let claims = cluster.claims(&message.session()).await?;
            messages.push(message);
            tries += 1;
            if claims.contains(&newcomer) {
                break;
            }
        }
        // What comes for the running sessions now may be delivered to it; it is theirs all the same.
        let mut more = Vec::new();
        for (n, message) in messages.iter().take(SESSIONS).enumerate() {
            more.push(Message {
                content: format!("more {n}"),
                key: format!("m{n}"),
                ..message.clone()
            });
        }
        let mut queued = Vec::new();
        for message in &more {
            queued.push(cluster.client.send(message).await?);
        }
        scene.server.open(GATE);
        for mut turn in turns.into_iter().chain(queued) {
            turn.completed().await?;
        }
        for message in messages.iter().take(SESSIONS) {
            let claims = cluster.claims(&message.session()).await?;
            assert!(claims.len() == 1 && claims[0] != newcomer, "`{}`", message.content);
        }
        messages.extend(more);
        let found = scene.judge(&cluster.client, &messages).await?;
        assert_eq!((found.requests, found.lost), (messages.len(), 0));
        cluster.stop().await
    }

    #[tokio::test]
    async fn a_server_dies_and_no_worker_that_was_connected_to_it_is_held_dead() -> Outcome {
        let mut servers = NatsCluster::start(3, ServerOptions::default()).await.unwrap();
        let backend =
            TestBackend::Nats { url: servers.urls().join(","), prefix: "crash".to_owned() };
        let messages = messages();
        let scene = Scene::at(backend, None, script(&messages)).await;
        let cluster = Cluster::start(&scene, 3).await?;
        let turns = begin(&cluster, &messages).await?;
        let leader = servers.leader_of("CRASH_JOURNAL").await.unwrap();
        servers.server(leader).unwrap().kill().unwrap();
        // A turn of another session shows that the others elected a leader, and held the lost one
        // dead.
        let after = Message::new("after", "after");
        // The gateway may have hung on that server itself: it reads again before it is sent more.
        let known = messages[0].session();
        cluster.client.history_when(&known, |history| !history.turns.is_empty()).await?;
        cluster.client.chat(&after).await?;
        scene.server.open(GATE);
        for mut turn in turns {
            turn.completed().await?;
        }
        for message in &messages {
            assert_eq!(cluster.claims(&message.session()).await?.len(), 1, "`{}`", message.content);
        }
        let messages: Vec<Message> = messages.into_iter().chain([after]).collect();
        let found = scene.judge(&cluster.client, &messages).await?;
        assert_eq!((found.requests, found.lost), (messages.len(), 0));
        cluster.stop().await
    }

    #[tokio::test]
    #[ignore = "soak: a measurement; CLAWNODE_KILLS says how many"]
    async fn kill_to_next_token_soak() -> Outcome {
        let wanted = std::env::var("CLAWNODE_KILLS").map_or(20, |text| text.parse().unwrap());
        let default = DefaultReply { tokens: 200, delay_ms: 25, flush: true };
        let warm = |n| {
            let steps = vec![Step::Text { text: "warm".to_owned() }];
            (format!("warm {n}"), [Reply::steps(steps).into()].into())
        };
        let script = Script { default, on: (0..wanted).map(warm).collect(), ..Script::default() };
        let mut scene = Scene::on(Under::Nats, script).await;
        let mut cluster = Cluster::start(&scene, 3).await?;
        let mut times = Vec::new();
        for n in 0..wanted {
            // A worker that has just joined is known to all.
            cluster.client.chat(&Message::new("warm", &format!("warm {n}"))).await?;
            let message = Message::new(&format!("peer{n}"), &format!("slow {n}"));
            let mut turn = cluster.client.send(&message).await?;
            turn.begun().await?;
            let owner = cluster.owner(&message.session()).await?;
            let killed = Instant::now();
            owner.kill().await?;
            scene.kills += 1;
            while turn.next().await?.event != "reset" {}
            while turn.next().await?.event != "text" {}
            times.push(killed.elapsed());
            eprintln!("kill {n}: {:?}", killed.elapsed());
            cluster.join(&scene).await?;
        }
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() - 1) * percent / 100];
        eprintln!("{} kills: p50 {:?}, p90 {:?}, most {:?}", times.len(), at(50), at(90), at(100));
        cluster.stop().await
    }
}
