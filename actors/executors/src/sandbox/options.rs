//! `[sandbox]`: where agents' commands run, and the tools that a person defines.

use std::{collections::BTreeMap, time::Duration};

use clawnode_proto::units::duration;
use clawnode_proto::{
    ToolName,
    tool::{EffectClass, Risk},
};
use serde::{Deserialize, Serialize};

use super::{DockerOptions, ProcessOptions, command_tools, spec::Image};

/// The longest that `sandbox.max_timeout` may be: a node looks after a job no longer.
const TIMEOUT_MOST: Duration = Duration::from_hours(1);

/// `[sandbox]`: commands of agents. All nodes of a cluster should agree on `run_in`, `max_timeout`
/// and `tools`: an agent's tools are what the node that has its session says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SandboxOptions {
    /// Where `run_command`, `run_python` and `execute_code` run: `docker`, or `process`. A call waits for a node
    /// that has it; it never runs in the other instead.
    pub run_in: SandboxPlace,
    /// What a command sees of its agent's files (`[workspace]`), at `/workspace`: `none`,
    /// `read_only` or `read_write`. They are its agent's if a user who is not root owns them.
    pub workspace: WorkspaceAccess,
    /// The longest that a call may ask for (5 min, at most 1 h).
    pub max_timeout: MaxTimeout,
    /// `[sandbox.docker]`: the engine, and what holds for its containers.
    pub docker: DockerOptions,
    /// `[sandbox.process]`: commands as processes of the node's host.
    pub process: ProcessOptions,
    /// `[sandbox.tools.NAME]`: tools that are commands.
    pub tools: BTreeMap<ToolName, CommandTool>,
}

/// See [`SandboxOptions::max_timeout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MaxTimeout(#[serde(with = "duration")] pub Duration);

/// Where a command runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxPlace {
    /// In a container.
    #[default]
    Docker,
    /// As an isolated process of a node's host.
    Process,
}

/// What a command sees of its agent's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceAccess {
    #[default]
    None,
    /// It can read them.
    ReadOnly,
    /// It can change them.
    ReadWrite,
}

/// `[sandbox.tools.NAME]`: a tool that is a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandTool {
    /// What it does, for the model.
    pub description: String,
    /// The JSON Schema of its arguments, as JSON text: an object.
    #[serde(default = "no_arguments")]
    pub input_schema: String,
    /// The program and its arguments. An item that is `{NAME}` and nothing else is the call's
    /// argument of that name, as one item; the schema must require it. No shell looks at any of
    /// them. All arguments are on standard input too, as JSON.
    pub command: Vec<String>,
    /// Where it runs: `docker` or `process`.
    #[serde(default)]
    pub env: SandboxPlace,
    /// In which image, in Docker; `sandbox.docker.image` unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// How long one run may take; as long as commands of its place unless set.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "optional")]
    pub timeout: Option<Duration>,
    /// What running it twice does: `safe`, `idempotent` (by `CLAWNODE_IDEMPOTENCY_KEY`), `check`
    /// (its `probe` tells whether it has happened) or `once`, which is the default.
    #[serde(default = "once")]
    pub class: EffectClass,
    /// Of class `check`: the command that finds out whether an earlier run of a call has happened,
    /// after its node died. It runs as `command` does, with the same arguments and the same
    /// `CLAWNODE_IDEMPOTENCY_KEY`. Exit code 0: it has, and the probe's output is the result. Exit
    /// code 1: it has not, and is run again. Anything else: unknown, and a person has to decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Vec<String>>,
    /// How much harm it can do: `READ_ONLY`, `WRITE` (the default) or `ADMIN`.
    #[serde(default = "write")]
    pub risk: Risk,
}

/// What is wrong with the options: which key below `sandbox`, what, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct SandboxOptionsError {
    /// The key, from `sandbox` on.
    pub key: Vec<String>,
    pub what: String,
    pub hint: String,
}

impl Default for MaxTimeout {
    fn default() -> Self {
        Self(Duration::from_mins(5))
    }
}

fn no_arguments() -> String {
    r#"{"type":"object","additionalProperties":false}"#.to_owned()
}

const fn once() -> EffectClass {
    EffectClass::Once
}

const fn write() -> Risk {
    Risk::Write
}

impl SandboxOptions {
    /// Whether anything runs as a process.
    pub fn has_processes(&self) -> bool {
        self.run_in == SandboxPlace::Process
            || self.tools.values().any(|tool| tool.env == SandboxPlace::Process)
    }

    /// Refuses the first thing that is well-formed and wrong.
    pub fn check(&self) -> Result<(), SandboxOptionsError> {
        let fail = |key: &[&str], what: String, hint: &str| {
            let key = ["sandbox"].iter().chain(key).map(|&part| part.to_owned()).collect();
            Err(SandboxOptionsError { key, what, hint: hint.to_owned() })
        };
        let most = self.max_timeout.0;
        if most.is_zero() || most > TIMEOUT_MOST {
            let what = "the longest timeout is not 1 ms to 1 h".to_owned();
            return fail(&["max_timeout"], what, "write a duration such as `5m`");
        }
        for (section, timeout) in
            [("docker", self.docker.timeout), ("process", self.process.timeout)]
        {
            if timeout.is_zero() || timeout > most {
                let what = "the timeout is not 1 ms to `sandbox.max_timeout`".to_owned();
                return fail(&[section, "timeout"], what, "write a duration such as `30s`");
            }
        }
        if self.docker.tmp > self.docker.memory {
            let what = "`/tmp` counts as memory, and has more than there is".to_owned();
            return fail(&["docker", "tmp"], what, "write less than `sandbox.docker.memory`");
        }
        for path in &self.process.paths {
            let whole = [
                "/", "/proc", "/sys", "/dev", "/run", "/var", "/var/run", "/tmp", "/root", "/home",
            ];
            let plain = path.is_absolute()
                && path.components().count() == path.iter().count()
                && !path.iter().any(|part| part == "..");
            if !plain || whole.iter().any(|root| path == std::path::Path::new(root)) {
                let what = format!("`{}` cannot be shown to commands", path.display());
                let hint =
                    "name folders of programs and data, such as `/usr` or `/opt/tool`, whole";
                return fail(&["process", "paths"], what, hint);
            }
        }
        for (name, tool) in &self.tools {
            if let Err((key, what, hint)) = command_tools::check(name, tool, most) {
                return fail(&["tools", name.as_str(), key], what, hint);
            }
        }
        Ok(())
    }
}

/// A duration that may be left out.
mod optional {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::MaxTimeout;

    #[expect(clippy::ref_option, reason = "serde asks for it")]
    pub(super) fn serialize<S: Serializer>(
        timeout: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        timeout.map(MaxTimeout).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<MaxTimeout>::deserialize(from)?.map(|timeout| timeout.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(text: &str) -> Result<SandboxOptions, String> {
        let options: SandboxOptions =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        options.check().map_err(|error| format!("{}: {error}", error.key.join(".")))?;
        Ok(options)
    }

    fn tool(rest: &str) -> String {
        format!(r#"{{"tools":{{"t":{{"description":"d",{rest}}}}}}}"#)
    }

    #[test]
    fn defaults_are_those_that_are_promised() {
        let options = verdict("{}").unwrap();
        let docker = &options.docker;
        assert_eq!(docker.cpus.nano(), 1_000_000_000);
        assert_eq!(docker.memory.to_string(), "512MiB");
        assert_eq!(docker.timeout, Duration::from_secs(30));
        assert_eq!(docker.image.as_str().parse::<Image>().as_ref(), Ok(&docker.image));
        assert_eq!(
            docker.python_image.as_str().parse::<Image>().as_ref(),
            Ok(&docker.python_image)
        );
        assert!(!docker.auto_pull);
        assert_eq!(options.process.timeout, Duration::from_mins(1));
        assert_eq!(options.max_timeout.0, Duration::from_mins(5));
        let shown = serde_json::to_string(&options).unwrap();
        assert_eq!(verdict(&shown).unwrap(), options);
    }

    #[test]
    fn times_and_sizes_are_written_as_everywhere() {
        let text = r#"{"process":{"timeout":"1m30s","memory":"1GiB"},"docker":{"tmp":"32 MiB"}}"#;
        let options = verdict(text).unwrap();
        assert_eq!(options.process.timeout, Duration::from_secs(90));
        assert_eq!(options.process.memory.bytes(), 1 << 30);
        assert_eq!(options.docker.tmp.bytes(), 32 << 20);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let schema = r#""input_schema":"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"}}}""#;
        for (text, words) in [
            (r#"{"docker":{"memory":"512"}}"#.to_owned(), "`512` is not an amount of memory"),
            (r#"{"docker":{"memory":"lots"}}"#.to_owned(), "`lots` is not an amount of memory"),
            (r#"{"docker":{"memory":512}}"#.to_owned(), "expected a string"),
            (r#"{"docker":{"cpus":0}}"#.to_owned(), "0 is not a number of processors"),
            (r#"{"docker":{"image":"../x"}}"#.to_owned(), "`../x` is not the name of an image"),
            (r#"{"docker":{"network":"host"}}"#.to_owned(), "unknown variant `host`"),
            (r#"{"docker":{"privileged":true}}"#.to_owned(), "unknown field `privileged`"),
            (r#"{"docker":{"pids":0}}"#.to_owned(), "nonzero"),
            (r#"{"docker":{"timeout":"10m"}}"#.to_owned(), "sandbox.docker.timeout: "),
            (r#"{"docker":{"tmp":"600m"}}"#.to_owned(), "sandbox.docker.tmp: "),
            (r#"{"max_timeout":"2h"}"#.to_owned(), "sandbox.max_timeout: "),
            (r#"{"process":{"isolation":"off"}}"#.to_owned(), "unknown variant `off`"),
            (r#"{"process":{"paths":["/"]}}"#.to_owned(), "sandbox.process.paths: `/` cannot"),
            (r#"{"process":{"paths":["usr"]}}"#.to_owned(), "`usr` cannot"),
            (r#"{"process":{"paths":["/usr/../etc"]}}"#.to_owned(), "cannot"),
            (tool(r#""command":[]"#), "sandbox.tools.t.command: "),
            (tool(r#""command":["a","{a}"]"#), "no argument `a`"),
            (tool(&format!(r#""command":["a","{{a}}"],{schema}"#)), "does not require `a`"),
            (tool(r#""command":["a"],"input_schema":"{""#), "sandbox.tools.t.input_schema: "),
            (tool(r#""command":["a"],"timeout":"6m""#), "sandbox.tools.t.timeout: "),
            (tool(r#""command":["a"],"class":"check""#), "sandbox.tools.t.class: "),
            (tool(r#""command":["a"],"probe":["b"]"#), "sandbox.tools.t.probe: only a tool"),
            (tool(r#""command":["a"],"class":"check","probe":[]"#), "sandbox.tools.t.probe: "),
            (
                tool(r#""command":["a"],"class":"check","probe":["b","{a}"]"#),
                "sandbox.tools.t.probe: its schema has no argument `a` for `{a}`",
            ),
            (tool(r#""command":["a"],"env":"process","image":"b""#), "sandbox.tools.t.image: "),
            (tool(r#""command":["a"],"env":"host""#), "unknown variant `host`"),
            (
                r#"{"tools":{"run_command":{"description":"d","command":["a"]}}}"#.to_owned(),
                "built in",
            ),
        ] {
            let error = verdict(&text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
