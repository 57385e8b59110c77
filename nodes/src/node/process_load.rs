//! How busy this process is: looked at once a second, told in its heartbeat.

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use clawnode_actors::{agent::Agents, session::FrameHub};
use clawnode_cluster::shed::{Pressure, Shedding};
use clawnode_gateway::Clients;
use clawnode_proto::node::Load;

/// How often it is looked at; `Shedding` counts looks.
const EVERY: Duration = Duration::from_secs(1);

/// How busy a process is. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Gauges(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    seen: Mutex<(Load, u8)>,
    first_of: AtomicU16,
    clients: OnceLock<Clients>,
}

/// Processor time since the start, in ticks of the kernel: of this process, and of its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    own: u64,
    busy: u64,
    all: u64,
}

// === impl Gauges ===

impl Gauges {
    /// How busy it was when it was last looked at.
    pub fn load(&self) -> Load {
        self.seen().0
    }

    /// By how many ranks it is lowered.
    pub fn shed(&self) -> u8 {
        self.seen().1
    }

    /// Partitions that it serves first.
    pub fn first_of(&self) -> u16 {
        self.0.first_of.load(Ordering::Relaxed)
    }

    /// It serves so many partitions first now.
    pub fn set_first_of(&self, count: usize) {
        self.0.first_of.store(u16::try_from(count).unwrap_or(u16::MAX), Ordering::Relaxed);
    }

    /// It has a gateway, with these clients.
    pub fn count(&self, clients: Clients) {
        // Set once: a process has one gateway.
        self.0.clients.get_or_init(|| clients);
    }

    fn seen(&self) -> (Load, u8) {
        *self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks once a second, for as long as it runs.
    pub async fn look(self, agents: Agents, hub: FrameHub) {
        let (mut shedding, mut before) = (Shedding::default(), ticks());
        loop {
            tokio::time::sleep(EVERY).await;
            let now = ticks();
            let views = agents.views().await;
            let running: u64 = views.iter().map(|agent| u64::from(agent.running)).sum();
            let most = views.iter().map(|agent| u64::from(agent.max_turns)).sum();
            let all = now.all.saturating_sub(before.all);
            let (own, busy) = (now.own.saturating_sub(before.own), now.busy - before.busy);
            let shed = shedding.look(Pressure {
                cpu: Pressure::permille(busy, all),
                memory: host_memory(),
                turns: Pressure::permille(running, most),
            });
            let load = Load {
                cpu_permille: Pressure::permille(own, all),
                memory_bytes: own_memory(),
                turns_running: u32::try_from(running).unwrap_or(u32::MAX),
                turns_done: hub.turns_ended(),
                clients: self.0.clients.get().map_or(0, Clients::count),
            };
            *self.0.seen.lock().unwrap_or_else(PoisonError::into_inner) = (load, shed);
            before = now;
        }
    }
}

/// The figures of the operating system's kernel. Empty where there are none.
fn ticks() -> Ticks {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    ticks_in(&read("/proc/self/stat"), &read("/proc/stat"))
}

fn ticks_in(own: &str, host: &str) -> Ticks {
    // The name in parentheses may hold anything; what follows it is numbered from 3.
    let rest = own.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = |number: usize| {
        rest.split_whitespace().nth(number - 3).and_then(|text| text.parse::<u64>().ok())
    };
    let own = field(14).unwrap_or_default() + field(15).unwrap_or_default();
    // user, nice, system, idle, iowait, irq, softirq, steal
    let line = host.lines().next().and_then(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    let times: Vec<u64> =
        line.split_whitespace().take(8).map_while(|text| text.parse().ok()).collect();
    let idle: u64 = times.iter().skip(3).take(2).sum();
    let all: u64 = times.iter().sum();
    Ticks { own, busy: all - idle, all }
}

/// Resident memory of this process, in bytes.
fn own_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    kibibytes(&status, "VmRSS:").unwrap_or_default() << 10
}

/// How much of the host's memory is used, in thousandths.
fn host_memory() -> u16 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let (all, free) = (kibibytes(&info, "MemTotal:"), kibibytes(&info, "MemAvailable:"));
    match (all, free) {
        (Some(all), Some(free)) => Pressure::permille(all.saturating_sub(free), all),
        _ => 0,
    }
}

/// The number of a line such as `VmRSS:   1234 kB`.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells_is_read() {
        let own = "7 (a) b) S 1 7 7 0 -1 4194560 1 0 0 0 40 2 0 0 20 0 9 0 5 1 1 1";
        let host = "cpu  10 1 5 80 4 0 0 0 0 0\ncpu0 10 1 5 80 4 0 0 0 0 0\n";
        assert_eq!(ticks_in(own, host), Ticks { own: 42, busy: 16, all: 100 });
        assert_eq!(ticks_in("", ""), Ticks::default());
        assert_eq!(kibibytes("VmPeak: 9 kB\nVmRSS:\t  8 kB\n", "VmRSS:"), Some(8));
    }

    #[test]
    fn this_process_uses_something() {
        assert!(own_memory() > 0 && host_memory() > 0 && ticks().all > 0);
    }
}
