//! Styles within a line: `**bold**`, `*italic*`, code, links.

use super::flow::{BOLD, CODE, DIM, ITALIC, LINK, STRUCK};

/// Characters that are waited for until a sign is closed; beyond that it is a sign as any other.
const HELD: usize = 400;

/// Characters in their styles, and how many of `text` they are. Where the line is not `whole`, what
/// is not clear yet is left.
pub(super) fn read(
    text: &[char],
    before: Option<char>,
    style: u16,
    whole: bool,
    color: bool,
) -> (Vec<(char, u16)>, usize) {
    let (mut out, mut at) = (Vec::new(), 0);
    let mut before = before;
    while let Some(&c) = text.get(at) {
        let rest = text.get(at..).unwrap_or_default();
        let whole = whole || rest.len() > HELD;
        let step = match c {
            '\\' => escaped(rest, style, whole),
            '`' => code(rest, style, whole, color),
            '*' | '_' | '~' => emphasis(rest, before, style, whole, color),
            '[' => link(rest, style, whole, color),
            c => Some((vec![(c, style)], 1)),
        };
        let Some((run, taken)) = step else { break };
        out.extend(run);
        at += taken;
        before = text.get(at - 1).copied();
    }
    (out, at)
}

type SpanStep = Option<(Vec<(char, u16)>, usize)>;

#[expect(clippy::unnecessary_wraps, reason = "as the others")]
fn literally(text: &[char], many: usize, style: u16) -> SpanStep {
    Some((text.iter().take(many).map(|c| (*c, style)).collect(), many))
}

fn run(text: &[char]) -> usize {
    let first = text.first();
    text.iter().take_while(|character| Some(*character) == first).count()
}

fn escaped(text: &[char], style: u16, whole: bool) -> SpanStep {
    match text.get(1) {
        None if !whole => None,
        Some(c) if c.is_ascii_punctuation() => Some((vec![(*c, style)], 2)),
        _ => literally(text, 1, style),
    }
}

fn code(text: &[char], style: u16, whole: bool, color: bool) -> SpanStep {
    let many = run(text);
    if many == text.len() && !whole {
        return None;
    }
    let mut at = many;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let here = if rest.first() == Some(&'`') { run(rest) } else { 0 };
        // The text may continue with more signs.
        if here == many && (whole || rest.len() > here) {
            let inner = text.get(many..at).unwrap_or_default();
            // Without colours it is marked as in the source.
            let (from, to) = if color { (0, 0) } else { (many, many) };
            let marks = |many: usize| std::iter::repeat_n(('`', style), many);
            let mut out: Vec<(char, u16)> = marks(from).collect();
            out.extend(inner.iter().map(|c| (*c, style | CODE)));
            out.extend(marks(to));
            return Some((out, at + many));
        }
        at += here.max(1);
    }
    if whole { literally(text, many, style) } else { None }
}

fn emphasis(text: &[char], before: Option<char>, style: u16, whole: bool, color: bool) -> SpanStep {
    let (Some(&sign), many) = (text.first(), run(text)) else { return None };
    let Some(next) = text.get(many) else {
        return if whole { literally(text, many, style) } else { None };
    };
    let inside = sign == '_' && before.is_some_and(char::is_alphanumeric);
    let opens = !next.is_whitespace() && !inside && many <= 3 && (sign != '~' || many == 2);
    if !opens {
        return literally(text, many, style);
    }
    let mut at = many;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.first() == Some(&'`') {
            // What is code ends nothing.
            match code(rest, style, whole, color) {
                Some((_, taken)) => at += taken,
                None => return None,
            }
            continue;
        }
        let here = if rest.first() == Some(&sign) { run(rest) } else { 0 };
        let after = rest.get(here);
        if here > 0 && after.is_none() && !whole {
            return None;
        }
        let word = sign == '_' && after.is_some_and(|character| character.is_alphanumeric());
        let space = text.get(at - 1).is_none_or(|character| character.is_whitespace());
        if here == many && !space && !word {
            let more = match (sign, many) {
                ('~', _) => STRUCK,
                (_, 1) => ITALIC,
                (_, 2) => BOLD,
                _ => BOLD | ITALIC,
            };
            let inner = text.get(many..at).unwrap_or_default();
            let (out, _) = read(inner, Some(sign), style | more, true, color);
            return Some((out, at + many));
        }
        at += here.max(1);
    }
    if whole { literally(text, many, style) } else { None }
}

fn link(text: &[char], style: u16, whole: bool, color: bool) -> SpanStep {
    let unclear = || if whole { literally(text, 1, style) } else { None };
    let Some(close) = text.iter().position(|character| *character == ']') else { return unclear() };
    match text.get(close + 1) {
        None => return unclear(),
        Some('(') => {}
        Some(_) => return literally(text, 1, style),
    }
    let target = text.get(close + 2..).unwrap_or_default();
    let Some(end) = target.iter().position(|character| *character == ')') else { return unclear() };
    let (name, target) =
        (text.get(1..close).unwrap_or_default(), target.get(..end).unwrap_or_default());
    let (mut out, _) = read(name, Some('['), style | LINK, true, color);
    if name != target && !target.is_empty() {
        let dim = |c: &char| (*c, style | DIM);
        out.extend([(' ', style), ('(', style | DIM)]);
        out.extend(target.iter().map(dim));
        out.push((')', style | DIM));
    }
    Some((out, close + 2 + end + 1))
}
