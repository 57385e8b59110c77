//! When a running node takes changes of the configuration file, section by section: nodes go by this table, and
//! `config check` shows it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    load::LoadedConfig,
    options::Config,
    tools::{RunCommandOptions, ToolsOptions},
    tree::Value,
};
use TakesEffect::{AfterRestart, AtOnce};

/// When a running node takes a change.
#[derive(Clone, Copy, Debug)]
enum TakesEffect {
    /// Within seconds.
    AtOnce,
    /// After a restart. It says whether two configurations differ in what a node reads once; secrets are compared too.
    AfterRestart(fn(&Config, &Config) -> bool),
}

/// The sections by name. A setting with a row of its own is not one of its section's.
const SECTIONS: [(&str, TakesEffect); 24] = [
    ("agents", AtOnce),
    ("bindings", AtOnce),
    ("budgets", AtOnce),
    ("cluster", AfterRestart(|before, now| before.cluster != now.cluster)),
    ("egress", AfterRestart(|before, now| before.egress != now.egress)),
    ("embeddings", AtOnce),
    ("gateway", AfterRestart(|before, now| before.gateway != now.gateway)),
    ("hooks", AfterRestart(|before, now| before.hooks != now.hooks)),
    ("mcp_servers", AfterRestart(|before, now| before.mcp_servers != now.mcp_servers)),
    ("memory", AfterRestart(|before, now| before.memory != now.memory)),
    ("models", AtOnce),
    ("node", AfterRestart(|before, now| before.node != now.node)),
    ("plugins", AfterRestart(|before, now| before.plugins != now.plugins)),
    ("prices", AtOnce),
    ("providers", AtOnce),
    ("sandbox", AfterRestart(|before, now| before.sandbox != now.sandbox)),
    ("session", AfterRestart(|before, now| before.session != now.session)),
    ("skills", AtOnce),
    ("ssh_hosts", AfterRestart(|before, now| before.ssh_hosts != now.ssh_hosts)),
    ("telemetry", AfterRestart(|before, now| before.telemetry != now.telemetry)),
    ("tools", AfterRestart(|before, now| read_once(&before.tools) != read_once(&now.tools))),
    ("tools.run_command", AtOnce),
    ("tools.timeouts", AtOnce),
    ("workspace", AfterRestart(|before, now| before.workspace != now.workspace)),
];

/// The sections and settings of a configuration file, by when a running node takes changes of them.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct FileSections {
    /// Within seconds.
    pub read_again: Vec<&'static str>,
    /// After a restart.
    pub restart: Vec<&'static str>,
}

/// The sections, in order of their names, whose changes wait for a restart of a node that began with `before`.
pub fn waiting(before: &Config, now: &Config) -> Vec<String> {
    let mut names = Vec::new();
    for (name, takes) in SECTIONS {
        if let AfterRestart(differs) = takes
            && differs(before, now)
        {
            names.push(name.to_owned());
        }
    }
    names
}

/// What the file of a configuration sets.
pub fn of_file(loaded: &LoadedConfig) -> FileSections {
    let mut found = FileSections { read_again: Vec::new(), restart: Vec::new() };
    for (name, takes) in SECTIONS.into_iter().filter(|(name, _)| is_in_file(loaded, name)) {
        match takes {
            AtOnce => found.read_again.push(name),
            AfterRestart(_) => found.restart.push(name),
        }
    }
    found
}

/// Whether the file sets something that this row is about.
fn is_in_file(loaded: &LoadedConfig, name: &str) -> bool {
    let path: Vec<&str> = name.split('.').collect();
    let Some(node) = loaded.tree.find(&path) else { return false };
    let Value::Table(table) = &node.value else { return node.is_of_file() };
    let has_row = |key: &str| SECTIONS.iter().any(|(row, _)| *row == format!("{name}.{key}"));
    table.iter().any(|(key, entry)| !has_row(key) && entry.is_of_file())
}

/// What a node does not read again of the section `tools`.
fn read_once(tools: &ToolsOptions) -> ToolsOptions {
    let (timeouts, run_command) = (BTreeMap::new(), RunCommandOptions::default());
    ToolsOptions { timeouts, run_command, ..tools.clone() }
}

#[cfg(test)]
mod tests {
    use clawnode_executors::WorkspaceOptions;

    use super::*;
    use crate::config::{Env, Sources, load, load::read_text};

    /// The configurations of these texts, in the same file.
    fn read<const N: usize>(texts: [&str; N]) -> [Config; N] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.toml");
        texts.map(|text| {
            std::fs::write(&file, text).unwrap();
            let env = Env::from([("HOME", dir.path().to_str().unwrap())]);
            load(&Sources { env, file: Some(file.clone()), flags: Vec::new() }).unwrap().config
        })
    }

    #[test]
    fn each_section_has_a_row() {
        let workspace = Some(WorkspaceOptions::new("/w".into()));
        let config = Config { workspace, ..Config::default() };
        let sections = serde_json::to_value(config).unwrap();
        let mut expected: Vec<&str> =
            sections.as_object().unwrap().keys().map(String::as_str).collect();
        expected.sort_unstable();
        let rows: Vec<&str> = SECTIONS.iter().map(|(name, _)| *name).collect();
        assert!(rows.is_sorted(), "{rows:?}");
        let sections: Vec<&str> = rows.into_iter().filter(|name| !name.contains('.')).collect();
        assert_eq!(sections, expected);
    }

    #[test]
    fn what_is_not_read_again_is_named() {
        let [before, now, other] = read([
            "",
            "[agents.default]\nmodel = \"demo/demo\"\n[models.\"demo/*\"]\ntools = false\n\
             [budgets.cluster]\nusd_per_day = \"1\"\n[tools.timeouts]\ncalculate = \"5s\"\n\
             [tools.run_command]\nread_only = [\"git status\"]\n",
            "[session]\nkeep_stateless = \"2d\"\n[tools]\nmax_jobs = 3\n\
             [[mcp_servers]]\nname = \"x\"\ncommand = \"y\"\n[workspace]\nroot = \"w\"\n",
        ]);
        assert_eq!(waiting(&before, &now), [""; 0], "all of it is read again");
        assert_eq!(waiting(&before, &other), ["mcp_servers", "session", "tools", "workspace"]);
        assert_eq!(waiting(&other, &before), waiting(&before, &other), "also what is taken away");
    }

    #[test]
    fn a_changed_secret_is_a_change() {
        let text = |secret: &str| {
            format!(
                "[cluster]\nnats = \"nats://ada:{secret}@one:4222\"\n\
                 [[mcp_servers]]\nname = \"x\"\ncommand = \"y\"\nenv = {{ KEY = \"{secret}\" }}\n"
            )
        };
        let [before, same, other] = read([&text("one"), &text("one"), &text("two")]);
        assert_eq!(waiting(&before, &same), [""; 0]);
        assert_eq!(waiting(&before, &other), ["cluster", "mcp_servers"]);
    }

    #[test]
    fn what_a_file_sets_is_read_again_or_needs_a_restart() {
        let file = |text: &str| of_file(&read_text(text).unwrap());
        let none = FileSections { read_again: vec![], restart: vec![] };
        assert_eq!(file(""), none, "defaults are not the file's");
        let found = file("[agents.ops]\n[session]\nsnapshot_every = 7\n[tools]\nmax_jobs = 3\n");
        let expected =
            FileSections { read_again: vec!["agents"], restart: vec!["session", "tools"] };
        assert_eq!(found, expected);
        let found = file(
            "[tools.timeouts]\ncalculate = \"5s\"\n[[mcp_servers]]\nname = \"x\"\ncommand = \"y\"\n",
        );
        let expected =
            FileSections { read_again: vec!["tools.timeouts"], restart: vec!["mcp_servers"] };
        assert_eq!(found, expected);
    }
}
