//! Configuration errors, exit codes, and what `config show` says and does not say.

use std::fmt::Write;

use serde_json::{Value, json};

use super::harness::{Home, Node};

#[tokio::test]
async fn errors_say_what_where_and_what_to_do() {
    let home = Home::new();
    let files = [
        ("unknown_key.toml", "[node]\nname = \"a\"\n\n[gateway]\n  lissten = \"127.0.0.1:1\"\n"),
        ("unknown_section.toml", "[gatway]\nlisten = \"127.0.0.1:1\"\n"),
        ("wrong_type.toml", "[gateway]\nno_auth = \"yes\"\n"),
        ("wrong_duration.toml", "[session]\npassivate_after = 60\n"),
        ("wrong_address.toml", "[gateway]\nlisten = \"localhost\"\n"),
        ("wrong_word.toml", "[telemetry]\nformat = \"jsn\"\n"),
        ("syntax.toml", "[gateway]\nlisten = \n"),
        ("twice.toml", "[gateway]\nno_auth = true\nno_auth = false\n"),
        ("unknown_agent.toml", "[agents.ops]\n[[bindings]]\nagent = \"opps\"\npeer = \"x\"\n"),
        ("exposed.toml", "[gateway]\nlisten = \"0.0.0.0:3100\"\n"),
        ("unknown_key.json", "{\n  \"session\": { \"snapshot_evry\": 1 }\n}\n"),
    ];
    let mut shown = String::new();
    for (name, text) in files {
        let path = home.write(name, text);
        let ended = home.run(&["config", "check", &path]).await;
        assert_eq!((ended.code, ended.out.as_str()), (78, ""), "{name}");
        writeln!(shown, "{name}\n{}", ended.err).unwrap();
    }
    insta::assert_snapshot!("config_errors", shown.trim_end());
}

#[tokio::test]
async fn errors_name_the_variable_or_the_flag() {
    let home = Home::new();
    let mut shown = String::new();
    for (name, value) in [
        ("CLAWNODE_GATEWAY__LISSTEN", "127.0.0.1:1"),
        ("CLAWNODE_GATEWAY__NO_AUTH", "perhaps"),
        ("CLAWNODE_SESSION__SNAPSHOT_EVERY", "-1"),
        ("CLAWNODE_CLUSTER__PARTITIONS", "70000"),
        ("CLAWNODE_CLUSTER__NATS", "hunter2@host"),
        ("CLAWNODE_BINDINGS__0__AGENT", "ops"),
        ("CLAWNODE_CONFIG", "/nowhere/config.toml"),
        ("RUST_LOG", "=="),
    ] {
        let ended = home.run_with(&["config", "show"], &[(name, value)], "").await;
        assert_eq!(ended.code, 78, "{name}: {}", ended.err);
        writeln!(shown, "{name}={value}\n{}", ended.err).unwrap();
    }
    for args in [&["--listen", "0.0.0.0:1"][..], &["--nats", "hunter2@host"], &["--tls-cert", "c"]]
    {
        let mut args = args.to_vec();
        args.push("up");
        let ended = home.run(&args).await;
        assert_eq!(ended.code, 78, "{args:?}: {}", ended.err);
        assert_eq!(ended.err.lines().count(), 2, "one line, and a hint: {}", ended.err);
        writeln!(shown, "{}\n{}", args.join(" "), ended.err).unwrap();
    }
    insta::assert_snapshot!("setting_errors", shown.trim_end());
}

#[tokio::test]
async fn show_says_where_from_and_keeps_secrets() {
    let home = Home::new();
    let path = home.write(
        "config.toml",
        "[gateway]\nlisten = \"127.0.0.1:4000\"\n\n\
         [cluster]\nnats = \"nats://ada:hunter2@one:4222,nats://two:4222\"\n\n\
         [providers.anthropic]\napi_key = \"hunter2\"\nbase_url = \"https://x:hunter2@host/v1\"\n\n\
         [[bindings]]\nagent = \"default\"\npeer = \"eve\"\n",
    );
    let vars = [
        ("CLAWNODE_TOKEN", "hunter2"),
        ("CLAWNODE_SESSION__SNAPSHOT_EVERY", "9"),
        ("CLAWNODE_PROVIDERS__OPENAI__API_KEY", "hunter2"),
        ("CLAWNODE_NODE__NAME", "here"),
    ];
    let args =
        ["config", "show", "--config", &path, "--model", "openai/gpt-5", "--data-dir", "data"];
    let ended = home.run_with(&args, &vars, "").await;
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    assert!(!ended.out.contains("hunter2"), "{}", ended.out);
    insta::assert_snapshot!("config_show", ended.out.trim_end());

    let mut args = args.to_vec();
    args.push("--json");
    let ended = home.run_with(&args, &vars, "").await;
    assert!(!ended.out.contains("hunter2"), "{}", ended.out);
    let document: Value = serde_json::from_str(&ended.out).unwrap();
    let settings = document["settings"].as_array().unwrap();
    let find = |key: &str| settings.iter().find(|setting| setting["key"] == key).unwrap();
    assert_eq!(find("gateway.listen")["origin"], "[home]/config.toml:2:10");
    assert_eq!(find("agents.default.model")["origin"], "flag `--model`");
    assert_eq!(find("session.snapshot_every")["value"], 9);
}

#[tokio::test]
async fn a_good_file_is_told_to_be_one() {
    let home = Home::new();
    let path = home.write("config.toml", "[session]\nsnapshot_every = 1\n");
    let ended = home.run(&["config", "check", &path]).await;
    let waits = "a running node takes changes of `session` after a restart\n";
    let expected = format!("`[home]/config.toml` is valid\n{waits}");
    assert_eq!((ended.code, ended.out), (0, expected));
    let path = home.write("agents.toml", "[agents.default]\nstep_limit = 3\n");
    let ended = home.run(&["config", "check", &path]).await;
    assert_eq!((ended.code, ended.out.as_str()), (0, "`[home]/agents.toml` is valid\n"));
    let ended = home.run(&["config", "check"]).await;
    assert_eq!(ended.code, 0, "no file is fine");
}

/// The model is of an agent with tools, of its chain, or of a route.
#[tokio::test]
async fn an_agent_whose_model_takes_no_tools_is_warned_of() {
    let home = Home::new();
    let none = "[models.\"demo/slow\"]\ntools = false\n[agents.default]\n";
    for (settings, is_warned) in [
        ("model = \"demo/slow\"\n", false),
        ("model = \"demo/slow\"\ntools = [\"time_now\"]\n", true),
        ("model = \"demo/echo\"\ntools = [\"time_now\"]\n", false),
        ("model = \"demo/echo\"\nfallback = [\"demo/slow\"]\ntools = [\"time_now\"]\n", true),
    ] {
        let path = home.write("config.toml", &format!("{none}{settings}"));
        let checked = home.run(&["config", "check", &path, "--json"]).await;
        assert_eq!(checked.code, 0, "{settings}: {}", checked.err);
        let document: Value = serde_json::from_str(&checked.out).unwrap();
        let warnings = document["warnings"].as_array().unwrap();
        assert_eq!(warnings.len(), usize::from(is_warned), "{settings}: {warnings:?}");
        let names = |text: &Value| text.as_str().unwrap().contains("`demo/slow` takes none");
        assert!(warnings.iter().all(names), "{warnings:?}");
        let shown = home.run(&["config", "check", &path]).await.out;
        assert_eq!(shown.lines().count(), 1 + usize::from(is_warned), "{shown}");
    }
}

/// The row of a model without a price fits no call; another row says what the call may cost.
#[tokio::test]
async fn routes_by_price_are_explained_and_need_a_price() {
    let home = Home::new();
    let path = home.write(
        "config.toml",
        "[providers.far]\nwire = \"openai\"\nbase_url = \"https://api.example.com/v1\"\napi_key = \"k\"\n\
         [agents.default]\nmodel = \"demo/echo\"\nsampling = { max_tokens = 10000 }\n\
         [[agents.default.routes]]\nmodel = \"far/unknown\"\nmax_usd = \"1\"\n\
         [[agents.default.routes]]\nmodel = \"far/gpt-4o-mini\"\nmax_usd = \"0.021\"\n",
    );
    let checked = home.run(&["config", "check", &path, "--json"]).await;
    let document: Value = serde_json::from_str(&checked.out).unwrap();
    let warnings = document["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let warning = warnings[0].as_str().unwrap();
    assert!(warning.contains("row 1") && warning.contains("[prices.\"far/unknown\"]"), "{warning}");
    // 100,000 tokens in and 10,000 out cost 15,000 + 6,000 micro-dollars.
    for (tokens, model, says) in [
        ("100000", "far/gpt-4o-mini", "fits, and decides (at most 0.021 USD)"),
        ("100100", "demo/echo", "the call may cost 0.021015 USD, more than 0.021"),
    ] {
        let args = ["--config", &path, "models", "route", "--explain", "--tokens", tokens];
        let shown = home.run(&args).await;
        assert_eq!(shown.code, 0, "{}", shown.err);
        assert!(shown.out.contains("its model has no price"), "{}", shown.out);
        assert!(shown.out.contains(says), "{}", shown.out);
        assert!(shown.out.contains(&format!("model:  {model} ")), "{}", shown.out);
    }
}

/// Finding 20: a check passed what a node refused.
#[tokio::test]
async fn what_a_node_refuses_at_its_start_the_check_and_doctor_refuse_in_the_same_words() {
    let home = Home::new();
    let files = [
        ("no_such_tool.toml", "[agents.default]\ntools = [\"calc\"]\n", "there is no tool `calc`"),
        ("no_such_model.toml", "[agents.default]\nmodel = \"demo/demo\"\n", "no model `demo`"),
        (
            "no_such_provider.toml",
            "[agents.default]\nmodel = \"x/y\"\n",
            "no provider is called `x`",
        ),
        ("no_soul.toml", "[agents.default]\nsoul = \"/nowhere/soul\"\n", "/nowhere/soul"),
    ];
    for (name, text, part) in files {
        let path = home.write(name, text);
        let checked = home.run(&["config", "check", &path]).await;
        assert_eq!((checked.code, checked.out.as_str()), (78, ""), "{name}: {}", checked.err);
        assert!(checked.err.contains(part), "{name}: {}", checked.err);
        let started = home.run(&["--config", &path, "up", "--listen", "127.0.0.1:0"]).await;
        assert_eq!((started.code, &started.err), (78, &checked.err), "{name}");
        let looked = home.run(&["--config", &path, "doctor"]).await;
        assert_eq!(looked.code, 78, "{name}: {}", looked.out);
        assert!(looked.out.contains(part), "{name}: {}", looked.out);
    }
    let path = home.write("misspelt_tool.toml", "[agents.default]\ntools = [\"file_wirte\"]\n");
    let checked = home.run(&["config", "check", &path]).await;
    assert!(checked.err.contains("hint: did you mean `file_write`? give"), "{}", checked.err);
    let started = home.run(&["up", "--model", "demo/demo"]).await;
    assert_eq!(started.code, 78, "{}", started.err);
    assert!(started.err.contains("it has `echo`, `slow`"), "{}", started.err);
    let started = home.run(&["up", "--model", "gpt-4o"]).await;
    assert_eq!(started.code, 2, "{}", started.err);
    assert!(started.err.contains("write `openai/` before it"), "{}", started.err);
}

#[tokio::test]
async fn doctor_tells_a_broken_configuration_from_a_broken_machine() {
    let home = Home::new();
    let path = home.write("config.toml", "[gateway]\nlissten = 1\n");
    let ended = home.run(&["doctor", "--json", "--config", &path]).await;
    assert_eq!(ended.code, 78);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(report["verdict"], "red");
    assert_eq!(report["checks"][0]["name"], "config.valid");

    let open = ["doctor", "--json", "--listen", "0.0.0.0:0", "--no-auth", "--plain-http"];
    let ended = home.run(&open).await;
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(report["checks"][0]["name"], "gateway.bind_no_auth");

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let ended = home.run(&["doctor", "--json", "--listen", &listen]).await;
    assert_eq!(ended.code, 1, "{}", ended.out);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let red: Vec<_> = checks.iter().filter(|check| check["verdict"] == "red").collect();
    assert_eq!(red.len(), 1, "{}", ended.out);
    assert_eq!(red[0]["name"], "gateway.port");
    assert!(red[0]["fix"].as_str().unwrap().contains("--listen"));

    let ended = home.run(&["doctor", "--listen", "127.0.0.1:0"]).await;
    assert_eq!(ended.code, 0, "{}", ended.out);
}

/// A node that runs goes on with the configuration that it read before, so people must be able to stop it and to look
/// at it.
#[tokio::test]
async fn commands_reach_a_node_whose_configuration_has_become_wrong() {
    let home = Home::new();
    let answers = |method: &str, _: &Value| {
        Ok(match method {
            "ping" => json!("pong"),
            "panic.list" => json!({ "latches": [] }),
            _ => json!({ "models": [] }),
        })
    };
    let node = Node::start(answers, Vec::new()).await;
    home.announce(&node);
    let path = home.write("config.toml", "[agents.default]\nsoul = \"gone.md\"\n");
    let stops = home.run(&["--config", &path, "panic", "--list"]).await;
    assert_eq!((stops.code, stops.out.trim_end()), (0, "nothing is stopped"), "{}", stops.err);
    assert!(stops.err.contains("gone.md"), "{}", stops.err);
    let models = home.run(&["--config", &path, "models", "list"]).await;
    assert_eq!(models.code, 0, "{}", models.err);
    let warnings: Vec<&str> = models.err.lines().collect();
    assert!(
        matches!(warnings[..], [only] if only.contains("gone.md") && only.contains("ignores all of it but")),
        "{}",
        models.err
    );
    let route = home.run(&["--config", &path, "models", "route"]).await;
    assert_eq!(route.code, 78, "this needs the settings themselves: {}", route.err);
    // Without a node the directory is read, by the settings of its storage backend.
    let other = Home::new();
    let sessions = other.run(&["--config", &path, "sessions", "list"]).await;
    assert_eq!(sessions.code, 78, "{}", sessions.err);
    // It may be another node that is meant, which only a stop may reach.
    for (part, key) in [("node", "data_dirr"), ("nodee", "data_dir")] {
        let path = home.write("config.toml", &format!("[{part}]\n{key} = \"/elsewhere\"\n"));
        let models = home.run(&["--config", &path, "models", "list"]).await;
        assert_eq!(models.code, 78, "{}", models.err);
        let stops = home.run(&["--config", &path, "panic", "--list"]).await;
        assert_eq!(stops.code, 0, "{}", stops.err);
    }
    assert_eq!(node.seen("models.list").len(), 1);
    // Nothing says any more which node is meant.
    let path = home.write("config.toml", "[node]\ndata_dir = \n");
    let stops = home.run(&["--config", &path, "panic", "--list"]).await;
    assert_eq!(stops.code, 78, "{}", stops.err);
    assert_eq!(node.seen("panic.list").len(), 3);
}
