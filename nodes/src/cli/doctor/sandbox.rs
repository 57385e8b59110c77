//! The checks of the engines that run agents' commands.

use std::{collections::BTreeSet, sync::Arc};

use clawnode_executors::{
    SandboxOptions,
    sandbox::{ContainerOwner, Docker, Isolation, Landlock, Processes, SandboxPlace, spec::Image},
};
use clawnode_proto::{Capability, ErrorChain, ProcessId};

use super::{Check, CheckStatus, versions};
use crate::node::tool_executors;

/// Whether commands can be run where the configuration says so. A node works without, and where no
/// agent has a tool that is `needed` for, nothing is wrong. What limits them is that of process
/// `node`, which may be a service in a control group of its own.
pub(super) async fn checks(
    options: &SandboxOptions,
    node: u32,
    needed: &BTreeSet<Capability>,
) -> Vec<Check> {
    let has_docker = options.run_in == SandboxPlace::Docker
        || options.tools.values().any(|tool| tool.env == SandboxPlace::Docker);
    let mut checks = Vec::new();
    if has_docker {
        let found = docker(options).await;
        checks
            .extend(found.into_iter().map(|check| as_needed(check, needed, SandboxPlace::Docker)));
    }
    if options.has_processes() {
        let found = process(options, node).await;
        checks
            .extend(found.into_iter().map(|check| as_needed(check, needed, SandboxPlace::Process)));
    }
    checks
}

/// What no agent needs is no problem.
fn as_needed(check: Check, needed: &BTreeSet<Capability>, place: SandboxPlace) -> Check {
    let is_needed = needed.iter().any(|capability| capability.as_str() == place.capability());
    if check.verdict == CheckStatus::Green || is_needed {
        return check;
    }
    Check::green(
        check.name,
        format!("not needed: no agent has a tool that uses it ({})", check.found),
    )
}

async fn docker(options: &SandboxOptions) -> Vec<Check> {
    const NAME: &str = "sandbox.docker";
    // It is only asked whether it answers; nothing is made on anybody's account.
    let owner = ContainerOwner::new("doctor", ProcessId::from_u128(0));
    let docker = Docker::new(options.docker.clone(), owner, Arc::new(|_| false));
    let shown = options.docker.socket.display();
    let mut checks = match docker.health_check().await {
        Ok(()) => {
            let answers = Check::green(NAME, format!("Docker answers at `{shown}`"));
            vec![answers, engine(&docker).await]
        }
        Err(error) => {
            let fix = "start Docker, or set `sandbox.docker.socket`; without Docker, tools that \
                       need it run on other nodes or not at all";
            vec![Check::yellow(NAME, ErrorChain(&error).to_string(), fix)]
        }
    };
    checks.push(images(options));
    checks
}

/// Whether the images of commands are still the approved ones: a tag may name another one tomorrow,
/// a digest does not.
fn images(options: &SandboxOptions) -> Check {
    const NAME: &str = "sandbox.images";
    let of_tools = options.tools.values().filter(|tool| tool.env == SandboxPlace::Docker);
    let mut all = vec![&options.docker.image, &options.docker.python_image];
    all.extend(of_tools.filter_map(|tool| tool.image.as_ref()));
    let tags: BTreeSet<&str> =
        all.into_iter().map(Image::as_str).filter(|image| !image.contains("@sha256:")).collect();
    if tags.is_empty() {
        return Check::green(NAME, "each image is named by its digest");
    }
    let shown: Vec<String> = tags.into_iter().map(|image| format!("`{image}`")).collect();
    let found = format!("named by tags, which may change: {}", shown.join(", "));
    let fix = "name images by digest: `docker image inspect -f '{{index .RepoDigests 0}}' IMAGE` \
               prints it";
    Check::yellow(NAME, found, fix)
}

/// Whether the engine's parts are known to let containers out.
async fn engine(docker: &Docker) -> Check {
    const NAME: &str = "sandbox.engine";
    let fix = "update Docker, containerd and runc; a distribution may have fixed this without a \
               new version number, see its changelog";
    match docker.versions().await {
        Ok(said) => {
            let versions::VersionStatus { found, bad } = versions::judge(&said);
            if bad.is_empty() {
                Check::green(NAME, found)
            } else {
                Check::yellow(NAME, format!("{found}: {}", bad.join("; ")), fix)
            }
        }
        Err(error) => Check::yellow(NAME, ErrorChain(&error).to_string(), fix),
    }
}

async fn process(options: &SandboxOptions, node: u32) -> Vec<Check> {
    const NAME: &str = "sandbox.process";
    const WALL: &str = "sandbox.landlock";
    const FILTER: &str = "sandbox.seccomp";
    if options.process.isolation == Isolation::None {
        let found = "commands of agents run on this host with all rights of the node";
        let fix = "set `sandbox.process.isolation = \"bubblewrap\"`";
        return vec![Check::yellow(NAME, found, fix)];
    }
    let processes = tool_executors::processes(options.process.clone());
    if let Err(error) = processes.health_check().await {
        let fix = "install bubblewrap (0.8 or later) and allow user namespaces";
        return vec![Check::yellow(NAME, ErrorChain(&error).to_string(), fix)];
    }
    let wall = match processes.second_wall() {
        Ok(strength) => {
            Check::green(WALL, format!("Landlock restricts commands as well ({strength})"))
        }
        Err(why) if options.process.landlock == Landlock::Off => Check::green(WALL, why),
        Err(why) => {
            let fix = "use a kernel with Landlock (complete from 6.12 on); bubblewrap isolates \
                       commands without it too";
            Check::yellow(WALL, format!("no Landlock: {why}"), fix)
        }
    };
    let filter = match processes.filter() {
        Ok(()) => Check::green(FILTER, "system calls of commands are filtered"),
        Err(why) => {
            let fix = "use a kernel with seccomp filters (`CONFIG_SECCOMP_FILTER`)";
            let found = format!("commands can use keyrings and other parts of the kernel: {why}");
            Check::yellow(FILTER, found, fix)
        }
    };
    let limits = limits(&processes, node);
    vec![Check::green(NAME, "bubblewrap isolates processes"), wall, filter, limits]
}

/// What limits commands as a whole.
fn limits(processes: &Processes, node: u32) -> Check {
    const NAME: &str = "sandbox.limits";
    match processes.limits_of(node) {
        Ok(held) => Check::green(NAME, format!("limits apply to each command as a whole: {held}")),
        Err(why) => {
            let found = format!(
                "limits apply to single processes only ({why}): shared memory, the total of many \
                 processes, and processor time are not limited"
            );
            let fix = "run the node as a service with `Delegate=yes`, or name a control group that it \
                       may divide (`sandbox.process.cgroup`), or run commands in Docker";
            Check::yellow(NAME, found, fix)
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::{Json, Router, routing::get};
    use serde_json::json;
    use tokio::net::UnixListener;

    use super::{super::CheckStatus, *};

    fn needed() -> BTreeSet<Capability> {
        BTreeSet::from(["docker", "process"].map(|name| name.parse().unwrap()))
    }

    /// S-15: an engine that says what an old one does.
    #[tokio::test]
    async fn s_15_an_engine_whose_parts_are_known_to_be_bad_is_yellow() {
        for (runc, verdict) in [("1.1.5", CheckStatus::Yellow), ("1.3.3", CheckStatus::Green)] {
            let about = json!({
                "ApiVersion": "1.41",
                "Components": [
                    { "Name": "Engine", "Version": "29.0.1" },
                    { "Name": "containerd", "Version": "v2.2.0" },
                    { "Name": "runc", "Version": runc },
                ],
            });
            let app = Router::new()
                .route("/_ping", get(|| async { "OK" }))
                .fallback(get(move || std::future::ready(Json(about.clone()))));
            let dir = tempfile::tempdir_in("/tmp").unwrap();
            let socket = dir.path().join("socket");
            let listener = UnixListener::bind(&socket).unwrap();
            let serving = tokio::spawn(async move { axum::serve(listener, app).await });
            let mut options = SandboxOptions::default();
            options.docker.socket = socket;
            let found = checks(&options, 1, &needed()).await;
            serving.abort();
            assert_eq!(found.len(), 3, "{found:?}");
            assert_eq!(found[1].verdict, verdict, "{found:?}");
            let bad = found[1].found.contains("runc before 1.1.12: CVE-2024-21626");
            assert_eq!(bad, verdict == CheckStatus::Yellow, "{found:?}");
            assert!(found[1].found.contains(&format!("runc {runc}")), "{found:?}");
        }
    }

    #[tokio::test]
    async fn what_is_missing_is_yellow_and_said() {
        let mut options = SandboxOptions::default();
        options.docker.socket = "/nowhere/docker.sock".into();
        let found = checks(&options, 1, &needed()).await;
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].verdict, CheckStatus::Yellow);
        assert!(found[0].found.contains("/nowhere/docker.sock"), "{}", found[0].found);
        // Finding 36: where no agent needs it, nothing is wrong.
        for check in checks(&options, 1, &BTreeSet::new()).await {
            assert_eq!(check.verdict, CheckStatus::Green, "{check:?}");
        }

        options.run_in = SandboxPlace::Process;
        options.process.bwrap = "/nowhere/bwrap".into();
        let found = checks(&options, 1, &needed()).await;
        assert_eq!((found.len(), found[0].verdict), (1, CheckStatus::Yellow));
        options.process.isolation = Isolation::None;
        assert_eq!(checks(&options, 1, &needed()).await[0].verdict, CheckStatus::Yellow);
    }

    /// L8.
    #[test]
    fn images_that_are_named_by_tags_are_yellow_and_said() {
        let digest = format!("registry.example/tool@sha256:{}", "0".repeat(64));
        let options = |image: &str, python: &str, tool: &str| -> SandboxOptions {
            let tool = json!({ "description": "d", "command": ["a"], "image": tool });
            let docker = json!({ "image": image, "python_image": python });
            serde_json::from_value(json!({ "docker": docker, "tools": { "own": tool } })).unwrap()
        };
        let found = images(&options(&digest, &digest, &digest));
        assert_eq!(found.verdict, CheckStatus::Green, "{found:?}");
        for bad in [[&digest, "a:1", &digest], ["a:1", &digest, &digest], [&digest, &digest, "a:1"]]
        {
            let [image, python, tool] = bad;
            let found = images(&options(image, python, tool));
            assert_eq!(found.verdict, CheckStatus::Yellow, "{bad:?}");
            assert!(found.found.ends_with(": `a:1`"), "{found:?}");
        }
    }

    /// Process 1 is no service.
    #[tokio::test]
    async fn limits_of_single_processes_are_yellow_and_said() {
        let mut options =
            SandboxOptions { run_in: SandboxPlace::Process, ..SandboxOptions::default() };
        let found = checks(&options, 1, &needed()).await;
        let limits = found.iter().find(|check| check.name == "sandbox.limits").unwrap();
        assert_eq!(limits.verdict, CheckStatus::Yellow, "{limits:?}");
        assert!(limits.found.contains("not limited"), "{limits:?}");
        assert!(found.iter().any(|check| check.name == "sandbox.seccomp"), "{found:?}");
        // A configured group, as far as it can be seen.
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        options.process.cgroup = Some(dir.path().to_owned());
        let found = checks(&options, 1, &needed()).await;
        let limits = found.iter().find(|check| check.name == "sandbox.limits").unwrap();
        assert_eq!(limits.verdict, CheckStatus::Green, "{limits:?}");
    }
}
