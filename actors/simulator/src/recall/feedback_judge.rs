//! Feedback, judged by what the journals of sessions and memories say.
//!
//! - **MEM-1** feedback moves what its turn was shown: every point that the journal has as recalled there, of memories that
//!   its session reads, and no other one. A turn that is not in its session any more is not rated.
//! - **I5** no memory has feedback that the journal of its session does not have.
//! - **C23** what a session records of feedback is what it was given, and each memory counts it once. The last feedback on a
//!   turn counts, and nothing of it is lost.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_proto::{
    EntityId, Input, InputId, Kind, MemoryPointId, Sealed, TurnId, codec,
    feedback::{FeedbackGiven, FeedbackInput, Thumb},
    kernel::{KernelEvent, RESTORED},
    memory_point::{MemoryEvent, MemoryInput, PointsRated, PointsRating},
    session::{SessionEvent, SessionInput},
};

use super::shown::all_points;
use crate::{JudgeViolation, book::Checked};

/// A point in a memory, known by its memory and its id there.
pub(super) type PointPlace = (EntityId, MemoryPointId);

/// What was said of turns, and what became of it.
#[derive(Debug, Default)]
pub(super) struct FeedbackJudge {
    /// The memories that sessions read.
    reads: BTreeMap<EntityId, BTreeSet<EntityId>>,
    /// Whether sessions keep all their turns.
    keeps_turns: bool,
    /// The turns of sessions as these are now.
    turns: BTreeMap<TurnId, RatedTurn>,
    /// The feedback that sessions took.
    heard: BTreeMap<InputId, (EntityId, FeedbackInput)>,
    /// The feedback that sessions recorded.
    given: BTreeMap<InputId, JudgedFeedback>,
    /// The feedback that memories took.
    taken: BTreeMap<(EntityId, InputId), TakenFeedback>,
    /// Sessions whose journal was damaged: what they said is not known.
    damaged: BTreeSet<EntityId>,
    /// What came while its entity was out of service.
    parked: BTreeMap<EntityId, Vec<Input>>,
    late: usize,
    moved: usize,
}

/// How much was said of turns, and what that changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeedbackTally {
    /// Feedback that sessions recorded.
    pub recorded: usize,
    /// Feedback without effect: it came before its turn had ended or after its session was deleted, or was about another turn,
    /// or said the same again.
    pub in_vain: usize,
    /// Feedback that came while its session was out of service.
    pub late: usize,
    /// How often another process sent memories the same feedback again.
    pub again: usize,
    /// How often feedback moved a point.
    pub moved: usize,
}

/// A turn and the feedback on it.
#[derive(Debug)]
struct RatedTurn {
    session: EntityId,
    shown: BTreeSet<PointPlace>,
    has_ended: bool,
    /// The last feedback that its session took after its end.
    wanted: Option<Thumb>,
    /// The last feedback that its session recorded.
    last: Option<Thumb>,
    /// Feedback on it named a message that had joined it.
    is_named_otherwise: bool,
}

/// Feedback that a session has recorded.
#[derive(Debug)]
struct JudgedFeedback {
    session: EntityId,
    turn: TurnId,
    step: i8,
    moves: BTreeSet<PointPlace>,
    /// Its session was deleted since.
    is_deleted: bool,
}

/// Feedback that a memory has taken.
#[derive(Debug)]
struct TakenFeedback {
    /// The memory had one of its points then.
    is_due: bool,
    is_counted: bool,
}

fn broken(name: &'static str, text: String) -> Checked {
    Err(JudgeViolation::new(name, text))
}

/// The feedback that an input brings a session.
fn feedback(input: &Input) -> Option<FeedbackInput> {
    let body = codec::decode(&input.body).ok().filter(|_| input.kind == Kind::SESSION);
    match body {
        Some(SessionInput::Feedback(said)) => Some(said),
        _ => None,
    }
}

/// How much a thumb is worth.
const fn worth(thumb: Thumb) -> i8 {
    match thumb {
        Thumb::Up => 1,
        Thumb::Down => -1,
    }
}

// === impl FeedbackJudge ===

impl FeedbackJudge {
    /// Of sessions that read these memories, and keep all their turns or not.
    pub(super) fn new(reads: BTreeMap<EntityId, BTreeSet<EntityId>>, keeps_turns: bool) -> Self {
        Self { reads, keeps_turns, ..Self::default() }
    }

    // === what journals say ===

    /// The journal of a session or a memory says this. `is_live`: whether a memory has a point.
    pub(super) fn says(
        &mut self,
        entity: EntityId,
        sealed: &Sealed,
        is_live: impl Fn(MemoryPointId) -> bool,
    ) -> Checked {
        if sealed.head.kind == RESTORED {
            let parked = self.parked.remove(&entity).unwrap_or_default();
            return parked.iter().try_for_each(|input| self.accepts(entity, input, &is_live));
        }
        match sealed.event::<KernelEvent>() {
            Ok(Some(KernelEvent::Accepted(accepted))) => {
                return self.accepts(entity, &accepted.input, is_live);
            }
            Ok(Some(KernelEvent::Parked(parked))) => {
                self.late += usize::from(feedback(&parked.input).is_some());
                self.parked.entry(entity).or_default().push(parked.input);
                return Ok(());
            }
            _ => {}
        }
        if self.reads.contains_key(&entity) {
            return self.session_says(entity, sealed);
        }
        match sealed.event::<MemoryEvent>() {
            Ok(Some(MemoryEvent::Rated(rated))) => self.counts(entity, &rated, is_live),
            _ => Ok(()),
        }
    }

    fn accepts(
        &mut self,
        entity: EntityId,
        input: &Input,
        is_live: impl Fn(MemoryPointId) -> bool,
    ) -> Checked {
        if let Some(said) = feedback(input) {
            self.hears(entity, input.id, said);
        } else if input.kind == Kind::MEMORY
            && let Ok(MemoryInput::Rate(sent)) = codec::decode(&input.body)
        {
            return self.takes(entity, &sent, is_live);
        }
        Ok(())
    }

    fn session_says(&mut self, session: EntityId, sealed: &Sealed) -> Checked {
        match sealed.event::<SessionEvent>() {
            Ok(Some(SessionEvent::Recalled(recalled))) => {
                let points = all_points(&recalled);
                let places = points.map(|one| (one.memory.entity(), one.point));
                self.recalls(session, recalled.turn, places);
                Ok(())
            }
            Ok(Some(SessionEvent::TurnDone(done))) => {
                self.ends(session, done.turn);
                Ok(())
            }
            Ok(Some(SessionEvent::FeedbackGiven(given))) => self.gives(session, &given),
            _ => Ok(()),
        }
    }

    fn turn(&mut self, session: EntityId, turn: TurnId) -> &mut RatedTurn {
        self.turns.entry(turn).or_insert_with(|| RatedTurn {
            session,
            shown: BTreeSet::new(),
            has_ended: false,
            wanted: None,
            last: None,
            is_named_otherwise: false,
        })
    }

    /// A turn is reminded of these.
    fn recalls(
        &mut self,
        session: EntityId,
        turn: TurnId,
        points: impl Iterator<Item = PointPlace>,
    ) {
        self.turn(session, turn).shown.extend(points);
    }

    fn ends(&mut self, session: EntityId, turn: TurnId) {
        self.turn(session, turn).has_ended = true;
    }

    /// A session or a memory has lost all that it had.
    pub(super) fn loses(&mut self, entity: EntityId) {
        self.turns.retain(|_, turn| turn.session != entity);
        self.taken.retain(|(memory, _), _| *memory != entity);
        let given = self.given.values_mut().filter(|given| given.session == entity);
        given.for_each(|given| given.is_deleted = true);
        self.parked.remove(&entity);
    }

    /// A journal was damaged: what its session says from now on is not judged.
    pub(super) fn damaged(&mut self, session: EntityId) {
        self.damaged.insert(session);
    }

    // === sessions ===

    /// A session takes feedback.
    fn hears(&mut self, session: EntityId, id: InputId, said: FeedbackInput) {
        let turn = self.turns.get_mut(&said.turn);
        if let Some(turn) = turn.filter(|turn| turn.session == session && turn.has_ended) {
            turn.wanted = Some(said.thumb);
        }
        self.heard.insert(id, (session, said));
    }

    /// A session records feedback.
    fn gives(&mut self, session: EntityId, given: &FeedbackGiven) -> Checked {
        let (id, turn) = (given.feedback, given.turn);
        if self.damaged.contains(&session) {
            return Ok(());
        }
        self.is_as_said(session, given)?;
        let rated = self.turns.get_mut(&turn);
        let Some(rated) = rated.filter(|rated| rated.session == session && rated.has_ended) else {
            return broken("MEM-1", format!("`{id}` is about `{turn}`, which `{session}` has not"));
        };
        let said = self.heard.get(&id).map(|(_, said)| said.turn);
        rated.is_named_otherwise |= said != Some(turn);
        let before = rated.last.replace(given.thumb).map_or(0, worth);
        let step = worth(given.thumb) - before;
        let places = given.moves.iter().flat_map(|moved| {
            let memory = moved.memory.entity();
            moved.points.iter().map(move |point| (memory, *point))
        });
        let moves: BTreeSet<PointPlace> = places.clone().collect();
        let shown = if step == 0 { BTreeSet::new() } else { rated.shown.clone() };
        if moves != shown || places.count() != moves.len() {
            let text = format!("`{id}` moves {moves:?}, and `{turn}` was shown {shown:?}");
            return broken("MEM-1", text);
        }
        let reads = self.reads.get(&session);
        let may = |memory: &EntityId| reads.is_some_and(|reads| reads.contains(memory));
        if let Some((memory, _)) = moves.iter().find(|(memory, _)| !may(memory)) {
            return broken(
                "MEM-1",
                format!("`{id}` moves points of `{memory}`, which is not read"),
            );
        }
        if given.step != step {
            return broken("C23", format!("`{id}` moves by {}, and not by {step}", given.step));
        }
        let feedback = JudgedFeedback { session, turn, step, moves, is_deleted: false };
        match self.given.insert(id, feedback) {
            Some(_) => broken("C23", format!("`{id}` is recorded twice")),
            None => Ok(()),
        }
    }

    /// It was given, to this session and about this turn. It may name a message that joined the turn.
    fn is_as_said(&self, session: EntityId, given: &FeedbackGiven) -> Checked {
        let is_said = self.heard.get(&given.feedback).is_some_and(|(to, said)| {
            let joins = !self.turns.contains_key(&said.turn);
            (*to, said.thumb) == (session, given.thumb) && (said.turn == given.turn || joins)
        });
        if is_said {
            return Ok(());
        }
        broken("C23", format!("`{session}` records the feedback {given:?}, which it was not given"))
    }

    // === memories ===

    /// A memory takes what a session sends of feedback.
    fn takes(
        &mut self,
        memory: EntityId,
        sent: &PointsRating,
        is_live: impl Fn(MemoryPointId) -> bool,
    ) -> Checked {
        let PointsRating { feedback, session, turn, step, points } = sent;
        if self.damaged.contains(session) {
            return Ok(());
        }
        let Some(given) = self.given.get(feedback) else {
            return self.is_unknown(memory, sent);
        };
        let moves = given.of_memory(memory);
        let points: BTreeSet<MemoryPointId> = points.iter().copied().collect();
        let is_it =
            (given.session, given.turn, given.step, &moves) == (*session, *turn, *step, &points);
        if !is_it {
            return broken("MEM-1", format!("`{memory}` is sent {sent:?} of {given:?}"));
        }
        let is_due = moves.into_iter().any(is_live);
        let taken = TakenFeedback { is_due, is_counted: false };
        self.taken.entry((memory, *feedback)).or_insert(taken);
        Ok(())
    }

    /// No session has recorded it under this id.
    fn is_unknown(&self, memory: EntityId, sent: &PointsRating) -> Checked {
        let of_turn = self.given.iter().filter(|(_, given)| given.turn == sent.turn);
        let mut taken = of_turn.filter(|(id, _)| self.taken.contains_key(&(memory, **id)));
        if let Some((id, _)) = taken.find(|(_, given)| given.step == sent.step) {
            let text = format!("`{memory}` is sent `{id}` again as `{}`", sent.feedback);
            return broken("C23", text);
        }
        broken("I5", format!("`{memory}` is sent {sent:?}, and no journal has it"))
    }

    /// The importance of points has moved.
    fn counts(
        &mut self,
        memory: EntityId,
        rated: &PointsRated,
        is_live: impl Fn(MemoryPointId) -> bool,
    ) -> Checked {
        self.moved += rated.points.len();
        if self.damaged.contains(&rated.session) {
            return Ok(());
        }
        let id = rated.feedback;
        let taken = self.taken.get_mut(&(memory, id));
        let (Some(taken), Some(given)) = (taken, self.given.get(&id)) else {
            return broken("I5", format!("`{memory}` counts `{id}`, which it was not sent"));
        };
        if std::mem::replace(&mut taken.is_counted, true) {
            return broken("C23", format!("`{memory}` counts `{id}` twice"));
        }
        let live: BTreeSet<MemoryPointId> =
            given.of_memory(memory).into_iter().filter(|point| is_live(*point)).collect();
        let moved: BTreeSet<MemoryPointId> = rated.points.iter().map(|moved| moved.point).collect();
        if moved != live || moved.len() != rated.points.len() || rated.step != given.step {
            return broken("MEM-1", format!("`{memory}` moves {rated:?}, and not {live:?}"));
        }
        Ok(())
    }

    // === the end ===

    /// C23, once all is quiet. `knows`: whether a memory serves, and has all that it ever had.
    pub(super) fn at_the_end(
        &self,
        serves: impl Fn(EntityId) -> bool,
        knows: impl Fn(EntityId) -> bool,
    ) -> Checked {
        let is_judged = |session: &EntityId| serves(*session) && !self.damaged.contains(session);
        for (id, given) in &self.given {
            if given.is_deleted || !is_judged(&given.session) {
                continue;
            }
            let memories: BTreeSet<EntityId> =
                given.moves.iter().map(|(memory, _)| *memory).collect();
            let mut memories = memories.into_iter().filter(|memory| knows(*memory));
            let is_lost = |memory: &EntityId| !self.taken.contains_key(&(*memory, *id));
            if let Some(memory) = memories.find(is_lost) {
                return broken("C23", format!("`{memory}` was never sent `{id}`"));
            }
        }
        let is_left = |taken: &TakenFeedback| taken.is_due && !taken.is_counted;
        let mut left =
            self.taken.iter().filter(|((memory, _), taken)| knows(*memory) && is_left(taken));
        if let Some(((memory, id), _)) = left.next() {
            return broken("C23", format!("`{memory}` never counted `{id}`"));
        }
        let is_known = |turn: &RatedTurn| {
            self.keeps_turns && is_judged(&turn.session) && !turn.is_named_otherwise
        };
        let mut turns = self.turns.iter().filter(|(_, turn)| is_known(turn));
        match turns.find(|(_, turn)| turn.wanted != turn.last) {
            Some((id, turn)) => {
                broken("C23", format!("`{id}` does not have the last feedback: {turn:?}"))
            }
            None => Ok(()),
        }
    }

    /// What was said.
    pub(super) fn tally(&self) -> FeedbackTally {
        let in_vain = self.heard.keys().filter(|id| !self.given.contains_key(*id)).count();
        let (recorded, late, moved) = (self.given.len(), self.late, self.moved);
        FeedbackTally { recorded, in_vain, late, again: 0, moved }
    }
}

// === impl JudgedFeedback ===

impl JudgedFeedback {
    /// The points of this memory that move.
    fn of_memory(&self, memory: EntityId) -> BTreeSet<MemoryPointId> {
        let of_it = self.moves.iter().filter(|(place, _)| *place == memory);
        of_it.map(|(_, point)| *point).collect()
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{feedback::RatedPoints, memory::MemoryKey, memory_point::RatedPoint};

    use super::*;

    const SESSION: EntityId = EntityId::from_u128(1);
    const TURN: TurnId = TurnId::from_u128(2);
    const POINT: MemoryPointId = MemoryPointId::from_u128(3);
    const OTHER: MemoryPointId = MemoryPointId::from_u128(4);

    fn memory() -> MemoryKey {
        "main/all".parse().unwrap()
    }

    fn foreign() -> MemoryKey {
        "other/all".parse().unwrap()
    }

    fn name(checked: Checked) -> &'static str {
        checked.err().map_or("", |violation| violation.name)
    }

    fn reader() -> FeedbackJudge {
        FeedbackJudge::new([(SESSION, [memory().entity()].into())].into(), true)
    }

    /// A turn that was shown a point has ended.
    fn ended() -> FeedbackJudge {
        let mut judge = reader();
        judge.recalls(SESSION, TURN, [(memory().entity(), POINT)].into_iter());
        judge.ends(SESSION, TURN);
        judge
    }

    fn said(thumb: Thumb, turn: TurnId) -> FeedbackInput {
        FeedbackInput { turn, thumb, comment: None }
    }

    fn given(id: u128, thumb: Thumb, step: i8) -> FeedbackGiven {
        let moves = vec![RatedPoints { memory: memory(), points: vec![POINT] }];
        let moves = if step == 0 { Vec::new() } else { moves };
        let feedback = InputId::from_u128(id);
        FeedbackGiven { turn: TURN, feedback, thumb, comment: None, step, moves }
    }

    fn gives(judge: &mut FeedbackJudge, given: &FeedbackGiven) -> &'static str {
        judge.hears(SESSION, given.feedback, said(given.thumb, TURN));
        name(judge.gives(SESSION, given))
    }

    fn sent(id: u128, points: &[MemoryPointId]) -> PointsRating {
        let (feedback, points) = (InputId::from_u128(id), points.to_vec());
        PointsRating { feedback, session: SESSION, turn: TURN, step: 1, points }
    }

    fn takes(judge: &mut FeedbackJudge, sent: &PointsRating) -> &'static str {
        name(judge.takes(memory().entity(), sent, |_| true))
    }

    fn counts(judge: &mut FeedbackJudge, id: u128, points: &[MemoryPointId]) -> &'static str {
        let PointsRating { feedback, session, turn, step, points } = sent(id, points);
        let points = points.into_iter().map(|point| RatedPoint { point, importance: 6 }).collect();
        let rated = PointsRated { feedback, session, turn, step, points };
        name(judge.counts(memory().entity(), &rated, |_| true))
    }

    fn at_the_end(judge: &FeedbackJudge) -> &'static str {
        name(judge.at_the_end(|_| true, |_| true))
    }

    #[test]
    fn feedback_that_is_counted_once_is_right() {
        let mut judge = ended();
        assert_eq!(gives(&mut judge, &given(5, Thumb::Up, 1)), "");
        assert_eq!(at_the_end(&judge), "C23", "the memory was not sent it");
        assert_eq!(takes(&mut judge, &sent(5, &[POINT])), "");
        assert_eq!(at_the_end(&judge), "C23", "it is not counted");
        assert_eq!(counts(&mut judge, 5, &[POINT]), "");
        assert_eq!(at_the_end(&judge), "");
        assert_eq!(counts(&mut judge, 5, &[POINT]), "C23", "twice");
        assert_eq!(gives(&mut judge, &given(6, Thumb::Up, 0)), "", "the same moves nothing");
        assert_eq!(gives(&mut judge, &given(7, Thumb::Down, -2)), "");
        let FeedbackTally { recorded, moved, .. } = judge.tally();
        assert_eq!((recorded, moved), (3, 2));
    }

    #[test]
    fn mem_1_feedback_moves_what_its_turn_was_shown_and_nothing_else() {
        let moves = |moves: Vec<RatedPoints>| {
            gives(&mut ended(), &FeedbackGiven { moves, ..given(5, Thumb::Up, 1) })
        };
        let rated = |memory, points| RatedPoints { memory, points };
        assert_eq!(moves(Vec::new()), "MEM-1");
        assert_eq!(moves(vec![rated(memory(), vec![POINT, OTHER])]), "MEM-1");
        assert_eq!(moves(vec![rated(memory(), vec![POINT, POINT])]), "MEM-1");
        assert_eq!(moves(vec![rated(foreign(), vec![POINT])]), "MEM-1");
        // The turn was shown a point that its session may not read.
        let mut judge = ended();
        judge.recalls(SESSION, TURN, [(foreign().entity(), OTHER)].into_iter());
        let both = vec![rated(memory(), vec![POINT]), rated(foreign(), vec![OTHER])];
        assert_eq!(
            gives(&mut judge, &FeedbackGiven { moves: both, ..given(5, Thumb::Up, 1) }),
            "MEM-1"
        );
        let mut judge = ended();
        gives(&mut judge, &given(5, Thumb::Up, 1));
        assert_eq!(takes(&mut judge, &sent(5, &[POINT, OTHER])), "MEM-1");
        assert_eq!(takes(&mut judge, &sent(5, &[POINT])), "");
        assert_eq!(counts(&mut judge, 5, &[OTHER]), "MEM-1");
    }

    #[test]
    fn mem_1_no_turn_of_a_deleted_session_is_rated() {
        let mut judge = ended();
        gives(&mut judge, &given(5, Thumb::Up, 1));
        judge.loses(SESSION);
        assert_eq!(gives(&mut judge, &given(6, Thumb::Down, -2)), "MEM-1");
        assert_eq!(at_the_end(&judge), "", "what it had not sent went with it");
        assert_eq!(takes(&mut judge, &sent(5, &[POINT])), "", "or was under way");
        assert_eq!(gives(&mut reader(), &given(5, Thumb::Up, 1)), "MEM-1", "it has not ended");
    }

    #[test]
    fn i5_and_c23_memories_have_feedback_that_is_journaled_under_one_id() {
        let mut judge = ended();
        assert_eq!(takes(&mut judge, &sent(5, &[POINT])), "I5");
        gives(&mut judge, &given(5, Thumb::Up, 1));
        assert_eq!(takes(&mut judge, &sent(6, &[POINT])), "I5");
        assert_eq!(takes(&mut judge, &sent(5, &[POINT])), "");
        assert_eq!(takes(&mut judge, &sent(6, &[POINT])), "C23");
        assert_eq!(counts(&mut judge, 6, &[POINT]), "I5");
    }

    #[test]
    fn c23_what_is_recorded_was_given_and_the_last_counts() {
        let record =
            |judge: &mut FeedbackJudge, given: &FeedbackGiven| name(judge.gives(SESSION, given));
        let up = given(5, Thumb::Up, 1);
        assert_eq!(record(&mut ended(), &up), "C23", "no client gave it");
        let mut judge = ended();
        judge.hears(SESSION, up.feedback, said(Thumb::Down, TURN));
        assert_eq!(record(&mut judge, &up), "C23", "it was another one");
        let mut judge = ended();
        judge.hears(SESSION, up.feedback, said(Thumb::Up, TurnId::from_u128(9)));
        assert_eq!(record(&mut judge, &up), "", "about a message that joined it");
        takes(&mut judge, &sent(5, &[POINT]));
        counts(&mut judge, 5, &[POINT]);
        assert_eq!(at_the_end(&judge), "");
        let mut judge = ended();
        judge.hears(SESSION, up.feedback, said(Thumb::Up, TURN));
        assert_eq!(at_the_end(&judge), "C23", "it is not recorded");
        let wrong = FeedbackGiven { step: 2, ..up };
        assert_eq!(record(&mut judge, &wrong), "C23");
    }
}
