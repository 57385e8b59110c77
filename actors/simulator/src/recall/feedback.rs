//! Feedback: people give it on turns, in time or not, and sessions send memories what it moves (C23).

use clawnode_actors::session::{Effect, turn::memory::turn_feedback::MemoryRating};
use clawnode_cluster::Write;
use clawnode_kernel::KernelBug;
use clawnode_proto::{
    EntityId, IdempotencyKey, Input, InputId, Kind, ProcessId, Timestamp, TurnId,
    event::decode_record,
    feedback::{FeedbackGiven, FeedbackInput, RatedPoints, Thumb},
    memory_point::PointsRating,
    session::{SessionEvent, SessionInput},
};
use clawnode_sim::StoreRequest;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::{
    JudgeViolation, Sim,
    any_machine::ActivationPlace,
    book::Checked,
    clients::{SimClient, session_key},
    plan::SeedPlan,
    settle::PostTurnWork,
};

/// How long after a message feedback on its turn comes at most, in milliseconds.
const LATER_MOST: u64 = 50_000;
/// How long an append waits, with a planted bug, after memories were sent what it says, in milliseconds.
const APPENDS_AFTER: u64 = 3_000;

/// Feedback that comes at any time: before its turn has ended, after its session was deleted, and while that is out of
/// service. Some is about no turn, or about one of another session, and some is said again under the same key.
pub(crate) fn clients(plan: &SeedPlan, messages: &[SimClient]) -> Vec<SimClient> {
    if !plan.recalls {
        return Vec::new();
    }
    let mut rng = ChaCha8Rng::seed_from_u64(plan.seed ^ 0x0fee_dbac);
    let mut clients = Vec::new();
    for (number, message) in messages.iter().enumerate() {
        let about = match rng.random_range(0..10) {
            0 => TurnId::from_u128(rng.random()),
            1 => messages
                .get(rng.random_range(0..messages.len()))
                .map_or(TurnId::from(message.input.id), |other| TurnId::from(other.input.id)),
            2..8 => TurnId::from(message.input.id),
            _ => continue,
        };
        let body = thinks(about, rng.random_bool(0.5), rng.random_bool(0.3));
        let after = message.after + rng.random_range(0..LATER_MOST);
        let Some(input) = input(&message.input.key, &format!("feedback{number}"), &body) else {
            continue;
        };
        if rng.random_bool(0.3) {
            let after = after + rng.random_range(100..LATER_MOST);
            clients.push(SimClient { after, input: input.clone(), answered: false });
        }
        clients.push(SimClient { after, input, answered: false });
    }
    clients
}

fn thinks(turn: TurnId, is_good: bool, has_comment: bool) -> SessionInput {
    let thumb = if is_good { Thumb::Up } else { Thumb::Down };
    let comment = has_comment.then(|| "That was not in time.".to_owned());
    SessionInput::Feedback(FeedbackInput { turn, thumb, comment })
}

fn input(session: &str, name: &str, body: &SessionInput) -> Option<Input> {
    let name: IdempotencyKey = name.parse().ok()?;
    Input::new(Kind::SESSION, session, name, Timestamp(0), body).ok()
}

impl Sim {
    /// The end of a turn is shown to people. What they say of it follows from the turn, so that to show it again changes
    /// nothing.
    pub(crate) fn reads_end(&mut self, entity: EntityId, turn: TurnId) {
        if self.recall.is_none() {
            return;
        }
        let mut keys = (0..self.plan.sessions).filter_map(session_key);
        let Some(session) = keys.find(|key| key.entity() == entity) else { return };
        let says: &[bool] = match turn.as_u128() % 8 {
            0..=2 => &[true],
            3..=4 => &[false],
            5 => &[true, false],
            6 => &[false, true, true],
            _ => &[],
        };
        for (number, is_good) in says.iter().enumerate() {
            let body = thinks(turn, *is_good, number == 2);
            self.hears_of(&session, &format!("thinks-{turn}-{number}"), &body);
        }
    }

    /// Memories are sent what feedback moves, as production says it.
    pub(crate) fn rates(
        &mut self,
        at: ActivationPlace,
        effect: Effect,
        ratings: &[MemoryRating],
    ) -> Checked {
        let now = self.now(at.process).wall;
        let mut for_memories = Vec::new();
        for rating in ratings {
            let rating = self.rating_of(at.process, rating.clone());
            let input = rating.input(now);
            let input = input.map_err(|error| JudgeViolation::new("X1", error.to_string()))?;
            for_memories.extend(input);
        }
        self.follows_turn(PostTurnWork { at, effect, jobs: Vec::new(), for_memories });
        Ok(())
    }

    /// Counts what is sent again by another process. With a planted bug that one has an id of its own for it.
    fn rating_of(&mut self, sender: ProcessId, mut rating: MemoryRating) -> MemoryRating {
        let Some(recall) = &mut self.recall else { return rating };
        let feedback = rating.rating.feedback;
        let is_first = *recall.senders.entry(feedback).or_insert(sender) == sender;
        recall.sent_again += usize::from(!is_first);
        if self.planted == KernelBug::FeedbackByOwner && !is_first {
            rating.rating.feedback = InputId::from_u128(feedback.as_u128() ^ sender.as_u128());
        }
        rating
    }

    /// A planted bug: memories are sent the feedback of an append that waits. How long it has to wait, in milliseconds.
    pub(crate) fn rates_first(&mut self, at: ActivationPlace, write: &Write) -> u64 {
        if self.planted != KernelBug::RatesUnjournaled || self.recall.is_none() {
            return 0;
        }
        let now = self.now(at.process).wall;
        let events = decode_record(&write.bytes).unwrap_or_default();
        let given = events.iter().filter_map(|sealed| match sealed.event() {
            Ok(Some(SessionEvent::FeedbackGiven(given))) => Some(given),
            _ => None,
        });
        let inputs: Vec<Input> = given
            .flat_map(|given| ratings_of(at.entity, given))
            .filter_map(|rating| rating.input(now).ok().flatten())
            .collect();
        let is_any = !inputs.is_empty();
        for input in inputs {
            self.world.submit(at.process, StoreRequest::Put(input));
        }
        if is_any { APPENDS_AFTER } else { 0 }
    }
}

fn ratings_of(session: EntityId, given: FeedbackGiven) -> Vec<MemoryRating> {
    let FeedbackGiven { turn, feedback, step, moves, .. } = given;
    let rating = |points| PointsRating { feedback, session, turn, step, points };
    let of_memory =
        |RatedPoints { memory, points }| MemoryRating { memory, rating: rating(points) };
    moves.into_iter().map(of_memory).collect()
}
