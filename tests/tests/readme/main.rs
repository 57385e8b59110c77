//! What READMEs tell a reader to type is typed here, and what they tell to install is installed. The
//! blocks of `examples/tools` need every feature of the program, so the test `ssh` runs them.
#![expect(clippy::unwrap_used, reason = "helpers of tests: their panic is the test's failure")]

mod packages;

use std::path::{Path, PathBuf};

use clawnode_tests::{
    process::ProcessError,
    readme::{
        CLUSTER, FIRST, HOOKS, INSIDE, KEYS, MODELS, ONE_MACHINE, RUNNING, Scene, TOOLS,
        TWO_MACHINES, UNPLAYED, counted, faults, play, tasks, tour,
    },
};

type Outcome = Result<(), ProcessError>;

/// The page for a new user's first hour.
const TUTORIAL: &str = "docs/tutorial.md";

const SCENES: [Scene; 11] = [
    FIRST,
    MODELS,
    TOOLS,
    CLUSTER,
    KEYS,
    RUNNING,
    INSIDE,
    UNPLAYED,
    HOOKS,
    ONE_MACHINE,
    TWO_MACHINES,
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

#[test]
fn every_block_of_a_readme_runs_or_has_a_reason() {
    let root = root();
    let mut readmes = vec!["README.md".to_owned(), "docker/README.md".to_owned()];
    for example in std::fs::read_dir(root.join("examples")).unwrap().flatten() {
        readmes.push(format!("examples/{}/README.md", example.file_name().display()));
    }
    assert!(readmes.len() > 3, "{readmes:?}");
    let mut found = Vec::new();
    for readme in &readmes {
        let text = std::fs::read_to_string(root.join(readme)).unwrap();
        found.extend(faults(readme, &text, &SCENES));
    }
    let lost = SCENES.iter().filter(|scene| !readmes.iter().any(|it| it == scene.readme));
    found.extend(lost.map(|scene| format!("{}: there is no such README", scene.readme)));
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[tokio::test]
async fn a_first_chat_and_its_clients_run_as_written() -> Outcome {
    play(&FIRST).await
}

#[tokio::test]
async fn models_are_chosen_as_written() -> Outcome {
    play(&MODELS).await
}

#[tokio::test]
async fn approvals_and_jobs_run_as_written() -> Outcome {
    play(&TOOLS).await
}

#[tokio::test]
async fn many_processes_over_nats_run_as_written() -> Outcome {
    play(&CLUSTER).await
}

#[tokio::test]
async fn keys_of_a_cluster_are_made_as_written_for_nats() -> Outcome {
    play(&KEYS).await
}

#[tokio::test]
async fn keys_for_three_servers_are_made_as_written() -> Outcome {
    play(&RUNNING).await
}

#[tokio::test]
async fn a_node_is_looked_into_as_written() -> Outcome {
    play(&INSIDE).await
}

#[tokio::test]
async fn hooks_run_as_written() -> Outcome {
    play(&HOOKS).await
}

#[tokio::test]
async fn a_first_hour_goes_as_the_tutorial_has_it() -> Outcome {
    for (task, seconds) in tour(TUTORIAL).await? {
        println!("| {} | {} | {:.0} |", task.title, task.typed(), seconds.ceil());
    }
    Ok(())
}

#[test]
fn the_tutorial_says_how_much_is_typed() {
    let page = std::fs::read_to_string(root().join(TUTORIAL)).unwrap();
    let typed: Vec<_> = tasks(&page).iter().map(|it| (it.title.clone(), it.typed())).collect();
    assert_eq!(typed.len(), 10);
    assert_eq!(counted(&page), typed);
    // A block of another kind would not be typed.
    let kinds = page.lines().filter_map(|line| line.strip_prefix("```"));
    let other: Vec<&str> = kinds.filter(|it| !["", "sh", "text", "log"].contains(it)).collect();
    assert!(other.is_empty(), "{other:?}");
}
