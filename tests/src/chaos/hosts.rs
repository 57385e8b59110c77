//! Hosts: all on loopback, or each a network namespace with an address of its own.
//!
//! The namespaces of one stage hang on a bridge in a namespace that is the switch; this program
//! reaches them through one interface of its own. Their names carry this process, so that
//! [`sweep`] finds what a run left behind that was killed.

use std::{
    net::Ipv4Addr,
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{ChaosError, daemon::tool};

/// What the names of our namespaces begin with.
const MARK: &str = "cnc";
/// The first address of a host; those below are this program's.
const FIRST_HOST: u8 = 10;

/// What hosts are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// Processes on 127.0.0.1.
    Loopback,
    /// Network namespaces with addresses of their own.
    Namespaces,
}

/// One host.
#[derive(Clone, Debug)]
pub struct Host {
    pub name: String,
    pub ip: Ipv4Addr,
    /// Its network namespace.
    pub namespace: Option<String>,
}

/// Which direction of a host's traffic is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// It neither hears nor is heard.
    Both,
    /// It hears others, but is not heard.
    Speech,
    /// It is heard, but hears no other.
    Hearing,
}

/// The hosts of one stage; gone when dropped.
#[derive(Debug)]
pub struct Network {
    kind: HostKind,
    /// What the names of this stage's namespaces begin with.
    prefix: String,
    subnet: (u8, u8),
    hosts: Vec<Host>,
}

/// Stages of this process so far.
static STAGES: AtomicU32 = AtomicU32::new(0);

// === impl HostKind ===

impl HostKind {
    /// Its name in scorecards.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Namespaces => "namespaces",
        }
    }
}

// === impl Network ===

impl Network {
    /// An empty network.
    pub fn new(kind: HostKind) -> Result<Self, ChaosError> {
        let stage = STAGES.fetch_add(1, Ordering::Relaxed);
        let pid = std::process::id();
        let prefix = format!("{MARK}-{pid}-{}-{stage}", started(pid).unwrap_or(0));
        // One of 10.100.0.0 to 10.199.255.0, different for each stage of each process.
        let (low, high) = (pid.wrapping_add(stage).to_le_bytes()[0], pid.to_le_bytes()[0]);
        let network = Self { kind, prefix, subnet: (100 + high % 100, low), hosts: Vec::new() };
        if kind == HostKind::Namespaces {
            network.build_switch(stage)?;
        }
        Ok(network)
    }

    /// Where this program itself is.
    pub fn own(&self) -> Ipv4Addr {
        self.address(1)
    }

    /// Adds a host.
    pub fn add(&mut self, name: &str) -> Result<Host, ChaosError> {
        let number = u8::try_from(self.hosts.len()).unwrap_or(u8::MAX).saturating_add(FIRST_HOST);
        let ip = self.address(number);
        let namespace = match self.kind {
            HostKind::Loopback => None,
            HostKind::Namespaces => Some(format!("{}-{name}", self.prefix)),
        };
        let host = Host { name: name.to_owned(), ip, namespace };
        // Known before it is built, so that a half-built one is removed as well.
        self.hosts.push(host.clone());
        if let Some(space) = &host.namespace {
            let (switch, port) = (self.switch(), format!("p{number}"));
            ip_tool(&["netns", "add", space])?;
            ip_tool(&[
                "link", "add", &port, "netns", &switch, "type", "veth", "peer", "name", "eth0",
                "netns", space,
            ])?;
            ip_tool(&["-n", &switch, "link", "set", &port, "master", "br0", "up"])?;
            ip_tool(&["-n", space, "addr", "add", &format!("{ip}/24"), "dev", "eth0"])?;
            ip_tool(&["-n", space, "link", "set", "eth0", "up"])?;
            ip_tool(&["-n", space, "link", "set", "lo", "up"])?;
        }
        Ok(host)
    }

    /// Cuts a host off from these addresses.
    pub fn cut(&self, host: &Host, from: &[Ipv4Addr], cut: Cut) -> Result<(), ChaosError> {
        for ip in from {
            let ip = ip.to_string();
            if cut != Cut::Hearing {
                iptables(host, &["-A", "OUTPUT", "-d", &ip, "-j", "DROP"])?;
            }
            if cut != Cut::Speech {
                iptables(host, &["-A", "INPUT", "-s", &ip, "-j", "DROP"])?;
            }
        }
        Ok(())
    }

    /// Takes back all that was cut.
    pub fn heal(&self, host: &Host) -> Result<(), ChaosError> {
        iptables(host, &["-F"])
    }

    /// Processes that are left on the hosts.
    pub fn processes(&self) -> Vec<String> {
        let spaces = self.hosts.iter().filter_map(|host| host.namespace.as_ref());
        spaces.flat_map(|space| pids(space).into_iter().map(describe)).collect()
    }

    fn address(&self, last: u8) -> Ipv4Addr {
        match self.kind {
            HostKind::Loopback => Ipv4Addr::LOCALHOST,
            HostKind::Namespaces => Ipv4Addr::new(10, self.subnet.0, self.subnet.1, last),
        }
    }

    fn switch(&self) -> String {
        format!("{}-switch", self.prefix)
    }

    fn build_switch(&self, stage: u32) -> Result<(), ChaosError> {
        let switch = self.switch();
        // At most 15 characters.
        let own = format!("{MARK}{}-{}", std::process::id() % 1_000_000, stage % 10_000);
        ip_tool(&["netns", "add", &switch])?;
        ip_tool(&["-n", &switch, "link", "add", "br0", "type", "bridge"])?;
        ip_tool(&["-n", &switch, "link", "set", "br0", "up"])?;
        ip_tool(&[
            "link", "add", &own, "type", "veth", "peer", "name", "harness", "netns", &switch,
        ])?;
        ip_tool(&["-n", &switch, "link", "set", "harness", "master", "br0", "up"])?;
        ip_tool(&["addr", "add", &format!("{}/24", self.own()), "dev", &own])?;
        ip_tool(&["link", "set", &own, "up"])
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if self.kind == HostKind::Namespaces {
            remove(&self.prefix);
        }
    }
}

/// Why there can be no namespaces here; `None` if there can.
pub fn no_namespaces() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("network namespaces need root".to_owned());
    }
    for (name, package) in [("ip", "iproute2"), ("iptables", "iptables")] {
        if tool(name).is_none() {
            return Some(format!("`{name}` is missing: apt-get install {package}"));
        }
    }
    let probe = || -> Result<(), ChaosError> {
        let mut network = Network::new(HostKind::Namespaces)?;
        let host = network.add("probe")?;
        network.cut(&host, &[network.own()], Cut::Both)
    };
    probe().err().map(|error| format!("no network namespaces here: {error}"))
}

/// Removes the namespaces of runs whose process is gone, with all that runs in them.
pub fn sweep() {
    for name in namespaces() {
        let mut parts = name.split('-');
        if parts.next() != Some(MARK) {
            continue;
        }
        let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok());
        let (Some(pid), Some(start)) = (number(), number()) else { continue };
        let alive = u32::try_from(pid).ok().and_then(started) == Some(start);
        if !alive {
            remove_one(&name);
        }
    }
}

fn remove(prefix: &str) {
    for name in namespaces().iter().filter(|name| name.starts_with(prefix)) {
        remove_one(name);
    }
}

fn remove_one(name: &str) {
    for pid in pids(name) {
        if let Some(pid) = Pid::from_raw(pid)
            && let Err(error) = kill_process(pid, Signal::KILL)
        {
            tracing::debug!(%error, "it was gone already");
        }
    }
    if let Err(error) = ip_tool(&["netns", "del", name]) {
        tracing::warn!(%error, "a network namespace was left behind");
    }
}

fn namespaces() -> Vec<String> {
    let listed = output("ip", &["netns", "list"]).unwrap_or_default();
    listed.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

fn pids(space: &str) -> Vec<i32> {
    let listed = output("ip", &["netns", "pids", space]).unwrap_or_default();
    listed.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

/// When a process started, in ticks since the boot: tells it apart from a later one with its
/// number.
fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

fn describe(pid: i32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    format!("{pid} {}", String::from_utf8_lossy(&line).replace('\0', " ").trim_end())
}

fn ip_tool(args: &[&str]) -> Result<(), ChaosError> {
    output("ip", args).map(drop)
}

fn iptables(host: &Host, args: &[&str]) -> Result<(), ChaosError> {
    let Some(space) = &host.namespace else {
        let what = format!("`{}` has no network of its own to be cut", host.name);
        return Err(ChaosError::Missing(what));
    };
    let Some(tool) = tool("iptables") else {
        return Err(ChaosError::Missing("`iptables` is missing".to_owned()));
    };
    let tool = tool.display().to_string();
    let mut words = vec!["netns", "exec", space, &tool, "-w"];
    words.extend(args);
    output("ip", &words).map(drop)
}

/// What a short command of the system prints.
fn output(name: &str, args: &[&str]) -> Result<String, ChaosError> {
    let what = || format!("run `{name} {}`", args.join(" "));
    let path = tool(name).ok_or_else(|| ChaosError::Missing(format!("`{name}` is missing")))?;
    let done = Command::new(path).args(args).stdin(Stdio::null()).output();
    let done = done.map_err(ChaosError::io(what()))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    Err(ChaosError::Missing(format!("cannot {}: {said}", what())))
}
