//! What is known, and what keys do to it. Pure.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use clawnode_proto::{
    feed::ClusterEvent,
    overview::{FeedRow, FeedView, StatsView, TurnCounts},
    view::{SessionRow, StatusView},
};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::cli::events::{SessionKeys, ended};

/// Seconds of throughput that are drawn.
const RATES_MAX: usize = 240;
/// Events that are kept for reading.
const EVENTS_MAX: usize = 500;
/// Rows that a page moves by.
const PAGE: usize = 10;

/// What the lower part shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tab {
    #[default]
    Nodes,
    Sessions,
    Events,
}

/// What was asked of the node at one time.
#[derive(Debug)]
pub(super) struct TopSnapshot {
    pub(super) at: Instant,
    /// The gateway that answered.
    pub(super) gateway: String,
    /// Whether another one answered before.
    pub(super) moved: bool,
    pub(super) status: StatusView,
    pub(super) stats: StatsView,
    pub(super) feed: FeedView,
}

/// Why a question had no answer.
#[derive(Clone, Debug)]
pub(super) struct TopProblem {
    pub(super) what: String,
    /// Who is asked next.
    pub(super) trying: String,
}

/// A line of the events.
#[derive(Debug)]
pub(super) enum EventRow {
    Event(Box<FeedRow>),
    /// So many are missing.
    Gap(u64),
    /// This gateway tells from here on, and some may be missing.
    Moved(String),
}

/// Everything that is drawn.
#[derive(Debug, Default)]
pub(super) struct TopScreen {
    pub(super) tab: Tab,
    pub(super) help: bool,
    /// The first row that is shown, of each tab.
    offsets: [usize; 3],
    pub(super) status: Option<StatusView>,
    pub(super) stats: StatsView,
    /// The most recently busy ones come first. Absent until a person looks at them, because to list
    /// sessions is to read them.
    pub(super) sessions: Option<Vec<SessionRow>>,
    /// The keys of sessions that were listed.
    pub(super) keys: SessionKeys,
    /// The newest first.
    pub(super) events: VecDeque<EventRow>,
    /// Turns a second in tenths, the newest last.
    pub(super) rates: VecDeque<u64>,
    turns: Option<(Instant, TurnCounts)>,
    /// Why the last question had no answer.
    pub(super) problem: Option<TopProblem>,
    /// When it is drawn.
    pub(super) now: Option<Instant>,
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterKey {
    Draw,
    Quit,
}

// === impl Tab ===

impl Tab {
    pub(super) const ALL: [Self; 3] = [Self::Nodes, Self::Sessions, Self::Events];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Sessions => "sessions",
            Self::Events => "events",
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::Nodes => 0,
            Self::Sessions => 1,
            Self::Events => 2,
        }
    }

    fn shifted(self, by: usize) -> Self {
        let at = (self.index() + by) % Self::ALL.len();
        Self::ALL.get(at).copied().unwrap_or_default()
    }
}

// === impl TopScreen ===

impl TopScreen {
    /// Takes what was answered.
    pub(super) fn take(&mut self, snapshot: TopSnapshot) {
        let TopSnapshot { at, gateway, moved, status, stats: measured, feed } = snapshot;
        let turns = feed.turns;
        // Each gateway counts what it has heard.
        if let Some((before, counts)) = self.turns.filter(|_| !moved) {
            // A gateway that started again counts from zero.
            let ended = turns.ended.saturating_sub(counts.ended);
            let elapsed = at.duration_since(before).max(Duration::from_millis(1));
            let tenths = u128::from(ended) * 10_000 / elapsed.as_millis();
            self.rates.push_back(u64::try_from(tenths).unwrap_or(u64::MAX));
            if self.rates.len() > RATES_MAX {
                self.rates.pop_front();
            }
        }
        self.turns = Some((at, turns));
        if moved {
            self.events.push_front(EventRow::Moved(gateway));
        } else if feed.missed > 0 {
            self.events.push_front(EventRow::Gap(feed.missed));
        }
        for row in feed.events {
            if !self.is_retold(&row.event) {
                self.events.push_front(EventRow::Event(Box::new(row)));
            }
        }
        self.events.truncate(EVENTS_MAX);
        (self.status, self.stats, self.problem) = (Some(status), measured, None);
        self.scroll(0, false);
    }

    /// Takes a list of sessions.
    pub(super) fn list(&mut self, mut sessions: Vec<SessionRow>) {
        self.keys.take(&sessions);
        sessions.sort_by(|a, b| b.updated.cmp(&a.updated).then_with(|| a.id.cmp(&b.id)));
        self.sessions = Some(sessions);
        self.scroll(0, false);
    }

    /// What follows from a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> AfterKey {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return AfterKey::Quit,
            KeyCode::Esc if self.help => self.help = false,
            KeyCode::Char('q') | KeyCode::Esc => return AfterKey::Quit,
            KeyCode::Char('?') => self.help = !self.help,
            KeyCode::Tab | KeyCode::Right => self.tab = self.tab.shifted(1),
            KeyCode::BackTab | KeyCode::Left => self.tab = self.tab.shifted(2),
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1, false),
            KeyCode::Up | KeyCode::Char('k') => self.scroll(1, true),
            KeyCode::PageDown => self.scroll(PAGE, false),
            KeyCode::PageUp => self.scroll(PAGE, true),
            KeyCode::Home => self.scroll(usize::MAX, true),
            KeyCode::End => self.scroll(usize::MAX, false),
            _ => {}
        }
        AfterKey::Draw
    }

    /// Whether it is a turn's end that is shown already.
    fn is_retold(&self, event: &ClusterEvent) -> bool {
        ended(event).is_some_and(|turn| {
            let shown =
                |told: &EventRow| matches!(told, EventRow::Event(row) if ended(&row.event) == Some(turn));
            self.events.iter().any(shown)
        })
    }

    /// How old what is shown is, if the last question had no answer.
    pub(super) fn age(&self) -> Option<Duration> {
        let (now, (at, _)) = (self.now?, self.turns?);
        self.problem.is_some().then(|| now.saturating_duration_since(at))
    }

    fn rows(&self) -> usize {
        match self.tab {
            Tab::Nodes => self.node_rows(),
            Tab::Sessions => self.sessions.as_ref().map_or(0, Vec::len),
            Tab::Events => self.events.len(),
        }
    }

    fn scroll(&mut self, by: usize, up: bool) {
        let most = self.rows().saturating_sub(1);
        if let Some(offset) = self.offsets.get_mut(self.tab.index()) {
            let moved = if up { offset.saturating_sub(by) } else { offset.saturating_add(by) };
            *offset = moved.min(most);
        }
    }

    /// The nodes that are shown: whose name lives again is not.
    pub(super) fn node_rows(&self) -> usize {
        let dead = |status: &StatusView| status.dead.iter().filter(|dead| !dead.replaced).count();
        self.status.as_ref().map_or(0, |status| status.nodes.len() + dead(status))
    }

    /// The first row that is shown of a tab.
    pub(super) fn offset_of(&self, tab: Tab) -> usize {
        self.offsets.get(tab.index()).copied().unwrap_or_default()
    }

    /// Turns that ended in the last second, in tenths.
    pub(super) fn rate(&self) -> u64 {
        self.rates.back().copied().unwrap_or_default()
    }
}
