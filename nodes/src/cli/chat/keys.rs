//! What a terminal sends, as keys. Pure.
//!
//! A paste comes between two marks ("bracketed paste") and is one key, however long it is. From a
//! terminal without these marks it comes as text with line ends in the middle of one read: no
//! person types so, and such a line end is a new line, not an order to send.

use std::{collections::VecDeque, time::Duration};

use clawnode_proto::limits;

/// What begins a paste.
const PASTE: &[u8] = b"\x1b[200~";
/// What ends one.
const PASTE_END: &[u8] = b"\x1b[201~";
/// Bytes of a paste that are kept: more than any message may have, with a note to the person.
const PASTE_BYTES: usize = 4 * limits::MESSAGE_BYTES;
/// How long nothing may have come of a paste before its end mark counts as lost.
pub(super) const PASTE_QUIET: Duration = Duration::from_secs(5);
/// Bytes of an escape sequence, at most; what is longer is none.
const SEQUENCE_BYTES: usize = 32;

/// One key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// A character.
    Char(char),
    /// Text that was pasted.
    Paste(Paste),
    /// Send.
    Enter,
    /// A new line in the text: Alt-Enter, Shift-Enter.
    NewLine,
    Tab,
    Backspace,
    Delete,
    Left,
    Right,
    Up,
    Down,
    Home,
    End,
    WordLeft,
    WordRight,
    /// Ctrl-W, Alt-Backspace.
    DeleteWord,
    /// Ctrl-U.
    DeleteToStart,
    /// Ctrl-K.
    DeleteToEnd,
    /// Ctrl-Y.
    Yank,
    /// Ctrl-L.
    Clear,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D.
    Close,
    /// Ctrl-Z.
    Suspend,
    /// A key without a meaning here.
    Other,
}

/// What was pasted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Paste {
    /// The text, with `\n` at the end of lines; a byte that is no text is `\u{fffd}`.
    pub text: String,
    /// Bytes that are no text.
    pub foreign: usize,
    /// It is too long to be kept whole.
    pub cut: bool,
}

/// Bytes on their way to be keys.
#[derive(Debug, Default)]
pub(super) struct KeyDecoder {
    /// A sequence or character that is not whole yet.
    part: Vec<u8>,
    /// A paste that has not ended yet.
    paste: Option<Vec<u8>>,
    /// The paste is not wanted any more.
    dropped: bool,
}

/// What the bytes at hand begin with.
enum KeyStart {
    Key(Key, usize),
    Paste,
    /// More is needed to tell.
    Part,
}

// === impl KeyDecoder ===

impl KeyDecoder {
    /// Takes what was read at once.
    pub(super) fn take(&mut self, bytes: &[u8], keys: &mut VecDeque<Key>) {
        let mut rest = bytes;
        let mut joined;
        if self.paste.is_none() && !self.part.is_empty() {
            joined = std::mem::take(&mut self.part);
            joined.extend_from_slice(bytes);
            rest = &joined;
        }
        while !rest.is_empty() {
            if self.paste.is_some() {
                rest = self.pasted(rest, keys);
                continue;
            }
            match begin(rest) {
                KeyStart::Key(key, taken) => {
                    rest = rest.get(taken..).unwrap_or_default();
                    // See the head of this file.
                    let unmarked = key == Key::Enter && text_follows(rest);
                    keys.push_back(if unmarked { Key::NewLine } else { key });
                }
                KeyStart::Paste => {
                    self.paste = Some(Vec::new());
                    rest = rest.get(PASTE.len()..).unwrap_or_default();
                }
                KeyStart::Part => {
                    self.part = rest.to_vec();
                    return;
                }
            }
        }
    }

    /// Forgets what has begun; the rest of a paste is swallowed. Whether a paste is open.
    pub(super) fn forget(&mut self) -> bool {
        self.part.clear();
        if let Some(paste) = &mut self.paste {
            // Its end mark may have begun.
            let from = paste.len().saturating_sub(PASTE_END.len() - 1);
            paste.drain(..from);
            self.dropped = true;
        }
        self.paste.is_some()
    }

    /// Whether a paste has begun and not ended.
    pub(super) const fn is_pasting(&self) -> bool {
        self.paste.is_some()
    }

    /// Nothing has come for this long: a paste whose end mark was lost ends here, with what has
    /// come. Otherwise all later typing would be part of it.
    pub(super) fn quiet(&mut self, quiet: Duration, keys: &mut VecDeque<Key>) {
        if quiet < PASTE_QUIET {
            return;
        }
        let Some(mut paste) = self.paste.take() else { return };
        if std::mem::take(&mut self.dropped) {
            return;
        }
        // A part of the mark is no text.
        let part = (1..PASTE_END.len()).rev().filter_map(|count| PASTE_END.get(..count));
        let part = part.map(|part| (part.len(), paste.ends_with(part))).find(|(_, ends)| *ends);
        paste.truncate(paste.len() - part.map_or(0, |(count, _)| count));
        keys.push_back(Key::Paste(Paste::of(&paste)));
    }

    /// Whether the last byte was an escape that may begin more.
    pub(super) fn is_escape(&self) -> bool {
        self.part == [0x1b]
    }

    /// Takes bytes of a paste; what comes after it.
    fn pasted<'a>(&mut self, bytes: &'a [u8], keys: &mut VecDeque<Key>) -> &'a [u8] {
        let paste = self.paste.get_or_insert_default();
        // The mark may come in two parts.
        let from = paste.len().saturating_sub(PASTE_END.len());
        paste.extend_from_slice(bytes);
        let tail = paste.get(from..).unwrap_or_default();
        let Some(at) = tail.windows(PASTE_END.len()).position(|window| window == PASTE_END) else {
            if paste.len() > PASTE_BYTES + PASTE_END.len() {
                // The end of the kept part stays, for the mark.
                let keep = paste.len() - PASTE_END.len();
                paste.drain(PASTE_BYTES..keep.max(PASTE_BYTES));
                paste.resize(paste.len().max(PASTE_BYTES), 0);
            }
            return &[];
        };
        let after = tail.len() - at - PASTE_END.len();
        let whole = self.paste.take().unwrap_or_default();
        if !std::mem::take(&mut self.dropped) {
            let content = whole.get(..from + at).unwrap_or_default();
            keys.push_back(Key::Paste(Paste::of(content)));
        }
        bytes.get(bytes.len() - after..).unwrap_or_default()
    }
}

impl Paste {
    fn of(bytes: &[u8]) -> Self {
        let mut text = String::with_capacity(bytes.len());
        let mut foreign = 0;
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            if !chunk.invalid().is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
                foreign += chunk.invalid().len();
            }
        }
        if text.contains('\r') {
            text = text.replace("\r\n", "\n").replace('\r', "\n");
        }
        Self { text, foreign, cut: bytes.len() >= PASTE_BYTES }
    }
}

/// Whether more text was read together with a line end, before any other key.
fn text_follows(rest: &[u8]) -> bool {
    rest.iter().take_while(|byte| **byte != 0x1b).any(|byte| *byte >= b' ' && *byte != 0x7f)
}

fn begin(bytes: &[u8]) -> KeyStart {
    let Some(&first) = bytes.first() else { return KeyStart::Part };
    let key = match first {
        0x1b => return escape(bytes),
        b'\r' | b'\n' => Key::Enter,
        b'\t' => Key::Tab,
        0x7f | 0x08 => Key::Backspace,
        0x01 => Key::Home,
        0x02 => Key::Left,
        0x03 => Key::Interrupt,
        0x04 => Key::Close,
        0x05 => Key::End,
        0x06 => Key::Right,
        0x0b => Key::DeleteToEnd,
        0x0c => Key::Clear,
        0x0e => Key::Down,
        0x10 => Key::Up,
        0x15 => Key::DeleteToStart,
        0x17 => Key::DeleteWord,
        0x19 => Key::Yank,
        0x1a => Key::Suspend,
        0..0x20 => Key::Other,
        _ => return character(bytes),
    };
    KeyStart::Key(key, 1)
}

fn character(bytes: &[u8]) -> KeyStart {
    let four = bytes.get(..bytes.len().min(4)).unwrap_or_default();
    let (valid, broken) = match std::str::from_utf8(four) {
        Ok(text) => (text, None),
        Err(error) => {
            let text = four.get(..error.valid_up_to()).unwrap_or_default();
            (std::str::from_utf8(text).unwrap_or_default(), Some(error.error_len()))
        }
    };
    match (valid.chars().next(), broken) {
        (Some(c), _) => KeyStart::Key(Key::Char(c), c.len_utf8()),
        (None, Some(Some(length))) => {
            KeyStart::Key(Key::Char(char::REPLACEMENT_CHARACTER), length.max(1))
        }
        (None, _) => KeyStart::Part,
    }
}

fn escape(bytes: &[u8]) -> KeyStart {
    let key = match bytes.get(1) {
        // Escape itself comes alone; so does what a read was cut behind.
        None => return KeyStart::Part,
        Some(0x1b) => return KeyStart::Key(Key::Other, 1),
        Some(b'[') => return control(bytes),
        Some(b'O') => {
            let key = match bytes.get(2) {
                None => return KeyStart::Part,
                Some(b'A') => Key::Up,
                Some(b'B') => Key::Down,
                Some(b'C') => Key::Right,
                Some(b'D') => Key::Left,
                Some(b'H') => Key::Home,
                Some(b'F') => Key::End,
                Some(b'M') => Key::Enter,
                Some(_) => Key::Other,
            };
            return KeyStart::Key(key, 3);
        }
        Some(b'\r' | b'\n') => Key::NewLine,
        Some(b'b' | b'B') => Key::WordLeft,
        Some(b'f' | b'F') => Key::WordRight,
        Some(0x7f | 0x08) => Key::DeleteWord,
        Some(_) => Key::Other,
    };
    KeyStart::Key(key, 2)
}

/// A sequence that begins with `ESC [`.
fn control(bytes: &[u8]) -> KeyStart {
    if PASTE.starts_with(bytes) && bytes.len() < PASTE.len() {
        return KeyStart::Part;
    }
    if bytes.starts_with(PASTE) {
        return KeyStart::Paste;
    }
    let body = bytes.get(2..bytes.len().min(SEQUENCE_BYTES)).unwrap_or_default();
    let ends = |byte: &u8| (0x40..=0x7e).contains(byte) || *byte < b' ';
    let Some(end) = body.iter().position(ends) else {
        let long = bytes.len() >= SEQUENCE_BYTES;
        return if long { KeyStart::Key(Key::Other, SEQUENCE_BYTES) } else { KeyStart::Part };
    };
    // A key such as Ctrl-C belongs to no sequence.
    if body.get(end).is_some_and(|byte| *byte < b' ') {
        return KeyStart::Key(Key::Other, end + 2);
    }
    let (numbers, last) = (body.get(..end).unwrap_or_default(), body.get(end).copied());
    // Word by word with Ctrl or Alt held.
    let far = numbers.ends_with(b";5") || numbers.ends_with(b";3");
    let key = match (last, numbers) {
        (Some(b'A'), _) => Key::Up,
        (Some(b'B'), _) => Key::Down,
        (Some(b'C'), _) if far => Key::WordRight,
        (Some(b'D'), _) if far => Key::WordLeft,
        (Some(b'C'), _) => Key::Right,
        (Some(b'D'), _) => Key::Left,
        (Some(b'H'), _) | (Some(b'~'), b"1" | b"7") => Key::Home,
        (Some(b'F'), _) | (Some(b'~'), b"4" | b"8") => Key::End,
        (Some(b'~'), b"3") => Key::Delete,
        (Some(b'~'), b"27;2;13" | b"27;3;13") | (Some(b'u'), b"13;2" | b"13;3") => Key::NewLine,
        _ => Key::Other,
    };
    KeyStart::Key(key, end + 3)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(parts: &[&[u8]]) -> Vec<Key> {
        let (mut keys, mut out) = (KeyDecoder::default(), VecDeque::new());
        for part in parts {
            keys.take(part, &mut out);
        }
        out.into()
    }

    fn pasted(text: &str) -> Key {
        Key::Paste(Paste { text: text.to_owned(), foreign: 0, cut: false })
    }

    #[test]
    fn keys_are_told_apart_wherever_they_are_cut() {
        let all = [Key::Char('a'), Key::Char('é'), Key::Char('🦀'), Key::Up, Key::Delete];
        assert_eq!(keys(&["aé🦀\x1b[A\x1b[3~".as_bytes()]), all);
        let bytes: Vec<&[u8]> = "aé🦀".as_bytes().chunks(1).collect();
        assert_eq!(keys(&bytes), all[..3]);
        assert_eq!(keys(&[b"\x1b[", b"3", b"~"]), [Key::Delete]);
        assert_eq!(keys(&[b"\x1b\r", b"\x1b[13;2u"]), [Key::NewLine, Key::NewLine]);
        // A lone escape may begin a sequence that was cut; the terminal's reader ends the wait.
        assert_eq!(keys(&[b"\x1b"]), []);
        assert_eq!(keys(&[b"\x1b", b"[A"]), [Key::Up]);
        assert_eq!(keys(&[b"\x1b[\x03"]), [Key::Other, Key::Interrupt]);
        assert_eq!(keys(&[b"\x1b[1;5D\x1bf"]), [Key::WordLeft, Key::WordRight]);
        assert_eq!(keys(&[b"\xff\x03"]), [Key::Char('\u{fffd}'), Key::Interrupt]);
    }

    #[test]
    fn a_paste_is_one_key_wherever_it_is_cut() {
        let text = "one\r\ntwo\rthree\x03\x1b[A";
        let whole = format!("\x1b[200~{text}\x1b[201~y\r");
        let expected = [pasted("one\ntwo\nthree\x03\x1b[A"), Key::Char('y'), Key::Enter];
        for size in 1..whole.len() {
            let parts: Vec<&[u8]> = whole.as_bytes().chunks(size).collect();
            assert_eq!(keys(&parts), expected, "{size}");
        }
    }

    #[test]
    fn what_is_no_text_is_counted_and_what_is_too_long_is_told() {
        let Key::Paste(paste) = keys(&[b"\x1b[200~a\xff\xfeb\x00\x1b[201~"]).remove(0) else {
            panic!("no paste");
        };
        assert_eq!((paste.text.as_str(), paste.foreign), ("a\u{fffd}\u{fffd}b\0", 2));
        let long = vec![b'x'; PASTE_BYTES + 100_000];
        let mut parts: Vec<&[u8]> = vec![PASTE];
        parts.extend(long.chunks(4_096));
        parts.extend([PASTE_END, b"y"]);
        let mut found = keys(&parts);
        assert_eq!(found.pop(), Some(Key::Char('y')));
        let Some(Key::Paste(paste)) = found.pop() else { panic!("no paste") };
        assert!(paste.cut && paste.text.len() <= PASTE_BYTES + 16, "{}", paste.text.len());
    }

    #[test]
    fn lines_without_marks_that_come_at_once_are_one_text() {
        let typed = keys(&[b"one\rtwo\r"]);
        assert_eq!(typed.iter().filter(|key| **key == Key::NewLine).count(), 1);
        assert_eq!(typed.last(), Some(&Key::Enter));
        assert_eq!(keys(&[b"a\r\rb"])[1..3], [Key::NewLine, Key::NewLine]);
        assert!(keys(&[b"one\r", b"two\r"]).contains(&Key::Enter));
        assert_eq!(keys(&[b"\r\x1b[A"]), [Key::Enter, Key::Up]);
    }

    #[test]
    fn a_paste_that_is_not_wanted_is_swallowed_to_its_end() {
        let (mut keys, mut out) = (KeyDecoder::default(), VecDeque::new());
        keys.take(b"\x1b[200~y\ry", &mut out);
        keys.forget();
        keys.take(b"\ry\r\x1b[20", &mut out);
        keys.take(b"1~n", &mut out);
        assert_eq!(out, [Key::Char('n')]);
        // Also where the end mark had begun when it was forgotten: else every key to come is swallowed.
        keys.take(b"\x1b[200~y\x1b[20", &mut out);
        assert!(keys.forget());
        keys.take(b"1~m", &mut out);
        assert_eq!(out, [Key::Char('n'), Key::Char('m')]);
        assert!(!keys.forget());
    }

    proptest! {
        #[test]
        fn any_bytes_are_keys(parts in proptest::collection::vec(any::<Vec<u8>>(), 0..6)) {
            let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            keys(&parts);
        }
    }

    #[test]
    fn a_paste_whose_end_mark_never_comes_ends_after_a_while() {
        let mut read = KeyDecoder::default();
        let mut keys = VecDeque::new();
        read.take(b"a\x1b[200~one\rtwo\x1b[20", &mut keys);
        assert_eq!(keys.drain(..).collect::<Vec<Key>>(), [Key::Char('a')]);
        read.quiet(PASTE_QUIET.saturating_sub(Duration::from_millis(1)), &mut keys);
        assert!(read.is_pasting() && keys.is_empty(), "the rest of it may be on its way");
        read.quiet(PASTE_QUIET, &mut keys);
        let paste = Paste { text: "one\ntwo".to_owned(), foreign: 0, cut: false };
        assert_eq!(keys.drain(..).collect::<Vec<Key>>(), [Key::Paste(paste)]);
        // What is typed then is keys, and what was dropped stays so.
        read.take(b"b\x1b[200~x", &mut keys);
        assert!(read.forget());
        read.quiet(PASTE_QUIET, &mut keys);
        read.take(b"c", &mut keys);
        assert_eq!(keys, [Key::Char('b'), Key::Char('c')]);
    }
}
