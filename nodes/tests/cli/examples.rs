//! The examples of `--help` against a node that answers each method with an example of its answer. So a
//! new command is tested without a line here: it asks a method that exists, with parameters that the
//! method takes, and shows the answer.

use std::sync::{Arc, Mutex};

use clap::Command;
use clawnode_proto::{api::Method, methods::types};
use serde_json::{Map, Value};
use tokio::{sync::Semaphore, task::JoinSet};

use super::harness::{Home, Node};

#[expect(dead_code, reason = "the gateway's tests also make parameters")]
#[path = "../../gateway/tests/gateway/example.rs"]
mod example;

/// Commands that ask no node, or stream.
const OTHERS: [&str; 16] = [
    "backup",
    "chat",
    "cluster",
    "completions",
    "config",
    "doctor",
    "help",
    "hooks",
    "import",
    "man",
    "restore",
    "run",
    "skills",
    "top",
    "up",
    "version",
];
/// Words of commands that wait for something, or read the data directory.
const WAITING: [&str; 6] = ["--follow", "-f", "--wait", "drain", "replay", "repair"];

macro_rules! taken {
    ($(
        $(#[doc = $about:literal])*
        $variant:ident $($handler:ident)? = $wire:literal: $takes:ident => $answers:ident
        $([$($routes:tt)*])?;
    )*) => {
        /// Whether a method takes these parameters.
        fn is_taken(method: Method, params: &Value) -> bool {
            match method {
                $( Method::$variant => serde_json::from_value::<types::$takes>(params.clone()).is_ok(), )*
            }
        }
    };
}

clawnode_proto::methods!(taken);

/// The lines with examples of a command and those below it.
fn lines(command: &Command, found: &mut Vec<String>) {
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let examples = after.split_once("Examples:").map(|(_, examples)| examples).unwrap_or_default();
    let commands = examples.lines().filter_map(|line| line.strip_prefix("  clawnode "));
    found.extend(commands.map(str::to_owned));
    for below in command.get_subcommands() {
        lines(below, found);
    }
}

/// The words of a line, without its note, which is set off by three spaces, and without what the shell does.
fn words(line: &str) -> Vec<String> {
    let line = line.split("   ").next().unwrap_or_default();
    let line = line.split([';', '|', '>']).next().unwrap_or_default();
    let (mut words, mut word, mut is_quoted) = (Vec::new(), None::<String>, false);
    for c in line.chars() {
        match c {
            '\'' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            ' ' if !is_quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// A word as the answers of the node have it: an id in the place of its name, or the name of a file.
fn known(word: String) -> String {
    let id = |kind: &str| format!("{kind}_{}", "0".repeat(26));
    match word.as_str() {
        "CALL" => id("call"),
        "POINT" => id("point"),
        "JOB" => id("job"),
        "EXECUTION" => id("exe"),
        "LETTER" | "report.html" => "x".to_owned(),
        _ => word,
    }
}

#[tokio::test]
async fn examples_of_commands_work() {
    let wrong: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&wrong);
    let answers = move |name: &str, params: &Value| {
        let method = Method::parse(name).unwrap();
        if !is_taken(method, params) {
            noted.lock().unwrap().push(format!("{name} {params}"));
        }
        let mut answer = example::answer(method);
        match method {
            // Else there would always be more.
            Method::JobsClean => answer["more"] = 0.into(),
            // With one the command fails.
            Method::UsageAudit => answer["differences"] = Value::Array(Vec::new()),
            // Its schema does not say that it is base64.
            Method::JobsArtifact => answer["content"] = "".into(),
            // Its schema says nothing.
            Method::SessionsExport => answer = Value::Object(Map::new()),
            _ => {}
        }
        Ok(answer)
    };
    let node = Node::start(answers, Vec::new()).await;
    let mut found = Vec::new();
    lines(&clawnode::cli::documented(), &mut found);
    found.sort();
    found.dedup();
    // A few at a time, so that none waits long for a processor.
    let places = Arc::new(Semaphore::new(8));
    let mut running = JoinSet::new();
    for line in found {
        let args: Vec<String> = words(&line).into_iter().map(known).collect();
        let is_other = OTHERS.contains(&args[0].as_str()) || args[0].starts_with("--");
        let is_replay = |words: &[String]| words == ["quarantine", "replay"];
        let waits = args.iter().any(|word| WAITING.contains(&word.as_str()));
        if is_other || waits && !args.get(..2).is_some_and(is_replay) {
            continue;
        }
        let home = Home::new();
        home.announce(&node);
        if line.contains(" import ") {
            home.write("points.jsonl", "{\"text\": \"Tea is at four.\"}\n");
        }
        home.write("plan.json", r#"{"execution_spec": {"steps": [{"action": "calculate"}]}}"#);
        let pipeline = "inputs: {version: '1'}\nsteps: [{name: sum, action: calculate}]\n";
        home.write("pipeline.yaml", pipeline);
        let places = Arc::clone(&places);
        running.spawn(async move {
            let _place = places.acquire().await.unwrap();
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            (line, home.run(&args).await)
        });
    }
    assert!(running.len() > 50, "{} examples", running.len());
    let mut failed = Vec::new();
    while let Some(ended) = running.join_next().await {
        let (line, ended) = ended.unwrap();
        let is_shown =
            !ended.out.is_empty() || line.contains(" --to ") || line.contains(" --file ");
        // Some answers say that something is wrong, which is exit code 1.
        if ended.code > 1 || ended.err.contains("error: ") || !is_shown {
            failed.push(format!("{line}: {} {}", ended.code, ended.err));
        }
    }
    failed.extend(wrong.lock().unwrap().drain(..));
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
