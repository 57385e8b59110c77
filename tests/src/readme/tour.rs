//! Types a tutorial as it is written, at two terminals of a host of its own.

use std::{
    io::{Write as _, stderr},
    os::unix::fs::symlink,
    process::Stdio,
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::Instant,
};

use super::{
    play::{PATH, root},
    typed::{Act, Place, QUESTION, Task, tasks},
};
use crate::process::{ProcessError, Terminal, binary};

/// Columns and rows of a window: so high that nothing scrolls away.
const WINDOW: (u16, u16) = (100, 600);
/// What a shell prints before a command: how many there were is in it, so that each is another one.
const PROMPT: (&str, &str) = ("[", "]$");
/// Ends the processes of the host with it, and says which process is the first of them.
const HOST: &str = "ip link set lo up && echo up && exec sleep infinity";
/// Characters of a line that was typed by which it is known on the screen.
const KNOWN_BY: usize = 40;

/// A host: a network, processes and a home of its own.
struct Host {
    /// Ends all of it when it is dropped.
    _holder: Child,
    first: u32,
    home: TempDir,
}

/// A terminal, and from which line on of its window something is new.
struct Seat {
    terminal: Terminal,
    from: usize,
    /// Commands that the shell was given.
    commands: usize,
}

struct Tour {
    first: Seat,
    second: Seat,
    last: Place,
}

/// Does all that the page of this path says; takes root. The tasks, with the seconds that each took.
pub async fn tour(path: &str) -> Result<Vec<(Task, f64)>, ProcessError> {
    let page = std::fs::read_to_string(root()?.join(path));
    let page = page.map_err(ProcessError::io("read a tutorial"))?;
    let host = Host::start().await?;
    let (first, second) = (Seat::take(&host).await?, Seat::take(&host).await?);
    let mut tour = Tour { first, second, last: Place::First };
    let mut took = Vec::new();
    for task in tasks(&page) {
        let began = Instant::now();
        for (line, act) in &task.acts {
            if let Err(error) = tour.act(act).await {
                let shown = |seat: &Seat| seat.terminal.screen().trim_end().to_owned();
                let (one, two) = (shown(&tour.first), shown(&tour.second));
                writeln!(stderr(), "--- first terminal\n{one}\n--- second terminal\n{two}")
                    .map_err(ProcessError::io("show the terminals"))?;
                let first = error.to_string().lines().next().unwrap_or_default().to_owned();
                return Err(ProcessError::Broken(format!("{path}:{line}: {first}")));
            }
        }
        took.push((task, began.elapsed().as_secs_f64()));
    }
    Ok(took)
}

// === impl Host ===

impl Host {
    async fn start() -> Result<Self, ProcessError> {
        let broken = ProcessError::io("make a home");
        let home = tempfile::tempdir().map_err(ProcessError::io("make a home"))?;
        let bin = home.path().join("bin");
        let program = binary()?;
        let made = std::fs::create_dir(&bin).and_then(|()| symlink(program, bin.join("clawnode")));
        made.map_err(broken)?;
        let mut command = Command::new("unshare");
        command.args([
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "sh",
            "-c",
            HOST,
        ]);
        let mut holder = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(ProcessError::io("start `unshare`"))?;
        let out = holder.stdout.take();
        let mut lines = BufReader::new(out.ok_or_else(|| broke("it has no output"))?).lines();
        let up = lines.next_line().await.map_err(ProcessError::io("read of a host"))?;
        up.ok_or_else(|| broke("it is not up"))?;
        let id = holder.id().ok_or_else(|| broke("it has ended"))?;
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"))
            .map_err(ProcessError::io("find the first process of a host"))?;
        let first = children.trim().parse().map_err(|_invalid| broke("it has no process"))?;
        Ok(Self { _holder: holder, first, home })
    }

    /// A shell on it, for a terminal.
    fn shell(&self) -> Result<Command, ProcessError> {
        let mut command = Command::new("nsenter");
        let target = self.first.to_string();
        command.args(["--target", &target, "--net", "--pid", "--mount", "setsid", "--ctty", "env"]);
        command.arg("--chdir").arg(self.home.path()).args(["bash", "--noprofile", "--norc", "-i"]);
        command.env_clear().kill_on_drop(true);
        let tests = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{tests}:{PATH}", self.home.path().join("bin").display());
        let (begin, end) = PROMPT;
        command.env("PATH", path).env("PS1", format!("{begin}\\#{end} ")).env("PS2", "");
        command.env("HOME", self.home.path()).env("TMPDIR", self.home.path()).env("USER", "ada");
        command.env("TERM", "xterm-256color").env("LANG", "C.UTF-8");
        // What a tutorial fetches from registries, `cargo xtest` has fetched.
        command.env("PIP_NO_INDEX", "1").env("PIP_FIND_LINKS", root()?.join(".tools/wheels"));
        Ok(command)
    }
}

fn broke(what: &str) -> ProcessError {
    ProcessError::Broken(format!("a host of the tutorial: {what}"))
}

// === impl Seat ===

impl Seat {
    async fn take(host: &Host) -> Result<Self, ProcessError> {
        let terminal = Terminal::run(host.shell()?, WINDOW)?;
        let mut seat = Self { terminal, from: 0, commands: 0 };
        seat.at_shell().await?;
        Ok(seat)
    }

    /// Waits for the shell's next prompt.
    async fn at_shell(&mut self) -> Result<(), ProcessError> {
        let (begin, end) = PROMPT;
        let prompt = format!("{begin}{}{end}", self.commands + 1);
        let last = |screen: &str| screen.trim_end().lines().next_back() == Some(&prompt);
        self.terminal.until("the shell's prompt", last).await.map(drop)
    }

    /// From here on something is new.
    fn mark(&mut self) {
        self.from = self.terminal.screen().trim_end().lines().count().saturating_sub(1);
    }

    /// Waits until this is shown, in any lines.
    async fn see(&mut self, text: &str) -> Result<(), ProcessError> {
        let from = self.from;
        self.terminal.until(text, |screen| has(&since(screen, from), text)).await.map(drop)
    }

    async fn command(&mut self, text: &str) -> Result<(), ProcessError> {
        self.at_shell().await?;
        self.mark();
        self.commands += 1;
        self.terminal.types(&format!("{}\r", text.replace('\n', "\r"))).await
    }

    async fn say(&mut self, text: &str) -> Result<(), ProcessError> {
        self.terminal.prompts().await?;
        self.mark();
        self.terminal.types(&format!("{text}\r")).await?;
        let known: String = text.chars().take(KNOWN_BY).collect();
        let from = self.from;
        let sent = |screen: &str| {
            has(&since(screen, from), &known) && screen.trim_end().lines().count() > from + 1
        };
        self.terminal.until(text, sent).await.map(drop)
    }
}

// === impl Tour ===

impl Tour {
    fn seat(&mut self, place: Place) -> &mut Seat {
        self.last = place;
        match place {
            Place::First => &mut self.first,
            Place::Second => &mut self.second,
        }
    }

    async fn act(&mut self, act: &Act) -> Result<(), ProcessError> {
        match act {
            Act::Command(place, text) => {
                let place = *place;
                self.seat(place).command(text).await?;
                // The second terminal is done with each command before the next thing is done.
                if place == Place::Second { self.seat(place).at_shell().await } else { Ok(()) }
            }
            Act::Say(text) => self.seat(Place::First).say(text).await,
            Act::Press(key) => {
                let seat = self.seat(Place::First);
                seat.terminal.prompts().await?;
                seat.mark();
                let control = u8::try_from(*key).unwrap_or_default() & 0x1f;
                seat.terminal.sends(vec![control]).await
            }
            Act::Paste(text) => {
                let seat = self.seat(Place::First);
                seat.terminal.prompts().await?;
                seat.mark();
                seat.terminal.pastes(text.as_bytes()).await?;
                seat.terminal.types("\r").await
            }
            Act::Answer(text) => {
                let seat = self.seat(Place::First);
                let asks = |screen: &str| {
                    screen
                        .trim_end()
                        .lines()
                        .next_back()
                        .is_some_and(|line| line.starts_with(QUESTION))
                };
                seat.terminal.until(QUESTION, asks).await?;
                seat.mark();
                seat.terminal.types(&format!("{text}\r")).await
            }
            Act::See(place, text) => {
                let place = place.unwrap_or(self.last);
                self.seat(place).see(text).await
            }
        }
    }
}

/// What is new of a screen, with a space where there were several, or an end of a line.
fn since(screen: &str, from: usize) -> String {
    let words = screen.lines().skip(from).flat_map(str::split_whitespace);
    words.collect::<Vec<_>>().join(" ")
}

/// Whether a text has this; `…` is anything.
fn has(screen: &str, wanted: &str) -> bool {
    let wanted = since(wanted, 0);
    let mut rest = screen;
    wanted.split('…').all(|part| {
        let found = rest.split_once(part.trim());
        rest = found.map_or("", |(_, after)| after);
        found.is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_may_be_wrapped_and_left_out_in_parts() {
        let screen = since("old\na line  that\nis wrapped  8 s", 1);
        assert!(has(&screen, "line that is wrapped"));
        assert!(has(&screen, "a line … 8 s"));
        assert!(!has(&screen, "old") && !has(&screen, "8 s … line"));
    }
}
