//! The frames of running turns that an owner keeps, for clients that resume.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use clawnode_kernel::driver::AnswerFrames;
use clawnode_proto::{EntityId, Frame, FrameBody, TurnId, limits::FRAMES_KEPT};

/// How many bytes of text are kept of one turn, nearly: an answer with 4,096 keys has to fit into a message
/// of the bus (1 MiB).
const BYTES_KEPT: usize = 384 << 10;

/// The frames of the running turn of each resident session.
#[derive(Clone, Debug, Default)]
pub struct FrameHub {
    kept: Arc<Mutex<HashMap<EntityId, KeptFrames>>>,
    /// Turns that have ended.
    ended: Arc<AtomicU64>,
}

#[derive(Debug)]
struct KeptFrames {
    turn: TurnId,
    frames: VecDeque<Frame>,
    bytes: usize,
    truncated: bool,
}

impl FrameHub {
    /// Keeps frames that were just published. The first frame of a turn removes those of the turn before.
    pub fn keep(&self, entity: EntityId, frames: &[Frame]) {
        let Some(first) = frames.first() else { return };
        let turn = first.key.turn;
        let mut all = self.lock();
        let kept = all.entry(entity).or_insert_with(|| KeptFrames::new(turn));
        if kept.turn != turn {
            *kept = KeptFrames::new(turn);
        }
        kept.frames.extend(frames.iter().cloned());
        kept.bytes += frames.iter().map(size).sum::<usize>();
        while kept.frames.len() > FRAMES_KEPT || kept.bytes > BYTES_KEPT {
            let Some(oldest) = kept.frames.pop_front() else { break };
            kept.bytes = kept.bytes.saturating_sub(size(&oldest));
            kept.truncated = true;
        }
    }

    /// Keeps the frames that it does not have yet, and returns them.
    pub fn keep_new(&self, entity: EntityId, mut frames: Vec<Frame>) -> Vec<Frame> {
        if let Some(kept) = self.lock().get(&entity) {
            let has = |frame: &Frame| kept.frames.iter().any(|one| one.key == frame.key);
            frames.retain(|frame| !has(frame));
        }
        self.keep(entity, &frames);
        frames
    }

    /// Removes a turn that has ended: the journal has all of it, and the next one may have begun.
    pub fn ended(&self, entity: EntityId, turn: TurnId) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        let mut all = self.lock();
        if all.get(&entity).is_some_and(|kept| kept.turn == turn) {
            all.remove(&entity);
        }
    }

    /// Turns that have ended here since the start.
    pub fn turns_ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Removes a session that left memory.
    pub fn forget(&self, entity: EntityId) {
        self.lock().remove(&entity);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<EntityId, KeptFrames>> {
        self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl KeptFrames {
    fn new(turn: TurnId) -> Self {
        Self { turn, frames: VecDeque::new(), bytes: 0, truncated: false }
    }
}

fn size(frame: &Frame) -> usize {
    match &frame.body {
        FrameBody::Text { delta } | FrameBody::Thought { delta } => delta.len(),
        FrameBody::ToolUse(tool_use) => tool_use.arguments.len(),
        FrameBody::ApprovalRequest(approval) => approval.arguments.len(),
        FrameBody::ClientCalls(calls) => calls.calls.iter().map(|call| call.arguments.len()).sum(),
        FrameBody::ToolResult(result) => result.content.len(),
        _ => 0,
    }
}

impl AnswerFrames for FrameHub {
    fn frames(&self, entity: EntityId, turn: TurnId) -> (Vec<Frame>, bool) {
        match self.lock().get(&entity) {
            Some(kept) if kept.turn == turn => {
                (kept.frames.iter().cloned().collect(), kept.truncated)
            }
            _ => (Vec::new(), true),
        }
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{Attempt, CallId, FrameKey};

    use super::*;

    #[test]
    fn what_is_kept_fits_into_a_message() {
        let (hub, entity, turn) =
            (FrameHub::default(), EntityId::from_u128(1), TurnId::from_u128(1));
        let frame = |index| Frame {
            key: FrameKey { turn, call: CallId::derive(turn, 0), attempt: Attempt(1), index },
            body: FrameBody::Text { delta: "x".repeat(100 << 10) },
        };
        for index in 0..9 {
            hub.keep(entity, &[frame(index)]);
        }
        assert_eq!(hub.frames(entity, turn), ((6..9).map(frame).collect(), true));
        hub.keep(
            entity,
            &[Frame { body: FrameBody::Text { delta: "x".repeat(2 << 20) }, ..frame(9) }],
        );
        assert_eq!(hub.frames(entity, turn), (Vec::new(), true));
    }

    #[test]
    fn a_turn_that_ends_late_takes_nothing_from_the_next() {
        let (hub, entity) = (FrameHub::default(), EntityId::from_u128(1));
        let (first, next) = (TurnId::from_u128(1), TurnId::from_u128(2));
        let frame = |turn| Frame {
            key: FrameKey { turn, call: CallId::derive(turn, 0), attempt: Attempt(1), index: 0 },
            body: FrameBody::Text { delta: "x".to_owned() },
        };
        hub.keep(entity, &[frame(first)]);
        hub.keep(entity, &[frame(next)]);
        hub.ended(entity, first);
        assert_eq!(hub.frames(entity, next), (vec![frame(next)], false));
        hub.ended(entity, next);
        assert_eq!(hub.frames(entity, next), (Vec::new(), true));
    }
}
