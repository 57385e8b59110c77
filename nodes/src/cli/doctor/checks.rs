//! The checks that look at this machine.

use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt, path::Path};

use clawnode_actors::llm::Wire;
use clawnode_cluster::{Clock, SystemClock};
use clawnode_proto::{
    Capability, Timestamp,
    api::{Nothing, calls},
    node::NodeRole,
    view::StatusView,
};
use tokio::net::TcpListener;

use super::{Check, hooks, mcp, memory, nats, sandbox, skills, workspace};
#[cfg(feature = "nats")]
use crate::cli::output;
use crate::{
    api_token::TOKEN_FILE,
    cli::command_context::CliContext,
    config::{ProviderSection, units::ByteSize},
    host,
    node::{accounts, agents_and_models, health, node_change_events, runaways},
    node_file::NodeFile,
};

/// The check of the configuration.
pub(super) const CONFIGURATION: &str = "config.valid";
/// Below this a node soon refuses input.
const DISK_LOW: u64 = 256 << 20;
/// Below this the check warns.
const DISK_SCARCE: u64 = 2 << 30;
/// Seconds before its end from which a node's credential should be replaced: two weeks.
#[cfg(feature = "nats")]
const CREDENTIAL_SOON: u64 = 14 * 86_400;
/// 2026-01-01: no build of this program is older, so a clock that is before it is wrong.
const NOT_BEFORE: Timestamp = Timestamp(1_767_225_600_000);

/// All checks, those first that others depend on.
pub(super) async fn all(context: &CliContext) -> Vec<Check> {
    let config = &context.loaded.config;
    let (configuration, needed) = configuration(context);
    let mut checks = vec![configuration];
    checks.push(data_dir(&config.node.data_dir));
    checks.push(private(&config.node.data_dir));
    checks.push(disk(&config.node.data_dir));
    checks.push(files(host::files(), host::files_wanted(config.gateway.max_connections)));
    checks.push(token(&config.node.data_dir.join(TOKEN_FILE)));
    checks.push(exposure(context));
    checks.push(listen(context).await);
    let (status, of_status) = running(context).await;
    // Only a worker asks models and runs tools.
    if status.as_ref().is_none_or(is_worker) {
        checks.extend(providers(context));
        checks.extend(hooks::checks(&context.loaded));
        checks.extend(skills::checks(&context.loaded));
        let node = node(&config.node.data_dir);
        checks.extend(sandbox::checks(&config.sandbox, node, &needed).await);
        checks.extend(workspace::check(config));
        checks.extend(mcp::check(config).await);
        checks.extend(memory::meaning(config));
    }
    checks.extend(memory::store(&context.loaded).await);
    if let Some(nats) = &config.cluster.nats {
        checks.extend(nats::servers(nats.each()).await);
    } else {
        checks.extend(membership(&config.node.data_dir).await);
    }
    checks.push(clock(SystemClock.now()));
    checks.extend(of_status);
    checks
}

/// Whether we can listen where we should.
async fn listen(context: &CliContext) -> Check {
    const NAME: &str = "gateway.port";
    let listen = context.loaded.config.gateway.listen;
    match context.running().await {
        Ok(Some(client)) => {
            return Check::green(
                NAME,
                format!("a node of this data directory runs at `{}`", client.url()),
            );
        }
        Err(failure) => {
            let fix = failure.hint.unwrap_or_else(|| "see the node's log".to_owned());
            return Check::red(NAME, failure.message, &fix);
        }
        Ok(None) => {}
    }
    match TcpListener::bind(listen).await {
        Ok(_) => Check::green(NAME, format!("`{listen}` is free")),
        Err(error) => {
            let found = format!("cannot listen on `{listen}`: {error}");
            Check::red(
                NAME,
                found,
                "stop the program that listens there, or choose another address with `--listen`",
            )
        }
    }
}

/// What the node that runs here says: the clocks of the cluster's nodes as it compares them, and what
/// does not work of all that works for agents.
async fn running(context: &CliContext) -> (Option<StatusView>, Vec<Check>) {
    const NAME: &str = "node.status";
    let Ok(Some(client)) = context.running().await else { return (None, Vec::new()) };
    match client.call(calls::Status, &Nothing {}).await {
        Ok(status) => {
            let checks = of_status(&status);
            (Some(status), checks)
        }
        Err(why) => {
            let found = format!("the node does not answer: {why}");
            (None, vec![Check::yellow(NAME, found, "see the node's log")])
        }
    }
}

fn of_status(status: &StatusView) -> Vec<Check> {
    const CLOCK: &str = "clock.agrees";
    const WORKS: &str = "agents.served";
    let told = |name: &'static str, is_it: &dyn Fn(&str) -> bool| {
        let those = status.warnings.iter().filter(|one| is_it(&one.name));
        those.map(|one| Check::yellow(name, one.message.clone(), &one.hint)).collect::<Vec<_>>()
    };
    let mut checks = told(CLOCK, &|name| name == node_change_events::CLOCK_DIFFERS);
    if checks.is_empty() && status.nodes.len() > 1 {
        checks
            .push(Check::green(CLOCK, format!("the clocks of {} nodes agree", status.nodes.len())));
    }
    let bad = told(WORKS, &|name| health::WARNINGS.contains(&name));
    if bad.is_empty() {
        let found = "models, tools, MCP servers, plugins and hooks work, as far as they were tried";
        checks.push(Check::green(WORKS, found));
    }
    checks.extend(bad);
    checks.extend(told("agents.paused", &|name| name == runaways::PAUSED));
    checks.extend(told(node_change_events::SPENDING_DIFFERS, &|name| {
        name == node_change_events::SPENDING_DIFFERS
    }));
    for name in accounts::WARNINGS {
        checks.extend(told(name, &|one| one == name));
    }
    checks
}

fn is_worker(status: &StatusView) -> bool {
    let own = status.nodes.iter().find(|node| node.process == status.process);
    own.is_none_or(|node| node.roles.contains(&NodeRole::Worker))
}

/// The process of the node that runs on this directory; without one this process, which a node would
/// be started like.
fn node(data_dir: &Path) -> u32 {
    let said = NodeFile::read(data_dir).ok().flatten().map(|node_file| node_file.pid);
    let runs = |pid: &u32| Path::new("/proc").join(pid.to_string()).exists();
    said.filter(runs).unwrap_or_else(std::process::id)
}

/// The cluster that this node joined, if it did, and how long it may stay.
#[cfg(feature = "nats")]
async fn membership(data_dir: &Path) -> Vec<Check> {
    const NAME: &str = "bus.credential";
    let member = match crate::bus::join::of_data_dir(data_dir) {
        Ok(Some(member)) => member,
        Ok(None) => return Vec::new(),
        Err(failure) => {
            let fix = failure.hint.unwrap_or_default();
            return vec![Check::red(NAME, failure.message, &fix)];
        }
    };
    let mut checks = nats::servers(member.urls.iter().map(String::as_str)).await;
    let (credential, now) = (&member.credential, crate::bus::operator::now());
    let fix = "ask the operator for a join token (`clawnode cluster join-token`)";
    let ends = credential.expires().map(|end| output::time(Timestamp(end.saturating_mul(1_000))));
    let shown =
        format!("`{}` until {}", credential.name(), ends.unwrap_or_else(|| "revoked".to_owned()));
    checks.push(match () {
        () if credential.is_expired(now) => {
            Check::red(NAME, format!("{shown}, which has passed"), fix)
        }
        () if credential.is_expired(now + CREDENTIAL_SOON) => Check::yellow(NAME, shown, fix),
        () => Check::green(NAME, shown),
    });
    checks
}

#[cfg(not(feature = "nats"))]
async fn membership(_data_dir: &Path) -> Vec<Check> {
    std::future::ready(Vec::new()).await
}

/// Whether a node would start with it, and what its agents' tools need.
fn configuration(context: &CliContext) -> (Check, BTreeSet<Capability>) {
    let agents_and_models::CheckedConfig { needs, warnings } =
        match agents_and_models::check(&context.loaded) {
            Ok(checked) => checked,
            Err(failure) => {
                let fix = failure.hint.unwrap_or_default();
                return (Check::red(CONFIGURATION, failure.message, &fix), BTreeSet::new());
            }
        };
    let found = match &context.loaded.file {
        Some(file) => format!("`{}`", file.display()),
        None => "no file, defaults".to_owned(),
    };
    let check = match warnings.first() {
        None => Check::green(CONFIGURATION, found),
        Some(warning) => {
            let fix = "correct what it names; `clawnode config check` shows all warnings";
            Check::yellow(CONFIGURATION, warning.clone(), fix)
        }
    };
    (check, needs)
}

fn data_dir(path: &Path) -> Check {
    const NAME: &str = "data_dir.writable";
    let shown = path.display();
    // The nearest directory that exists tells whether the rest can be made.
    let Some(there) = nearest(path) else {
        return Check::red(
            NAME,
            format!("`{shown}` cannot be created"),
            "choose another directory with `--data-dir`",
        );
    };
    let fix = "correct the owner of the directory, or choose another with `--data-dir`";
    match tempfile_in(there) {
        Ok(()) if there == path => Check::green(NAME, format!("`{shown}`")),
        Ok(()) => Check::green(NAME, format!("`{shown}`, created when a node starts")),
        Err(error) => Check::red(NAME, format!("`{}`: {error}", there.display()), fix),
    }
}

/// The nearest directory of a path that exists. A relative path ends in an empty one, which is the current directory.
fn nearest(path: &Path) -> Option<&Path> {
    let here = Path::new(".");
    let mut all = path.ancestors().map(|path| if path == Path::new("") { here } else { path });
    all.find(|path| path.exists())
}

/// Writes and removes a file in `folder`.
fn tempfile_in(folder: &Path) -> std::io::Result<()> {
    let probe = folder.join(format!(".clawnode-doctor-{}", std::process::id()));
    fs::File::create_new(&probe)?;
    fs::remove_file(probe)
}

/// Only the directory keeps others from its journals and blobs.
fn private(path: &Path) -> Check {
    const NAME: &str = "data_dir.private";
    let shown = path.display();
    match fs::metadata(path) {
        // The six lowest bits are what the group and others may do.
        Ok(about) if about.permissions().mode().trailing_zeros() >= 6 => {
            Check::green(NAME, format!("only its owner can read `{shown}`"))
        }
        Ok(about) => {
            let mode = about.permissions().mode() & 0o777;
            let found = format!("`{shown}` has mode {mode:03o}: other users can read it");
            Check::red(
                NAME,
                found,
                &format!("run `chmod 700 {shown}`; a node does this when it starts"),
            )
        }
        // Whether it can be made and used is another check.
        Err(_) => Check::green(NAME, "no data directory yet; a node creates it when it starts"),
    }
}

/// A node raises the soft limit to the hard one, as this process has done.
fn files(limit: u64, wanted: u64) -> Check {
    const NAME: &str = "limits.files";
    let found = format!("{limit} open files allowed, {wanted} wanted");
    if limit < wanted {
        let fix = "raise the hard limit (`ulimit -Hn`, `LimitNOFILE=` in systemd), or lower \
                   `gateway.max_connections`";
        Check::yellow(NAME, found, fix)
    } else {
        Check::green(NAME, found)
    }
}

fn disk(path: &Path) -> Check {
    const NAME: &str = "disk.free";
    let there = nearest(path).unwrap_or(path);
    let fix = "free some space, or choose another directory with `--data-dir`";
    match rustix::fs::statvfs(there) {
        Ok(about) => {
            let free = about.f_bavail.saturating_mul(about.f_frsize);
            // To the MiB, so that it reads well.
            let found = format!("{} free", ByteSize(free >> 20 << 20));
            if free < DISK_LOW {
                Check::red(NAME, found, fix)
            } else if free < DISK_SCARCE {
                Check::yellow(NAME, found, fix)
            } else {
                Check::green(NAME, found)
            }
        }
        Err(error) => Check::yellow(NAME, format!("unknown: {error}"), fix),
    }
}

fn token(path: &Path) -> Check {
    const NAME: &str = "token.permissions";
    // The six lowest bits are what the group and others may do.
    match fs::metadata(path) {
        Ok(about) if about.permissions().mode().trailing_zeros() >= 6 => {
            Check::green(NAME, format!("only its owner can read `{}`", path.display()))
        }
        Ok(about) => {
            let mode = about.permissions().mode() & 0o777;
            let found =
                format!("`{}` has mode {mode:03o}: other users can read it", path.display());
            Check::red(NAME, found, &format!("run `chmod 600 {}`", path.display()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Check::green(NAME, "no token yet; a node creates it when it starts")
        }
        Err(error) => {
            let found = format!("`{}`: {error}", path.display());
            Check::red(NAME, found, "correct the owner of the directory")
        }
    }
}

/// What the configuration allows is not always what is wise.
fn exposure(context: &CliContext) -> Check {
    const NAME: &str = "gateway.exposure";
    let gateway = &context.loaded.config.gateway;
    let listen = gateway.listen;
    if gateway.no_auth {
        let found =
            format!("`{listen}` requires no token: every program on this machine can use it");
        return Check::yellow(NAME, found, "remove `no_auth`");
    }
    if !listen.ip().is_loopback() && gateway.tls_cert.is_none() {
        let found = format!("`{listen}` serves other machines without TLS");
        return Check::yellow(NAME, found, "make sure that only a proxy with TLS can reach it");
    }
    for path in [&gateway.tls_cert, &gateway.tls_key].into_iter().flatten() {
        if let Err(error) = fs::File::open(path) {
            let found = format!("cannot read `{}`: {error}", path.display());
            return Check::red(NAME, found, "correct the path or the file's permissions");
        }
    }
    Check::green(NAME, format!("`{listen}`, with a token"))
}

/// One check a configured provider; keys are named, never shown.
fn providers(context: &CliContext) -> Vec<Check> {
    const NAME: &str = "providers.keys";
    let configured = &context.loaded.config.providers;
    if configured.is_empty() {
        let found = Wire::key_variables()
            .chain(["OLLAMA_HOST"])
            .filter(|name| context.loaded.env().get(name).is_some())
            .collect::<Vec<_>>();
        return vec![if found.is_empty() {
            let fix = "set `ANTHROPIC_API_KEY` or `OPENAI_API_KEY`, or run Ollama";
            Check::yellow(
                NAME,
                "none configured: nodes use Ollama if it runs here, else the demo",
                fix,
            )
        } else {
            Check::green(NAME, format!("none configured; found {}", found.join(", ")))
        }];
    }
    configured
        .iter()
        .map(|(name, provider_options)| provider(context, name, provider_options))
        .collect()
}

fn provider(context: &CliContext, name: &str, section: &ProviderSection) -> Check {
    const NAME: &str = "providers.keys";
    let present = |what: String| Check::green(NAME, format!("`{name}`: {what}"));
    if section.api_key.is_some() {
        return present("key in the configuration".to_owned());
    }
    if section.machine_role {
        return present("keys of the machine's role, which the first call asks for".to_owned());
    }
    let files =
        [("api_key_file", &section.api_key_file), ("credentials_file", &section.credentials_file)];
    if let Some((setting, path)) =
        files.into_iter().find_map(|(setting, path)| Some((setting, path.as_ref()?)))
    {
        return match fs::metadata(path) {
            Ok(about) if about.len() > 0 => present(format!("key in `{}`", path.display())),
            Ok(_) => {
                let found = format!("`{name}`: `{}` is empty", path.display());
                Check::red(NAME, found, "write the key to the file")
            }
            Err(error) => {
                let found = format!("`{name}`: cannot read `{}`: {error}", path.display());
                Check::red(NAME, found, &format!("correct `{setting}`"))
            }
        };
    }
    let wire = section.wire_of(name);
    if wire == Some(Wire::Demo) {
        return present("needs no key".to_owned());
    }
    let is_its_own = section.wire.is_none() && wire == Wire::of_provider(name, None);
    let usual = wire.and_then(Wire::key_variable);
    let usual = usual.filter(|_| section.base_url.is_none() || is_its_own);
    let Some(variable) = section.api_key_env.as_deref().or(usual) else {
        return present("no key is configured; local servers need none".to_owned());
    };
    let is_set = |name: &&str| context.loaded.env().get(name).is_some();
    // The keys of an account are as good as a key of Bedrock's own.
    let others: &[&str] = if wire == Some(Wire::Bedrock) { &["AWS_ACCESS_KEY_ID"] } else { &[] };
    if let Some(variable) = [variable].iter().chain(others).find(|name| is_set(name)) {
        present(format!("key in `{variable}`"))
    } else {
        let found = format!("`{name}`: `{variable}` is not set");
        Check::red(NAME, found, &format!("set `{variable}`, or `api_key_file`"))
    }
}

fn clock(now: Timestamp) -> Check {
    const NAME: &str = "clock.sane";
    let shown = crate::cli::output::time(now);
    if now < NOT_BEFORE {
        Check::red(
            NAME,
            format!("the clock shows {shown}, which is wrong"),
            "set the clock, or run an NTP client",
        )
    } else {
        Check::green(NAME, format!("the clock shows {shown}"))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::CheckStatus, *};

    #[test]
    fn a_token_that_others_may_read_is_red() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(TOKEN_FILE);
        assert_eq!(token(&path).verdict, CheckStatus::Green);
        fs::write(&path, "secret").unwrap();
        for (mode, verdict) in
            [(0o600, CheckStatus::Green), (0o640, CheckStatus::Red), (0o604, CheckStatus::Red)]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let check = token(&path);
            assert_eq!(check.verdict, verdict, "{mode:o}");
            assert!(!check.found.contains("secret"));
        }
    }

    #[test]
    fn a_data_directory_that_others_may_look_into_is_red() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(private(&dir.path().join("absent")).verdict, CheckStatus::Green);
        for (mode, verdict) in
            [(0o700, CheckStatus::Green), (0o750, CheckStatus::Red), (0o701, CheckStatus::Red)]
        {
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(private(dir.path()).verdict, verdict, "{mode:o}");
        }
    }

    #[test]
    fn too_few_open_files_are_yellow() {
        assert_eq!(files(1_023, 1_024).verdict, CheckStatus::Yellow);
        assert_eq!(files(1_024, 1_024).verdict, CheckStatus::Green);
    }

    #[test]
    fn a_clock_before_the_program_is_red() {
        assert_eq!(clock(Timestamp(0)).verdict, CheckStatus::Red);
        assert_eq!(clock(NOT_BEFORE).verdict, CheckStatus::Green);
    }

    #[test]
    fn a_directory_that_is_a_file_is_red() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(data_dir(&file.path().join("data")).verdict, CheckStatus::Red);
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(data_dir(&dir.path().join("a/b")).verdict, CheckStatus::Green);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
        assert_eq!(nearest(Path::new("no-such-folder/b")), Some(Path::new(".")));
    }
}
