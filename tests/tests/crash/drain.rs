//! Workers are drained and cordoned: running calls end where they are, what follows goes on
//! elsewhere, and nothing is done twice.

mod nats {
    use std::{
        collections::BTreeSet,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
    };

    use clawnode_cluster::Peek;
    use clawnode_proto::session::TurnOutcome;
    use clawnode_tests::{
        effects::EffectCounter,
        model::{DefaultReply, Reply, Script, Step},
        process::{Client, Message, ProcessError},
        wait::until,
    };
    use rustix::process::Signal;
    use tokio::{sync::watch, task::JoinSet};

    use crate::{
        fleet::{Fleet, cli},
        streams::stuck_script,
        support::{Outcome, Scene, Under},
    };

    /// Sessions that talk during a rolling restart.
    const TALKERS: usize = 4;

    /// A reply to `text` that waits in the middle for the gate `go`.
    fn gated(text: &str) -> Script {
        let steps = vec![
            Step::Text { text: format!("reply to: {text}") },
            Step::Gate { name: "go".to_owned() },
            Step::Text { text: " and more".to_owned() },
        ];
        let acts = [Reply::steps(steps).into()];
        Script { on: [(text.to_owned(), acts.into())].into(), ..Script::default() }
    }

    #[tokio::test]
    async fn sigterm_in_mid_call_ends_it_there_and_the_next_turns_elsewhere() -> Outcome {
        let scene = Scene::on(Under::Nats, gated("slow")).await;
        let mut fleet = Fleet::new(&scene).await?;
        fleet.add(&scene, "w1").await?;
        fleet.add(&scene, "w2").await?;
        let [slow, next, last] = ["slow", "next", "last"].map(|text| Message::new("ada", text));
        let mut first = fleet.client.send(&slow).await?;
        first.begun().await?;
        let mut second = fleet.client.send(&next).await?;
        let owner = fleet.owner(&slow).await?;
        let mut leaving = fleet.take(owner);
        leaving.signal(Signal::TERM)?;
        fleet.drains(owner).await?;
        // The other is given this one, and told that the first still has the session.
        let mut third = fleet.client.send(&last).await?;
        scene.server.open("go");
        assert_eq!(first.completed().await?, "reply to: slow and more");
        assert_eq!(second.completed().await?, "reply to: next");
        assert_eq!(third.completed().await?, "reply to: last");
        assert_eq!(leaving.ended().await?.code(), Some(0));

        let claims = fleet.claims(&slow).await?;
        assert_eq!(claims.len(), 2, "handed over once: {claims:?}");
        assert_eq!(claims.first().copied(), leaving.process());
        let journal = fleet.journal(&slow).await?;
        let done = journal.iter().filter(|event| event.kind == "model_done");
        let by: Vec<_> = done.map(|event| event.incarnation.process).collect();
        assert_eq!(by, [claims[0], claims[1], claims[1]]);
        let found = scene.judge(&fleet.client, &[slow, next, last]).await?;
        assert_eq!((found.turns, found.requests, found.lost), (3, 3, 0));
        fleet.stop().await
    }

    #[tokio::test]
    async fn a_second_sigterm_ends_at_once_and_loses_the_call() -> Outcome {
        let mut scene = Scene::on(Under::Nats, stuck_script("never", "slow")).await;
        // So long that only the second signal can end it in time.
        scene.home = scene.home.var("CLAWNODE_NODE__DRAIN", "10m");
        let mut fleet = Fleet::new(&scene).await?;
        fleet.add(&scene, "w1").await?;
        fleet.add(&scene, "w2").await?;
        let message = Message::new("ada", "slow");
        let mut turn = fleet.client.send(&message).await?;
        turn.begun().await?;
        let owner = fleet.owner(&message).await?;
        let mut leaving = fleet.take(owner);
        leaving.signal(Signal::TERM)?;
        fleet.drains(owner).await?;
        leaving.signal(Signal::TERM)?;
        assert_eq!(leaving.ended().await?.code(), Some(1));
        scene.kills += 1;
        assert_eq!(turn.completed().await?, "reply to: slow");
        let found = scene.judge(&fleet.client, &[message]).await?;
        assert_eq!((found.requests, found.lost), (2, 1));
        fleet.stop().await
    }

    #[tokio::test]
    async fn drain_by_command_waits_until_the_node_is_gone() -> Outcome {
        let scene = Scene::on(Under::Nats, gated("slow")).await;
        let mut fleet = Fleet::new(&scene).await?;
        fleet.add(&scene, "w1").await?;
        fleet.add(&scene, "w2").await?;
        let slow = Message::new("ada", "slow");
        let mut turn = fleet.client.send(&slow).await?;
        turn.begun().await?;
        let owner = fleet.owner(&slow).await?;
        let other = fleet.other(owner);

        let unknown = cli(&scene, &["node", "drain", "w9"], 1).await?.to_string();
        assert!(unknown.contains("w1, w2"), "the nodes that there are: {unknown}");
        let drains = cli(&scene, &["node", "drain", owner, "--wait=false"], 0).await?;
        assert_eq!(
            (drains["draining"].as_bool(), drains["gone"].as_bool()),
            (Some(true), Some(false))
        );
        fleet.drains(owner).await?;
        let again = cli(&scene, &["node", "drain", owner], 1).await?.to_string();
        assert!(again.contains("draining already"), "{again}");
        let last = cli(&scene, &["node", "drain", other], 1).await?.to_string();
        assert!(last.contains("last worker") && last.contains("--force"), "{last}");

        scene.server.open("go");
        assert_eq!(turn.completed().await?, "reply to: slow and more");
        assert_eq!(fleet.take(owner).ended().await?.code(), Some(0));
        let next = Message::new("ada", "next");
        fleet.client.chat(&next).await?;
        assert_eq!(fleet.owner(&slow).await?, other);
        let gone = cli(&scene, &["node", "drain", other, "--force"], 0).await?;
        assert_eq!(gone["gone"], true);
        assert_eq!(fleet.take(other).ended().await?.code(), Some(0));
        let found = scene.judge(&fleet.client, &[slow, next]).await?;
        assert_eq!((found.requests, found.lost), (2, 0));
        // The gateway that is asked may be the one that is meant.
        let process = fleet.gateway.process().unwrap().to_string();
        let gone = cli(&scene, &["node", "drain", &process], 0).await?;
        assert_eq!(gone["gone"], true);
        assert_eq!(fleet.gateway.ended().await?.code(), Some(0));
        Ok(())
    }

    #[tokio::test]
    async fn a_node_is_named_by_its_process_as_well() -> Outcome {
        let scene = Scene::on(Under::Nats, Script::default()).await;
        let mut fleet = Fleet::new(&scene).await?;
        fleet.add(&scene, "w1").await?;
        let mut first = fleet.take("w1");
        fleet.add(&scene, "w2").await?;
        let process = first.process().unwrap().to_string();
        cli(&scene, &["node", "drain", &process], 0).await?;
        assert_eq!(first.ended().await?.code(), Some(0));
        fleet.stop().await
    }

    /// A run has ended, and its result cannot be stored: that is tried for ever, but not by a node that stops.
    #[tokio::test]
    async fn a_worker_stops_in_time_though_nothing_of_a_job_can_be_stored() -> Outcome {
        let dir = tempfile::tempdir().unwrap();
        let counter = EffectCounter::start(dir.path()).await.unwrap();
        let mut scene = Scene::on(Under::Nats, Script::default()).await;
        scene.configure("[agents.default]\ntools = [\"effect_safe\"]\n");
        scene = scene.with_var("CLAWNODE_TEST_EFFECTS", &counter.url());
        scene = scene.with_var("CLAWNODE_NODE__DRAIN", "1s");
        let mut fleet = Fleet::new(&scene).await?;
        fleet.add(&scene, "w1").await?;
        counter.hold(true);
        let message = Message::new("ada", "/tool effect_safe {}");
        let turn = fleet.client.send(&message).await?;
        until("the effect", async || Ok((counter.total().unwrap() == 1).then_some(()))).await?;
        scene.nats.as_mut().unwrap().kill().unwrap();
        counter.hold(false);
        let mut leaving = fleet.take("w1");
        leaving.signal(Signal::TERM)?;
        assert_eq!(leaving.ended().await?.code(), Some(0), "it ends in order, and in time");
        drop(turn);
        // Nothing is lost by it: the next worker makes the call again, which its class allows.
        scene.nats.as_mut().unwrap().restart().await.unwrap();
        fleet.add(&scene, "w2").await?;
        let history = fleet.client.finished(&message.session(), 1).await?;
        assert!(
            matches!(history.turns[0].outcome, Some(TurnOutcome::Completed { .. })),
            "{history:?}"
        );
        assert_eq!(counter.total().unwrap(), 2);
        fleet.stop().await
    }

    #[tokio::test]
    async fn a_cordoned_worker_keeps_its_sessions_and_takes_no_more() -> Outcome {
        let scene = Scene::on(Under::Nats, Script::default()).await;
        let mut fleet = Fleet::new(&scene).await?;
        fleet.add(&scene, "w1").await?;
        fleet.add(&scene, "w2").await?;
        let kept = Message::new("kept", "one");
        fleet.client.chat(&kept).await?;
        let cordoned = fleet.owner(&kept).await?;
        let other = fleet.other(cordoned);
        cli(&scene, &["node", "cordon", cordoned], 0).await?;
        let more = Message::new("kept", "two");
        fleet.client.chat(&more).await?;
        assert_eq!(fleet.claims(&kept).await?.len(), 1, "its owner still has it");
        let mut sent = vec![kept, more];
        for n in 0..8 {
            let message = Message::new(&format!("new{n}"), "hello");
            fleet.client.chat(&message).await?;
            assert_eq!(fleet.owner(&message).await?, other);
            sent.push(message);
        }
        // Its own turn: only the first is left to take what is new.
        cli(&scene, &["node", "uncordon", cordoned], 0).await?;
        cli(&scene, &["node", "cordon", other], 0).await?;
        for n in 0..4 {
            let message = Message::new(&format!("newer{n}"), "hello");
            fleet.client.chat(&message).await?;
            assert_eq!(fleet.owner(&message).await?, cordoned);
            sent.push(message);
        }
        let found = scene.judge(&fleet.client, &sent).await?;
        assert_eq!((found.requests, found.lost), (14, 0));
        let process = fleet.gateway.process().unwrap().to_string();
        let gateway = cli(&scene, &["node", "cordon", &process], 1).await?.to_string();
        assert!(gateway.contains("not a worker"), "{gateway}");
        fleet.stop().await
    }

    #[tokio::test]
    async fn a_cordon_outlives_its_process() -> Outcome {
        let scene = Scene::on(Under::Nats, Script::default()).await;
        let mut fleet = Fleet::new(&scene).await?;
        fleet.add(&scene, "w1").await?;
        fleet.add(&scene, "w2").await?;
        cli(&scene, &["node", "cordon", "w1"], 0).await?;
        again(&scene, &mut fleet).await?;
        for n in 0..4 {
            let message = Message::new(&format!("new{n}"), "hello");
            fleet.client.chat(&message).await?;
            assert_eq!(fleet.owner(&message).await?, "w2");
        }
        cli(&scene, &["node", "uncordon", "w1"], 0).await?;
        cli(&scene, &["node", "cordon", "w2"], 0).await?;
        again(&scene, &mut fleet).await?;
        let last = Message::new("last", "hello");
        fleet.client.chat(&last).await?;
        assert_eq!(fleet.owner(&last).await?, "w1", "what was ended stays so");
        fleet.stop().await
    }

    /// Kills `w1`, and starts it again once every process holds the killed one dead.
    async fn again(scene: &Scene, fleet: &mut Fleet) -> Outcome {
        fleet.take("w1").kill().await?;
        fleet
            .status_when(|status| status.nodes.iter().all(|node| node.node.as_str() != "w1"))
            .await?;
        fleet.add(scene, "w1").await
    }

    /// Sends one message after another until the restarts are over.
    async fn talk(
        client: Client,
        talker: usize,
        over: Arc<AtomicBool>,
        answered: watch::Sender<usize>,
    ) -> Result<Vec<Message>, ProcessError> {
        let mut sent = Vec::new();
        while !over.load(Ordering::Relaxed) {
            let text = format!("message {} of {talker}", sent.len());
            let message = Message::new(&format!("talker{talker}"), &text);
            client.chat(&message).await?;
            answered.send_modify(|count| *count += 1);
            sent.push(message);
        }
        Ok(sent)
    }

    #[tokio::test]
    async fn a_rolling_restart_under_load_loses_and_repeats_nothing() -> Outcome {
        let default = DefaultReply { tokens: 4, delay_ms: 40, flush: true };
        let scene = Scene::on(Under::Nats, Script { default, ..Script::default() }).await;
        let mut fleet = Fleet::new(&scene).await?;
        for name in ["w1", "w2", "w3"] {
            fleet.add(&scene, name).await?;
        }
        let (over, answered) = (Arc::new(AtomicBool::new(false)), watch::Sender::new(0));
        let mut talkers = JoinSet::new();
        for talker in 0..TALKERS {
            let (client, over) = (fleet.client.clone(), Arc::clone(&over));
            talkers.spawn(talk(client, talker, over, answered.clone()));
        }
        let mut heard = answered.subscribe();
        for name in ["w1", "w2", "w3"] {
            // Under load: every talker is in the middle of something.
            let enough = heard.peek(|count| *count) + 2 * TALKERS;
            heard.wait_for(|count| *count >= enough).await.unwrap();
            let mut old = fleet.take(name);
            old.signal(Signal::TERM)?;
            assert_eq!(old.ended().await?.code(), Some(0), "{name}");
            fleet.add(&scene, name).await?;
        }
        let enough = heard.peek(|count| *count) + 2 * TALKERS;
        heard.wait_for(|count| *count >= enough).await.unwrap();
        over.store(true, Ordering::Relaxed);
        let mut sent = Vec::new();
        while let Some(talked) = talkers.join_next().await {
            sent.extend(talked.unwrap()?);
        }
        let found = scene.judge(&fleet.client, &sent).await?;
        assert_eq!((found.turns, found.requests, found.lost), (sent.len(), sent.len(), 0));
        let mut owners = BTreeSet::new();
        for talker in 0..TALKERS {
            owners.extend(fleet.claims(&Message::new(&format!("talker{talker}"), "")).await?);
        }
        assert!(owners.len() >= 2, "sessions moved: {owners:?}");
        fleet.stop().await
    }
}
