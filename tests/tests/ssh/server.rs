//! A host: a real `sshd` of a test's own, with its own keys, on a port of its own.
//!
//! The test listens, and each connection has an `sshd -i`: so no port is guessed, and a test can cut
//! its connections off.

use std::{
    fs,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
};

use clawnode_executors::ssh::SshHostOptions;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Where the distribution puts it.
const SSHD: &str = "/usr/sbin/sshd";

/// A host that listens until it is dropped.
pub(crate) struct Host {
    dir: TempDir,
    address: SocketAddr,
    connections: Arc<Mutex<Vec<TcpStream>>>,
    user: String,
}

/// Who runs the test.
fn current() -> String {
    let out = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

/// Runs a command to its good end.
pub(crate) fn run(program: &str, args: &[&str]) {
    let out = Command::new(program).args(args).stdin(Stdio::null()).output().unwrap();
    assert!(out.status.success(), "{program}: {}", String::from_utf8_lossy(&out.stderr));
}

/// Makes a key without a passphrase.
pub(crate) fn key(path: &Path, kind: &str, passphrase: &str) {
    let path = path.display().to_string();
    run("ssh-keygen", &["-q", "-t", kind, "-N", passphrase, "-f", &path, "-C", "tests"]);
}

/// Who runs commands on a host of [`Host::of_tester`].
const TESTER: &str = "tester";

impl Host {
    /// A server on which the user of the test runs commands.
    pub(crate) fn start() -> Self {
        Self::of(&current(), None)
    }

    /// A server on which a user that is not root runs commands. If root runs the test, only this
    /// host's server knows of that user, in a mount namespace of its own.
    pub(crate) fn of_tester() -> Self {
        if current() != "root" {
            return Self::start();
        }
        let mut users = fs::read_to_string("/etc/passwd").unwrap();
        users.push_str("tester:x:65533:65533:tester:/tmp:/bin/sh\n");
        Self::of(TESTER, Some(&users))
    }

    fn of(user: &str, users: Option<&str>) -> Self {
        assert!(Path::new(SSHD).is_file(), "no {SSHD}; run `cargo xtest --setup` first");
        // sshd insists on it where it is started by root.
        drop(fs::create_dir_all("/run/sshd"));
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        key(&at("host"), "ed25519", "");
        key(&at("id"), "ed25519", "");
        fs::copy(at("id.pub"), at("authorized")).unwrap();
        let config = format!(
            "HostKey {}\nPidFile none\nUsePAM no\nStrictModes no\nAuthorizedKeysFile none\n\
             AuthorizedKeysCommand /usr/bin/cat {}\nAuthorizedKeysCommandUser {}\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             PermitRootLogin prohibit-password\nAcceptEnv CLAWNODE_*\n",
            at("host").display(),
            at("authorized").display(),
            current(),
        );
        if let Some(users) = users {
            fs::write(at("passwd"), users).unwrap();
        }
        fs::write(at("config"), config).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::<Mutex<Vec<TcpStream>>>::default();
        let (folder, kept) = (dir.path().to_owned(), Arc::clone(&connections));
        std::thread::spawn(move || serve(&listener, &folder, &kept));
        Self { dir, address, connections, user: user.to_owned() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Its section of the configuration, with more settings.
    pub(crate) fn section(&self, more: Value) -> Value {
        let mut section = json!({
            "name": "db",
            "host": "127.0.0.1",
            "port": self.address.port(),
            "user": self.user,
            "key": self.path("id"),
        });
        let Value::Object(more) = more else { unreachable!() };
        section.as_object_mut().unwrap().extend(more);
        section
    }

    pub(crate) fn options(&self, more: Value) -> SshHostOptions {
        let options: SshHostOptions = serde_json::from_value(self.section(more)).unwrap();
        options.check().unwrap();
        options
    }

    /// It has another key from now on.
    pub(crate) fn change_key(&self) {
        for name in ["host", "host.pub"] {
            fs::remove_file(self.path(name)).unwrap();
        }
        key(&self.path("host"), "ed25519", "");
    }

    /// Its key's fingerprint now.
    pub(crate) fn fingerprint(&self) -> String {
        let key = self.path("host.pub").display().to_string();
        let out = Command::new("ssh-keygen").args(["-lf", &key]).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        text.split(' ').nth(1).unwrap().to_owned()
    }

    /// Its line of a file of known hosts.
    pub(crate) fn known(&self) -> String {
        let key = fs::read_to_string(self.path("host.pub")).unwrap();
        format!("[127.0.0.1]:{} {key}", self.address.port())
    }

    /// Cuts off all connections; what runs there goes on.
    pub(crate) fn cut_off(&self) {
        for connection in self.connections.lock().unwrap().drain(..) {
            drop(connection.shutdown(Shutdown::Both));
        }
    }

    /// A file of the test's, readable by its owner alone.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.cut_off();
        // The listener's thread hears of it, and ends.
        drop(fs::remove_file(self.path("config")));
        drop(TcpStream::connect(self.address));
    }
}

fn serve(listener: &TcpListener, folder: &Path, kept: &Mutex<Vec<TcpStream>>) {
    let (config, users) = (folder.join("config"), folder.join("passwd"));
    for stream in listener.incoming().map_while(Result::ok) {
        if !config.is_file() {
            return;
        }
        kept.lock().unwrap().push(stream.try_clone().unwrap());
        let handle = || Stdio::from(std::os::fd::OwnedFd::from(stream.try_clone().unwrap()));
        let mut log = fs::File::options();
        log.create(true).append(true);
        let log = log.open(folder.join("log")).unwrap();
        let mut sshd = if users.is_file() {
            let line = "mount --bind \"$1\" /etc/passwd && shift && exec \"$@\"";
            let mut unshare = Command::new("unshare");
            unshare.args(["--mount", "--propagation", "private", "sh", "-c", line, "sh"]);
            unshare.arg(&users).arg(SSHD);
            unshare
        } else {
            Command::new(SSHD)
        };
        let mut child = sshd
            .args(["-i", "-e", "-f"])
            .arg(&config)
            .stdin(handle())
            .stdout(handle())
            .stderr(log)
            .spawn()
            .unwrap();
        std::thread::spawn(move || drop(child.wait()));
    }
}
