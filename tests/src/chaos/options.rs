//! The command line, read by hand: few flags, and no crate for them.

use std::path::PathBuf;

use super::{hosts::HostKind, scenario::Scenario};

/// What `--help` prints.
pub const HELP: &str = "\
Runs real nodes, NATS servers and a model server, does harm to them under load, and judges what is
left: nothing accepted may be lost, nothing recorded done again, no invariant broken.

Usage: clawnode verify --chaos [OPTIONS]     (or clawnode-chaos [OPTIONS])

Options:
      --long                 more faults each; the run is added to the ledger
      --scenario NAME,...    only these
      --hosts KIND           loopback, namespaces, or auto (namespaces where root may make them)
      --seed N               replay this schedule of faults
      --iterations N         so many faults in each scenario
      --kills N              so many random kills, in the scenario `random-kills`
      --together N           so many scenarios at a time, 4 at most (2; with --long 1)
      --old-binary FILE      the other build for `rolling-upgrade`
      --out DIR              write the scorecard, and keep the logs of failures, here
      --ledger FILE          the ledger (bench/reliability.json with --long, else none)
      --keep                 keep all logs
      --list                 list the scenarios
  -h, --help                 print this

Exit code 1: something was lost, done twice or left behind, or an invariant did not hold; each
violation is printed, and the folder with the logs is kept.";

/// The most scenarios that play at a time: each has some ten processes.
const TOGETHER_MAX: usize = 4;

/// How much is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// A few minutes.
    #[default]
    Short,
    /// An hour and more.
    Long,
}

/// The options of the command.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How much.
    pub profile: Profile,
    /// Which; all of them if none is named.
    pub scenarios: Vec<Scenario>,
    /// On what; namespaces where possible if not said.
    pub hosts: Option<HostKind>,
    /// What schedules follow from; a new one if not said.
    pub seed: Option<u64>,
    /// Faults of each scenario.
    pub iterations: Option<usize>,
    /// Random kills.
    pub kills: Option<usize>,
    /// Scenarios that play at a time.
    pub together: Option<usize>,
    /// The other build.
    pub old_binary: Option<PathBuf>,
    /// Where results go.
    pub out: Option<PathBuf>,
    /// Where runs accumulate.
    pub ledger: Option<PathBuf>,
    /// Whether to keep the logs of successful scenarios too.
    pub keep: bool,
}

/// What the command line says.
#[derive(Debug)]
pub enum Parsed {
    /// Do this.
    Run(Box<Options>),
    /// Print the help.
    Help,
    /// Print the scenarios.
    List,
    /// It makes no sense, and why.
    Wrong(String),
}

// === impl Profile ===

impl Profile {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Long => "long",
        }
    }
}

// === impl Options ===

impl Options {
    /// Reads the words after the program's name.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Parsed {
        let mut options = Self::default();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "-h" | "--help" => return Parsed::Help,
                "--list" => return Parsed::List,
                "--long" => options.profile = Profile::Long,
                "--keep" => options.keep = true,
                flag => {
                    let Some(value) = words.next() else {
                        return Parsed::Wrong(format!("`{flag}` is unknown, or needs a value"));
                    };
                    if let Err(why) = options.set(flag, &value) {
                        return Parsed::Wrong(why);
                    }
                }
            }
        }
        Parsed::Run(Box::new(options))
    }

    /// How many scenarios play at a time. A long run is measured, and so they play one by one.
    pub fn together(&self) -> usize {
        let usual = match self.profile {
            Profile::Short => 2,
            Profile::Long => 1,
        };
        self.together.unwrap_or(usual)
    }

    fn set(&mut self, flag: &str, value: &str) -> Result<(), String> {
        let number = || value.parse().map_err(|_not| format!("`{flag} {value}` is no number"));
        match flag {
            "--scenario" => {
                for name in value.split(',') {
                    let unknown = || format!("there is no scenario `{name}`; see --list");
                    self.scenarios.push(Scenario::parse(name).ok_or_else(unknown)?);
                }
            }
            "--hosts" => {
                self.hosts = match value {
                    "loopback" => Some(HostKind::Loopback),
                    "namespaces" => Some(HostKind::Namespaces),
                    "auto" => None,
                    _ => return Err("`--hosts` is loopback, namespaces or auto".to_owned()),
                }
            }
            "--seed" => {
                let seed = value.parse();
                self.seed = Some(seed.map_err(|_not| format!("`--seed {value}` is no number"))?);
            }
            "--iterations" => self.iterations = Some(number()?),
            "--kills" => self.kills = Some(number()?),
            "--together" => {
                let together = number()?;
                if !(1..=TOGETHER_MAX).contains(&together) {
                    return Err(format!("`--together` is a number from 1 to {TOGETHER_MAX}"));
                }
                self.together = Some(together);
            }
            "--old-binary" => self.old_binary = Some(value.into()),
            "--out" => self.out = Some(value.into()),
            "--ledger" => self.ledger = Some(value.into()),
            _ => return Err(format!("`{flag}` is unknown")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Parsed {
        Options::parse(words.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_schedule_can_be_replayed_by_what_the_scorecard_says() {
        let Parsed::Run(options) = parse("--seed 7 --scenario worker-kill,poison --hosts loopback")
        else {
            panic!("it is right");
        };
        assert_eq!(options.seed, Some(7));
        assert_eq!(options.scenarios, [Scenario::WorkerKill, Scenario::Poison]);
        assert_eq!(options.hosts, Some(HostKind::Loopback));
        assert_eq!(Scenario::WorkerKill.iterations(&options), 2);
        let Parsed::Run(options) = parse("--long --kills 1000") else { panic!("it is right") };
        assert_eq!(Scenario::RandomKills.iterations(&options), 1_000);
        assert!(Scenario::WorkerKill.iterations(&options) > 2);
    }

    #[test]
    fn what_is_measured_plays_alone_unless_it_is_said() {
        for (words, together) in [("", 2), ("--long", 1), ("--long --together 3", 3)] {
            let Parsed::Run(options) = parse(words) else { panic!("{words}: it is right") };
            assert_eq!(options.together(), together, "{words}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for words in [
            "--seed",
            "--seed x",
            "--scenario none",
            "--hosts moon",
            "--loud 1",
            "--together 0",
            "--together 5",
        ] {
            assert!(matches!(parse(words), Parsed::Wrong(_)), "{words}");
        }
    }
}
