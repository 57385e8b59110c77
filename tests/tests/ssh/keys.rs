//! Whom a node speaks with (SSH-1), and by which keys.

use std::{fs, os::unix::fs::PermissionsExt as _};

use clawnode_executors::ssh::{SshContext, SshHost};
use clawnode_proto::{ssh::SshPin, tool::ToolFailure};
use serde_json::json;

use super::{
    Cluster,
    server::{Host, key},
    sh, toolbox,
};

/// SSH-1: the key that one node met is the host's for all, and another is refused by all: the
/// failure if it is not.
async fn ssh_1_is_kept(make: impl Fn(SshContext) -> SshContext) -> Result<(), String> {
    let (host, cluster) = (Host::start(), Cluster::new());
    let node = |name: &str, more| {
        let context = make(cluster.context(name));
        toolbox(std::sync::Arc::new(SshHost::new(host.options(more), context)))
    };
    let (one, two) = (node("one", json!({})), node("two", json!({})));
    assert_eq!(sh(&one, "echo hello").await, (None, "hello\n".to_owned()));
    let first = host.fingerprint();
    let entry = cluster.bucket.get("ssh.db").await.unwrap();
    let entry = entry.ok_or("SSH-1: no key was pinned")?;
    let pin = SshPin::from_bytes(&entry.value).unwrap();
    assert_eq!(pin.node.as_str(), "one");
    assert!(host.known().contains(&pin.key), "{pin:?}");
    assert_eq!(sh(&two, "echo hello").await, (None, "hello\n".to_owned()));
    host.change_key();
    let second = host.fingerprint();
    for node in [&one, &two] {
        let (failure, text) = sh(node, "echo hello").await;
        if failure != Some(ToolFailure::Refused) {
            return Err(format!("SSH-1: {failure:?}: {text}"));
        }
        assert!(text.contains("the key of the host `db` has changed"), "{text}");
        assert!(text.contains(&first) && text.contains(&second), "both fingerprints: {text}");
        assert!(text.contains("`known_hosts`"), "what to do: {text}");
    }
    // A person says that it is right.
    let known = host.file("known", &format!("# ours\nother.example.org x y\n{}", host.known()));
    let told = node("one", json!({ "known_hosts": known }));
    assert_eq!(sh(&told, "echo hello").await, (None, "hello\n".to_owned()));
    // A file that says nothing of it changes nothing.
    let empty = host.file("empty", "");
    let (failure, _) = sh(&node("one", json!({ "known_hosts": empty })), "echo hello").await;
    assert_eq!(failure, Some(ToolFailure::Refused));
    Ok(())
}

#[tokio::test]
async fn ssh_1_a_host_is_who_it_was() {
    assert_eq!(ssh_1_is_kept(|context| context).await, Ok(()));
}

/// The twin of the test before.
#[tokio::test]
async fn ssh_1_a_node_that_takes_any_key_is_found() {
    let credulous = |context| SshContext { is_credulous: true, ..context };
    assert!(ssh_1_is_kept(credulous).await.is_err());
}

/// SSH-1: what the file says counts before anything was met.
#[tokio::test]
async fn ssh_1_a_file_of_known_hosts_counts() {
    let (host, cluster) = (Host::start(), Cluster::new());
    let before = host.known();
    host.change_key();
    for (text, failure, words) in [
        (before.as_str(), ToolFailure::Refused, "the key of the host `db` has changed"),
        ("@revoked * ssh-ed25519 AAAA", ToolFailure::Unavailable, "begin with `@`"),
        ("[127.0.0.1]:PORT ssh-ed25519 nonsense", ToolFailure::Unavailable, "is not a key"),
    ] {
        let port = host.options(json!({})).port.to_string();
        let known = host.file("known", &text.replace("PORT", &port));
        let toolbox = toolbox(cluster.host("a", host.options(json!({ "known_hosts": known }))));
        let (failed, told) = sh(&toolbox, "true").await;
        assert_eq!(failed, Some(failure), "{text}: {told}");
        assert!(told.contains(words), "{text}: {told}");
    }
    let gone = host.options(json!({ "known_hosts": "/nowhere/known" }));
    let (failed, told) = sh(&toolbox(cluster.host("a", gone)), "true").await;
    assert_eq!(failed, Some(ToolFailure::Unavailable), "{told}");
    assert_eq!(cluster.bucket.get("ssh.db").await.unwrap(), None, "nothing is pinned");
}

/// A key that cannot be used is refused in words, without its content.
#[tokio::test]
async fn keys_that_cannot_be_used_are_refused_with_what_to_do() {
    let (host, cluster) = (Host::start(), Cluster::new());
    key(&host.path("locked"), "ed25519", "a passphrase");
    key(&host.path("rsa"), "rsa", "");
    key(&host.path("stranger"), "ecdsa", "");
    fs::copy(host.path("id"), host.path("open")).unwrap();
    fs::set_permissions(host.path("open"), fs::Permissions::from_mode(0o644)).unwrap();
    let broken = fs::read_to_string(host.path("id")).unwrap().replace("AAAA", "AAAB");
    host.file("broken", &broken);
    for (name, words) in [
        ("missing", "No such file"),
        ("open", "others than its owner can read it; `chmod 600` it"),
        ("locked", "it has a passphrase"),
        ("rsa", "use Ed25519 or ECDSA"),
        ("broken", "not a private key that this node can read"),
        ("stranger", "add its public half to `~/.ssh/authorized_keys`"),
    ] {
        let options = host.options(json!({ "key": host.path(name) }));
        let toolbox = toolbox(cluster.host("a", options));
        let (failure, text) = sh(&toolbox, "true").await;
        assert_eq!(failure, Some(ToolFailure::Unavailable), "{name}: {text}");
        assert!(text.contains(words), "{name}: {text}");
        let secret = fs::read_to_string(host.path(name)).unwrap_or_default();
        let lines = secret.lines().filter(|line| !line.starts_with("-----"));
        for line in lines {
            assert!(!text.contains(line), "{name}: the error contains a key");
        }
    }
}
