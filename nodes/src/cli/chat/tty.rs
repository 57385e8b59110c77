//! The terminal of the person: every key as it is typed, with nothing echoed by the kernel, and
//! the terminal as it was on every way out.
//!
//! The terminal is opened a second time, so that reading without waiting does not change the
//! descriptor that the shell has too. Output goes on as before: a line end begins a new line.

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    path::Path,
    time::Duration,
};

use rustix::{
    fs::OFlags,
    process::{Signal as Sig, kill_current_process_group},
    termios::{
        LocalModes, OptionalActions, OutputModes, QueueSelector, SpecialCodeIndex, Termios,
        tcflush, tcgetattr, tcgetwinsize, tcsetattr, ttyname,
    },
};
use tokio::{
    io::unix::AsyncFd,
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, sleep, sleep_until},
};

use super::keys::{Key, KeyDecoder, PASTE_QUIET};
use crate::failure::{Exit, Failure};

/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;
/// Keys that wait to be taken; what is typed beyond that while a turn runs is dropped.
const MOST_KEYS: usize = 65_536;
/// Means no key among a terminal's special ones (`_POSIX_VDISABLE`).
const DISABLED: u8 = 0;
/// How long an escape may stand alone before it is the key of that name.
const ESCAPE: Duration = Duration::from_millis(50);
/// Asks the terminal to mark pastes.
const MARK_PASTES: &[u8] = b"\x1b[?2004h";
/// Asks it to stop that, and to show the cursor.
const AS_BEFORE: &[u8] = b"\x1b[?2004l\x1b[?25h";

/// The terminal, in raw mode until this is dropped.
#[derive(Debug)]
pub(super) struct Tty {
    file: AsyncFd<std::fs::File>,
    before: Termios,
    raw: bool,
    keys: KeyDecoder,
    waiting: VecDeque<Key>,
    /// When something was read last.
    read: Instant,
    resized: Signal,
}

/// The size of a terminal's window, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TerminalSize {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

/// What a person at a terminal does.
#[derive(Debug)]
pub(super) enum TerminalEvent {
    Key(Key),
    /// The window has another size.
    Resized,
    /// There is no terminal any more.
    Closed,
}

// === impl Tty ===

impl Tty {
    /// Takes over the terminal that standard input is.
    pub(super) fn open() -> io::Result<Self> {
        let name = ttyname(io::stdin(), Vec::new())?;
        let path = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
        let mut options = std::fs::OpenOptions::new();
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
        let file = options.read(true).write(true).custom_flags(flags).open(path)?;
        let before = tcgetattr(&file)?;
        let resized = signal(SignalKind::window_change())?;
        #[expect(
            deprecated,
            reason = "its successor is `unsafe`; a file keeps its descriptor open"
        )]
        let file = AsyncFd::new(file)?;
        let (keys, waiting) = (KeyDecoder::default(), VecDeque::new());
        let read = Instant::now();
        let mut tty = Self { file, before, raw: false, keys, waiting, read, resized };
        tty.enter()?;
        Ok(tty)
    }

    /// Takes the terminal over, again.
    pub(super) fn enter(&mut self) -> io::Result<()> {
        let mut raw = self.before.clone();
        raw.make_raw();
        // Others write to it as well: the log, and what runs beside the chat.
        raw.output_modes = self.before.output_modes | OutputModes::OPOST;
        tcsetattr(self.file.get_ref(), OptionalActions::Now, &raw)?;
        self.raw = true;
        io::stdout().write_all(MARK_PASTES)?;
        io::stdout().flush()
    }

    /// Makes it as it was.
    pub(super) fn leave(&mut self) {
        if !std::mem::take(&mut self.raw) {
            return;
        }
        let mut out = io::stdout();
        let written = out.write_all(AS_BEFORE).and_then(|()| out.flush());
        let set = tcsetattr(self.file.get_ref(), OptionalActions::Now, &self.before);
        if let (Err(error), _) | (_, Err(error)) = (written, set.map_err(io::Error::from)) {
            tracing::debug!(%error, "cannot restore the terminal");
        }
    }

    /// Stops this process, as Ctrl-Z does elsewhere; returns once it goes on.
    pub(super) fn suspend(&mut self) -> Result<(), Failure> {
        self.leave();
        let stopped = kill_current_process_group(Sig::TSTP).map_err(io::Error::from);
        stopped.and_then(|()| self.enter()).map_err(|error| {
            Failure::new(Exit::Failed, "terminal", format!("cannot suspend and resume: {error}"))
        })
    }

    /// Whether Ctrl-C is a signal, as while something is waited for that reads no keys.
    pub(super) fn signals(&mut self, is_on: bool) {
        let set = tcgetattr(self.file.get_ref()).and_then(|mut modes| {
            modes.local_modes.set(LocalModes::ISIG, is_on);
            // Stopped or ended by these keys, the process would leave the terminal as it is now.
            for key in [SpecialCodeIndex::VSUSP, SpecialCodeIndex::VQUIT] {
                modes.special_codes[key] = DISABLED;
            }
            tcsetattr(self.file.get_ref(), OptionalActions::Now, &modes)
        });
        if let Err(error) = set {
            tracing::debug!(%error, "cannot change how the terminal handles Ctrl-C");
        }
    }

    /// The size of its window.
    pub(super) fn size(&self) -> TerminalSize {
        match tcgetwinsize(self.file.get_ref()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                TerminalSize { columns: size.ws_col.into(), rows: size.ws_row.into() }
            }
            _ => TerminalSize { columns: 80, rows: 24 },
        }
    }

    /// The next thing that happens. Safe to drop in the middle.
    pub(super) async fn next(&mut self) -> TerminalEvent {
        loop {
            if let Some(key) = self.waiting.pop_front() {
                return TerminalEvent::Key(key);
            }
            let mut ready = tokio::select! {
                ready = self.file.readable() => match ready {
                    Ok(ready) => ready,
                    Err(_) => return TerminalEvent::Closed,
                },
                _ = self.resized.recv() => return TerminalEvent::Resized,
                () = sleep_until(self.read + PASTE_QUIET), if self.keys.is_pasting() => {
                    // This process may have stood still, and the rest of it waits.
                    if self.has_unread() {
                        self.read = Instant::now();
                    } else {
                        self.keys.quiet(self.read.elapsed(), &mut self.waiting);
                    }
                    continue;
                }
                () = sleep(ESCAPE), if self.keys.is_escape() => {
                    self.keys.forget();
                    return TerminalEvent::Key(Key::Other);
                }
            };
            let mut bytes = [0; READ_BYTES];
            match ready.try_io(|file| file.get_ref().read(&mut bytes)) {
                Ok(Ok(0)) => return TerminalEvent::Closed,
                Ok(Ok(length)) => {
                    let read = bytes.get(..length).unwrap_or_default();
                    self.read = Instant::now();
                    self.keys.take(read, &mut self.waiting);
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(_)) => return TerminalEvent::Closed,
                Err(_would_block) => {}
            }
        }
    }

    /// Whether keys were read that were not taken yet.
    pub(super) fn has_more(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether anything was typed that was not taken yet, read or not.
    pub(super) fn has_typed(&self) -> bool {
        self.has_unread() || !self.waiting.is_empty()
    }

    fn has_unread(&self) -> bool {
        rustix::io::ioctl_fionread(self.file.get_ref()).unwrap_or_default() > 0
    }

    /// Keys for the next line, before those that were not read yet.
    pub(super) fn put_back(&mut self, mut keys: VecDeque<Key>) {
        keys.append(&mut self.waiting);
        keys.truncate(MOST_KEYS);
        self.waiting = keys;
    }

    /// Throws away what was typed and not taken.
    pub(super) fn forget(&mut self) {
        self.waiting.clear();
        if self.keys.forget() {
            // The rest of a paste is swallowed as it comes; thrown away here, its end mark would be lost.
            return;
        }
        if let Err(error) = tcflush(self.file.get_ref(), QueueSelector::IFlush) {
            tracing::debug!(%error, "cannot discard typed text");
        }
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        self.leave();
    }
}
