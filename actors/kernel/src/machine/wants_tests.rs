//! Calls that want two things, one after the other: a place, and then what they may spend.

use std::collections::VecDeque;

use clawnode_cluster::AppendAnswer;
use clawnode_proto::{
    CodecError, EntityId, Grammar, Head, Incarnation, Input, Kind, Position, ProcessId, Timestamp,
    TurnId, codec,
};
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::{Begun, InputMemory, KernelBug, Violation};

/// An errand: it is wanted or not, and running it takes a place and a reservation.
#[derive(Debug)]
struct Errand;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrandEvent {
    Begun,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrandWant {
    Place,
    Reservation,
}

/// A place, and what is reserved once it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ErrandGrant {
    reserved: bool,
}

impl Grammar for ErrandEvent {
    const KINDS: &'static [&'static str] = &["errand_begun", "errand_ended"];

    fn kind(&self) -> &'static str {
        match self {
            Self::Begun => "errand_begun",
            Self::Ended => "errand_ended",
        }
    }
    fn required(&self) -> bool {
        true
    }
    fn progress(&self) -> bool {
        true
    }
    fn encode_body(&self) -> Result<Vec<u8>, CodecError> {
        codec::encode(&())
    }
    fn view(&self) -> Value {
        Value::Null
    }
    fn decode_body(kind: &str, _: &[u8]) -> Result<Option<Self>, CodecError> {
        Ok([Self::Begun, Self::Ended].into_iter().find(|event| event.kind() == kind))
    }
}

impl EntityKind for Errand {
    const KIND: Kind = Kind::of("errand");
    const MEMORY: InputMemory = InputMemory::DAYS;
    /// Whether it is wanted, and how many inputs have said so or not.
    type State = (bool, u64);
    type Event = ErrandEvent;
    type Effect = u8;
    type Want = ErrandWant;
    type Grant = ErrandGrant;
    /// How many inputs the state had when its reservation was asked for.
    type Made = u64;
    /// Whether it runs with a reservation, and what was made for it.
    type Job = (bool, Option<u64>);
    type Outcome = ();

    fn born(_: &mut (bool, u64), _: &str) -> Result<(), Violation> {
        Ok(())
    }
    fn fold(_: &mut (bool, u64), _: &Head, _: &ErrandEvent) -> Result<(), Violation> {
        Ok(())
    }
    fn accept(state: &mut (bool, u64), _: &Head, input: &Input) -> Result<(), Violation> {
        state.0 = codec::decode(&input.body).map_err(|error| Violation(error.to_string()))?;
        state.1 += 1;
        Ok(())
    }
    fn emitted(_: &mut (bool, u64), _: TurnId) {}
    fn deleted(_: &mut (bool, u64)) {}
    fn doomed(_: &(bool, u64)) -> bool {
        false
    }
    fn understands(_: &Input) -> bool {
        true
    }
    fn begins(_: &Input) -> bool {
        true
    }
    fn admits(_: &(bool, u64), _: &Input) -> bool {
        true
    }
    fn advance(_: &(bool, u64)) -> Vec<ErrandEvent> {
        Vec::new()
    }
    fn decide(state: &(bool, u64)) -> Vec<u8> {
        state.0.then_some(1).into_iter().collect()
    }
    fn class(_: &u8) -> EffectKind {
        EffectKind::Call
    }
    fn want(
        state: &(bool, u64),
        _: &u8,
        granted: Option<&ErrandGrant>,
        made: &mut Option<u64>,
    ) -> Option<ErrandWant> {
        match granted {
            None => Some(ErrandWant::Place),
            Some(ErrandGrant { reserved: false }) => {
                *made = Some(state.1);
                Some(ErrandWant::Reservation)
            }
            Some(ErrandGrant { reserved: true }) => None,
        }
    }
    fn begin(
        state: &(bool, u64),
        _: &u8,
        grant: &ErrandGrant,
        made: Option<u64>,
    ) -> Option<Begun<ErrandEvent, (bool, Option<u64>)>> {
        state.0.then(|| (vec![ErrandEvent::Begun], Some((grant.reserved, made))))
    }
    fn prepare(_: &(bool, u64), _: &u8, _: bool) -> Option<(bool, Option<u64>)> {
        None
    }
    fn refuse(_: &(bool, u64), _: &u8, (): ()) -> Vec<ErrandEvent> {
        vec![ErrandEvent::Ended]
    }
    fn conclude(_: &(bool, u64), _: &u8, (): ()) -> Vec<ErrandEvent> {
        vec![ErrandEvent::Ended]
    }
}

/// Who gives places and reservations, and knows nothing of the machine but what it says.
struct Desk {
    machine: Machine<Errand>,
    inputs: u64,
    position: u64,
    /// What the machine asks for, and was neither granted nor refused.
    asked: Option<ErrandWant>,
    /// What the call has.
    place: bool,
    reserved: bool,
    runs: bool,
    started: usize,
    /// How often with what its want had made.
    with_made: usize,
    refused: usize,
    released: usize,
}

/// What befalls a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Befalls {
    Wanted(bool),
    Granted,
    Deferred,
    Refused,
    Forgotten,
    Ends,
}

type Found = Result<(), String>;
/// What befalls a call; how often it starts, is refused, and releases what it had.
type Row<'a> = (&'a [Befalls], (usize, usize, usize));

impl Desk {
    fn new(planted: KernelBug) -> Self {
        let entity = EntityId::derive(Errand::KIND, "one");
        let me = Incarnation { process: ProcessId::from_u128(1), counter: 1 };
        let options = MachineOptions { planted, ..MachineOptions::default() };
        let (machine, _) = Machine::new(entity, me, Activation::Fresh, options, Self::now());
        let mut desk = Self {
            machine,
            inputs: 0,
            position: 0,
            asked: None,
            place: false,
            reserved: false,
            runs: false,
            started: 0,
            with_made: 0,
            refused: 0,
            released: 0,
        };
        desk.feed(MachineInput::Loaded(LoadedJournal::default())).unwrap();
        desk
    }

    fn now() -> Now {
        Now { wall: Timestamp(1), steady: Timestamp(1) }
    }

    fn feed(&mut self, input: MachineInput<Errand>) -> Found {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            for out in self.machine.handle(Self::now(), input) {
                inputs.extend(self.does(out)?);
            }
        }
        Ok(())
    }

    fn does(&mut self, out: MachineOutput<Errand>) -> Result<Option<MachineInput<Errand>>, String> {
        match out {
            MachineOutput::Append { .. } => {
                self.position += 1;
                let stored = AppendAnswer::Stored(Position(self.position));
                return Ok(Some(MachineInput::Answered(stored)));
            }
            MachineOutput::Acquire(_, want) => {
                if want == ErrandWant::Reservation && !self.place {
                    return Err("a reservation is asked for without a place".to_owned());
                }
                if want == ErrandWant::Place && self.place {
                    return Err("a place is asked for beside another".to_owned());
                }
                if self.asked.replace(want).is_some() {
                    return Err("it is asked for twice".to_owned());
                }
            }
            MachineOutput::Release(_) => {
                if self.asked.is_none() && !self.place {
                    return Err("what is not there is released".to_owned());
                }
                (self.asked, self.place, self.reserved) = (None, false, false);
                self.released += 1;
            }
            MachineOutput::Start(_, (with_reservation, made)) => {
                if !with_reservation || !self.reserved {
                    return Err("BUD-1: it starts without its reservation".to_owned());
                }
                if made.is_some_and(|inputs| inputs != self.inputs) {
                    return Err("it starts with what was made of another state".to_owned());
                }
                self.with_made += usize::from(made.is_some());
                (self.asked, self.place, self.reserved) = (None, false, false);
                self.runs = true;
                self.started += 1;
            }
            MachineOutput::Abort(effect) => {
                self.runs = false;
                return Ok(Some(MachineInput::Gone(effect)));
            }
            MachineOutput::Stop(end) => return Err(format!("it stops: {end:?}")),
            _ => {}
        }
        Ok(None)
    }

    fn wanted(&mut self, wanted: bool) -> Found {
        self.inputs += 1;
        let name = format!("n{}", self.inputs).parse().unwrap();
        let input = Input::new(Errand::KIND, "one", name, Timestamp(1), &wanted).unwrap();
        self.feed(MachineInput::Deliver(vec![input]))
    }

    fn befalls(&mut self, what: Befalls) -> Found {
        match what {
            Befalls::Wanted(wanted) => return self.wanted(wanted),
            Befalls::Granted => match self.asked.take() {
                None => return Ok(()),
                Some(ErrandWant::Place) => self.place = true,
                Some(ErrandWant::Reservation) => self.reserved = true,
            },
            Befalls::Refused if self.asked.take().is_some() => {
                (self.place, self.reserved) = (false, false);
                self.refused += 1;
                return self.feed(MachineInput::Refused(1, ()));
            }
            Befalls::Forgotten if self.asked.take().is_some() => {
                // With the place: the one who gave it has restarted.
                (self.place, self.reserved) = (false, false);
                self.feed(MachineInput::Forgotten(1))?;
                return self.feed(MachineInput::Tick);
            }
            Befalls::Deferred if self.asked.is_some() => {
                return self.feed(MachineInput::Deferred(1));
            }
            Befalls::Ends if std::mem::take(&mut self.runs) => {
                return self.feed(MachineInput::Ended(1, ()));
            }
            Befalls::Refused | Befalls::Forgotten | Befalls::Deferred | Befalls::Ends => {
                return Ok(());
            }
        }
        self.feed(MachineInput::Granted(1, ErrandGrant { reserved: self.reserved }))
    }

    fn all(planted: KernelBug, steps: &[Befalls]) -> Result<Self, String> {
        let mut desk = Self::new(planted);
        for step in steps {
            desk.befalls(*step)?;
        }
        desk.wanted(false)?;
        if desk.place || desk.reserved || desk.asked.is_some() {
            return Err("what its call does not want any more is not released".to_owned());
        }
        Ok(desk)
    }
}

const WANTED: Befalls = Befalls::Wanted(true);

fn befalls() -> impl Strategy<Value = Befalls> {
    prop_oneof![
        3 => Just(WANTED),
        2 => Just(Befalls::Wanted(false)),
        6 => Just(Befalls::Granted),
        2 => Just(Befalls::Deferred),
        1 => Just(Befalls::Refused),
        1 => Just(Befalls::Forgotten),
        2 => Just(Befalls::Ends),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    /// BUD-1: whatever befalls a call, it starts with both, and what it has no use for is released.
    #[test]
    fn bud_1_a_call_starts_with_all_that_it_wants(
        steps in prop::collection::vec(befalls(), 1..40),
    ) {
        if let Err(found) = Desk::all(KernelBug::None, &steps) {
            prop_assert!(false, "{}", found);
        }
    }
}

#[test]
fn a_second_want_is_granted_deferred_refused_or_forgotten() {
    use Befalls::{Deferred, Ends, Forgotten, Granted, Refused};
    // How often it starts, is refused, and releases what it had. It is wanted again once it ends, and not
    // at the end of each row.
    let rows: [Row<'_>; 7] = [
        (&[WANTED, Granted, Granted, Ends], (1, 0, 1)),
        (&[WANTED, Granted, Deferred, Granted], (1, 0, 0)),
        (&[WANTED, Deferred, Granted, Deferred, Granted], (1, 0, 0)),
        (&[WANTED, Granted, Refused], (0, 1, 1)),
        // It is begun from its first want again.
        (&[WANTED, Granted, Forgotten, Granted, Granted], (1, 0, 0)),
        (&[WANTED, Granted, Deferred, Befalls::Wanted(false)], (0, 0, 1)),
        (&[WANTED, Granted, Befalls::Wanted(false), WANTED, Granted, Granted], (1, 0, 1)),
    ];
    for (steps, expected) in rows {
        let desk = Desk::all(KernelBug::None, steps).unwrap();
        assert_eq!((desk.started, desk.refused, desk.released), expected, "{steps:?}");
    }
}

#[test]
fn what_a_want_has_made_is_kept_while_the_state_is_the_same_and_the_call_need_not_wait() {
    use Befalls::{Deferred, Granted};
    let rows: [(&[Befalls], usize); 3] = [
        (&[WANTED, Granted, Granted], 1),
        (&[WANTED, Granted, WANTED, Granted], 0),
        (&[WANTED, Granted, Deferred, Granted], 0),
    ];
    for (steps, with_made) in rows {
        let desk = Desk::all(KernelBug::None, steps).unwrap();
        assert_eq!((desk.started, desk.with_made), (1, with_made), "{steps:?}");
    }
}

/// What was granted comes when the call is not wanted any more.
#[test]
fn a_grant_that_comes_too_late_is_released() {
    let mut desk = Desk::new(KernelBug::None);
    desk.wanted(true).unwrap();
    desk.wanted(false).unwrap();
    assert_eq!(desk.released, 1);
    desk.place = true;
    desk.feed(MachineInput::Granted(1, ErrandGrant { reserved: false })).unwrap();
    assert_eq!((desk.released, desk.place), (2, false));
}

#[test]
fn planted_bugs_of_second_wants_are_found() {
    let steps = [WANTED, Befalls::Granted, Befalls::Wanted(false), WANTED, Befalls::Granted];
    for (planted, found) in [
        (KernelBug::BeginsWithFirstGrant, "BUD-1"),
        (KernelBug::KeepsWhatItReleased, "is not there"),
        (KernelBug::KeepsUnwanted, "beside another"),
    ] {
        let result = Desk::all(planted, &steps).map(|desk| desk.started);
        let said = result.unwrap_err();
        assert!(said.contains(found), "{planted:?}: {said}");
    }
}
