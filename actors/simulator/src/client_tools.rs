//! Clients that run tools in the simulated world: they bring the results, late, twice, in part, or not at all.

use clawnode_actors::session::{Effect, turn::prepare::AskClientJob};
use clawnode_proto::{
    CallId, TimerId, TurnId,
    client_tool::{ClientResult, ClientResults, ClientTool},
    llm::Sampling,
    session::SessionInput,
};

use super::{Sim, any_machine::ActivationPlace};

/// How long a client is waited for, in milliseconds.
const WAIT: u64 = 60_000;
/// The tool that clients run.
pub(super) const MINE: &str = "mine";

/// What clients offer, but for that of every third message.
pub(super) fn offered(number: usize) -> Vec<ClientTool> {
    let is_offered = !number.is_multiple_of(3);
    let name = MINE.parse().ok().filter(|_| is_offered);
    let tool = |name| ClientTool {
        name,
        description: "Looks there.".to_owned(),
        input_schema: r#"{"type":"object","properties":{"at":{"type":"integer"}}}"#.to_owned(),
    };
    name.map(tool).into_iter().collect()
}

impl Sim {
    /// A client is asked to run tools. What it brings follows from the calls, so that asking again changes
    /// nothing.
    pub(super) fn asked_client(&mut self, at: ActivationPlace, key: Effect, ask: &AskClientJob) {
        let turn = ask.turn;
        let results = |turn, from: usize, says: &str| {
            let result = |call: CallId| ClientResult::done(call, format!("{says} {call}"));
            let calls = ask.calls.calls.iter().skip(from).map(|call| result(call.id)).collect();
            let (system, sampling, tools) = (None, Sampling::default(), offered(1));
            SessionInput::ClientResults(ClientResults {
                metadata: std::collections::BTreeMap::new(),
                turn,
                results: calls,
                system,
                sampling,
                tools,
            })
        };
        let brought = match ask.call.as_u128() % 10 {
            0..=2 => vec![results(turn, 0, "saw")],
            3..=5 => vec![results(turn, 0, "saw"), results(turn, 0, "saw something else")],
            6 => vec![results(turn, 1, "saw"), results(turn, 0, "saw all")],
            // Of another turn, and then never.
            7 => vec![results(TurnId::from_u128(1), 0, "saw")],
            8 => vec![results(turn, 1, "saw")],
            _ => Vec::new(),
        };
        for (number, body) in brought.iter().enumerate() {
            self.hears_of(&ask.session, &format!("brings-{}-{number}", ask.call), body);
        }
        self.timer(&ask.session, TimerId::of_client(ask.call), WAIT);
        self.confirms(at, key);
    }
}
