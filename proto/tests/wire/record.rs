//! A journal record: the bytes of an append, and the chain that its events make.

use std::fmt::Write as _;

use clawnode_proto::{
    Digest, EntityId, Epoch, EventId, Grammar, Head, Kind, Sealed, Seq, Tail, Timestamp,
    codec::CodecError,
    event::{RecordError, VERSION, decode_record, encode_record},
    kernel::KernelEvent,
};

use crate::{hex, samples as sample};

fn head(n: Seq, event: &impl Grammar) -> Head {
    let entity = sample::entity();
    Head {
        entity,
        n,
        v: VERSION,
        eid: EventId::derive(entity, sample::incarnation(), n),
        epoch: Epoch(1),
        incarnation: sample::incarnation(),
        ts: Timestamp(1_700_000_000_000 + n.0),
        kind: event.kind().to_owned(),
        required: event.required(),
        progress: event.progress(),
    }
}

/// The first append of a session: claim, birth, first input.
fn first_append() -> Vec<Sealed> {
    let mut tail = Tail::START;
    let mut sealed = Vec::new();
    for event in sample::kernel_events().into_iter().take(3) {
        let next = Sealed::seal(head(tail.n.next(), &event), &event, tail.hash).unwrap();
        tail = tail.follow(&next).unwrap();
        sealed.push(next);
    }
    sealed
}

fn follow_all(events: &[Sealed]) -> Result<Tail, RecordError> {
    events.iter().try_fold(Tail::START, |tail, event| tail.follow(event))
}

#[test]
fn first_append_of_a_session() {
    let events = first_append();
    let bytes = encode_record(&events).unwrap();
    assert_eq!(decode_record(&bytes).unwrap(), events);
    let mut golden = String::new();
    for event in &events {
        let head = serde_json::to_string(&event.head).unwrap();
        writeln!(golden, "{head}\n  body {}\n  hash {}", hex(&event.body), event.hash).unwrap();
    }
    writeln!(golden, "record {}", hex(&bytes)).unwrap();
    insta::assert_snapshot!(golden);
}

/// I1: whatever byte of a record is changed, reading or following it fails.
#[test]
fn i1_no_byte_of_a_record_can_change_unseen() {
    let events = first_append();
    let whole = encode_record(&events).unwrap();
    let tail = follow_all(&events).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        let read = decode_record(&bytes).and_then(|events| follow_all(&events));
        assert!(read.is_err(), "byte {at} of {} changed unseen: {read:?}, {tail:?}", whole.len());
    }
}

#[test]
fn i1_numbers_are_dense() {
    let events = first_append();
    let missing = [events[0].clone(), events[2].clone()];
    assert!(matches!(follow_all(&missing), Err(RecordError::Gap { .. })));
    let twice = [events[0].clone(), events[0].clone()];
    assert!(matches!(follow_all(&twice), Err(RecordError::Gap { .. })));
}

#[test]
fn i2_only_a_claim_changes_the_epoch() {
    let claim = &sample::kernel_events()[0];
    let first = Sealed::seal(head(Seq(1), claim), claim, Digest::ZERO).unwrap();
    let tail = Tail::START.follow(&first).unwrap();

    let same_epoch = Sealed::seal(head(Seq(2), claim), claim, tail.hash).unwrap();
    assert!(matches!(tail.follow(&same_epoch), Err(RecordError::Epoch { .. })), "a second claim");

    let released = &sample::kernel_events()[9];
    let raised = Head { epoch: Epoch(2), ..head(Seq(2), released) };
    let raised = Sealed::seal(raised, released, tail.hash).unwrap();
    assert!(matches!(tail.follow(&raised), Err(RecordError::Epoch { .. })), "raised unclaimed");
}

#[test]
fn an_empty_record_is_refused() {
    assert!(matches!(decode_record(&encode_record(&[]).unwrap()), Err(RecordError::Empty)));
}

/// A grammar of some later version.
struct Later {
    required: bool,
}

impl Grammar for Later {
    const KINDS: &'static [&'static str] = &["invented_later"];

    fn kind(&self) -> &'static str {
        "invented_later"
    }
    fn required(&self) -> bool {
        self.required
    }
    fn progress(&self) -> bool {
        false
    }
    fn encode_body(&self) -> Result<Vec<u8>, CodecError> {
        Ok(vec![0xc1, 0xff])
    }
    fn view(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
    fn decode_body(_: &str, _: &[u8]) -> Result<Option<Self>, CodecError> {
        Ok(None)
    }
}

/// The head of an event whose kind this build does not know is readable, and says whether to stand
/// back; the chain continues after it.
#[test]
fn an_unknown_kind_is_chained_and_says_whether_it_may_be_skipped() {
    let claim = &sample::kernel_events()[0];
    let first = Sealed::seal(head(Seq(1), claim), claim, Digest::ZERO).unwrap();
    for required in [true, false] {
        let later = Later { required };
        let second = Sealed::seal(head(Seq(2), &later), &later, first.hash).unwrap();
        let bytes = encode_record(&[first.clone(), second]).unwrap();
        let read = decode_record(&bytes).unwrap();
        follow_all(&read).unwrap();
        assert_eq!(read[1].head.required, required);
        assert_eq!(read[1].event::<KernelEvent>().unwrap(), None);
    }
}

#[test]
fn an_event_says_whose_it_is() {
    let event = &first_append()[0];
    assert_eq!(event.head.entity, EntityId::derive(Kind::SESSION, sample::KEY));
}
