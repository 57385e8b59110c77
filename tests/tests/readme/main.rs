//! What READMEs and the pages under `docs` tell a reader to type is typed here, and what they tell to
//! install is installed. The blocks of `examples/tools` need every feature of the program, so the test
//! `ssh` runs them.
#![expect(clippy::unwrap_used, reason = "helpers of tests: their panic is the test's failure")]

mod packages;

use std::path::{Path, PathBuf};

use clawnode_tests::{
    process::ProcessError,
    readme::{
        APPROVALS, APPROVED, CLUSTER, FEATURES, FIRST, GUIDES, HOOKS, HOSTS, JOBS, KEYS, KINDS,
        OBSERVE, ONE_MACHINE, OPERATIONS, RUNNING, SHARED, STOLEN, Scene, TWO_MACHINES, UPGRADE,
        counted, faults, play, tasks, tour,
    },
};

type Outcome = Result<(), ProcessError>;

/// The page for a new user's first hour, which a terminal types.
const TUTORIAL: &str = "docs/tutorial.md";
/// The most lines that the main README may have.
const README_LINES: usize = 120;
/// What the page of a tool is divided into.
const OF_A_TOOL: [&str; 5] = ["Configure", "Call", "Limits", "Failure", "Security"];

fn scenes() -> Vec<Scene> {
    let single = [
        FIRST,
        APPROVED,
        HOSTS,
        APPROVALS,
        JOBS,
        SHARED,
        CLUSTER,
        KEYS,
        UPGRADE,
        RUNNING,
        OBSERVE,
        STOLEN,
        HOOKS,
        ONE_MACHINE,
        TWO_MACHINES,
    ];
    let groups = GUIDES.into_iter().chain(KINDS).chain(FEATURES).chain(OPERATIONS);
    single.into_iter().chain(groups).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// The pages in a folder and below it, from the root of the repository.
fn pages(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root().join(folder)).unwrap().flatten() {
        let path = format!("{folder}/{}", entry.file_name().display());
        if entry.path().is_dir() {
            found.extend(pages(&path));
        } else if entry.path().extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Plays one after the other.
async fn play_all(scenes: &[Scene]) -> Outcome {
    for scene in scenes {
        play(scene).await?;
    }
    Ok(())
}

#[test]
fn every_block_of_a_page_runs_or_has_a_reason() {
    let mut found = pages("docs");
    found.retain(|page| page != TUTORIAL);
    assert!(found.len() > 20, "{found:?}");
    found.extend(["README.md".to_owned(), "docker/README.md".to_owned()]);
    for example in std::fs::read_dir(root().join("examples")).unwrap().flatten() {
        found.push(format!("examples/{}/README.md", example.file_name().display()));
    }
    let scenes = scenes();
    let mut wrong = Vec::new();
    for page in &found {
        wrong.extend(faults(page, &text(page), &scenes));
    }
    let lost = scenes.iter().filter(|scene| !found.iter().any(|page| page == scene.readme));
    wrong.extend(lost.map(|scene| format!("{}: there is no such page", scene.readme)));
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn the_main_readme_is_short() {
    let lines = text("README.md").lines().count();
    assert!(lines <= README_LINES, "README.md has {lines} lines; move what is long to docs/");
}

#[test]
fn a_guide_begins_with_what_can_be_run() {
    let mut wrong = Vec::new();
    for page in pages("docs/guide").into_iter().chain(pages("docs/operations")) {
        let begins = text(&page).lines().find(|line| line.starts_with("```")).map(str::to_owned);
        if begins.as_deref() != Some("```sh") {
            wrong.push(format!("{page}: its first block is {begins:?}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn pages_of_tools_have_the_same_headings() {
    let mut found = pages("docs/guide/tools");
    found.retain(|page| page != "docs/guide/tools/README.md");
    assert!(found.len() > 5, "{found:?}");
    for page in &found {
        let text = text(page);
        let headings: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(headings, OF_A_TOOL, "{page}");
    }
}

#[tokio::test]
async fn a_first_chat_and_its_clients_run_as_written() -> Outcome {
    play(&FIRST).await
}

#[tokio::test]
async fn a_call_is_approved_as_the_readme_has_it() -> Outcome {
    play(&APPROVED).await
}

#[tokio::test]
async fn many_hosts_over_nats_run_as_the_readme_has_it() -> Outcome {
    play(&HOSTS).await
}

#[tokio::test]
async fn guides_run_as_written() -> Outcome {
    play_all(&GUIDES).await
}

#[tokio::test]
async fn approvals_and_jobs_run_as_written() -> Outcome {
    play_all(&[APPROVALS, JOBS]).await
}

#[tokio::test]
async fn each_kind_of_tool_runs_as_written() -> Outcome {
    play(&SHARED).await?;
    play_all(&KINDS).await
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
async fn a_worker_on_nats_is_drained_as_written() -> Outcome {
    play(&UPGRADE).await
}

#[tokio::test]
async fn keys_for_three_servers_are_made_as_written() -> Outcome {
    play(&RUNNING).await
}

#[tokio::test]
async fn a_node_is_looked_into_as_written() -> Outcome {
    play(&OBSERVE).await
}

#[tokio::test]
async fn a_node_is_operated_as_written() -> Outcome {
    play_all(&OPERATIONS).await
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
    let page = text(TUTORIAL);
    let typed: Vec<_> =
        tasks(&page).iter().map(|task| (task.title.clone(), task.typed())).collect();
    assert_eq!(typed.len(), 10);
    assert_eq!(counted(&page), typed);
    // A block of another kind would not be typed.
    let kinds = page.lines().filter_map(|line| line.strip_prefix("```"));
    let other: Vec<&str> = kinds.filter(|kind| !["", "sh", "text", "log"].contains(kind)).collect();
    assert!(other.is_empty(), "{other:?}");
}
