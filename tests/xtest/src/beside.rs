//! Commands that run beside the steps: tests wait more than they compute. One runs at a time, with the
//! lowest priority, so that the tests have the processor whenever they want it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc::{self, Receiver, Sender},
    thread,
    time::{Duration, Instant},
};

use crate::{
    report::say,
    tools::{finish, finished},
};

/// Commands that run beside the steps, each with the name of the step that waits for it.
#[derive(Debug)]
pub(crate) struct Beside {
    commands: Sender<(&'static str, Command)>,
    ends: Receiver<(&'static str, End)>,
    begun: BTreeSet<&'static str>,
    ended: BTreeMap<&'static str, End>,
    /// Where what they print waits for its step.
    logs: PathBuf,
}

/// How a command ended.
#[derive(Debug)]
struct End {
    took: Duration,
    outcome: Result<(), String>,
}

// === impl Beside ===

impl Beside {
    /// Nothing runs yet. What the commands print is kept in the folder `logs`.
    pub(crate) fn new(logs: &Path) -> Self {
        let (commands, waiting) = mpsc::channel::<(&'static str, Command)>();
        let (ending, ends) = mpsc::channel();
        let folder = logs.to_owned();
        thread::spawn(move || {
            for (name, command) in waiting {
                let began = Instant::now();
                let outcome = run(command, &log(&folder, name));
                if ending.send((name, End { took: began.elapsed(), outcome })).is_err() {
                    return;
                }
            }
        });
        let (begun, ended) = (BTreeSet::new(), BTreeMap::new());
        Self { commands, ends, begun, ended, logs: logs.to_owned() }
    }

    /// Runs a command once those before it have ended. Its step must follow.
    pub(crate) fn begin(&mut self, name: &'static str, command: Command) {
        if self.commands.send((name, command)).is_ok() {
            self.begun.insert(name);
        }
    }

    /// Waits for the command of this name, and shows what it printed; if it was not begun, `now` is run.
    pub(crate) fn end(&mut self, name: &'static str, now: &mut Command) -> Result<(), String> {
        if !self.begun.contains(name) {
            return finish(now);
        }
        while !self.ended.contains_key(name) {
            let Ok((other, end)) = self.ends.recv() else { break };
            self.ended.insert(other, end);
        }
        let end = self.ended.remove(name).ok_or("what runs beside the steps has stopped")?;
        if let Ok(printed) = fs::read_to_string(log(&self.logs, name)) {
            say(printed.trim_end());
        }
        say_beside(end.took);
        end.outcome
    }
}

/// Says how long something took that did not hold up the steps before its own.
pub(crate) fn say_beside(took: Duration) {
    say(&format!("it took {:.1} s beside other steps", took.as_secs_f64()));
}

/// Runs a command with the lowest priority; all that it prints goes into a file.
fn run(command: Command, log: &Path) -> Result<(), String> {
    let unwritten = |error| format!("cannot write `{}`: {error}", log.display());
    let out = File::create(log).map_err(unwritten)?;
    let errors = out.try_clone().map_err(unwritten)?;
    let program = command.get_program().display().to_string();
    let mut polite = yielding(&command);
    let mut child = polite.stdin(Stdio::null()).stdout(out).stderr(errors).spawn();
    if child.is_err() {
        // Without `nice` it runs as it is.
        let out = File::create(log).map_err(unwritten)?;
        let errors = out.try_clone().map_err(unwritten)?;
        let mut plain = command;
        child = plain.stdin(Stdio::null()).stdout(out).stderr(errors).spawn();
    }
    finished(&program, child.and_then(|mut child| child.wait()))
}

/// The same command, which gets what others leave of the processor.
fn yielding(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        nice.current_dir(folder);
    }
    nice
}

fn log(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{}.log", name.replace(' ', "-")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command that appends a word to the file `said` after the one before it has ended.
    fn says(folder: &Path, word: &str, status: u8) -> Command {
        let mut command = Command::new("sh");
        let line = format!("echo $WORD >> said; echo \"heard $WORD\"; exit {status}");
        command.args(["-c", &line]).env("WORD", word).current_dir(folder);
        command
    }

    #[test]
    fn commands_run_in_their_order_and_each_ends_at_its_step() {
        let folder = std::env::temp_dir().join(format!("clawnode-beside-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut beside = Beside::new(&folder);
        beside.begin("first one", says(&folder, "first", 0));
        beside.begin("second", says(&folder, "second", 3));
        // The step of the second comes first, and the end of the first is not lost.
        let unused = || says(&folder, "twice", 0);
        let failed = beside.end("second", &mut unused()).unwrap_err();
        assert!(failed.contains("exit status: 3"), "{failed}");
        beside.end("first one", &mut unused()).unwrap();
        beside.end("third", &mut says(&folder, "third", 0)).unwrap();
        let said = fs::read_to_string(folder.join("said")).unwrap();
        assert_eq!(said, "first\nsecond\nthird\n");
        assert_eq!(fs::read_to_string(folder.join("first-one.log")).unwrap(), "heard first\n");
        fs::remove_dir_all(&folder).unwrap();
    }
}
