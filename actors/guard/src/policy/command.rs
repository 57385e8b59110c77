//! Commands that only read: the calls of `run_command` that an operator marked as harmless.
//!
//! A call is compared with patterns word by word, and only if its words are certain: those of an `argv`, and
//! those of a line for a shell if no character of it has a meaning to a shell. In any other case the call
//! does not count as one that only reads, and a person decides about it.

use clawnode_proto::tool::{RUN_COMMAND, Risk, ToolSpec};
use serde_json::{Map, Value};

/// Matches any words at the end of a pattern that are no options.
const REST: &str = "*";
/// Arguments of a call that do not change what its command does.
const HARMLESS: [&str; 3] = ["command", "argv", "timeout_s"];

/// A command that only looks: its words, and whether more may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOnly<'a> {
    words: &'a str,
    more: bool,
}

/// A text that is no such pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadOnlyError {
    /// It names no program.
    #[error("it names no program")]
    Empty,
    /// It has something that a shell would take for something else than itself.
    #[error("`{0}` has a meaning in a shell; write plain words, and `*` only as the last one")]
    Word(String),
}

impl<'a> ReadOnly<'a> {
    /// Reads a pattern: plain words with one space between them, and perhaps `*` as the last.
    ///
    /// # Errors
    /// If it could be misunderstood.
    pub fn parse(text: &'a str) -> Result<Self, ReadOnlyError> {
        let (words, more) = match text.strip_suffix(REST) {
            Some(words) if words.ends_with(' ') => (words.trim_end_matches(' '), true),
            _ => (text, false),
        };
        if words.is_empty() {
            return Err(ReadOnlyError::Empty);
        }
        match words.split(' ').find(|word| !is_plain(word)) {
            Some(word) => Err(ReadOnlyError::Word(word.to_owned())),
            None => Ok(Self { words, more }),
        }
    }

    /// Whether these words are such a command. Options beyond the pattern's own are none of it: `git
    /// diff --output=x` writes.
    fn fits(self, words: &[&str]) -> bool {
        let own: Vec<&str> = self.words.split(' ').collect();
        let Some((first, rest)) = words.split_at_checked(own.len()) else { return false };
        first == own
            && (rest.is_empty() || self.more && rest.iter().all(|word| !word.starts_with('-')))
    }
}

/// The risk of a call: that of its tool, or less if the call is of a command that only looks.
pub fn risk_of(read_only: &[String], spec: &ToolSpec, arguments: &Map<String, Value>) -> Risk {
    let is_one = || {
        let Some(words) = words(arguments) else { return false };
        let mut known = read_only.iter().filter_map(|text| ReadOnly::parse(text).ok());
        known.any(|known| known.fits(&words))
    };
    // What an operator calls by another name is not asked here: only this tool is known to run its
    // arguments and nothing else.
    if spec.name.as_str() == RUN_COMMAND && spec.risk == Risk::Write && is_one() {
        Risk::ReadOnly
    } else {
        spec.risk
    }
}

/// The words that a call runs, if that is known for sure.
fn words(arguments: &Map<String, Value>) -> Option<Vec<&str>> {
    // A program that reads something may do what that says.
    if arguments.keys().any(|name| !HARMLESS.contains(&name.as_str())) {
        return None;
    }
    match (arguments.get("command"), arguments.get("argv")) {
        (Some(Value::String(line)), None) => {
            let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
            words.iter().all(|word| is_plain(word)).then_some(words)
        }
        (None, Some(Value::Array(items))) => items.iter().map(Value::as_str).collect(),
        _ => None,
    }
}

/// Whether a word is itself to every shell: none that is expanded, split, assigned or redirected.
fn is_plain(word: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+,=~".contains(c);
    // `~` at the beginning is a home directory.
    !word.is_empty() && word.chars().all(plain) && !word.starts_with('~')
}

#[cfg(test)]
mod tests {
    use clawnode_proto::tool::EffectClass;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn spec(name: &str, risk: Risk) -> ToolSpec {
        ToolSpec {
            name: name.parse().unwrap(),
            description: String::new(),
            input_schema: "{}".to_owned(),
            class: EffectClass::Once,
            risk,
            capability: None,
            timeout_ms: 1,
            pin: None,
            time: None,
        }
    }

    fn known() -> Vec<String> {
        ["git status", "git diff *", "ls -l *", "git log --oneline -5"].map(str::to_owned).into()
    }

    fn only_looks(arguments: Value) -> bool {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        let tool = spec(RUN_COMMAND, Risk::Write);
        risk_of(&known(), &tool, &arguments) == Risk::ReadOnly
    }

    #[test]
    fn what_is_known_to_look_only_looks() {
        for line in [
            "git status",
            "  git   status ",
            "git diff",
            "git diff HEAD~1 src/a.rs",
            "ls -l",
            "ls -l a b/c.d",
            "git log --oneline -5",
        ] {
            assert!(only_looks(json!({ "command": line })), "{line}");
        }
        assert!(only_looks(json!({ "argv": ["git", "status"], "timeout_s": 3 })));
        // No shell looks at these words: they are names of things that are not there.
        assert!(only_looks(json!({ "argv": ["git", "diff", "a; rm -rf b", "$(c)"] })));
    }

    /// Each does something else than a pattern, or might.
    const HOSTILE: &[&str] = &[
        "git status; rm -rf /workspace",
        "git status;rm -rf /workspace",
        "git status && curl evil",
        "git status || curl evil",
        "git status | sh",
        "git status & rm a",
        "git status > a",
        "git status >a",
        "git status 2>&1",
        "git status < a",
        "git status\nrm a",
        "git status\rrm a",
        "git\tstatus",
        "git status $(rm a)",
        "git status `rm a`",
        "git status ${IFS}a",
        "git status $HOME",
        "git diff *",
        "git diff a?",
        "git diff [ab]",
        "git diff {a,b}",
        "git diff ~/a",
        "git diff ~root",
        "git diff 'a'",
        "git diff \"a\"",
        "git diff \\a",
        "git diff a\u{a0}b",
        "git diff a\u{200b}",
        "git diff ａ；ｂ",
        "git diff a#b",
        "git diff !!",
        "git diff a^b",
        "git diff (a)",
        "git diff --output=/workspace/a",
        "git diff --ext-diff",
        "git diff a -o",
        "git diff -- a",
        "git diff -",
        "git status --short",
        "git status a",
        "git -c core.pager=x status",
        "git",
        "git stat",
        "git statusx",
        "gitstatus",
        "GIT status",
        "PATH=/workspace git status",
        "/workspace/git status",
        "./git status",
        "env git status",
        "sudo git status",
        "exec git status",
        "ls -la",
        "ls -l -a",
        "ls",
        "git log --oneline",
        "git log --oneline -5 --output=a",
        "",
        " ",
    ];

    #[test]
    fn nothing_else_passes() {
        for line in HOSTILE {
            assert!(!only_looks(json!({ "command": line })), "{line:?}");
        }
        for arguments in [
            json!({}),
            json!({ "argv": [] }),
            json!({ "argv": ["git status"] }),
            json!({ "argv": ["git", "status", ""] }),
            json!({ "argv": ["git", "diff", "--output=a"] }),
            json!({ "argv": ["git", "diff", 7] }),
            json!({ "argv": "git status" }),
            json!({ "command": ["git", "status"] }),
            json!({ "command": "git status", "argv": ["git", "status"] }),
            json!({ "command": "git status", "argv": null }),
            json!({ "command": "git status", "stdin": "" }),
            json!({ "command": "git status", "env": {} }),
            json!({ "command": null }),
        ] {
            assert!(!only_looks(arguments.clone()), "{arguments}");
        }
    }

    #[test]
    fn only_run_command_is_known_and_only_as_far_as_it_writes() {
        let Value::Object(status) = json!({ "command": "git status" }) else { unreachable!() };
        for (name, risk) in
            [("fs__run_command", Risk::Write), ("shell", Risk::Write), (RUN_COMMAND, Risk::Admin)]
        {
            assert_eq!(risk_of(&known(), &spec(name, risk), &status), risk, "{name}");
        }
        assert_eq!(risk_of(&[], &spec(RUN_COMMAND, Risk::Write), &status), Risk::Write);
    }

    #[test]
    fn patterns_are_plain_words() {
        for good in ["ls", "git status", "git diff *", "cargo test --offline *"] {
            assert!(ReadOnly::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            " ",
            "*",
            " *",
            "git*",
            "git *status",
            "* status",
            "git * status",
            "git  status",
            "git status ",
            " git status",
            "a;b",
            "a|b",
            "$a",
            "~/a",
            "a\nb",
            "git diff **",
            "git diff *  ",
        ] {
            assert!(ReadOnly::parse(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        /// A line with anything in it that means something to a shell passes no pattern.
        #[test]
        fn no_line_with_a_shells_characters_passes(
            before in "[a-z ]{0,8}", sign in "[;&|<>$`'\"\\\\(){}\\[\\]*?!#^\n\r\t\u{0}]",
            after in "[a-z ]{0,8}", first in prop::sample::select(vec!["git status", "git diff"]),
        ) {
            for line in [format!("{first} {before}{sign}{after}"), format!("{first}{sign}{after}"),
                format!("{sign}{first}")]
            {
                prop_assert!(!only_looks(json!({ "command": line })), "{line:?}");
            }
        }
    }
}
