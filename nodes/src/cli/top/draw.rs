//! How it looks.

use clawnode_proto::{
    Timestamp,
    overview::{DeadView, Latency},
    view::{NodeView, SessionRow, StatusView, WarningView},
};
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Block, Cell, Clear, Paragraph, Row, Sparkline, Table},
};

use super::screen::{EventRow, Tab, TopProblem, TopScreen};
use crate::cli::{
    events::{detail, subject, tone},
    nodes::{roles, state},
    output::{Tone, clean, count, size, time},
};

/// Columns from which everything is shown; below, only what matters most.
const ROOMY: u16 = 78;
/// Rows from which throughput is drawn.
const TALL: u16 = 14;

/// Rows from which the events are shown below the nodes.
const BOTH: u16 = 30;
/// The least and the most room for a node's name.
const NAME_LEAST: usize = 8;
const NAME_MOST: usize = 32;

/// What the help says.
const HELP: [&str; 7] = [
    "tab, left, right  another list",
    "up, down, j, k    move in the list",
    "pgup, pgdn        move ten rows",
    "home, end         first, last row",
    "?                 this help",
    "q, esc            quit",
    "nothing can be changed here",
];

/// Whether colours may be used.
#[derive(Clone, Copy, Debug)]
pub(super) struct TopStyle {
    pub(super) color: bool,
}

impl TopStyle {
    fn tone(self, tone: Tone) -> Style {
        let color = match tone {
            Tone::Good => Color::Green,
            Tone::Warn => Color::Yellow,
            Tone::Bad => Color::Red,
        };
        match (self.color, tone) {
            (true, _) => Style::new().fg(color),
            // Without colours, problems are bold.
            (false, Tone::Bad) => Style::new().add_modifier(Modifier::BOLD),
            (false, _) => Style::new(),
        }
    }
}

/// Draws all of it, on whatever room there is.
pub(super) fn draw(frame: &mut Frame<'_>, screen: &TopScreen, look: TopStyle) {
    let area = frame.area();
    let spark = if area.height >= TALL { 2 } else { 0 };
    let alarm = u16::from(screen.problem.is_some());
    let [title, load, rates, alarm, tabs, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(spark),
        Constraint::Length(alarm),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(area);
    if let Some(status) = &screen.status {
        frame.render_widget(title_line(status), title);
    }
    frame.render_widget(load_line(screen), load);
    let newest = screen.rates.len().saturating_sub(usize::from(rates.width));
    let bars: Vec<u64> = screen.rates.iter().skip(newest).copied().collect();
    let bars_style = if look.color { Style::new().fg(Color::Cyan) } else { Style::new() };
    frame.render_widget(Sparkline::default().data(&bars).style(bars_style), rates);
    frame.render_widget(tab_line(screen), tabs);
    match screen.tab {
        Tab::Nodes if area.height >= BOTH => {
            let shown = u16::try_from(screen.node_rows() + 2).unwrap_or(u16::MAX);
            let heights = [Constraint::Length(shown.min(body.height / 2)), Constraint::Min(1)];
            let [above, below] = Layout::vertical(heights).areas(body);
            nodes(frame, above, screen, look);
            events(frame, below, screen, look);
        }
        Tab::Nodes => nodes(frame, body, screen, look),
        Tab::Sessions => sessions(frame, body, screen, look),
        Tab::Events => events(frame, body, screen, look),
    }
    if let Some(problem) = &screen.problem {
        for old in [title, load, rates, body] {
            frame.buffer_mut().set_style(old, Style::new().add_modifier(Modifier::DIM));
        }
        frame.render_widget(alarm_line(screen, problem, look), alarm);
    }
    frame.render_widget(foot_line(screen, look), foot);
    if screen.help {
        help(frame, area);
    }
}

fn title_line(status: &StatusView) -> Line<'static> {
    let text = format!(
        "clawnode {}  {}  {}  {} out of service  {}",
        status.version,
        count(status.nodes.len() as u64, "node"),
        count(status.sessions, "entity"),
        status.quarantined.len(),
        clean(&status.substrate)
    );
    Line::from(Span::styled(text, Style::new().add_modifier(Modifier::BOLD)))
}

/// What is so in the whole cluster; then, by name, what one gateway measures of its own turns.
fn load_line(screen: &TopScreen) -> Line<'static> {
    let nodes = || screen.status.iter().flat_map(|status| &status.nodes);
    let running: u64 = nodes().map(|node| u64::from(node.load.turns_running)).sum();
    let clients: u64 = nodes().map(|node| u64::from(node.load.clients)).sum();
    let answering = |status: &StatusView| {
        let own = status.nodes.iter().find(|node| node.process == status.process);
        own.map_or_else(|| "here".to_owned(), |node| format!("at {}", node.node))
    };
    let here = screen.status.as_ref().map(answering).unwrap_or_default();
    let rate = screen.rate();
    let (turn, first) = (latency(screen.stats.turn), latency(screen.stats.first_text));
    let clients = count(clients, "client");
    let text = format!(
        "{}.{} turns/s  {running} running  {clients}  {here}: turn {turn}  first {first}",
        rate / 10,
        rate % 10,
    );
    Line::from(text)
}

/// `p50 120ms p99 1.2s`.
fn latency(latency: Latency) -> String {
    let shown = |millis: Option<u64>| match millis {
        None => "-".to_owned(),
        Some(millis @ 0..1_000) => format!("{millis}ms"),
        Some(millis) => format!("{}.{}s", millis / 1_000, millis / 100 % 10),
    };
    format!("p50 {} p99 {}", shown(latency.p50_ms), shown(latency.p99_ms))
}

fn tab_line(screen: &TopScreen) -> Line<'static> {
    let tab = |tab: Tab| {
        let chosen = if tab == screen.tab { Modifier::REVERSED } else { Modifier::empty() };
        Span::styled(format!(" {} ", tab.name()), Style::new().add_modifier(chosen))
    };
    Line::from(Tab::ALL.map(tab).to_vec())
}

/// How old all of this is, and what is done about it.
fn alarm_line(screen: &TopScreen, problem: &TopProblem, look: TopStyle) -> Line<'static> {
    let age = screen.age().unwrap_or_default().as_secs();
    let (trying, what) = (clean(&problem.trying), clean(&problem.what));
    let text = format!("{age}s old; trying {trying}: {what}");
    Line::from(Span::styled(text, look.tone(Tone::Bad)))
}

fn foot_line(screen: &TopScreen, look: TopStyle) -> Line<'static> {
    let warnings = screen.status.iter().flat_map(|status| &status.warnings);
    let (fatal, told): (Vec<&WarningView>, Vec<_>) =
        warnings.partition(|warning| warning.is_fatal());
    let mut spans = vec![Span::raw("q quit  tab lists  ? help")];
    for (word, warnings, tone) in [("", fatal, Tone::Bad), ("warnings: ", told, Tone::Warn)] {
        let names: Vec<&str> = warnings.iter().map(|warning| warning.name.as_str()).collect();
        if !names.is_empty() {
            let text = format!("  {word}{}", clean(&names.join(", ")));
            spans.push(Span::styled(text, look.tone(tone)));
        }
    }
    Line::from(spans)
}

/// The columns of a table.
struct Columns {
    head: Row<'static>,
    widths: Vec<Constraint>,
}

/// A table from the row on that is scrolled to.
fn table(
    frame: &mut Frame<'_>,
    area: Rect,
    offset: usize,
    Columns { head, widths }: Columns,
    rows: impl Iterator<Item = Row<'static>>,
) {
    let head = head.style(Style::new().add_modifier(Modifier::BOLD));
    let rows = rows.skip(offset).take(usize::from(area.height));
    frame.render_widget(Table::new(rows, widths).header(head).column_spacing(1), area);
}

/// A number, or the head above numbers.
fn right(text: impl Into<String>) -> Cell<'static> {
    Cell::from(Line::from(text.into()).right_aligned())
}

/// What a node that is not there is called.
fn dead_name(dead: &DeadView) -> String {
    dead.node.as_ref().map_or_else(|| dead.process.to_string(), ToString::to_string)
}

/// The columns of a terminal of this width, the first as wide as `name`.
fn node_columns(roomy: bool, name: u16) -> Columns {
    let mut head: Vec<Cell<'static>> = vec!["NODE".into(), "STATE".into()];
    head.extend(["ENTITIES", "TURNS", "CPU"].map(right));
    let mut widths = [name, 9, 8, 5, 6].map(Constraint::Length).to_vec();
    if roomy {
        head.extend(["MEMORY", "CLIENTS", "FIRST"].map(right));
        widths.extend([9, 7, 5].map(Constraint::Length));
        head.insert(1, "ROLES".into());
        widths.insert(1, Constraint::Length(14));
    }
    Columns { head: Row::new(head), widths }
}

fn nodes(frame: &mut Frame<'_>, area: Rect, screen: &TopScreen, look: TopStyle) {
    let roomy = area.width >= ROOMY;
    let row = |node: &NodeView| {
        let load = node.load;
        let mut cells: Vec<Cell<'static>> = vec![
            node.node.to_string().into(),
            state(node).into(),
            right(node.entities.to_string()),
            right(load.turns_running.to_string()),
            right(format!("{}.{}%", load.cpu_permille / 10, load.cpu_permille % 10)),
        ];
        if roomy {
            cells.extend([
                right(size(load.memory_bytes)),
                right(load.clients.to_string()),
                right(node.first_of.to_string()),
            ]);
            cells.insert(1, roles(node).into());
        }
        let style = match (node.draining, node.cordoned) {
            (false, false) => Style::new(),
            _ => look.tone(Tone::Warn),
        };
        Row::new(cells).style(style)
    };
    let dead_row = |dead: &DeadView| {
        let ago = dead.ago_ms.map(|ago| format!(" {}", brief(ago))).unwrap_or_default();
        let mut cells = vec![dead_name(dead), format!("dead{ago}")];
        if roomy {
            cells.insert(1, String::new());
        }
        Row::new(cells).style(look.tone(Tone::Bad))
    };
    let alive = || screen.status.iter().flat_map(|status| &status.nodes);
    let dead =
        || screen.status.iter().flat_map(|status| status.dead.iter().filter(|dead| !dead.replaced));
    let names = alive().map(|node| node.node.to_string()).chain(dead().map(dead_name));
    let longest = names.map(|name| name.chars().count()).max().unwrap_or_default();
    let name = u16::try_from(longest.clamp(NAME_LEAST, NAME_MOST)).unwrap_or(u16::MAX);
    let rows = alive().map(row).chain(dead().map(dead_row));
    table(frame, area, screen.offset_of(Tab::Nodes), node_columns(roomy, name), rows);
}

/// How long something has lasted, in one unit.
fn brief(millis: u64) -> String {
    match millis / 1_000 {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds => format!("{}m", seconds / 60),
    }
}

fn sessions(frame: &mut Frame<'_>, area: Rect, screen: &TopScreen, look: TopStyle) {
    let roomy = area.width >= ROOMY;
    let mut head: Vec<Cell<'static>> = vec!["SESSION".into(), "STATE".into(), right("TURNS")];
    let mut widths = vec![Constraint::Min(16), Constraint::Length(11), Constraint::Length(6)];
    if roomy {
        head.extend(["NODE", "UPDATED"].map(Cell::from));
        widths.extend([Constraint::Length(12), Constraint::Length(11)]);
    }
    let row = |session: &SessionRow| {
        let name = session.key.clone().unwrap_or_else(|| session.id.to_string());
        let mut cells: Vec<Cell<'static>> = vec![
            clean(&name).into(),
            session.state.clone().into(),
            right(session.turns.to_string()),
        ];
        if roomy {
            let node = session.node.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
            cells.extend([node, day(session.updated)].map(Cell::from));
        }
        let style = match session.state.as_str() {
            "running" => look.tone(Tone::Good),
            "quarantined" | "corrupt" => look.tone(Tone::Bad),
            _ => Style::new(),
        };
        Row::new(cells).style(style)
    };
    if screen.sessions.is_none() {
        frame.render_widget(Line::from("reading the sessions"), area);
        return;
    }
    let rows = screen.sessions.iter().flatten().map(row);
    table(
        frame,
        area,
        screen.offset_of(Tab::Sessions),
        Columns { head: Row::new(head), widths },
        rows,
    );
}

fn events(frame: &mut Frame<'_>, area: Rect, screen: &TopScreen, look: TopStyle) {
    let roomy = area.width >= ROOMY;
    let mut head = vec!["TIME", "EVENT", "WHAT"];
    let mut widths = vec![Constraint::Length(8), Constraint::Length(13), Constraint::Min(10)];
    if roomy {
        head.insert(1, "NODE");
        widths.insert(1, Constraint::Length(16));
    }
    let row = |row: &EventRow| {
        let gap = |name: &str, text: String| {
            let mut cells = vec!["-".to_owned(), name.to_owned(), text];
            if roomy {
                cells.insert(1, String::new());
            }
            Row::new(cells).style(look.tone(Tone::Warn))
        };
        let row = match row {
            EventRow::Event(event) => event,
            EventRow::Gap(missed) => return gap("missing", count(*missed, "event")),
            EventRow::Moved(url) => {
                return gap("reconnected", format!("{}; events may be missing", clean(url)));
            }
        };
        let what = &row.event.what;
        let mut cells = vec![
            clock(row.event.at),
            what.name().to_owned(),
            clean(&detail(&row.event, &screen.keys, false)),
        ];
        if roomy {
            cells.insert(1, subject(&row.event).to_string());
        }
        Row::new(cells).style(tone(what).map_or_else(Style::new, |tone| look.tone(tone)))
    };
    let rows = screen.events.iter().map(row);
    table(
        frame,
        area,
        screen.offset_of(Tab::Events),
        Columns { head: Row::new(head), widths },
        rows,
    );
}

/// The day and the minute, without the year.
fn day(at: Timestamp) -> String {
    time(at)
        .chars()
        .skip(5)
        .take(11)
        .map(|character| if character == 'T' { ' ' } else { character })
        .collect()
}

/// The time of day, without the day.
fn clock(at: Timestamp) -> String {
    time(at).chars().skip_while(|&character| character != 'T').skip(1).take(8).collect()
}

fn help(frame: &mut Frame<'_>, area: Rect) {
    let width = HELP.iter().map(|line| line.chars().count()).max().unwrap_or_default() + 4;
    let width = u16::try_from(width).unwrap_or(u16::MAX).min(area.width);
    let height = u16::try_from(HELP.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let over = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, over);
    let lines: Vec<Line<'_>> = HELP.iter().map(|line| Line::from(format!(" {line}"))).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" help ")), over);
}
