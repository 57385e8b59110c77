//! Kills at random times, with turns in flight in several sessions; then the judge.

use std::{sync::Arc, time::Duration};

use clawnode_cluster::Peek;
use clawnode_tests::{
    model::{DefaultReply, Script},
    process::{Client, Found, Message, Node, ProcessError, Start},
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::{sync::watch, task::JoinSet};

use super::{
    support::{Outcome, Scene, Under},
    tool_kills::{seed, soak},
};

/// Sessions with a turn in flight.
const TALKERS: usize = 8;
/// Messages of one session; then its talker begins a new one.
const SESSION: usize = 20;
/// A life ends within this time of its start: in it, or before it serves.
const LIFE: Duration = Duration::from_millis(400);
/// Every so many lives one lasts until every talker has had two answers: the first may be of a turn
/// that ended in an earlier life. Five lives without an end are a poisoned session (C16), which is
/// another test.
const CALM: u32 = 4;

/// What talkers need.
struct Stage {
    /// The node that serves now.
    node: watch::Receiver<Option<Client>>,
    /// Whether the kills are over.
    over: watch::Receiver<bool>,
}

/// Sends one message after another until the kills are over; each under one key until answered.
async fn talk(
    stage: Arc<Stage>,
    talker: usize,
    answered: watch::Sender<usize>,
) -> Result<Vec<Message>, ProcessError> {
    let mut node = stage.node.clone();
    let mut sent = Vec::new();
    while !stage.over.peek(|over| *over) {
        let n = sent.len();
        let peer = format!("talker{talker}-{}", n / SESSION);
        let message = Message::new(&peer, &format!("message {n} of {talker}"));
        loop {
            let client = node.wait_for(Option::is_some).await.unwrap().clone().unwrap();
            match client.chat(&message).await {
                Ok(reply) => {
                    assert_eq!(reply, format!("reply to: {} 2 3 4", message.content));
                    break;
                }
                // Whatever was not heard is asked for again, from the next process.
                Err(error) if error.is_lost() => {
                    let gone = |now: &Option<Client>| {
                        now.as_ref().is_none_or(|now| now.url() != client.url())
                    };
                    node.wait_for(gone).await.unwrap();
                }
                Err(error) => return Err(error),
            }
        }
        sent.push(message);
        answered.send_modify(|answered| *answered += 1);
    }
    Ok(sent)
}

async fn kills(under: Under, wanted: u32, seed: u64) -> Result<Found, ProcessError> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let default = DefaultReply { tokens: 4, delay_ms: 5, flush: true };
    let mut scene = Scene::on(under, Script { default, ..Script::default() }).await;
    scene.home = scene.home.var("CLAWNODE_SESSION__SNAPSHOT_EVERY", "40");
    let (serves, node) = watch::channel(None);
    let (end, over) = watch::channel(false);
    let stage = Arc::new(Stage { node, over });
    let mut talkers = JoinSet::new();
    let mut answers = Vec::new();
    for talker in 0..TALKERS {
        let (tell, answered) = watch::channel(0);
        talkers.spawn(talk(Arc::clone(&stage), talker, tell));
        answers.push(answered);
    }
    while scene.kills < wanted {
        let mut node = Node::spawn(&scene.home, Start::default())?;
        if scene.kills % CALM == CALM - 1 {
            node.ready(&scene.home).await?;
            let before: Vec<usize> =
                answers.iter().map(|count| count.peek(|count| *count)).collect();
            serves.send_replace(Some(node.client()?));
            for (count, before) in answers.iter_mut().zip(before) {
                if count.wait_for(|now| *now > before + 1).await.is_err() {
                    // A talker gave up: it says why.
                    talkers.join_next().await.unwrap().unwrap()?;
                    unreachable!("a talker left before the kills were over");
                }
            }
        }
        let life = random.random_range(Duration::ZERO..LIFE);
        let serve = async {
            if serves.peek(Option::is_none) {
                node.ready(&scene.home).await?;
                serves.send_replace(Some(node.client()?));
            }
            std::future::pending::<Result<(), ProcessError>>().await
        };
        if let Ok(ended) = tokio::time::timeout(life, serve).await {
            ended?;
        }
        node.kill().await?;
        serves.send_replace(None);
        scene.kills += 1;
    }
    let node = Node::up(&scene.home).await?;
    let client = node.client()?;
    end.send_replace(true);
    serves.send_replace(Some(client.clone()));
    let mut messages = Vec::new();
    while let Some(sent) = talkers.join_next().await {
        messages.extend(sent.unwrap()?);
    }
    let found = scene.judge(&client, &messages).await?;
    assert_eq!(found.turns, messages.len());
    assert!(found.requests <= found.calls + found.lost as usize, "{found:?}");
    assert!(found.lost > 0, "no kill hit a call: {found:?}");
    node.stop().await?;
    Ok(found)
}

#[tokio::test]
async fn kills_100() -> Outcome {
    let seed = seed();
    eprintln!("CLAWNODE_SEED={seed}");
    eprintln!("{:?}", kills(Under::Local, 100, seed).await?);
    Ok(())
}

/// Fewer: each life begins with a connection to the server.
#[tokio::test]
async fn kills_50_on_nats() -> Outcome {
    let seed = seed();
    eprintln!("CLAWNODE_SEED={seed}");
    eprintln!("{:?}", kills(Under::Nats, 50, seed).await?);
    Ok(())
}

#[tokio::test]
#[ignore = "soak: takes half an hour; CLAWNODE_KILLS says how many"]
async fn kills_2000_soak() -> Outcome {
    let seed = seed();
    eprintln!("CLAWNODE_SEED={seed}");
    eprintln!("{:?}", kills(Under::Local, soak(2_000), seed).await?);
    Ok(())
}

#[tokio::test]
#[ignore = "soak: takes some minutes; CLAWNODE_KILLS says how many"]
async fn kills_200_on_nats_soak() -> Outcome {
    let seed = seed();
    eprintln!("CLAWNODE_SEED={seed}");
    eprintln!("{:?}", kills(Under::Nats, soak(200), seed).await?);
    Ok(())
}
