//! A terminal with a person at it: a pseudo-terminal of a process, and what its screen shows.

use std::{
    fs::File,
    io::{Read, Write},
    num::NonZeroU16,
    os::unix::ffi::OsStrExt,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcgetattr, tcsetwinsize},
};
use tokio::{
    process::{Child, Command},
    sync::watch,
    time::timeout,
};

use super::{Home, ProcessError, home::PATIENCE};

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;
/// Lines above the window that are kept.
const SCROLLBACK: usize = 2_000;
/// What begins and ends a paste.
const PASTE: (&str, &str) = ("\u{1b}[200~", "\u{1b}[201~");

/// A process at a terminal of its own; killed when it is dropped.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    pid: Option<Pid>,
    master: File,
    shown: Arc<Mutex<Shown>>,
    /// Counts what was written.
    changed: watch::Receiver<u64>,
}

struct Shown {
    parser: vt100::Parser,
    /// Every byte that was written.
    written: Vec<u8>,
}

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.parser.screen().contents())
    }
}

impl Terminal {
    /// Starts the binary with these arguments on a terminal of so many columns and rows.
    pub fn start(
        home: &Home,
        args: &[&str],
        vars: &[(&str, &str)],
        size: (u16, u16),
    ) -> Result<Self, ProcessError> {
        let mut command = home.at_terminal(args);
        command.env("TERM", "xterm-256color").env("LANG", "C.UTF-8").envs(vars.iter().copied());
        Self::run(command, size)
    }

    /// Starts a command that makes its standard input its terminal, as `setsid --ctty` does.
    pub(crate) fn run(
        mut command: Command,
        (columns, rows): (u16, u16),
    ) -> Result<Self, ProcessError> {
        let failed = |error: rustix::io::Errno| ProcessError::io("make a terminal")(error.into());
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).map_err(failed)?;
        grantpt(&master).map_err(failed)?;
        unlockpt(&master).map_err(failed)?;
        let name = ptsname(&master, Vec::new()).map_err(failed)?;
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&master, size).map_err(failed)?;
        let end = || {
            let file = std::fs::OpenOptions::new().read(true).write(true).open(path);
            file.map(Stdio::from).map_err(ProcessError::io("open a terminal"))
        };
        command.stdin(end()?).stdout(end()?).stderr(end()?);
        let child = command.spawn().map_err(ProcessError::io("start at a terminal"))?;
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let (tell, changed) = watch::channel(0);
        let parser = vt100::Parser::new(at_least_one(rows), at_least_one(columns), SCROLLBACK);
        let shown = Arc::new(Mutex::new(Shown { parser, written: Vec::new() }));
        let master = File::from(master);
        let mut from = master.try_clone().map_err(ProcessError::io("read a terminal"))?;
        let screen = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut bytes = vec![0; READ_BYTES];
            // It ends with an error once the other side is closed.
            while let Ok(length @ 1..) = from.read(&mut bytes) {
                let mut shown = screen.lock().unwrap_or_else(PoisonError::into_inner);
                let bytes = bytes.get(..length).unwrap_or_default();
                shown.parser.process(bytes);
                shown.written.extend_from_slice(bytes);
                drop(shown);
                tell.send_modify(|n| *n += 1);
            }
        });
        Ok(Self { child, pid, master, shown, changed })
    }

    /// Types this. What the process does not read yet waits.
    pub async fn types(&self, text: &str) -> Result<(), ProcessError> {
        self.sends(text.as_bytes().to_vec()).await
    }

    /// Types these bytes.
    pub async fn sends(&self, bytes: Vec<u8>) -> Result<(), ProcessError> {
        let mut to = self.master.try_clone().map_err(ProcessError::io("type"))?;
        let written = tokio::task::spawn_blocking(move || to.write_all(&bytes)).await;
        let written = written.map_err(|error| ProcessError::Broken(error.to_string()))?;
        written.map_err(ProcessError::io("type"))
    }

    /// Pastes this, as terminals do that mark it.
    pub async fn pastes(&self, bytes: &[u8]) -> Result<(), ProcessError> {
        let (begin, end) = PASTE;
        self.sends([begin.as_bytes(), bytes, end.as_bytes()].concat()).await
    }

    /// What the window shows.
    pub fn screen(&self) -> String {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.parser.screen().contents()
    }

    /// The same with its colours and weights, as escape sequences.
    pub fn colored(&self) -> String {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.parser.screen().contents_formatted()
    }

    /// All that was ever written to it.
    pub fn written(&self) -> Vec<u8> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).written.clone()
    }

    /// Waits until the window shows this.
    pub async fn until(
        &mut self,
        what: &str,
        so: impl Fn(&str) -> bool,
    ) -> Result<String, ProcessError> {
        let shown = Arc::clone(&self.shown);
        let wait = async {
            loop {
                let screen = {
                    let shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
                    shown.parser.screen().contents()
                };
                if so(&screen) {
                    return Some(screen);
                }
                // The process has ended, and nothing more comes.
                self.changed.changed().await.ok()?;
            }
        };
        let found = timeout(PATIENCE, wait).await;
        let late =
            |how: &str| ProcessError::Late(format!("`{what}` {how}; shown:\n{}", self.screen()));
        found.map_err(|_elapsed| late("on the screen"))?.ok_or_else(|| late("before the end"))
    }

    /// Waits until the window shows this.
    pub async fn shows(&mut self, text: &str) -> Result<String, ProcessError> {
        self.until(text, |screen| screen.contains(text)).await
    }

    /// Waits for the prompt at the window's end.
    pub async fn prompts(&mut self) -> Result<String, ProcessError> {
        let last = |screen: &str| screen.trim_end().lines().next_back() == Some(">");
        self.until("the prompt", last).await
    }

    /// Gives the window another size.
    pub fn resize(&self, columns: u16, rows: u16) -> Result<(), ProcessError> {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.parser.screen_mut().set_size(at_least_one(rows), at_least_one(columns));
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.master, size)
            .map_err(|error| ProcessError::io("resize a terminal")(error.into()))
    }

    /// Whether the terminal edits lines and echoes by itself, as a shell expects to find it.
    pub fn is_cooked(&self) -> Result<bool, ProcessError> {
        use rustix::termios::LocalModes;
        let modes = tcgetattr(&self.master)
            .map_err(|error| ProcessError::io("look at a terminal")(error.into()))?;
        Ok(modes.local_modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG))
    }

    /// The process, while it runs.
    pub fn process(&self) -> Option<u32> {
        self.child.id()
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: Signal) -> Result<(), ProcessError> {
        let pid = self.pid.ok_or_else(|| ProcessError::Protocol("no process".to_owned()))?;
        kill_process(pid, signal).map_err(|error| ProcessError::io("signal")(error.into()))
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> Result<ExitStatus, ProcessError> {
        timeout(PATIENCE, self.child.wait())
            .await
            .map_err(|_elapsed| ProcessError::Late(format!("the end of\n{}", self.screen())))?
            .map_err(ProcessError::io("wait for a process"))
    }
}

fn at_least_one(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).unwrap_or(NonZeroU16::MIN)
}
