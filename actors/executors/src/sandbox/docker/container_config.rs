//! From a policy to what an engine is asked for: pure, and the only place that says it.

use std::collections::HashMap;

use bollard::models::{
    ContainerCreateBody, ExecConfig, HealthConfig, HostConfig, HostConfigLogConfig, Mount,
    MountBindOptions, MountBindOptionsPropagationEnum, MountType, ResourcesUlimits,
};

#[cfg(feature = "test-util")]
use crate::sandbox::planted::SandboxBug;
use crate::sandbox::{
    resource_limits::SandboxLimits,
    spec::{ARTIFACTS, ARTIFACTS_VARIABLE, AgentFiles, Network, SandboxCommand, SandboxPolicy},
};

/// Where the agent's files are.
const WORKSPACE: &str = "/workspace";
/// Where everybody may write.
const TMP: &str = "/tmp";
/// Bytes of shared memory (16 MiB): it can be written, and counts as the container's memory.
const SHM_BYTES: i64 = 16 << 20;
/// What a container does until it is removed: nothing, for 68 years.
const IDLE: [&str; 2] = ["sleep", "2147483647"];
/// Open files of one process.
const FILES: i64 = 1_024;

/// The container of a policy. `volumes` are the paths that its image declares to be written: they
/// would be made on the host's disk, without a limit, so each is a small file system in memory.
pub(super) fn container(
    policy: &SandboxPolicy,
    volumes: &[String],
    labels: HashMap<String, String>,
    #[cfg(feature = "test-util")] planted: SandboxBug,
) -> ContainerCreateBody {
    let [program, forever] = IDLE.map(str::to_owned);
    let body = ContainerCreateBody {
        image: policy.image.as_ref().map(ToString::to_string),
        // The image's own entry point is not run.
        entrypoint: Some(vec![program]),
        cmd: Some(vec![forever]),
        healthcheck: Some(HealthConfig {
            test: Some(vec!["NONE".to_owned()]),
            ..HealthConfig::default()
        }),
        user: Some(format!("{}:{}", policy.user.uid(), policy.user.gid())),
        hostname: Some("sandbox".to_owned()),
        working_dir: Some(if policy.workspace.is_some() { WORKSPACE } else { TMP }.to_owned()),
        network_disabled: Some(policy.network == Network::None),
        labels: Some(labels),
        host_config: Some(host(policy, volumes)),
        ..ContainerCreateBody::default()
    };
    #[cfg(feature = "test-util")]
    let body = spoilt(body, planted);
    body
}

fn host(policy: &SandboxPolicy, volumes: &[String]) -> HostConfig {
    let SandboxLimits { cpus, memory, pids, tmp } = policy.limits;
    let memory = i64::try_from(memory.bytes()).unwrap_or(i64::MAX);
    // Where the image has such a folder its mode stays; so that it can be written, it is the user's.
    let (uid, gid) = (policy.user.uid(), policy.user.gid());
    let small =
        format!("rw,nosuid,nodev,noexec,size={},mode=1777,uid={uid},gid={gid}", tmp.bytes());
    let writable = volumes.iter().map(String::as_str).chain([TMP, ARTIFACTS]);
    let limit = |name: &str, most| ResourcesUlimits {
        name: Some(name.to_owned()),
        soft: Some(most),
        hard: Some(most),
    };
    HostConfig {
        network_mode: Some(match policy.network {
            Network::None => "none".to_owned(),
            Network::Bridge => "bridge".to_owned(),
        }),
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(vec!["no-new-privileges:true".to_owned()]),
        readonly_rootfs: Some(true),
        tmpfs: Some(writable.map(|path| (path.to_owned(), small.clone())).collect()),
        shm_size: Some(SHM_BYTES),
        mounts: policy.workspace.as_ref().map(|files| vec![mount(files)]),
        // No swap in addition: a command over the limit is ended, and the host does not thrash.
        memory: Some(memory),
        memory_swap: Some(memory),
        nano_cpus: Some(i64::try_from(cpus.nano()).unwrap_or(i64::MAX)),
        pids_limit: Some(i64::from(pids.get())),
        ulimits: Some(vec![limit("core", 0), limit("nofile", FILES)]),
        ipc_mode: Some("private".to_owned()),
        // Something must reap what a command leaves behind while it runs.
        init: Some(true),
        // The output is read as it comes; a copy would be on the host's disk.
        log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
        ..HostConfig::default()
    }
}

fn mount(files: &AgentFiles) -> Mount {
    Mount {
        target: Some(WORKSPACE.to_owned()),
        source: Some(files.directory.to_string_lossy().into_owned()),
        typ: Some(MountType::BIND),
        read_only: Some(files.is_read_only),
        bind_options: Some(MountBindOptions {
            propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    }
}

/// What hands out the files that a command has left, as a tar archive.
pub(super) fn collect() -> ExecConfig {
    let argv = ["tar", "-c", "-f", "-", "-C", ARTIFACTS, "."];
    ExecConfig {
        attach_stdout: Some(true),
        cmd: Some(argv.map(str::to_owned).into()),
        ..ExecConfig::default()
    }
}

/// One command in a container; all else is the container's.
pub(super) fn exec(command: &SandboxCommand) -> ExecConfig {
    let environment = command.environment().into_iter().chain([(ARTIFACTS_VARIABLE, ARTIFACTS)]);
    ExecConfig {
        attach_stdin: Some(!command.stdin.is_empty()),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        cmd: Some(command.argv.items().to_vec()),
        env: Some(environment.map(|(name, value)| format!("{name}={value}")).collect()),
        ..ExecConfig::default()
    }
}

#[cfg(feature = "test-util")]
fn spoilt(mut body: ContainerCreateBody, planted: SandboxBug) -> ContainerCreateBody {
    let host = body.host_config.get_or_insert_default();
    match planted {
        SandboxBug::None
        | SandboxBug::SharedPids
        | SandboxBug::HostFiles
        | SandboxBug::NoFilter => {}
        SandboxBug::HostNetwork => {
            host.network_mode = Some("host".to_owned());
            body.network_disabled = None;
        }
        SandboxBug::EngineSocket => {
            host.binds = Some(vec!["/var/run/docker.sock:/var/run/docker.sock".to_owned()]);
        }
        SandboxBug::Privileged => host.privileged = Some(true),
        SandboxBug::Root => {
            (body.user, host.security_opt, host.cap_drop) = (None, None, None);
        }
        SandboxBug::NoLimits => {
            (host.memory, host.memory_swap, host.pids_limit, host.nano_cpus) =
                (None, None, None, None);
        }
        SandboxBug::Reused => host.readonly_rootfs = None,
    }
    body
}
