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
}
