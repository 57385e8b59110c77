//! S-14: a list of ways out of a container, tried from within on a real engine; all fail, and
//! nothing remains.

use std::{fs, path::Path};

use clawnode_executors::sandbox::SandboxBug;
use clawnode_tests::{docker::Engine, process::ProcessError, wait::until};
use serde_json::json;

use super::{Bench, Outcome, engine};

/// Ways out: a name, and a line that succeeds where the way is open.
const WAYS: [(&str, &str); 22] = [
    ("be root", "[ $(id -u) = 0 ]"),
    ("write the root file system", "echo x >/x"),
    ("write programs", "echo x >/bin/x"),
    ("write a kernel setting", "echo 1 >/proc/sys/kernel/panic"),
    ("write below /sys", "echo 1 >/sys/kernel/mm/ksm/run"),
    ("write its own limits", "echo -1 >/sys/fs/cgroup/memory/memory.limit_in_bytes"),
    ("trigger the kernel", "echo h >/proc/sysrq-trigger"),
    ("read kernel memory", "head -c 1 /proc/kcore"),
    ("see the host's processes", "[ $(ls -d /proc/[0-9]* | wc -l) -gt 12 ]"),
    ("see the host's root", "cd /proc/1/root && ls home"),
    ("speak to an engine", "ls /var/run/docker.sock || ls /run/docker.sock"),
    ("make a device", "mknod /tmp/d b 254 0"),
    ("read a disk", "head -c 1 /dev/vda || head -c 1 /dev/sda"),
    ("mount", "mount -t tmpfs none /mnt"),
    ("new namespaces", "unshare -m true"),
    ("change the clock", "date -s 2020-01-01; [ $(date +%Y) = 2020 ]"),
    ("read what is root's", "cat /etc/shadow"),
    ("gain privileges", "grep -q 'NoNewPrivs:.0' /proc/self/status"),
    ("have a capability", "grep 'Cap[EPB]' /proc/self/status | grep -qv 0000000000000000"),
    ("go without a filter", "grep -q 'Seccomp:.0' /proc/self/status"),
    ("reach the metadata service", "wget -q -T 2 -O - http://169.254.169.254/"),
    ("have a network", "ip addr | grep -q eth0 || ping -c 1 -W 1 1.1.1.1"),
];

/// Things that there are more of after something was left behind.
async fn remains(engine: &Engine) -> Result<Vec<String>, ProcessError> {
    let mut all = vec![format!("containers {:?}", engine.containers().await?)];
    for args in [["volume", "ls", "-q"], ["network", "ls", "-q"]] {
        all.push(engine.docker(&args).await?);
    }
    all.push(format!("control groups {:?}", groups()));
    Ok(all)
}

/// The control groups of containers.
fn groups() -> Vec<String> {
    let groups_in = |root: &str| fs::read_dir(Path::new("/sys/fs/cgroup").join(root));
    let Ok(found) = groups_in("memory/docker").or_else(|_| groups_in("docker")) else {
        return Vec::new();
    };
    let names = found.flatten().filter(|entry| entry.path().is_dir());
    names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The ways that are open.
async fn open(bench: &Bench) -> Vec<&'static str> {
    let lines = WAYS
        .iter()
        .enumerate()
        .map(|(at, (_, line))| format!("if ( {line} ) >/dev/null 2>&1; then echo open {at}.; fi"));
    let (failure, text) = bench.sh(&lines.collect::<Vec<_>>().join("\n")).await;
    assert_eq!(failure, None, "{text}");
    let ways = WAYS.iter().enumerate();
    ways.filter(|(at, _)| text.contains(&format!("open {at}."))).map(|(_, (way, _))| *way).collect()
}

#[tokio::test]
async fn s_14_there_is_no_way_out_and_nothing_remains() -> Outcome {
    let engine = engine().await?;
    let before = remains(&engine).await?;
    let root = tempfile::tempdir_in("/tmp").unwrap();
    let files = root.path().join("main");
    fs::create_dir(&files).unwrap();
    fs::write(root.path().join("other.txt"), "another agent's").unwrap();
    fs::write(files.join("own.txt"), "own").unwrap();
    std::os::unix::fs::chown(&files, Some(1_000), Some(1_000)).unwrap();
    let options = json!({
        "workspace": "read_write",
        "docker": { "memory": "64m", "tmp": "16m", "pids": 32 },
    });
    let bench = Bench::with(&engine.socket(), options, SandboxBug::None, Some(root.path()));

    assert_eq!(open(&bench).await, [""; 0]);
    // The workspace is the agent's own, and links do not lead out of it.
    let (failure, text) = bench
        .sh("id -u; cat own.txt; echo new >new.txt; ln -s /etc/shadow s; cat s ../other.txt")
        .await;
    assert!(failure.is_some() && text.starts_with("1000\nown"), "{text}");
    assert!(!text.contains("secret") && !text.contains("another"), "{text}");
    assert_eq!(fs::read_to_string(files.join("new.txt")).unwrap(), "new\n");
    std::os::unix::fs::symlink("/etc", files.join("out")).unwrap();
    let (_, text) = bench.sh("cat out/hostname").await;
    assert!(text.starts_with("sandbox"), "a link leads to the container's own: {text}");

    // It is stopped by its limits: processes, memory, disk.
    let (_, text) = bench.sh("for i in $(seq 100); do sleep 5 & done; echo begun").await;
    assert!(text.contains("can't fork") || text.contains("Resource temporarily"), "{text}");
    let (failure, text) = bench.sh("head -c 200000000 /dev/zero | tail -c 190000000 | wc -c").await;
    assert!(failure.is_some() || !text.contains("190000000"), "twice the memory: {text}");
    for place in ["/tmp", "/dev/shm", "/data"] {
        let (_, text) = bench
            .sh(&format!("dd if=/dev/zero of={place}/f bs=1M count=100; ls -l {place}/f"))
            .await;
        assert!(text.contains("No space left") || text.contains("killed"), "{place}: {text}");
    }

    // Another container is not there to be seen.
    engine.docker(&["run", "-d", "--name", "victim", "busybox:test", "sleep", "1000"]).await?;
    let (failure, text) = bench.sh("ping -c 1 -W 1 victim").await;
    assert!(failure.is_some(), "{text}");
    engine.docker(&["rm", "-f", "-v", "victim"]).await?;

    bench.close().await;
    until("nothing to remain", async || Ok((remains(&engine).await? == before).then_some(())))
        .await?;
    engine.stop().await
}

#[tokio::test]
async fn s_14_a_planted_bug_is_found() -> Outcome {
    let engine = engine().await?;
    for (planted, way) in [
        (SandboxBug::HostNetwork, "have a network"),
        (SandboxBug::Privileged, "have a capability"),
        (SandboxBug::Root, "be root"),
        (SandboxBug::Root, "gain privileges"),
    ] {
        let bench = Bench::new(&engine.socket(), json!({}), planted);
        let open = open(&bench).await;
        assert!(open.contains(&way), "{planted:?}: {open:?}");
        bench.close().await;
    }
    engine.stop().await
}
