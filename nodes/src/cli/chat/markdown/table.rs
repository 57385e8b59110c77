//! Tables: columns as wide as they need to be, cells wrapped where the terminal is too narrow.

use unicode_width::UnicodeWidthChar;

use super::{
    flow::{BOLD, DIM, Flow},
    span,
};
use crate::cli::chat::terminal_style::TerminalStyle;

/// Fewest columns of a cell.
const LEAST: usize = 4;

type Cell = Vec<(char, u16)>;

/// Prints a table; rows that are not a table are printed unchanged.
pub(super) fn print(rows: &[String], look: TerminalStyle, flow: &mut Flow) {
    let parsed: Vec<Vec<String>> = rows.iter().map(|row| cells(row)).collect();
    let is_table = parsed.get(1).is_some_and(|row| row.iter().all(|cell| is_rule(cell)));
    let many = parsed.iter().map(Vec::len).max().unwrap_or(0);
    let room = flow.columns().saturating_sub(3 * many.saturating_sub(1));
    if !is_table || room < LEAST * many {
        for row in rows {
            flow.begin_line("", "");
            let chars: Vec<char> = row.chars().collect();
            let (runs, _) = span::read(&chars, None, 0, true, look.color);
            for (c, style) in runs {
                flow.put(c, style);
            }
            flow.end_line();
        }
        return;
    }
    let right: Vec<bool> = parsed
        .get(1)
        .map(|row| row.iter().map(|cell| cell.ends_with(':') && !cell.starts_with(':')).collect())
        .unwrap_or_default();
    let styled = |(at, row): (usize, &Vec<String>)| -> Vec<Cell> {
        let style = if at == 0 { BOLD } else { 0 };
        let cell = |at: usize| {
            let chars: Vec<char> =
                row.get(at).map(|cell| cell.chars().collect()).unwrap_or_default();
            span::read(&chars, None, style, true, look.color).0
        };
        (0..many).map(cell).collect()
    };
    let body: Vec<Vec<Cell>> =
        parsed.iter().enumerate().filter(|(at, _)| *at != 1).map(styled).collect();
    let widths = widths(&body, many, room);
    let (bar, line, cross) =
        if look.utf8 { (" │ ", '─', "─┼─") } else { (" | ", '-', "-+-") };
    for (at, row) in body.iter().enumerate() {
        print_row(row, &widths, &right, bar, flow);
        if at == 0 {
            let rules = widths.iter().map(|wide| line.to_string().repeat(*wide));
            let text = rules.collect::<Vec<String>>().join(cross);
            text.chars().for_each(|c| flow.raw(c, DIM));
            flow.end_line();
        }
    }
}

fn print_row(row: &[Cell], widths: &[usize], right: &[bool], bar: &str, flow: &mut Flow) {
    let wrapped: Vec<Vec<Cell>> =
        row.iter().zip(widths).map(|(cell, wide)| wrap(cell, *wide)).collect();
    let height = wrapped.iter().map(Vec::len).max().unwrap_or(1);
    let last = widths.len().saturating_sub(1);
    for y in 0..height {
        for (at, (lines, wide)) in wrapped.iter().zip(widths).enumerate() {
            let cell = lines.get(y).map_or(&[][..], Vec::as_slice);
            let rest = wide.saturating_sub(width(cell));
            let is_right = right.get(at) == Some(&true) && !cell.is_empty();
            let pad = |flow: &mut Flow| (0..rest).for_each(|_| flow.raw(' ', 0));
            if is_right {
                pad(flow);
            }
            for (c, style) in cell {
                flow.raw(*c, *style);
            }
            if !is_right && at != last {
                pad(flow);
            }
            if at != last {
                bar.chars().for_each(|c| flow.raw(c, DIM));
            }
        }
        flow.end_line();
    }
}

fn width(cell: &[(char, u16)]) -> usize {
    cell.iter().map(|(c, _)| c.width().unwrap_or(0)).sum()
}

/// How wide columns are that have `room` together: the widest give way first.
fn widths(body: &[Vec<Cell>], many: usize, room: usize) -> Vec<usize> {
    let widest =
        |at: usize| body.iter().filter_map(|row| row.get(at)).map(|cell| width(cell)).max();
    let mut widths: Vec<usize> = (0..many).map(|at| widest(at).unwrap_or(0).max(1)).collect();
    while widths.iter().sum::<usize>() > room {
        let Some(most) =
            widths.iter_mut().max_by_key(|width| **width).filter(|width| **width > LEAST)
        else {
            break;
        };
        *most -= 1;
    }
    widths
}

/// A cell in lines of at most `wide` columns, broken at spaces where there are some.
fn wrap(cell: &Cell, wide: usize) -> Vec<Cell> {
    let (mut lines, mut line, mut column) = (Vec::new(), Cell::new(), 0);
    for word in cell.split_inclusive(|(c, _)| *c == ' ') {
        let ends = word.last().is_some_and(|(c, _)| *c == ' ');
        let needs = width(word) - usize::from(ends);
        if column > 0 && column + needs > wide {
            lines.push(std::mem::take(&mut line));
            column = 0;
        }
        for (c, style) in word {
            let more = c.width().unwrap_or(0);
            if column + more > wide {
                if *c == ' ' {
                    continue;
                }
                lines.push(std::mem::take(&mut line));
                column = 0;
            }
            line.push((*c, *style));
            column += more;
        }
    }
    lines.push(line);
    lines
}

fn is_rule(cell: &str) -> bool {
    let dashes = cell.trim_matches(':');
    !dashes.is_empty() && dashes.chars().all(|c| c == '-')
}

/// The cells of a row.
fn cells(row: &str) -> Vec<String> {
    let mut row = row.trim();
    row = row.strip_prefix('|').unwrap_or(row);
    let (mut all, mut cell, mut escaped) = (Vec::new(), String::new(), false);
    for c in row.chars() {
        match c {
            '|' if escaped => {
                cell.pop();
                cell.push('|');
            }
            '|' => all.push(std::mem::take(&mut cell).trim().to_owned()),
            c => cell.push(c),
        }
        escaped = c == '\\';
    }
    if !cell.trim().is_empty() {
        all.push(cell.trim().to_owned());
    }
    all
}
