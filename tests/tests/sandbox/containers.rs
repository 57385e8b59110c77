//! Commands in containers: their results, and that nothing of one is left for the next.

use std::time::Duration;

use clawnode_executors::sandbox::SandboxBug;
use clawnode_proto::tool::ToolFailure;
use clawnode_tests::{docker::Engine, process::ProcessError, wait::until};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Bench, Outcome, call, engine, told};

/// Waits until so many containers stand ready.
async fn ready(bench: &Bench, count: usize) -> Outcome {
    until("containers that stand ready", async || Ok((bench.docker.ready() == count).then_some(())))
        .await
}

/// Waits until no container is left but so many.
async fn left(engine: &Engine, count: usize) -> Result<Vec<String>, ProcessError> {
    until("the other containers to be removed", async || {
        let containers = engine.containers().await?;
        Ok((containers.len() == count).then_some(containers))
    })
    .await
}

#[tokio::test]
async fn commands_in_docker_end_in_words() -> Outcome {
    let engine = engine().await?;
    engine.import_python().await?;
    let bench =
        Bench::new(&engine.socket(), json!({ "memory": "64m", "tmp": "16m" }), SandboxBug::None);
    for (line, failure, words) in [
        ("echo a; echo b >&2", None, "a\n[stderr]\nb\n"),
        ("true", None, "[exit code 0, no output]"),
        ("echo a; exit 3", Some(ToolFailure::Failed), "a\n[exit code 3]"),
        ("kill -9 $$", Some(ToolFailure::Failed), "[exit code 137]"),
        (
            "nosuchthing",
            Some(ToolFailure::Failed),
            "[stderr]\nsh: nosuchthing: not found\n[exit code 127]",
        ),
        // What a command leaves behind does not keep its call waiting.
        ("sleep 100 & echo begun", None, "begun"),
        ("printf 'a\\377b'", None, "a\u{fffd}b\n[some bytes of stdout were not UTF-8"),
        ("pwd; echo $HOME", None, "/tmp\n/tmp\n"),
    ] {
        let (failed, text) = bench.sh(line).await;
        assert_eq!(failed, failure, "{line}: {text}");
        assert!(text.starts_with(words), "{line}: {text}");
    }
    // Much more than is kept, on both streams.
    let flood =
        "head -c 3000000 /dev/zero | tr '\\0' a; head -c 3000000 /dev/zero | tr '\\0' b >&2";
    let (failure, text) = bench.sh(flood).await;
    assert_eq!(failure, None);
    assert!(text.len() < 1_001_000, "{}", text.len());
    assert!(text.contains("of 3000000 bytes of stdout]"), "the cut is noted");
    assert!(text.contains("[cut: the first 100000 of 3000000 bytes of stderr]"));

    // F-17: memory.
    let (failure, text) =
        bench.sh("x=$(head -c 200000000 /dev/zero | tr '\\0' a); echo ${#x}").await;
    assert_eq!(failure, Some(ToolFailure::Crashed), "F-17: {text}");
    assert!(text.contains("out of memory: it was killed (137) when it wanted more than 64MiB"));

    // Not through a shell, and with something to read.
    let argv = json!({ "argv": ["cat", "-", "$(nothing)"], "stdin": "read me\n" });
    let (failure, text) = told(bench.call("run_command", argv).await);
    assert_eq!(failure, Some(ToolFailure::Failed));
    assert!(text.contains("read me") && text.contains("'$(nothing)'"), "{text}");
    let missing = json!({ "argv": ["/no/such/program"] });
    let (failure, text) = told(bench.call("run_command", missing).await);
    assert_eq!(failure, Some(ToolFailure::Failed), "{text}");
    assert!(text.contains("no such file or directory"), "{text}");

    let code =
        "import sys, os\nprint(6 * 7)\nprint(os.environ['CLAWNODE_IDEMPOTENCY_KEY'])\nsys.exit(2)";
    let (failure, text) = told(bench.call("run_python", json!({ "code": code })).await);
    assert_eq!(failure, Some(ToolFailure::Failed), "{text}");
    assert!(text.starts_with("42\njob_") && text.ends_with("[exit code 2]"), "{text}");
    bench.close().await;
    assert_eq!(engine.containers().await?, [""; 0]);
    engine.stop().await
}

/// F-18 and partial output: whatever runs, and however it hides, goes with its container.
#[tokio::test]
async fn f_18_a_command_in_docker_that_takes_too_long_is_killed_with_all_it_has_begun() -> Outcome {
    let engine = engine().await?;
    let bench = Bench::new(&engine.socket(), json!({ "warm": 0 }), SandboxBug::None);
    let stubborn = "trap '' TERM INT HUP; echo working; (setsid sh -c 'trap \"\" TERM; sleep 1000' &) ; \
                    while :; do sleep 1; done";
    let arguments = json!({ "command": stubborn, "timeout_s": 2 });
    let (failure, text) = told(bench.call("run_command", arguments).await);
    assert_eq!(failure, Some(ToolFailure::TimedOut));
    let killed = "[timed_out: it was killed after 2 s; its output is above]";
    let limit = "[the command timeout of 2 s (set in `timeout_s`) was over]";
    assert_eq!(text, format!("working\n{killed}\n{limit}"));
    left(&engine, 0).await?;

    let (cancelled, arguments) = (CancellationToken::new(), json!({ "command": stubborn }));
    let running = call(&bench.toolbox, "run_command", arguments, cancelled.clone());
    let stop = async {
        let name = left(&engine, 1).await?.remove(0);
        assert!(name.starts_with("clawnode-job_"), "it is called by its job: {name}");
        until("the command to work", async || {
            let top = engine.docker(&["top", &name]).await?;
            Ok(top.contains("trap").then_some(()))
        })
        .await?;
        cancelled.cancel();
        Ok::<(), ProcessError>(())
    };
    let (outcome, stopped) = tokio::join!(running, stop);
    stopped?;
    assert_eq!(outcome.failure, Some(ToolFailure::Cancelled), "{outcome:?}");
    left(&engine, 0).await?;

    // One whose caller is gone.
    let arguments = json!({ "command": stubborn });
    let running = call(&bench.toolbox, "run_command", arguments, CancellationToken::new());
    tokio::select! {
        _ = running => unreachable!("it does not end"),
        begun = left(&engine, 1) => drop(begun?),
    }
    left(&engine, 0).await?;
    bench.close().await;
    engine.stop().await
}

/// One call sees nothing of another, and a ready container is used once.
#[tokio::test]
async fn containers_that_stand_ready_are_used_once() -> Outcome {
    let engine = engine().await?;
    let options = json!({ "warm": 2, "warm_idle": "20s" });
    let bench = Bench::new(&engine.socket(), options, SandboxBug::None);
    let mark = "cat /tmp/mark /dev/shm/mark /data/mark 2>/dev/null; hostname; \
                echo x >/tmp/mark; echo x >/dev/shm/mark; echo x >/data/mark; \
                (setsid sleep 1000 &); [ $(ps | grep -c '[s]leep 1000$') -gt 1 ] || echo alone";
    let (failure, text) = bench.sh(mark).await;
    assert_eq!((failure, text.as_str()), (None, "sandbox\nalone\n"));
    ready(&bench, 2).await?;
    let names = left(&engine, 2).await?;
    for _ in 0..5 {
        let (failure, text) = bench.sh(mark).await;
        assert_eq!((failure, text.as_str()), (None, "sandbox\nalone\n"), "something was left");
    }
    ready(&bench, 2).await?;
    let later = left(&engine, 2).await?;
    assert!(names.iter().all(|name| !later.contains(name)), "{names:?} {later:?}");

    // One that stood ready and died is not the caller's trouble.
    for name in &later {
        engine.docker(&["kill", name]).await?;
    }
    let (failure, text) = bench.sh("echo alive").await;
    assert_eq!((failure, text.as_str()), (None, "alive\n"));
    // There are no more calls.
    left(&engine, 0).await?;
    assert_eq!(bench.docker.ready(), 0);
    bench.close().await;
    engine.stop().await
}

#[tokio::test]
async fn a_tool_of_the_configuration_runs_in_its_docker_image() -> Outcome {
    let engine = engine().await?;
    let tools = json!({
        "count": {
            "description": "Counts.",
            "input_schema": json!({
                "type": "object",
                "properties": {"text": {"type": "string"}, "more": {"type": "object"}},
                "required": ["text"],
            })
            .to_string(),
            "command": ["sh", "-c", "printf '%s|' \"$1\"; cat", "sh", "{text}"],
            "timeout": "5s",
        },
        "gone": { "description": "Is not there.", "command": ["true"], "image": "nowhere/none:1" },
        "unfit": { "description": "Cannot idle.", "command": ["true"], "image": "empty:1" },
        "slow": { "description": "Takes long.", "command": ["sleep", "100"], "timeout": "1s" },
    });
    engine.import(std::path::Path::new("/bin/busybox"), "busybox", "empty:1").await?;
    let bench = Bench::with(&engine.socket(), json!({ "tools": tools }), SandboxBug::None, None);
    let text = "a; $(b) 'c'";
    let (failure, told_) =
        told(bench.call("count", json!({ "text": text, "more": { "d": 1 } })).await);
    assert_eq!(failure, None, "{told_}");
    let (first, stdin) = told_.split_once('|').unwrap();
    assert_eq!(first, text);
    let stdin: serde_json::Value = serde_json::from_str(stdin).unwrap();
    assert_eq!(stdin, json!({ "text": text, "more": { "d": 1 } }));
    for (tool, failure, words) in [
        ("gone", ToolFailure::Unavailable, "`docker pull nowhere/none:1`"),
        ("slow", ToolFailure::TimedOut, "killed after 1 s"),
    ] {
        let begun = std::time::Instant::now();
        let (failed, text) = told(bench.call(tool, json!({})).await);
        assert_eq!(failed, Some(failure), "{tool}: {text}");
        assert!(text.contains(words), "{tool}: {text}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{tool}");
    }
    // Its container may end before the command is prepared, or before it begins.
    let (failed, text) = told(bench.call("unfit", json!({})).await);
    let is_said = text.contains("`sleep`") || text.ends_with("[exit code 126]");
    assert!(failed.is_some() && (is_said || text.starts_with("sandbox_unavailable")), "{text}");
    bench.close().await;
    assert_eq!(engine.containers().await?, [""; 0]);
    engine.stop().await
}
