//! Which worlds have silent calls, and what people say there.

use clawnode_actors::agent::{AgentMemory, FactExtraction, ReflectionMode};
use clawnode_proto::{
    llm::Text,
    session::{SessionInput, UserMessage},
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::SimOptions;

/// How likely agents have such calls, and where their memories are simulated, too.
const LIKELY: f64 = 0.125;
const LIKELY_RECALLED: f64 = 0.5;

/// Which silent calls the agent has, and when.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SilentPlan {
    /// A model looks for facts.
    extracts: bool,
    /// A model looks back at turns with many tool calls.
    reflects: bool,
    /// From when to when the configuration has neither, in milliseconds since the beginning.
    off: (u64, u64),
    /// Processes die of them, and people delete these sessions.
    pub(super) dies: bool,
}

// === impl SilentPlan ===

impl SilentPlan {
    /// From a stream of its own, so that it does not shift what happens besides. Worlds of few seeds, or of many calls, have
    /// no such calls.
    pub(crate) fn of(options: &SimOptions) -> Self {
        let SimOptions { seed, hooks, large, lanes, slots, circuits, runaways, summaries, .. } =
            *options;
        let others = [hooks, large, lanes, slots, circuits, runaways, summaries];
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x0051_1e47_ca11);
        let is_likely = if options.recalls { LIKELY_RECALLED } else { LIKELY };
        let dies = options.dies_reflecting;
        let has_some = rng.random_bool(is_likely) || dies;
        if !has_some || others.contains(&true) || options.sessions.is_some() {
            return Self::default();
        }
        let extracts = rng.random_bool(0.8);
        let reflects = !extracts || rng.random_bool(0.5);
        let from = rng.random_range(0..30_000);
        let lasts = rng.random_range(1_000..20_000);
        let off = if rng.random_bool(0.2) { (from, from + lasts) } else { (0, 0) };
        Self { extracts, reflects, off, dies }
    }

    /// Whether there are any.
    pub(crate) const fn has_some(self) -> bool {
        self.extracts || self.reflects
    }

    /// Whether people say what a model alone finds.
    pub(crate) const fn extracts(self) -> bool {
        self.extracts
    }

    /// The same memory with what this says of it at a time, in milliseconds since the beginning.
    pub(crate) fn configures(self, memory: AgentMemory, since_start: u64) -> AgentMemory {
        let is_on = !(self.off.0..self.off.1).contains(&since_start);
        let mut memory = memory;
        if self.extracts && is_on {
            memory.extract = FactExtraction::Model;
        }
        if self.reflects && is_on {
            memory.reflect = ReflectionMode::Model;
        }
        memory
    }
}

/// What a person states of a thing that only this message names, and what they ask.
pub(super) fn stated(thing: &str) -> String {
    format!("We keep {thing} at home.")
}

pub(super) fn asked(thing: &str) -> String {
    format!("Do we keep {thing} at home?")
}

/// The same message with something that only a model finds: a statement, a question or both.
pub(crate) fn tells(session: usize, number: usize, body: SessionInput) -> SessionInput {
    let (own, other) = (format!("K{session}n{number}"), format!("K{session}m{number}"));
    let said = match number % 4 {
        0 => asked(&other),
        1 => format!("{} {}", stated(&own), asked(&other)),
        _ => stated(&own),
    };
    let more = |message: UserMessage| {
        let begins = message.content.inline().unwrap_or_default();
        let text = format!("{begins}\n{said}");
        UserMessage { content: Text::from(text), ..message }
    };
    match body {
        SessionInput::UserMessage(message) => SessionInput::UserMessage(more(message)),
        SessionInput::Steer(message) => SessionInput::Steer(more(message)),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use clawnode_memory::extract::{facts, is_own_statement};

    use super::*;
    use crate::recall::told;

    /// Production takes what is stated here for a person's own, and no pattern finds it.
    #[test]
    fn what_is_stated_is_a_statement_that_no_pattern_finds() {
        for number in 0..40 {
            let plain = SessionInput::UserMessage(UserMessage::text(format!("#{number} ")));
            for body in [plain.clone(), told::says(1, number, plain)] {
                let before = match &body {
                    SessionInput::UserMessage(message) => message.content.clone(),
                    _ => panic!(),
                };
                let before = facts(before.inline().unwrap()).len();
                let SessionInput::UserMessage(message) = tells(1, number, body) else { panic!() };
                let text = message.content.inline().unwrap();
                let (own, other) = (format!("K1n{number}"), format!("K1m{number}"));
                assert_eq!(is_own_statement(text, &stated(&own)), number % 4 != 0, "{text}");
                assert!(!is_own_statement(text, &asked(&other)), "{text}");
                assert_eq!(facts(text).len(), before, "{text}");
            }
        }
    }
}
