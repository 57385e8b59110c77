//! A turn of a node that has a host.

use clawnode_tests::{
    model::{Act, ModelServer, Script, Setup},
    process::{Home, Message, Node, TestBackend},
};
use serde_json::json;

use super::{Outcome, server::Host};

#[tokio::test]
async fn a_turn_runs_a_command_on_a_host() -> Outcome {
    let host = Host::start();
    let calls = Act::tools([("ssh_db", json!({ "command": "echo $((6*7)); exit 3" }))]);
    let script = Script::queue([calls, Act::say("done")]);
    let setup = Setup { api_key: Some(Home::key().to_owned()), ..Setup::from(script) };
    let server = ModelServer::start(setup).await.unwrap();
    let home = Home::new(TestBackend::Local).unwrap().anthropic(&server);
    let settings = home.path().join(".config/clawnode");
    std::fs::create_dir_all(&settings).unwrap();
    let section = host.section(json!({}));
    let config = format!(
        "[agents.default]\ntools = [\"ssh_db\"]\n[[agents.default.rules]]\nverdict = \"allow\"\n\
         [[ssh_hosts]]\nname = \"db\"\nhost = \"127.0.0.1\"\nport = {}\nuser = {}\nkey = {}\n",
        section["port"], section["user"], section["key"]
    );
    std::fs::write(settings.join("config.toml"), config).unwrap();
    let node = Node::up(&home).await?;
    let mut turn = node.client()?.send(&Message::new("ada", "go")).await?;
    let result = loop {
        let frame = turn.next().await?;
        assert_ne!(frame.event, "done", "without a result");
        if frame.event == "tool_result" {
            break frame.data;
        }
    };
    assert_eq!(
        (&result["content"], &result["failure"]),
        (&json!("42\n[exit code 3]"), &json!("failed"))
    );
    while turn.next().await?.event != "done" {}
    node.stop().await?;
    let log = std::fs::read_to_string(home.log()).unwrap();
    let secret = std::fs::read_to_string(host.path("id")).unwrap();
    let mut lines = secret.lines().filter(|line| !line.starts_with("-----"));
    assert!(lines.all(|line| !log.contains(line)), "a key is in the log");
    assert!(log.contains("recorded the key of a host"), "the pin is logged");
    Ok(())
}
