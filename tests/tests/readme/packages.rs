//! Packages of one binary, each installed into an empty place without a network, and talked to.

use std::path::{Path, PathBuf};

use clawnode_tests::{
    docker::{Engine, run},
    process::{ProcessError, binary},
};
use tempfile::TempDir;
use tokio::process::Command;

use super::{Outcome, root};

/// What the demo says to `hello`.
const ANSWER: &str = "You said: hello";
const CHAT: &str = "ip link set lo up\nchat() { printf 'hello\\n' | \"$@\" up --chat; }\n";

/// A place of the package's own, and a network that reaches nothing.
const WHEEL: &str = r#"
python3 -m venv --without-pip venv
python3 -m pip --python venv/bin/python install --quiet --no-index --no-deps "$OUT"/*.whl
chat venv/bin/clawnode
python3 -m pip --python venv/bin/python uninstall --quiet --yes clawnode
[ ! -e venv/bin/clawnode ]
"#;

const NPM: &str = r#"
npm install --silent --prefix prefix --offline --no-audit --no-fund "$OUT"/*.tgz
chat prefix/node_modules/.bin/clawnode
"#;

/// In a Debian system, which has `adduser` and what the program loads.
const DEBIAN: &str = r#"
mkdir debian
tar -C debian -xf "$ROOT/.tools/python3-image.tar"
mount -t proc proc debian/proc
cp "$OUT"/*.deb debian/tmp/clawnode.deb
chroot debian dpkg --install /tmp/clawnode.deb
[ "$(stat -c %a debian/etc/clawnode/node.env)" = 600 ]
grep -qx /etc/clawnode/node.env debian/var/lib/dpkg/info/clawnode.conffiles
unit=debian/usr/lib/systemd/system/clawnode.service
grep -qx 'ExecStart=/usr/bin/clawnode up' $unit
grep -qx 'User=clawnode' $unit
grep -q '^\[Install\]' $unit
if grep -q DynamicUser $unit; then exit 1; fi
chat chroot --userspec=clawnode:clawnode debian env -i PATH=/usr/bin HOME=/var/lib/clawnode \
    CLAWNODE_NODE__DATA_DIR=/var/lib/clawnode clawnode
# Talked to again after it is installed again, and gone after it is purged.
chroot debian dpkg --install /tmp/clawnode.deb
[ -e debian/var/lib/clawnode/token ]
# What is in it: a small system may leave manuals out.
dpkg-deb --extract "$OUT"/*.deb files
share=files/usr/share
gzip -cd $share/man/man1/clawnode-sessions-list.1.gz | grep -q 'sessions list'
bash -n $share/bash-completion/completions/clawnode
grep -q '^#compdef clawnode' $share/zsh/vendor-completions/_clawnode
grep -q 'complete -c clawnode' $share/fish/vendor_completions.d/clawnode.fish
chroot debian dpkg --purge clawnode
[ ! -e debian/var/lib/clawnode ] && [ ! -e debian/usr/bin/clawnode ] && [ ! -e debian/etc/clawnode ]
"#;

const IMAGE: &str = "printf 'hello\\n' | docker run --rm -i --network none clawnode up --chat";

/// Makes packages of a program, but no image, into a folder of this name.
async fn pack(program: &Path, dir: &TempDir, name: &str) -> Result<PathBuf, ProcessError> {
    let out = dir.path().join(name);
    let mut packages = Command::new(root().join("docker/packages.sh"));
    packages.env("DOCKER_HOST", "unix:///nowhere/docker.sock").kill_on_drop(true);
    run(packages.arg(program).arg(&out).env("SOURCE_DATE_EPOCH", "1750000000")).await?;
    Ok(out)
}

/// Installs a package with this script, which talks to it; fails unless it answers.
async fn install(out: &Path, name: &str, script: &str) -> Outcome {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command.args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.args(["sh", "-eu", "-c", &format!("{CHAT}{script}")]).current_dir(home.path());
    for variable in ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "XDG_DATA_HOME", "PYTHONPATH"] {
        command.env_remove(variable);
    }
    command.env("HOME", home.path()).env("USER", "ada").env("OUT", out).env("ROOT", root());
    let printed = run(command.kill_on_drop(true)).await?;
    assert!(printed.contains(ANSWER), "{name}: {printed}");
    Ok(())
}

#[tokio::test]
async fn packages_of_one_binary_install_and_chat_and_docker_runs_it() -> Outcome {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let engine = Engine::start().await?;
    let mut packages = engine.command(&root().join("docker/packages.sh").to_string_lossy());
    run(packages.arg(binary()?).arg(&out)).await?;
    let printed = run(engine.command("sh").args(["-c", IMAGE])).await?;
    assert!(printed.contains(ANSWER), "{printed}");
    engine.stop().await?;
    install(&out, "wheel", WHEEL).await?;
    install(&out, "npm", NPM).await?;
    install(&out, "Debian", DEBIAN).await
}

/// With a small program in place of ours, so that it takes no time.
#[tokio::test]
async fn packages_of_the_same_binary_are_the_same() -> Outcome {
    let dir = tempfile::tempdir().unwrap();
    let program = Path::new("/bin/true");
    let first = pack(program, &dir, "first").await?;
    let sums = std::fs::read_to_string(first.join("SHA256SUMS")).unwrap();
    let names: Vec<&str> = sums.lines().filter_map(|line| line.split("  ").nth(1)).collect();
    let version = env!("CARGO_PKG_VERSION");
    let [wheel, npm, debian] = <[&str; 3]>::try_from(names).unwrap();
    assert!(wheel.starts_with(&format!("clawnode-{version}-py3-none-manylinux_2_")), "{wheel}");
    assert_eq!(npm, format!("clawnode-{version}.tgz"));
    assert!(debian.starts_with(&format!("clawnode_{version}_")), "{debian}");
    let second = pack(program, &dir, "second").await?;
    assert_eq!(std::fs::read_to_string(second.join("SHA256SUMS")).unwrap(), sums);
    Ok(())
}

#[tokio::test]
async fn packages_are_made_of_programs_alone() -> Outcome {
    let dir = tempfile::tempdir().unwrap();
    let missing = pack(Path::new("/nowhere/clawnode"), &dir, "out").await.unwrap_err().to_string();
    assert!(missing.contains("build it: cargo build --profile dist"), "{missing}");
    let script = pack(&root().join("docker/image.sh"), &dir, "out").await;
    assert!(script.is_err());
    Ok(())
}
