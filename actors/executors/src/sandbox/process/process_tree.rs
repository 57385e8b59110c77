//! Processes of this host: their descendants and their marks, and how to end them.

use std::{fs, path::Path};

use rustix::process::{Pid, Signal, kill_process};

/// Processes that are looked at, at most; beyond it the host is being flooded.
const MOST: usize = 4_096;

/// What has been started by `root`, directly or not, as long as it is not disowned; parents first.
pub(super) fn descendants(root: u32) -> Vec<Pid> {
    let mut found = Vec::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        if found.len() >= MOST {
            break;
        }
        // A thread may have started it; tasks are listed by the thread.
        let Ok(tasks) = fs::read_dir(format!("/proc/{parent}/task")) else { continue };
        for task in tasks.flatten() {
            let listed = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            for child in listed.split_whitespace().filter_map(|number| number.parse::<u32>().ok()) {
                next.push(child);
                found.extend(pid(child));
            }
        }
    }
    found
}

/// The processes with `mark` in their environment, which children inherit also when they are
/// disowned.
pub(super) fn marked(mark: &str) -> Vec<Pid> {
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let bears = |number: &u32| {
        let environment = fs::read(Path::new("/proc").join(number.to_string()).join("environ"));
        environment.is_ok_and(|environment| {
            environment.split(|byte| *byte == 0).any(|one| one == mark.as_bytes())
        })
    };
    numbers.filter(bears).filter_map(pid).take(MOST).collect()
}

/// Sends a signal to all of them; one that is gone already needs none.
pub(super) fn signal(processes: &[Pid], signal: Signal) {
    for process in processes {
        if let Err(error) = kill_process(*process, signal) {
            tracing::debug!(%error, ?process, "cannot signal a process");
        }
    }
}

pub(super) fn pid(number: u32) -> Option<Pid> {
    i32::try_from(number).ok().and_then(Pid::from_raw)
}
