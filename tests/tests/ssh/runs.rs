//! The results of commands, and what is left of those that were ended.

use clawnode_cluster::Peek;
use clawnode_guard::kill_switch::SwitchGate;
use clawnode_proto::{session::ToolEnd, tool::ToolFailure};
use clawnode_tests::wait::until;
use clawnode_tool::Executors;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Cluster, Outcome, end, server::Host, sh, told, toolbox};

/// Whether a process runs whose command line has this in it.
fn runs(mark: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|process| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").contains(mark)
    })
}

#[tokio::test]
async fn commands_on_a_host_end_in_words() {
    let (host, cluster) = (Host::start(), Cluster::new());
    let toolbox = toolbox(cluster.host("a", host.options(json!({}))));
    for (line, failure, words) in [
        ("echo a; echo b >&2", None, "a\n[stderr]\nb\n"),
        ("true", None, "[exit code 0, no output]"),
        ("echo a; exit 3", Some(ToolFailure::Failed), "a\n[exit code 3]"),
        ("echo part; kill -9 $$", Some(ToolFailure::Failed), "part\n[ended by the signal KILL]"),
        ("echo $CLAWNODE_IDEMPOTENCY_KEY", None, "job_"),
        ("head -c 3000000 /dev/zero | tr '\\0' a | tail -c 5", None, "aaaaa"),
    ] {
        let (failed, text) = sh(&toolbox, line).await;
        assert_eq!(failed, failure, "{line}: {text}");
        assert!(text.starts_with(words), "{line}: {text}");
    }
    let (failure, text) = sh(&toolbox, "head -c 3000000 /dev/zero | tr '\\0' a; echo x >&2").await;
    assert_eq!(failure, None);
    assert!(text.len() < 1_001_000 && text.contains("of 3000000 bytes of stdout]"), "cut");
    assert!(text.contains("\n[stderr]\nx\n"), "both streams are heard");
}

/// The output until then is in the outcome, and nothing is left there of a command that was ended,
/// also of one that ignores SIGTERM.
#[tokio::test]
async fn a_command_that_takes_too_long_or_is_cancelled_is_ended_on_its_host() -> Outcome {
    let (host, cluster) = (Host::of_tester(), Cluster::new());
    let toolbox = toolbox(cluster.host("a", host.options(json!({}))));
    // Only of this process, and of no other run.
    let own = std::process::id();
    for (trap, mark) in [("", 1), ("trap '' TERM; ", 2)] {
        let mark = format!("93{mark}{own}");
        let line = format!("{trap}echo working; sleep {mark}; echo no more");
        let arguments = json!({ "command": line, "timeout_s": 1 });
        let (failure, text) = told(end(&toolbox, arguments, CancellationToken::new()).await);
        assert_eq!(failure, Some(ToolFailure::TimedOut), "{text}");
        assert!(text.starts_with("working\n[timed_out after 1 s: it was sent "), "{text}");
        until("its end", async || Ok((!runs(&format!("sleep {mark}"))).then_some(()))).await?;
    }
    let cancelled = CancellationToken::new();
    let sleep = format!("sleep 933{own}");
    let arguments = json!({ "command": format!("echo working; {sleep}") });
    let running = end(&toolbox, arguments, cancelled.clone());
    let stop = async {
        until("the command", async || Ok(runs(&sleep).then_some(()))).await.unwrap();
        cancelled.cancel();
    };
    let (ended, ()) = tokio::join!(running, stop);
    let (failure, text) = told(ended);
    assert_eq!(failure, Some(ToolFailure::Cancelled), "{text}");
    assert!(text.contains("[cancelled: it was sent "), "{text}");
    until("its end", async || Ok((!runs(&sleep)).then_some(()))).await
}

/// F-20's kin: a runner that is cut off in the middle does not know the end, and says so.
#[tokio::test]
async fn a_command_whose_connection_is_lost_is_uncertain() -> Outcome {
    let (host, cluster) = (Host::start(), Cluster::new());
    let toolbox = toolbox(cluster.host("a", host.options(json!({}))));
    let mark = host.path("began");
    // It goes on there, until its host's files are gone.
    let line = format!("touch {0}; while [ -e {0} ]; do sleep 0.1; done", mark.display());
    let arguments = json!({ "command": line });
    let running = end(&toolbox, arguments, CancellationToken::new());
    let cut = async {
        until("the command", async || Ok(mark.is_file().then_some(()))).await.unwrap();
        host.cut_off();
    };
    let (ended, ()) = tokio::join!(running, cut);
    let ToolEnd::Uncertain { detail } = ended else { unreachable!("{ended:?}") };
    assert_eq!(detail, "the connection to the host `db` was lost while the command ran");
    // The next one is another matter.
    assert_eq!(sh(&toolbox, "echo back").await, (None, "back\n".to_owned()));
    Ok(())
}

#[tokio::test]
async fn only_commands_that_are_configured_are_run() {
    let (host, cluster) = (Host::start(), Cluster::new());
    let options = host.options(json!({ "commands": ["echo *"] }));
    let toolbox = toolbox(cluster.host("a", options));
    assert_eq!(sh(&toolbox, "echo well").await, (None, "well\n".to_owned()));
    let mark = host.path("mark");
    for line in ["id".to_owned(), format!("echo a; touch {}", mark.display())] {
        let (failure, text) = sh(&toolbox, &line).await;
        assert_eq!(failure, Some(ToolFailure::Refused), "{line}: {text}");
        assert!(text.contains("is not allowed on `db`") && text.ends_with("echo *"), "{text}");
    }
    assert!(!mark.exists());
}

/// What others may ask of a node follows from whether the host lets it in.
#[tokio::test]
async fn a_host_is_a_capability_while_it_lets_us_in() {
    let (host, cluster) = (Host::start(), Cluster::new());
    let capability = "ssh.db".parse().unwrap();
    let made = |options| {
        let host = cluster.host("a", options);
        async move {
            let list: Vec<std::sync::Arc<dyn clawnode_tool::Executor>> = vec![host];
            Executors::open(list, SwitchGate::default()).await.unwrap()
        }
    };
    let executors = made(host.options(json!({}))).await;
    assert!(executors.available().peek(|available| available.capabilities.contains(&capability)));
    let key = host.file("other", "no key");
    let executors = made(host.options(json!({ "key": key }))).await;
    let mut available = executors.available();
    assert!(
        !available.peek(|available| available.capabilities.contains(&capability)),
        "it does not get in"
    );
    // Its key is mended while the node runs.
    let keeping = tokio::spawn(executors.keep());
    std::fs::copy(host.path("id"), &key).unwrap();
    available.wait_for(|now| now.capabilities.contains(&capability)).await.unwrap();
    keeping.abort();
    // No server is there.
    let nowhere = host.options(json!({ "port": 1 }));
    let toolbox = toolbox(cluster.host("a", nowhere));
    let (failure, text) = sh(&toolbox, "true").await;
    assert_eq!(failure, Some(ToolFailure::Unavailable));
    assert!(text.starts_with("ssh_unavailable: `127.0.0.1:1` cannot be reached"), "{text}");
}
