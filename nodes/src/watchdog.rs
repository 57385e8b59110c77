//! The watchdog: a thread outside the runtime that ends a process whose runtime hangs.
//!
//! A process that hangs keeps its connections, its data directory and its sessions, and answers
//! nothing. Once it has ended, other nodes take over its sessions, and a service manager starts it
//! again. Nothing that was accepted is lost: it is what `kill -9` does.
//!
//! Every half second the thread hands the runtime a small task that waits for a timer. If none of
//! them ends for [`LIMIT`], the runtime makes no progress: all its workers are blocked, or its
//! timers stand still. A process that was frozen (`SIGSTOP`, a debugger, a suspended machine) is
//! not one that hangs: the thread was frozen as well, sees that its own half second took longer,
//! and begins to count again.

use std::{
    fs,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::runtime::Handle;
use tracing::{error, warn};

/// How long a runtime may make no progress. Less ends processes that a loaded machine starves;
/// more lets sessions wait longer.
const LIMIT: Duration = Duration::from_secs(10);
/// Time between two looks.
const BEAT: Duration = Duration::from_millis(500);
/// A look that comes this late tells that the whole process stood still, not only its runtime.
const FROZEN: Duration = Duration::from_millis(2_500);
/// How long the log may take for the last message, and the process for its end.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Longest message: what a pipe that can be written takes at once.
const MESSAGE_MOST: usize = 4_096;
/// Threads that the message describes at most.
const THREADS_MOST: usize = 32;

/// A running watchdog; it stops when this is dropped.
#[derive(Debug)]
pub struct Watchdog(Arc<WatchdogStop>);

/// Ends the thread without waiting for its next look.
#[derive(Debug, Default)]
struct WatchdogStop {
    is_stopped: Mutex<bool>,
    bell: Condvar,
}

/// How long there was no progress.
#[derive(Debug, Default)]
struct RuntimeStall {
    stalled: Duration,
}

/// What a look tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProgressCheck {
    Fine,
    /// The process was frozen for so long.
    Frozen(Duration),
    Hangs,
}

// === impl Watchdog ===

impl Watchdog {
    /// Watches the runtime of `handle` from a thread of its own; a process that hangs ends with
    /// this exit code.
    pub fn start(handle: Handle, exit_code: i32) -> std::io::Result<Self> {
        let stop = Arc::new(WatchdogStop::default());
        let watched = Arc::clone(&stop);
        thread::Builder::new()
            .name("watchdog".to_owned())
            .spawn(move || watch(&handle, &watched, exit_code))?;
        Ok(Self(stop))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        *self.0.is_stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.bell.notify_all();
    }
}

impl WatchdogStop {
    /// Waits for a beat; says whether the watchdog goes on.
    fn wait(&self) -> bool {
        let stopped = self.is_stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.bell.wait_timeout_while(stopped, BEAT, |stopped| !*stopped);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

fn watch(handle: &Handle, stop: &WatchdogStop, exit_code: i32) {
    let mut stall = RuntimeStall::default();
    let ended = Arc::new(AtomicBool::new(true));
    let mut seen = Instant::now();
    loop {
        // At most one task is out, however long the runtime hangs.
        let progressed = ended.load(Ordering::Acquire);
        if progressed {
            ended.store(false, Ordering::Release);
            let ended = Arc::clone(&ended);
            handle.spawn(async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                ended.store(true, Ordering::Release);
            });
        }
        if !stop.wait() {
            return;
        }
        let now = Instant::now();
        let progressed = ended.load(Ordering::Acquire);
        match stall.look(now.duration_since(seen), progressed) {
            ProgressCheck::Fine => {}
            ProgressCheck::Frozen(time) => {
                warn!(seconds = time.as_secs(), "the process was frozen or starved, and continues");
            }
            ProgressCheck::Hangs => end(handle, stall.stalled, exit_code),
        }
        seen = now;
    }
}

// === impl RuntimeStall ===

impl RuntimeStall {
    /// A look, `elapsed` after the one before.
    fn look(&mut self, elapsed: Duration, progressed: bool) -> ProgressCheck {
        if elapsed >= FROZEN {
            self.stalled = Duration::ZERO;
            return ProgressCheck::Frozen(elapsed);
        }
        if progressed {
            self.stalled = Duration::ZERO;
            return ProgressCheck::Fine;
        }
        self.stalled += elapsed;
        if self.stalled >= LIMIT { ProgressCheck::Hangs } else { ProgressCheck::Fine }
    }
}

/// Says what is known and ends the process. Nothing here may wait for the runtime, or for a lock
/// that one of its threads may hold.
fn end(handle: &Handle, stalled: Duration, exit_code: i32) -> ! {
    let message = describe(handle, stalled);
    let (told, heard) = mpsc::sync_channel(1);
    let logged = message.clone();
    let spawned = thread::Builder::new().name("last-words".to_owned()).spawn(move || {
        error!(detail = logged, "the runtime hangs; the process ends");
        // The one who waits may have given up.
        let _told = told.send(());
        // `exit` runs what libraries have left for the end, and that may hang as well.
        thread::sleep(LAST_WORDS);
        std::process::abort();
    });
    if spawned.is_ok() {
        // In time or not, the process ends now.
        let _heard = heard.recv_timeout(LAST_WORDS);
    }
    say(&message);
    std::process::exit(exit_code)
}

/// What is known: how long, what waits, and where the threads are.
fn describe(handle: &Handle, stalled: Duration) -> String {
    let metrics = handle.metrics();
    let mut text = format!(
        "error: the runtime has made no progress for {} s; the process ends, and other nodes take \
         over\nhint: report this with the lines below: nothing that was accepted is lost, and the \
         next start goes on with it\n  {} workers, {} tasks, {} of them wait for a worker\n",
        stalled.as_secs(),
        metrics.num_workers(),
        metrics.num_alive_tasks(),
        metrics.global_queue_depth(),
    );
    for thread in threads() {
        text.push_str("  ");
        text.push_str(&thread);
        text.push('\n');
    }
    let end = (0..=MESSAGE_MOST.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or_default());
    text
}

/// The process's threads: name, state, and what each waits for in the kernel.
fn threads() -> Vec<String> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let read = |path: std::path::PathBuf| fs::read_to_string(path).unwrap_or_default();
    let describe = |task: std::io::Result<fs::DirEntry>| {
        let task = task.ok()?.path();
        let name = read(task.join("comm"));
        let stat = read(task.join("stat"));
        // The name is in parentheses and may contain some.
        let state = stat.rsplit_once(')')?.1.trim().chars().next()?;
        let waits = read(task.join("wchan"));
        let id = task.file_name()?.to_str()?.to_owned();
        Some(format!("thread {id} `{}`: {state} {}", name.trim(), waits.trim()))
    };
    tasks.filter_map(describe).take(THREADS_MOST).collect()
}

/// Writes to standard error, unless it is not read: a full pipe may be why the runtime hangs.
fn say(text: &str) {
    let stderr = rustix::stdio::stderr();
    let mut fds = [PollFd::new(&stderr, PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let is_writable = poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready == 1)
        && fds[0].revents().contains(PollFlags::OUT);
    if is_writable {
        // An error here cannot be reported.
        let _written = rustix::io::write(stderr, text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_time_in_which_the_watchdog_ran_counts() {
        let mut stall = RuntimeStall::default();
        let beats = LIMIT.as_millis() / BEAT.as_millis();
        for _ in 1..beats {
            assert_eq!(stall.look(BEAT, false), ProgressCheck::Fine);
        }
        assert_eq!(stall.look(BEAT, false), ProgressCheck::Hangs);

        let mut stall = RuntimeStall::default();
        for _ in 1..beats {
            assert_eq!(stall.look(BEAT, false), ProgressCheck::Fine);
        }
        let frozen = LIMIT * 6;
        assert_eq!(stall.look(frozen, false), ProgressCheck::Frozen(frozen));
        for _ in 1..beats {
            assert_eq!(stall.look(BEAT, false), ProgressCheck::Fine, "it counts again");
        }
        assert_eq!(stall.look(BEAT, true), ProgressCheck::Fine);
        for _ in 1..beats {
            assert_eq!(stall.look(BEAT, false), ProgressCheck::Fine, "progress counts again");
        }
        assert_eq!(stall.look(BEAT, false), ProgressCheck::Hangs);
    }

    #[test]
    fn the_last_message_names_the_threads_and_fits_a_pipe() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
        let runtime = runtime.unwrap();
        let text = describe(runtime.handle(), LIMIT);
        assert!(text.starts_with("error: the runtime has made no progress for 10 s"), "{text}");
        assert!(text.contains("2 workers"), "{text}");
        assert!(text.contains("\n  thread "), "{text}");
        assert!(text.len() <= MESSAGE_MOST);
    }
}
