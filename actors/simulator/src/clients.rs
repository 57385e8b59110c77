//! Clients: each stores one input, and says it again under the same key until it is answered.

use clawnode_proto::{
    IdempotencyKey, Input, Kind, SessionKey, Timestamp, TurnId, execute,
    lane::Lane,
    reflection::ReflectInput,
    session::{SessionInput, UserMessage},
    tool::ToolSpec,
};
use clawnode_sim::{StoreReply, StoreRequest};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{
    CLIENTS, Sim,
    plan::SeedPlan,
    process::{PendingOp, PlannedNote},
    recall::told,
    schemas::wanted,
    silent, templates,
    tools::specs,
};

/// How long after all others requests for reflections may come, in milliseconds: the world is given longer to come to rest.
const REQUESTED_LATE: u64 = 180_000;
/// The number of the first request for a reflection: no session has so many other inputs.
const REQUESTS: usize = 10_000;

/// One input and when it is sent first.
#[derive(Clone, Debug)]
pub(super) struct SimClient {
    pub(super) after: u64,
    pub(super) input: Input,
    pub(super) answered: bool,
}

impl SimClient {
    /// What the plan's clients send.
    pub(super) fn all(plan: &SeedPlan) -> Vec<Self> {
        let mut rng = ChaCha8Rng::seed_from_u64(plan.seed ^ 0x00c1_1e47);
        let mut sizes = ChaCha8Rng::seed_from_u64(plan.seed ^ 0x517e_0f17);
        let mut clients: Vec<Self> = Vec::new();
        for session in 0..plan.sessions {
            let Some(key) = session_key(session) else { continue };
            let mut turns: Vec<TurnId> = Vec::new();
            for number in 0..plan.inputs_of(session) {
                let body = match rng.random_range(0..100) {
                    0..3 if number > 0 => SessionInput::Delete,
                    3..20 if !turns.is_empty() => {
                        let turn = turns.get(rng.random_range(0..turns.len()));
                        SessionInput::Cancel { turn: turn.copied().unwrap_or_else(no_turn) }
                    }
                    20..40 => SessionInput::Steer(plan.sizes.message(number, &mut sizes)),
                    40..65 if plan.templates => SessionInput::Execute(templates::plan(number)),
                    40..50 => SessionInput::Execute(planned(number)),
                    _ => SessionInput::UserMessage(message(plan, number, &mut sizes)),
                };
                let body = if plan.recalls { told::says(session, number, body) } else { body };
                let has_more = plan.silent.extracts();
                let body = if has_more { silent::tells(session, number, body) } else { body };
                let Some(input) = input(&key, number, &body) else { continue };
                if !matches!(body, SessionInput::Cancel { .. } | SessionInput::Delete) {
                    turns.push(TurnId::from(input.id));
                }
                let after = rng.random_range(0..plan.busy);
                if rng.random_bool(plan.says_again) {
                    // The same again, much later: the client forgot that it was answered.
                    let again = after + rng.random_range(100..plan.again_most);
                    // Not days later: by then it is forgotten.
                    let again = plan.at(after) + (again - after);
                    clients.push(Self { after: again, input: input.clone(), answered: false });
                }
                clients.push(Self { after: plan.at(after), input, answered: false });
            }
            if plan.reflections {
                let mut later = ChaCha8Rng::seed_from_u64(plan.seed ^ 0x4ef1_ec70);
                let wanted = requests(&turns, plan.busy, &mut later);
                for (number, (after, body)) in (turns.len()..).zip(wanted) {
                    let Some(input) = input(&key, REQUESTS + number, &body) else { continue };
                    clients.push(Self { after: plan.at(after), input, answered: false });
                }
            }
        }
        clients
    }
}

/// When people ask for a reflection on each of these turns.
fn requests(turns: &[TurnId], busy: u64, rng: &mut ChaCha8Rng) -> Vec<(u64, SessionInput)> {
    // Most turns have ended by then, and no message takes the call's place.
    let last = busy.saturating_mul(4).min(busy.saturating_add(REQUESTED_LATE)).max(1);
    let request = |turn: &TurnId| {
        (rng.random_range(0..last), SessionInput::Reflect(ReflectInput { turn: *turn }))
    };
    turns.iter().map(request).collect()
}

/// A message of the plan's sizes, and what its reply has to fit.
fn message(plan: &SeedPlan, number: usize, sizes: &mut ChaCha8Rng) -> UserMessage {
    let response_schema = plan.schemas.then(|| wanted(number)).flatten();
    let lane = (plan.lanes && !number.is_multiple_of(3)).then_some(Lane::Background);
    UserMessage { response_schema, lane, ..plan.sizes.message(number, sizes) }
}

/// Three of the tools that sessions have; a step that fails ends some of the plans.
fn planned(number: usize) -> execute::Plan {
    let tools = specs().into_iter().cycle().skip(number).take(3);
    let step = |(at, tool): (usize, ToolSpec)| execute::PlanStep {
        tool: tool.name,
        arguments: format!(r#"{{"at":{at}}}"#),
        goes_on: number.is_multiple_of(2),
        template: None,
    };
    execute::Plan { about: "a plan".to_owned(), steps: tools.enumerate().map(step).collect() }
}

fn no_turn() -> TurnId {
    TurnId::from_u128(0)
}

/// Sessions are numbered from 0; each is of a peer of its own.
pub(super) fn session_key(number: usize) -> Option<SessionKey> {
    format!("default:sim:local:peer{number}").parse().ok()
}

fn input(key: &SessionKey, number: usize, body: &SessionInput) -> Option<Input> {
    let name: IdempotencyKey = format!("key{number}").parse().ok()?;
    Input::new(Kind::SESSION, &key.to_string(), name, Timestamp(0), body).ok()
}

impl Sim {
    pub(super) fn send(&mut self, client: usize) {
        let Some(client_input) = self.clients.get(client) else { return };
        if client_input.input.kind == Kind::SESSION {
            self.judge.sends(&client_input.input);
        }
        let ticket = self.world.submit(CLIENTS, StoreRequest::Put(client_input.input.clone()));
        self.expect(CLIENTS, ticket, PendingOp::Put(client));
    }

    pub(super) fn sent(&mut self, client: usize, reply: &StoreReply) {
        if let StoreReply::Put(_) = reply
            && let Some(client_input) = self.clients.get_mut(client)
        {
            client_input.answered = true;
            self.ledger.accepted(client_input.input.clone());
            return;
        }
        let after = self.world.rng.random_range(200..3_000);
        self.world.later(CLIENTS, after, PlannedNote::Send(client));
    }
}
