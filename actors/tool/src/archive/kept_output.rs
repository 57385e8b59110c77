//! The output of a run, in lines: pure, and bounded for any output.
//!
//! The beginning and the end are kept, and the lines between are counted: errors tend to be at the
//! end, and their causes at the beginning.

use std::collections::VecDeque;

use clawnode_proto::{
    Timestamp,
    archive::{LogCut, LogLine, LogStream},
    limits::{
        LOG_FIRST_BYTES, LOG_HEARD_BYTES, LOG_LAST_BYTES, LOG_LINE_BYTES, LOG_LINE_COST,
        LOG_PART_BYTES,
    },
};

/// The lines of one run.
#[derive(Debug, Default)]
pub(super) struct RunLines {
    /// Lines that have not ended yet, one for each stream.
    open: [OpenLine; 2],
    first: KeptLines,
    /// Nothing is kept at the beginning any more.
    first_is_full: bool,
    last: KeptLines,
    cut: LogCut,
    /// The number of the last line.
    n: u64,
    heard: u64,
}

#[derive(Debug, Default)]
struct OpenLine {
    at: Timestamp,
    bytes: Vec<u8>,
}

#[derive(Debug, Default)]
struct KeptLines {
    lines: VecDeque<LogLine>,
    cost: usize,
}

// === impl RunLines ===

impl RunLines {
    /// Takes what was said.
    pub(super) fn add(&mut self, now: Timestamp, stream: LogStream, mut bytes: &[u8]) {
        let room = usize::try_from(LOG_HEARD_BYTES - self.heard).unwrap_or(usize::MAX);
        if let Some((heard, unheard)) = bytes.split_at_checked(room) {
            self.cut.unheard += unheard.len() as u64;
            bytes = heard;
        }
        self.heard += bytes.len() as u64;
        while !bytes.is_empty() {
            let open = &mut self.open[stream as usize];
            if open.bytes.is_empty() {
                open.at = now;
            }
            let room = LOG_LINE_BYTES - open.bytes.len();
            let piece = bytes.get(..room).unwrap_or(bytes);
            if let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
                open.bytes.extend_from_slice(&piece[..end]);
                bytes = &bytes[end + 1..];
                self.close(stream);
            } else {
                open.bytes.extend_from_slice(piece);
                bytes = &bytes[piece.len()..];
                if open.bytes.len() >= LOG_LINE_BYTES {
                    self.part(stream);
                }
            }
        }
    }

    /// No more output comes.
    pub(super) fn end(&mut self) {
        for stream in [LogStream::Stdout, LogStream::Stderr] {
            if !self.open[stream as usize].bytes.is_empty() {
                self.close(stream);
            }
        }
    }

    /// The number of the last line.
    pub(super) const fn last(&self) -> u64 {
        self.n
    }

    /// What is missing.
    pub(super) fn cut(&self) -> Option<LogCut> {
        (self.cut.lines > 0 || self.cut.unheard > 0).then_some(self.cut)
    }

    /// All that is kept, in order.
    pub(super) fn kept(&self) -> impl Iterator<Item = &LogLine> {
        self.first.lines.iter().chain(&self.last.lines)
    }

    /// The lines after `after` that fit into one message, and whether there are more.
    pub(super) fn part_after(&self, after: u64) -> (Vec<LogLine>, bool) {
        let mut wanted = self.kept().filter(|line| line.n > after).peekable();
        let (mut part, mut bytes) = (Vec::new(), 0);
        while let Some(line) = wanted.next_if(|line| bytes + cost(line) <= LOG_PART_BYTES) {
            bytes += cost(line);
            part.push(line.clone());
        }
        (part, wanted.peek().is_some())
    }

    /// A line has ended.
    fn close(&mut self, stream: LogStream) {
        let OpenLine { at, mut bytes } = std::mem::take(&mut self.open[stream as usize]);
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
        self.keep(LogLine { n: 0, at, stream, text: text(&bytes), goes_on: false });
    }

    /// A line is too long for one; a character is not torn.
    fn part(&mut self, stream: LogStream) {
        let open = &mut self.open[stream as usize];
        let whole = match std::str::from_utf8(&open.bytes) {
            Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => {
                error.valid_up_to()
            }
            _ => open.bytes.len(),
        };
        let rest = open.bytes.split_off(whole);
        let bytes = std::mem::replace(&mut open.bytes, rest);
        let at = open.at;
        self.keep(LogLine { n: 0, at, stream, text: text(&bytes), goes_on: true });
    }

    fn keep(&mut self, line: LogLine) {
        self.n += 1;
        let line = LogLine { n: self.n, ..line };
        let cost = cost(&line);
        if !self.first_is_full && self.first.cost + cost <= LOG_FIRST_BYTES {
            self.first.push(line);
            return;
        }
        self.first_is_full = true;
        self.last.push(line);
        while self.last.cost > LOG_LAST_BYTES {
            let Some(gone) = self.last.pop() else { break };
            if self.cut.lines == 0 {
                self.cut.after = gone.n - 1;
            }
            self.cut.lines += 1;
            self.cut.bytes += gone.text.len() as u64;
        }
    }
}

// === impl KeptLines ===

impl KeptLines {
    fn push(&mut self, line: LogLine) {
        self.cost += cost(&line);
        self.lines.push_back(line);
    }

    fn pop(&mut self) -> Option<LogLine> {
        let line = self.lines.pop_front()?;
        self.cost -= cost(&line);
        Some(line)
    }
}

fn cost(line: &LogLine) -> usize {
    line.text.len() + LOG_LINE_COST
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(7);

    fn said(pieces: &[(LogStream, &[u8])]) -> RunLines {
        let mut lines = RunLines::default();
        for (at, (stream, bytes)) in pieces.iter().enumerate() {
            lines.add(Timestamp(at as u64), *stream, bytes);
        }
        lines.end();
        lines
    }

    fn texts(lines: &RunLines) -> Vec<(u64, u64, &str)> {
        lines.kept().map(|line| (line.n, line.at.0, line.text.as_str())).collect()
    }

    #[test]
    fn lines_are_of_their_stream_and_of_the_time_of_their_first_byte() {
        use LogStream::{Stderr, Stdout};
        let lines = said(&[
            (Stdout, b"on"),
            (Stderr, b"two\r\n\nth"),
            (Stdout, b"e\n"),
            (Stderr, b"ree"),
            (Stdout, b"caf\xc3"),
            (Stdout, b"\xa9 \xff"),
        ]);
        let wanted =
            [(1, 1, "two"), (2, 1, ""), (3, 0, "one"), (4, 4, "café \u{fffd}"), (5, 1, "three")];
        assert_eq!(texts(&lines), wanted);
        assert_eq!(lines.cut(), None);
    }

    #[test]
    fn a_line_that_is_too_long_is_several_and_no_character_is_torn() {
        let long = format!("a{}", "é".repeat(LOG_LINE_BYTES));
        let lines = said(&[(LogStream::Stdout, long.as_bytes()), (LogStream::Stdout, b"\nb\n")]);
        let all: Vec<&LogLine> = lines.kept().collect();
        assert!(all.iter().all(|line| line.text.len() <= LOG_LINE_BYTES));
        let (parts, rest) = all.split_at(all.len() - 2);
        assert!(parts.iter().all(|line| line.goes_on) && rest.iter().all(|line| !line.goes_on));
        let joined: String = all[..all.len() - 1].iter().map(|line| line.text.as_str()).collect();
        assert_eq!(joined, long);
        assert_eq!(rest[1].text, "b");
    }

    #[test]
    fn the_beginning_and_the_end_are_kept_and_the_gap_is_counted() {
        let mut lines = RunLines::default();
        for n in 1..=100_000_u64 {
            lines.add(NOW, LogStream::Stdout, format!("line {n}\n").as_bytes());
        }
        lines.end();
        let kept: Vec<u64> = lines.kept().map(|line| line.n).collect();
        let cut = lines.cut().unwrap();
        assert_eq!((kept[0], *kept.last().unwrap()), (1, 100_000));
        assert_eq!(kept.len() as u64 + cut.lines, 100_000);
        let gap = kept.windows(2).find(|two| two[0] + 1 != two[1]).unwrap();
        assert_eq!((cut.after, cut.lines), (gap[0], gap[1] - gap[0] - 1));
        let cost: usize = lines.kept().map(cost).sum();
        assert!(cost <= LOG_FIRST_BYTES + LOG_LAST_BYTES, "{cost}");
        // Numbers are said as often as they are: each line has its own.
        assert!(lines.kept().all(|line| line.text == format!("line {}", line.n)));
    }

    #[test]
    fn what_is_too_much_to_look_at_is_counted() {
        let (mut lines, piece) = (RunLines::default(), vec![b'\0'; 1 << 20]);
        for _ in 0..70 {
            lines.add(NOW, LogStream::Stderr, &piece);
        }
        assert_eq!(lines.cut().unwrap().unheard, 6 << 20);
    }

    #[test]
    fn a_part_is_bounded_and_the_next_goes_on_after_it() {
        let mut lines = RunLines::default();
        for n in 0..5_000 {
            lines.add(NOW, LogStream::Stdout, format!("{n:0200}\n").as_bytes());
        }
        let (mut seen, mut after) = (Vec::new(), 0);
        loop {
            let (part, more) = lines.part_after(after);
            assert!(part.iter().map(cost).sum::<usize>() <= LOG_PART_BYTES);
            after = part.last().map_or(after, |line| line.n);
            seen.extend(part);
            if !more {
                break;
            }
        }
        assert!(lines.kept().eq(&seen));
    }
}
