//! What clients see of turns that left the state of their session: what they saw before.

use std::sync::{Arc, atomic::AtomicU16};

use clawnode_cluster::{AppendAnswer, Clock, SystemClock, Write};
use clawnode_kernel::archive;
use clawnode_local as local;
use clawnode_proto::{
    CallId, Cursor, IdempotencyKey, Input, InputId, Kind, Position, Timestamp, TurnId, codec,
    context_view::TurnPlace,
    envelope::{FEEDBACK, REFLECT},
    feedback::{FeedbackInput, Thumb},
    limits::INLINE_BYTES,
    session::{SessionInput, UserMessage},
    turn::TurnBody,
    view::TurnView,
};
use futures_util::StreamExt;

use super::{send_error::SendError, session_list::SessionQuery, sessions::Sessions};
use crate::session::{
    kept_tests::{TIGHT, begin, turn},
    played::{PlayedActivation, key},
};

const TURNS: usize = 60;

/// A session of many turns, its archives and its journal stored.
struct LongSession {
    _dir: tempfile::TempDir,
    sessions: Sessions,
    run: PlayedActivation,
}

impl LongSession {
    async fn new() -> Self {
        let mut run = begin(Some(TIGHT), 25);
        (0..TURNS).for_each(|n| turn(&mut run, n));
        assert!(run.archives.len() > 3, "{}", run.archives.len());
        Box::pin(Self::of(run)).await
    }

    async fn of(run: PlayedActivation) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let options = local::LocalOptions::new("cn".parse().unwrap(), Arc::clone(&clock));
        let (storage, _control) = local::open(dir.path(), options).unwrap();
        for (records, state) in &run.archives {
            storage.blobs.put(archive::pack(records).unwrap()).await.unwrap();
            assert!(state.len() <= INLINE_BYTES);
        }
        let mut expected = Position(0);
        for record in &run.journal {
            let write = Write { bytes: record.bytes.clone(), rollup: false };
            let answer = storage.journal.append(key().entity(), expected, write).await;
            let AppendAnswer::Stored(position) = answer else { panic!("{answer:?}") };
            expected = position;
        }
        Self { _dir: dir, sessions: Sessions::new(storage, clock), run }
    }

    /// The ids of all turns.
    fn ids() -> Vec<TurnId> {
        let name = |n| format!("message {n:04} of this conversation");
        (0..TURNS).map(|n| turn_of(&name(n))).collect()
    }
}

fn turn_of(name: &str) -> TurnId {
    let key_of: IdempotencyKey = name.parse().unwrap();
    TurnId::from(InputId::derive(key().entity(), &key_of))
}

#[tokio::test]
async fn a_history_is_whole_and_its_pages_are_its_parts() {
    let long = LongSession::new().await;
    let id = key().entity();
    let history = long.sessions.history(id).await.unwrap();
    let ids: Vec<TurnId> = history.turns.iter().map(|turn| turn.turn).collect();
    assert_eq!(ids, LongSession::ids());
    // The same session under rules that keep all turns shows the same.
    let mut whole = begin(None, 10_000);
    (0..TURNS).for_each(|n| turn(&mut whole, n));
    let state = &whole.machine.settled().unwrap().state;
    for (shown, turn) in history.turns.iter().zip(&state.closed) {
        let expected = long.sessions.turn_view(turn).await.unwrap();
        assert_eq!(serde_json::to_value(shown).unwrap(), serde_json::to_value(expected).unwrap());
    }
    for limit in [7, 13, TURNS] {
        let (mut turns, mut next): (Vec<TurnView>, Option<Cursor>) = (Vec::new(), None);
        loop {
            let page = long.sessions.history_page(id, next.as_ref(), limit).await.unwrap();
            assert!(page.turns.len() <= limit);
            turns.extend(page.turns);
            next = page.next;
            if next.is_none() {
                break;
            }
        }
        let paged: Vec<TurnId> = turns.iter().map(|turn| turn.turn).collect();
        assert_eq!(paged, ids, "pages of {limit}");
    }
    let newest = SessionQuery { limit: 1, ..SessionQuery::default() };
    let row = long.sessions.list(&newest).await.unwrap().sessions.remove(0);
    assert_eq!((row.turns, row.title.as_deref()), (60, Some("message 0000 of this conversation")));
}

#[tokio::test]
async fn a_cursor_that_names_no_turn_is_refused() {
    let long = LongSession::new().await;
    let id = key().entity();
    let method = clawnode_proto::api::Method::SessionsHistory;
    let stray = Cursor::new(method, clawnode_proto::cursor::Pair(id, TurnId::from_u128(7)));
    let refused = long.sessions.history_page(id, Some(&stray), 5).await.unwrap_err();
    assert!(matches!(refused, SendError::Cursor(_)), "{refused:?}");
}

#[tokio::test]
async fn a_message_of_long_ago_that_is_repeated_gets_its_answer() {
    let long = LongSession::new().await;
    let name = "message 0005 of this conversation";
    let own = turn_of(name);
    assert!(long.run.machine.settled().unwrap().state.turn(own).is_none(), "it left the state");
    let input = SessionInput::UserMessage(UserMessage::text(name));
    let sent = long.sessions.send(&key(), input, name.parse().unwrap(), None).await.unwrap();
    assert_eq!(sent.turn, own);
    let bodies: Vec<TurnBody> = sent.events.map(|event| event.body).collect().await;
    assert_eq!(bodies[0], TurnBody::Text("so".to_owned()));
    assert!(matches!(&bodies[2], TurnBody::Done(end) if end.outcome.is_some()), "{bodies:?}");

    let recorded = long.sessions.recorded(key().entity(), own, None).await.unwrap();
    assert_eq!((recorded.is_over, recorded.is_only), (true, false));
    assert_eq!(recorded.next, Some(turn_of("message 0006 of this conversation")));
    let call =
        CallId::derive_tool(CallId::derive(turn_of("message 0003 of this conversation"), 0), 0);
    let with_call = long.sessions.read_with_call(key().entity(), call).await.unwrap();
    assert!(with_call.state.place_of_call(call).is_some());
}

#[tokio::test]
async fn a_turn_that_never_was_is_not_found() {
    let long = LongSession::new().await;
    let own = TurnId::from_u128(7);
    let missing = long.sessions.recorded(key().entity(), own, None).await;
    assert!(matches!(missing, Err(SendError::NotFound { .. })), "{missing:?}");
}

/// The message that asked for the deletion may leave the inbox after the journal has the tombstone.
#[tokio::test]
async fn a_turn_of_a_deleted_session_is_gone_whatever_waits_there() {
    let mut run = begin(None, 10_000);
    turn(&mut run, 0);
    run.hears("delete", &SessionInput::Delete);
    let gone = Box::pin(LongSession::of(run)).await;
    let name = "delete".parse().unwrap();
    let asked =
        Input::new(Kind::SESSION, &key().to_string(), name, Timestamp(1), &SessionInput::Delete);
    gone.sessions.storage().inbox.put(&asked.unwrap()).await.unwrap();
    let own = turn_of("message 0000 of this conversation");
    let missing = gone.sessions.recorded(key().entity(), own, None).await;
    assert!(matches!(missing, Err(SendError::NotFound { .. })), "{missing:?}");
    // Any other may be a message that waits.
    let waits = gone.sessions.recorded(key().entity(), TurnId::from_u128(7), None).await.unwrap();
    assert!(!waits.is_accepted && waits.session.is_none(), "{waits:?}");
}

/// An older build would not know it, so it is not sent while one may take the session.
#[tokio::test]
async fn feedback_is_for_turns_in_the_state_and_for_builds_that_know_it() {
    let long = LongSession::new().await;
    let id = key().entity();
    let gives = async |sessions: &Sessions, turn, key: &str| {
        let given = FeedbackInput { turn, thumb: Thumb::Up, comment: None };
        sessions.give_feedback(id, given, key.parse().unwrap(), None).await
    };
    let ids = LongSession::ids();
    let left = gives(&long.sessions, ids[5], "a").await.unwrap_err();
    assert!(matches!(left, SendError::NoFeedback { .. }), "{left:?}");
    let unknown = gives(&long.sessions, TurnId::from_u128(7), "b").await.unwrap_err();
    assert!(matches!(unknown, SendError::NoTurn { .. }), "{unknown:?}");
    let older = long.sessions.clone().writing(Arc::new(AtomicU16::new(FEEDBACK - 1)));
    let refused = gives(&older, ids[TURNS - 1], "c").await.unwrap_err();
    assert!(matches!(refused, SendError::OlderBuild("feedback")), "{refused:?}");
    gives(&long.sessions, ids[TURNS - 1], "d").await.unwrap();
    let waiting = long.sessions.storage().inbox.read(id, Position(0)).await.unwrap();
    let inputs: Vec<Input> =
        waiting.iter().map(|waiting| Input::from_bytes(&waiting.bytes).unwrap()).collect();
    assert_eq!(inputs.len(), 1, "what was refused is not stored");
    assert_eq!((inputs[0].v, inputs[0].v_min), (FEEDBACK, FEEDBACK));
}

#[tokio::test]
async fn a_turn_is_named_by_its_number_also_after_earlier_ones_left_the_state() {
    let long = LongSession::new().await;
    let (id, ids) = (key().entity(), LongSession::ids());
    let at = async |place| long.sessions.turn_at(id, place).await;
    let last = u64::try_from(TURNS).unwrap();
    assert_eq!(at(TurnPlace::Number(last)).await.unwrap(), ids[TURNS - 1]);
    assert_eq!(at(TurnPlace::Number(last - 1)).await.unwrap(), ids[TURNS - 2]);
    assert_eq!(at(TurnPlace::Id(ids[5])).await.unwrap(), ids[5], "an id is looked up later");
    let left = at(TurnPlace::Number(6)).await.unwrap_err();
    assert!(matches!(left, SendError::NoFeedback { .. }), "{left:?}");
    let none = at(TurnPlace::Number(last + 1)).await.unwrap_err();
    assert!(matches!(none, SendError::NoTurn { .. }), "{none:?}");
}

/// The same for a request for a reflection. Without a turn, it is about the last one that has ended.
#[tokio::test]
async fn a_reflection_is_on_turns_in_the_state_and_for_builds_that_know_it() {
    let long = LongSession::new().await;
    let id = key().entity();
    let asks = async |sessions: &Sessions, turn, key: &str| {
        sessions.reflect(id, turn, key.parse().unwrap(), None).await
    };
    let ids = LongSession::ids();
    let left = asks(&long.sessions, Some(ids[5]), "a").await.unwrap_err();
    assert!(matches!(left, SendError::NoReflection { .. }), "{left:?}");
    let unknown = asks(&long.sessions, Some(TurnId::from_u128(7)), "b").await.unwrap_err();
    assert!(matches!(unknown, SendError::NoTurn { .. }), "{unknown:?}");
    let older = long.sessions.clone().writing(Arc::new(AtomicU16::new(REFLECT - 1)));
    let refused = asks(&older, None, "c").await.unwrap_err();
    assert!(matches!(refused, SendError::OlderBuild("requests for reflections")), "{refused:?}");
    asks(&long.sessions, None, "d").await.unwrap();
    let waiting = long.sessions.storage().inbox.read(id, Position(0)).await.unwrap();
    let [waiting] = &waiting[..] else { panic!("what was refused is not stored") };
    let input = Input::from_bytes(&waiting.bytes).unwrap();
    assert_eq!((input.v, input.v_min), (REFLECT, REFLECT));
    let SessionInput::Reflect(asked) = codec::decode(&input.body).unwrap() else { panic!() };
    assert_eq!(asked.turn, ids[TURNS - 1]);
}
