//! The scenario in which providers of models go down: no turn fails that another provider can serve, none
//! waits while there is one, and turns that wait for all of them go on by themselves.

use std::collections::BTreeSet;

use clawnode_cluster::{Clock, SystemClock};
use clawnode_proto::{Timestamp, view::EventView};

use super::{
    ChaosError,
    evidence::{Evidence, Hits},
    script::Play,
    transcript::Sight,
    wait::{PATIENCE, eventually},
};

/// The event by which an attempt ended and its call did not.
const GAVE_WAY: &str = "model_gave_way";
/// Messages, the last ones, whose sessions may have waited.
const RECENT: usize = 24;

/// How many attempts gave way to another provider, and how many to a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct GaveWay {
    to_another: usize,
    to_a_wait: usize,
}

// === impl GaveWay ===

impl GaveWay {
    fn of<'a>(events: impl IntoIterator<Item = &'a EventView>) -> Self {
        let mut found = Self::default();
        for event in events.into_iter().filter(|event| event.kind == GAVE_WAY) {
            if waits(event) {
                found.to_a_wait += 1;
            } else {
                found.to_another += 1;
            }
        }
        found
    }
}

// === impl Play ===

impl Play<'_> {
    /// The first provider goes down in mid-answer and comes back; then both go down, until all turns wait.
    pub(super) async fn provider_outage(&mut self) -> Result<(), ChaosError> {
        self.in_mid_answer().await?;
        let since = SystemClock.now();
        let at = self.fault("kill -9 of the first provider", Hits::Nothing);
        self.stage.models.kill(0).await?;
        self.load.settled(at).await?;
        self.load.round().await?;
        let waits = self.waits(since).await?;
        if waits > 0 {
            self.complaints
                .push(format!("{waits} calls waited, and the second provider was there"));
        }
        self.stage.models.restart(0).await?;
        self.calm().await;

        self.in_mid_answer().await?;
        let at = self.fault("kill -9 of both providers", Hits::Everyone);
        self.stage.models.kill(0).await?;
        self.stage.models.kill(1).await?;
        self.all_wait().await?;
        self.stage.models.restart(1).await?;
        self.stage.models.restart(0).await?;
        self.load.settled(at).await
    }

    /// Waits until some turn has said something, and has not ended.
    pub(super) async fn in_mid_answer(&self) -> Result<(), ChaosError> {
        let board = self.load.board();
        eventually("a turn in mid-answer", PATIENCE, async || {
            if board.speaking().is_empty() { Err("silence".to_owned()) } else { Ok(()) }
        })
        .await
    }

    /// How many calls have waited since then, of the sessions that were spoken with last.
    async fn waits(&self, since: Timestamp) -> Result<usize, ChaosError> {
        let mut sessions = self.load.board().recent(RECENT);
        sessions.extend(self.errands.open());
        let mut count = 0;
        for session in sessions {
            let events = self.journal(&session).await?;
            count += GaveWay::of(events.iter().filter(|event| event.ts >= since)).to_a_wait;
        }
        Ok(count)
    }

    /// Waits until every turn that is under way waits for a provider. Until then an attempt may be sent
    /// once more under its own key, which would look as if its call was made again.
    async fn all_wait(&self) -> Result<(), ChaosError> {
        eventually("that all turns wait for a provider", PATIENCE, async || {
            let mut sessions: BTreeSet<String> = self.load.board().open().into_iter().collect();
            sessions.extend(self.errands.open());
            for session in &sessions {
                let events = self.journal(session).await.map_err(|error| error.to_string())?;
                if !is_waiting(&events) {
                    return Err(format!("`{session}` does not"));
                }
            }
            if sessions.is_empty() { Err("no turn is under way".to_owned()) } else { Ok(()) }
        })
        .await
    }

    /// A session's journal; nothing if its first message is still on its way.
    pub(super) async fn journal(&self, session: &str) -> Result<Vec<EventView>, ChaosError> {
        match self.stage.gateway().await?.journal(session).await {
            Err(error) if error.refusal().is_some() => Ok(Vec::new()),
            events => Ok(events?),
        }
    }
}

/// Why a run proves nothing, if it does not.
pub(super) fn proves_nothing(evidence: &Evidence) -> Option<&'static str> {
    let events = evidence.sessions.values().flat_map(|stored| &stored.events);
    let GaveWay { to_another, to_a_wait } = GaveWay::of(events);
    let begun_again = evidence.transcripts.iter().any(|one| {
        let text = one.seen.iter().position(|seen| matches!(seen.sight, Sight::Text(_)));
        let reset = one.seen.iter().rposition(|seen| matches!(seen.sight, Sight::Reset(_)));
        text.zip(reset).is_some_and(|(text, reset)| text < reset)
    });
    match (to_another, to_a_wait, begun_again) {
        (0, _, _) => Some("no call moved to the second provider"),
        (_, 0, _) => Some("no turn waited for a provider"),
        (_, _, false) => Some("no reply was broken off"),
        _ => None,
    }
}

fn waits(event: &EventView) -> bool {
    event.body["wait_ms"].as_u64().is_some_and(|wait| wait > 0)
}

/// Whether the last of a session's model calls has given way to a wait, and not gone on.
fn is_waiting(events: &[EventView]) -> bool {
    let last = events.iter().rev().find(|event| event.kind.starts_with("model_"));
    last.is_some_and(|event| event.kind == GAVE_WAY && waits(event))
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        Digest, EntityId, Epoch, EventId, Incarnation, ProcessId, Seq, TurnId, view::HistoryView,
    };
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::{
        super::{
            evidence::Stored,
            transcript::{Seen, Transcript},
        },
        *,
    };

    fn event(kind: &str, body: Value) -> EventView {
        EventView {
            n: Seq(0),
            kind: kind.to_owned(),
            eid: EventId::from_u128(0),
            epoch: Epoch(1),
            incarnation: Incarnation { process: ProcessId::from_u128(1), counter: 1 },
            ts: Timestamp(0),
            hash: Digest::ZERO,
            body,
        }
    }

    #[test]
    fn a_turn_waits_from_its_give_way_to_its_next_attempt() {
        let mut events = Vec::new();
        for (kind, body, is_so) in [
            ("model_begun", json!({}), false),
            ("model_gave_way", json!({}), false),
            ("model_begun", json!({}), false),
            ("model_gave_way", json!({"wait_ms": 10_000}), true),
            ("claim", json!({}), true),
            ("model_begun", json!({}), false),
            ("model_done", json!({}), false),
        ] {
            events.push(event(kind, body));
            assert_eq!(is_waiting(&events), is_so, "after `{kind}`");
        }
        assert_eq!(GaveWay::of(&events), GaveWay { to_another: 1, to_a_wait: 1 });
    }

    #[test]
    fn a_run_in_which_nothing_gave_way_proves_nothing() {
        let history = HistoryView {
            id: EntityId::from_u128(1),
            key: "key".to_owned(),
            state: "idle".to_owned(),
            turns: Vec::new(),
            next: None,
        };
        let mut one = Transcript::new("ada", "m", Instant::now());
        let mut see = |sight| {
            one.see(Seen { at: Instant::now(), connection: 1, cursor: None, sight });
        };
        see(Sight::Accepted(TurnId::from_u128(1)));
        see(Sight::Text("rep".to_owned()));
        see(Sight::Reset(String::new()));
        let events = vec![
            event("model_gave_way", json!({})),
            event("model_gave_way", json!({"wait_ms": 10_000})),
        ];
        let sessions = [("key".to_owned(), Stored { history, events })].into();
        let sound = Evidence { transcripts: vec![one], sessions, ..Evidence::default() };
        assert_eq!(proves_nothing(&sound), None);
        let without = |at: usize| {
            let mut evidence = sound.clone();
            for stored in evidence.sessions.values_mut() {
                stored.events.remove(at);
            }
            proves_nothing(&evidence)
        };
        assert_eq!(without(0), Some("no call moved to the second provider"));
        assert_eq!(without(1), Some("no turn waited for a provider"));
        let mut unbroken = sound.clone();
        unbroken.transcripts[0].seen.pop();
        assert_eq!(proves_nothing(&unbroken), Some("no reply was broken off"));
    }
}
