//! What `--help` says. Changing it is a decision: `INSTA_UPDATE=always` takes the new text.

use super::harness::Home;

#[tokio::test]
async fn help_is_as_approved() {
    let home = Home::new();
    for command in [
        "",
        "up",
        "run",
        "chat",
        "status",
        "nodes",
        "partitions",
        "tree",
        "events",
        "top",
        "quarantine",
        "quarantine drop",
        "parked",
        "providers",
        "diagnose",
        "sessions",
        "sessions list",
        "sessions tail",
        "sessions export",
        "sessions delete",
        "agents",
        "node",
        "node drain",
        "journal",
        "journal repair",
        "backup",
        "restore",
        "import",
        "doctor",
        "config",
        "config check",
        "approvals",
        "approvals approve",
        "jobs",
        "mcp",
        "cluster",
        "help",
        "completions",
        "man",
    ] {
        let mut args: Vec<&str> = command.split_whitespace().collect();
        args.push("--help");
        let ended = home.run(&args).await;
        assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{command}");
        // The settings are those of every command.
        let shown = match (command, ended.out.split_once("\nSettings:\n")) {
            ("", _) | (_, None) => ended.out.clone(),
            (_, Some((before, after))) => {
                let rest = after.split_once("\n\n").map_or("", |(_, rest)| rest);
                format!("{before}\n[settings]\n\n{rest}")
            }
        };
        let name = format!("help_{}", command.replace(' ', "_"));
        insta::assert_snapshot!(name.trim_end_matches('_'), shown.trim_end());
    }
}

#[tokio::test]
async fn the_version_is_told() {
    let ended = Home::new().run(&["--version"]).await;
    assert_eq!(ended.out, format!("clawnode {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(Home::new().run(&["version"]).await.out, ended.out);
}

#[tokio::test]
async fn topics_and_completions_need_no_configuration() {
    let home = Home::new();
    home.write("broken.toml", "no toml");
    for (args, part) in [
        (&["help", "models"][..], "clawnode config check"),
        (&["help", "sessions", "list"], "Usage: clawnode sessions list"),
        (&["completions", "zsh"], "#compdef clawnode"),
        (&["completions", "fish"], "complete -c clawnode"),
    ] {
        let ended = home.run_with(args, &[("CLAWNODE_CONFIG", "broken.toml")], "").await;
        assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{args:?}");
        assert!(ended.out.contains(part), "{args:?}\n{}", ended.out);
    }
    assert_eq!(home.run(&["help", "nothing"]).await.code, 2);
}

/// Bash itself takes the script, and completes a command, a setting that the command uses and none
/// that it does not use.
#[tokio::test]
async fn bash_completes_commands_and_their_settings() {
    let home = Home::new();
    let script = home.run(&["completions", "bash"]).await.out;
    home.write("completions.bash", &script);
    let complete = "source completions.bash; COMP_WORDS=(clawnode sessions list --); COMP_CWORD=3; \
                    _clawnode clawnode -- list; echo ${COMPREPLY[@]}";
    let shown = tokio::process::Command::new("bash")
        .args(["-euc", complete])
        .current_dir(home.path())
        .output()
        .await
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("--since") && shown.contains("--url"), "{shown}");
    assert!(!shown.contains("--tls-cert"), "{shown}");
}
