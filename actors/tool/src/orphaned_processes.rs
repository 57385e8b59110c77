//! The keeper: the process between a node and the program of an MCP server.
//!
//! It starts the program with its own standard streams, and outlives it for as long as it takes to
//! end everything that the program has started. As the reaper of its descendants it also finds
//! those that left their group and their parent. It does so when the program ends, on SIGTERM (on
//! SIGQUIT without asking first), and when the node is gone, even if it was killed. It needs no
//! privileges, and knows only its command line and the program's environment.
//!
//! The program inherits the filter of system calls (keyrings and the like are refused, and it gains no
//! privileges by others, such as `sudo`), and goes before the node when the host's memory ends.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{
        Pid, PidfdFlags, Signal, WaitOptions, getpid, getppid, kill_process, kill_process_group,
        pidfd_open, set_child_subreaper, wait,
    },
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::Notify,
    time::{Instant, sleep, timeout_at},
};

use crate::{hidden_data_directory::hide, seccomp};

/// How long a program may take to end after it was asked to (2 s); then it is killed.
const SOFT: Duration = Duration::from_secs(2);
/// How often descendants are looked for while they are killed.
const AGAIN: Duration = Duration::from_millis(10);
/// How long killing them may take: what does not die by then is stuck in the kernel.
const HARD: Duration = Duration::from_secs(10);
/// What a keeper says whose program sees what it should not.
pub const NOT_HIDDEN: &str = "the data directory cannot be hidden";
/// Which processes the kernel ends when memory ends, and the most.
const SCORE: &str = "/proc/self/oom_score_adj";
const FIRST_TO_GO: &str = "1000";
/// What it ends with if the program cannot be started, as shells do.
const NOT_STARTED: u8 = 127;

/// The command line of a keeper that node `pid` starts, behind the command of the binary that is
/// it. The program does not see the directory `hidden`.
pub fn keeper_arguments(
    pid: u32,
    hidden: Option<&Path>,
    program: &str,
    args: &[String],
) -> Vec<OsString> {
    let hidden = hidden.map_or_else(OsString::new, OsString::from);
    let args = args.iter().map(OsString::from);
    [pid.to_string().into(), hidden, program.into()].into_iter().chain(args).collect()
}

/// Keeps `program` for the process `node`; returns what the process shall end with.
pub async fn keep(node: i32, hidden: OsString, program: OsString, args: Vec<OsString>) -> u8 {
    match Keeper::start(node, &hidden, &program, args) {
        Ok(keeper) => keeper.run().await,
        Err(error) => {
            // The node reads this, and says it to people.
            let line = format!("cannot start `{}`: {error}\n", program.to_string_lossy());
            drop(io::Write::write_all(&mut io::stderr(), line.as_bytes()));
            NOT_STARTED
        }
    }
}

struct Keeper {
    /// The program; also the group that it leads.
    program: Pid,
    /// Notified once the node is gone.
    node_gone: Arc<Notify>,
    ended: tokio::signal::unix::Signal,
    asked: tokio::signal::unix::Signal,
    interrupted: tokio::signal::unix::Signal,
    /// No time is given: everything is killed at once.
    hurried: tokio::signal::unix::Signal,
    code: Option<u8>,
}

impl Keeper {
    fn start(
        node: i32,
        hidden: &OsString,
        program: &OsString,
        args: Vec<OsString>,
    ) -> io::Result<Self> {
        let gone = || io::Error::other("the node that asked for it is gone");
        let pid = Pid::from_raw(node).ok_or_else(gone)?;
        let fd = pidfd_open(pid, PidfdFlags::empty())?;
        // The id may have been given to another process before the descriptor was opened.
        if getppid() != Some(pid) {
            return Err(gone());
        }
        set_child_subreaper(Some(getpid()))?;
        let (ended, asked) = (signal(SignalKind::child())?, signal(SignalKind::terminate())?);
        let (interrupted, hurried) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::quit())?);
        if !hidden.is_empty()
            && let Err(error) = hide(Path::new(hidden))
        {
            // It runs nevertheless: not every host allows this. `doctor` reports it.
            let line = format!("{NOT_HIDDEN}: {error}\n");
            drop(io::Write::write_all(&mut io::stderr(), line.as_bytes()));
        }
        seccomp::apply().map_err(io::Error::other)?;
        let mut command = Command::new(program);
        command.args(args).process_group(0);
        let child = first_to_go(|| command.spawn())?;
        let program = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or_else(gone)?;
        // What it inherited is the program's now: its end must be seen by the node.
        detach()?;
        let node_gone = when_gone(fd);
        Ok(Self { program, node_gone, ended, asked, interrupted, hurried, code: None })
    }

    async fn run(mut self) -> u8 {
        loop {
            self.reap();
            if self.code.is_some() {
                break;
            }
            tokio::select! {
                _ = self.ended.recv() => {}
                _ = self.asked.recv() => {
                    self.ask().await;
                    break;
                }
                _ = self.interrupted.recv() => {
                    self.ask().await;
                    break;
                }
                _ = self.hurried.recv() => break,
                () = self.node_gone.notified() => {
                    self.ask().await;
                    break;
                }
            }
        }
        self.end_all().await;
        self.code.unwrap_or_default()
    }

    /// Asks the program to end, and gives it time to.
    async fn ask(&mut self) {
        // It may be gone already.
        kill_process_group(self.program, Signal::TERM).unwrap_or_default();
        let until = Instant::now() + SOFT;
        while self.code.is_none() && timeout_at(until, self.ended.recv()).await.is_ok() {
            self.reap();
        }
    }

    /// Kills all that is left, including those that they start meanwhile.
    async fn end_all(&mut self) {
        let until = Instant::now() + HARD;
        loop {
            self.reap();
            let left = descendants(getpid());
            if left.is_empty() || Instant::now() > until {
                return;
            }
            for pid in left {
                kill_process(pid, Signal::KILL).unwrap_or_default();
            }
            sleep(AGAIN).await;
        }
    }

    /// Takes notice of all who have ended.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid == self.program {
                let code = status.exit_status().and_then(|code| u8::try_from(code).ok());
                self.code = Some(code.unwrap_or(u8::MAX));
            }
        }
    }
}

/// Starts a program that the kernel ends before others when memory ends. This process, which ends what
/// is left of it, is as it was.
fn first_to_go<T>(start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    // Some hosts do not let it be said; then all are equal.
    let before = fs::read(SCORE).ok().filter(|_| fs::write(SCORE, FIRST_TO_GO).is_ok());
    let started = start();
    if let Some(before) = before {
        drop(fs::write(SCORE, before));
    }
    started
}

/// Waits for the end of a process, on a thread of its own: there is nothing else to do for it.
fn when_gone(process: OwnedFd) -> Arc<Notify> {
    let gone = Arc::new(Notify::new());
    let tell = Arc::clone(&gone);
    std::thread::spawn(move || {
        let mut waited = [PollFd::new(&process, PollFlags::IN)];
        while !matches!(poll(&mut waited, None), Ok(1..)) {}
        tell.notify_one();
    });
    gone
}

/// Gives the standard streams away to the program alone.
fn detach() -> io::Result<()> {
    let null = fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// All processes below `root` that have not ended, as `/proc` has them now.
fn descendants(root: Pid) -> Vec<Pid> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        if let Some(parent) = parent_of(&stat) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut found, mut open) = (Vec::new(), vec![root.as_raw_nonzero().get()]);
    while let Some(pid) = open.pop() {
        let below = children.remove(&pid).unwrap_or_default();
        found.extend(below.iter().filter_map(|pid| Pid::from_raw(*pid)));
        open.extend(below);
    }
    found
}

/// The parent in a line of `/proc/PID/stat`, unless the process has ended. What it calls itself may
/// have brackets and spaces in it.
fn parent_of(stat: &str) -> Option<i32> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    if state == "Z" || state == "X" { None } else { fields.next()?.parse().ok() }
}

/// How a keeper's streams are given to it.
pub fn piped(command: &mut tokio::process::Command) {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_may_call_itself_anything() {
        assert_eq!(parent_of("12 (sh) S 7 12 12 0"), Some(7));
        assert_eq!(parent_of("12 (a) R 1 (b) S 7 12 12 0"), Some(7));
        assert_eq!(parent_of("12 (gone) Z 7 12 12 0"), None);
        assert_eq!(parent_of("12"), None);
    }

    #[test]
    fn descendants_are_found_and_others_are_not() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(descendants(getpid()).contains(&pid));
        assert!(!descendants(pid).contains(&getpid()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
