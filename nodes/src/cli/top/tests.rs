//! What is drawn of real documents, at several sizes, and what keys do.

use std::time::{Duration, Instant};

use clawnode_proto::{
    Cursor,
    api::Method,
    overview::{FeedView, Latency, StatsView, TurnCounts},
    view::{SessionRow, StatusView},
};
use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
    style::{Color, Modifier},
};
use serde_json::json;

use super::{
    draw::{TopStyle, draw},
    screen::{AfterKey, Tab, TopProblem, TopScreen, TopSnapshot},
};

/// As a node answers.
fn status() -> StatusView {
    let node = |name: &str, role: &str, draining: bool, running: u32| {
        json!({
            "node": name, "process": "proc_0000000000000000000000000a", "version": "0.1.0",
            "roles": [role], "started": 1_700_000_000_000_u64, "draining": draining,
            "entities": 7, "config": "00".repeat(32), "first_of": 128,
            "load": {
                "cpu_permille": 371, "memory_bytes": 52_428_800, "turns_running": running,
                "turns_done": 40, "clients": 3,
            },
        })
    };
    serde_json::from_value(json!({
        "version": "0.1.0", "process": "proc_0000000000000000000000000a",
        "substrate": "nats nats://127.0.0.1:4222", "partitions": 256, "model": "demo/demo",
        "sessions": 1_234, "quarantined": ["ent_00000000000000000000000001"],
        "dead": [{ "process": "proc_0000000000000000000000000b", "node": "worker-3",
                    "ago_ms": 130_000 },
                  { "process": "proc_0000000000000000000000000c", "node": "worker-1",
                    "replaced": true }],
        "nodes": [
            node("front", "gateway", false, 0),
            node("worker-1", "worker", false, 4),
            node("worker-2", "worker", true, 2),
        ],
        "warnings": [{ "name": "bus.sync_interval", "message": "m", "hint": "h" }],
    }))
    .unwrap()
}

fn feed(ended: u64) -> FeedView {
    let what = json!({ "type": "node_dead", "process": "proc_0000000000000000000000000b",
                       "node": "worker-3" });
    let event = json!({ "at": 1_700_000_000_000_u64, "node": "worker-1", "what": what,
                        "process": "proc_0000000000000000000000000a" });
    let row = serde_json::from_value(json!({ "n": 1, "event": event })).unwrap();
    FeedView {
        events: vec![row],
        next: Cursor::new(Method::EventsList, 1),
        missed: 0,
        turns: TurnCounts { started: ended, ended, unsuccessful: 0 },
    }
}

fn session(key: &str, state: &str, updated: u64) -> SessionRow {
    serde_json::from_value(json!({
        "id": "ent_00000000000000000000000001", "key": key, "state": state, "turns": 3,
        "events": 20, "updated": updated, "usage": { "input_tokens": 1, "output_tokens": 2 },
        "node": "worker-1",
    }))
    .unwrap()
}

fn screen() -> TopScreen {
    let (mut screen, start) = (TopScreen::default(), Instant::now());
    let turn = Latency { samples: 10, p50_ms: Some(120), p99_ms: Some(2_340) };
    for (second, ended) in [(0, 100), (2, 125)] {
        screen.take(TopSnapshot {
            at: start + Duration::from_secs(second),
            gateway: "http://a".to_owned(),
            moved: false,
            status: status(),
            stats: StatsView { turn, sockets: 9, ..StatsView::default() },
            feed: feed(ended),
        });
    }
    screen.now = Some(start + Duration::from_secs(2));
    screen.list(vec![
        session("default:web:site:old", "idle", 1),
        session("default:web:site:new", "running", 2),
    ]);
    screen
}

fn drawn(screen: &TopScreen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, screen, TopStyle { color: false })).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(line).collect()
}

fn press(screen: &mut TopScreen, code: KeyCode) -> AfterKey {
    screen.key(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn what_matters_is_on_a_terminal_of_80_by_24() {
    let lines = drawn(&screen(), 80, 24);
    let text = lines.join("\n");
    for expected in [
        "clawnode 0.1.0  3 nodes  1234 entities  1 out of service",
        // 25 turns in two seconds.
        "12.5 turns/s  6 running  9 clients  at front: turn p50 120ms p99 2.3s  first p50",
        " nodes  sessions  events ",
        "warnings: bus.sync_interval",
        "worker-3                dead 2m",
    ] {
        assert!(text.contains(expected), "{expected}\nin\n{text}");
    }
    let row = lines.iter().find(|line| line.starts_with("worker-2")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[1..], ["worker", "draining", "7", "2", "37.1%", "50.0", "MiB", "3", "128"]);
    assert!(lines[2..4].iter().any(|line| line.contains('█')), "throughput is drawn\n{text}");
}

#[test]
fn small_terminals_show_the_names_and_none_breaks_it() {
    for tab in Tab::ALL {
        for help in [false, true] {
            let mut screen = screen();
            (screen.tab, screen.help) = (tab, help);
            for (width, height) in [(1, 1), (5, 2), (20, 5), (40, 10), (300, 3), (3, 100)] {
                assert_eq!(drawn(&screen, width, height).len(), usize::from(height));
            }
        }
    }
    let text = drawn(&screen(), 44, 10).join("\n");
    assert!(text.contains("worker-1") && text.contains("37.1%"), "{text}");
    assert!(!text.contains("MEMORY"), "{text}");
}

#[test]
fn keys_lead_around_and_out() {
    let mut screen = screen();
    assert_eq!(press(&mut screen, KeyCode::Tab), AfterKey::Draw);
    assert_eq!(screen.tab, Tab::Sessions);
    let listed = screen.sessions.take();
    assert!(drawn(&screen, 80, 24).join("\n").contains("reading the sessions"));
    screen.list(listed.unwrap());
    let text = drawn(&screen, 80, 24).join("\n");
    let at = |key: &str| text.find(key).unwrap();
    assert!(at("site:new") < at("site:old"), "the newest first\n{text}");
    assert!(text.contains("worker-1     01-01 00:00"), "{text}");
    press(&mut screen, KeyCode::Down);
    let text = drawn(&screen, 80, 24).join("\n");
    assert!(!text.contains("site:new") && text.contains("site:old"), "{text}");
    press(&mut screen, KeyCode::Down);
    assert_eq!(screen.offset_of(Tab::Sessions), 1, "never past the last row");
    press(&mut screen, KeyCode::Right);
    let text = drawn(&screen, 80, 24).join("\n");
    assert!(text.contains("node_dead") && text.contains("22:13:20"), "{text}");
    press(&mut screen, KeyCode::BackTab);
    assert_eq!(
        (screen.tab, screen.offset_of(screen.tab)),
        (Tab::Sessions, 1),
        "it is where it was left"
    );
    press(&mut screen, KeyCode::Char('?'));
    assert!(drawn(&screen, 80, 24).join("\n").contains("nothing can be changed here"));
    assert_eq!(press(&mut screen, KeyCode::Esc), AfterKey::Draw, "out of the help first");
    assert_eq!(press(&mut screen, KeyCode::Esc), AfterKey::Quit);
    assert_eq!(press(&mut screen, KeyCode::Char('q')), AfterKey::Quit);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(screen.key(interrupt), AfterKey::Quit);
}

#[test]
fn a_node_that_does_not_answer_and_a_restarted_one() {
    let mut screen = screen();
    let known = screen.now;
    screen.problem =
        Some(TopProblem { what: "it is gone".to_owned(), trying: "http://b".to_owned() });
    screen.now = known.map(|at| at + Duration::from_secs(12));
    let text = drawn(&screen, 80, 24).join("\n");
    assert!(text.contains("12s old; trying http://b: it is gone"), "{text}");
    assert!(text.contains("worker-1"), "what was known stays\n{text}");
    assert!(text.contains("q quit"), "and so does the help\n{text}");
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    terminal.draw(|frame| draw(frame, &screen, TopStyle { color: false })).unwrap();
    let buffer = terminal.backend().buffer();
    assert!(buffer[(0, 7)].modifier.contains(Modifier::DIM), "what is old is dim");
    let at = known.unwrap();
    let pulse = |later: u64, moved: bool, feed: FeedView| TopSnapshot {
        at: at + Duration::from_secs(later),
        gateway: "http://b".to_owned(),
        moved,
        status: status(),
        stats: StatsView::default(),
        feed,
    };
    // Another gateway has heard of more turns: that is not throughput.
    let rates = screen.rates.len();
    screen.take(pulse(60, true, feed(1_000_000)));
    assert_eq!(screen.rates.len(), rates);
    assert!(!drawn(&screen, 80, 24).join("\n").contains("old; trying"));
    screen.take(pulse(61, false, FeedView { missed: 5, ..feed(3) }));
    assert_eq!(screen.rate(), 0, "a gateway that started again counts from zero");
    screen.tab = Tab::Events;
    let text = drawn(&screen, 80, 24).join("\n");
    assert!(text.contains("reconnected   http://b; events may be missing"), "{text}");
    assert!(text.contains("missing       5 events"), "{text}");
}

#[test]
fn colours_are_used_only_where_they_may_be() {
    let screen = screen();
    for color in [false, true] {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw(frame, &screen, TopStyle { color })).unwrap();
        let cells = terminal.backend().buffer().content.iter();
        let painted = cells.filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset);
        assert_eq!(painted.count() > 0, color);
    }
}

#[test]
fn a_tall_terminal_shows_what_happens_below_the_nodes() {
    let both = |height| drawn(&screen(), 80, height).join("\n").contains("node_dead");
    assert!(!both(29) && both(30));
    let lines = drawn(&screen(), 80, 30);
    let living = lines.iter().filter(|line| line.starts_with("worker-1 ")).count();
    assert_eq!(living, 1, "whose name lives is not dead");
    let at = |what: &str| lines.iter().find_map(|line| line.find(what).map(|at| at + what.len()));
    assert_eq!(at("ENTITIES"), at("  7 ").map(|at| at - 1), "numbers end where their head does");
}

#[test]
fn what_is_one_is_not_called_many() {
    let mut screen = screen();
    let status = screen.status.as_mut().unwrap();
    status.sessions = 1;
    status.nodes.truncate(1);
    let text = drawn(&screen, 80, 24).join("\n");
    assert!(text.contains("1 node  1 entity  1 out"), "{text}");
}
