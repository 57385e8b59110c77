//! Kills in rounds of tools with thoughts, on each wire: whatever a process dies of and wherever, the provider,
//! which refuses a thought or a signature that is missing, altered or in another place, takes what the next
//! process sends (LLM-2).

use clawnode_tests::{
    model::WireName,
    process::{Message, Node, ProcessError, Start, sound},
};
use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

use super::{
    support::{Outcome, Scene, Under},
    thoughts::{SAID, stage},
    tool_kills::{seed, soak},
};

/// Where a process may die: around what a model said, and around each run of a tool.
const POINTS: [&str; 10] = [
    "before-outcome",
    "after-outcome",
    "before-job",
    "after-job",
    "before-started",
    "after-started",
    "before-done",
    "after-done",
    "before-result",
    "after-result",
];
/// Processes that die with one turn in hand; three would put its session out of service (OUT-1).
const DEATHS: u32 = 2;

/// So many kills, one or two in each turn; what that came to.
async fn kills(wire: WireName, wanted: u32, seed: u64) -> Result<String, ProcessError> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut scene, _counter, _dir) = stage(Under::Local, wire).await;
    let mut turns = 0;
    while scene.kills < wanted {
        let message = Message::new(&format!("ada{turns}"), "go");
        for _ in 0..random.random_range(1..=DEATHS) {
            let point = POINTS.choose(&mut random).unwrap();
            // Each of the two rounds passes it, or only one of them.
            let point = format!("{point}:{}", random.random_range(1..=2));
            if life(&mut scene, &point, &message).await? {
                break;
            }
        }
        let node = Node::up(&scene.home).await?;
        assert_eq!(node.client()?.chat(&message).await?, SAID, "{wire:?}: turn {turns}");
        let found = scene.server.take_violations();
        assert_eq!(found, Vec::<String>::new(), "{wire:?}: turn {turns}");
        node.kill().await?;
        turns += 1;
    }
    assert!(sound(&scene.home).await? >= turns, "each turn has a session of its own");
    Ok(format!("{wire:?}: {} kills in {turns} turns", scene.kills))
}

/// One process, which is to die at `point` of this turn; whether the turn ended before.
async fn life(scene: &mut Scene, point: &str, message: &Message) -> Result<bool, ProcessError> {
    let mut node = match Node::start(&scene.home, Start::killed(point)).await {
        Ok(node) => node,
        // It found the turn at its start, and died of it.
        Err(ProcessError::NotReady { status, .. }) if status.contains("SIGKILL") => {
            scene.kills += 1;
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    match node.client()?.chat(message).await {
        Ok(said) => {
            assert_eq!(said, SAID, "at `{point}`");
            node.kill().await?;
            Ok(true)
        }
        Err(error) if error.is_lost() => {
            scene.died(&mut node).await?;
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// The wire for whose thoughts no other test kills a process.
#[tokio::test]
async fn thoughts_go_back_to_ollama_after_kills() -> Outcome {
    let seed = seed();
    eprintln!("CLAWNODE_SEED={seed}");
    eprintln!("{}", kills(WireName::Ollama, 2, seed).await?);
    Ok(())
}

macro_rules! soaks {
    ($($name:ident: $wire:ident;)*) => {
        $(
            #[tokio::test]
            async fn $name() -> Outcome {
                let seed = seed();
                eprintln!("CLAWNODE_SEED={seed}");
                eprintln!("{}", kills(WireName::$wire, soak(100), seed).await?);
                Ok(())
            }
        )*
    };
}

soaks! {
    thoughts_outlive_100_kills_on_anthropic_soak: Anthropic;
    thoughts_outlive_100_kills_on_openai_soak: Openai;
    thoughts_outlive_100_kills_on_gemini_soak: Gemini;
    thoughts_outlive_100_kills_on_ollama_soak: Ollama;
    thoughts_outlive_100_kills_on_responses_soak: OpenaiResponses;
    thoughts_outlive_100_kills_on_bedrock_soak: Bedrock;
}
