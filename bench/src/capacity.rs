//! What a load needs, from what one of each thing costs: arithmetic alone.

const GIB: f64 = 1_073_741_824.0;
/// Bytes of a disk's terabyte.
const TB: f64 = 1e12;
/// Microseconds in a second.
const MICROS: f64 = 1e6;

/// What one of each thing costs, as measured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs {
    /// Memory of a node without sessions, in bytes.
    pub node_bytes: f64,
    /// Memory of a session that is resident, in bytes.
    pub resident_bytes: f64,
    /// Memory of a session that is not, in bytes of a node with its own store.
    pub passivated_bytes: f64,
    /// Processor time of the node for a turn without its frames, in microseconds.
    pub turn_us: f64,
    /// The same for each frame of text.
    pub frame_us: f64,
    /// Processor time of the NATS server for a turn without its frames, in microseconds.
    pub bus_turn_us: f64,
    /// The same for each frame of text.
    pub bus_frame_us: f64,
    /// Messages into and out of the NATS server for a turn without its frames.
    pub turn_messages: f64,
    /// The same for each frame of text.
    pub frame_messages: f64,
    /// Records of a turn in the journal.
    pub turn_records: f64,
    /// Bytes of a session in the journal's stream, without its turns.
    pub session_stored: f64,
    /// Bytes of a turn in the journal's stream.
    pub turn_stored: f64,
    /// Memory of the NATS server for a subject of the journal's stream, in bytes.
    pub subject_bytes: f64,
    /// Seconds for which the NATS server reads a subject back when it starts after a kill.
    pub subject_restart: f64,
    /// The size of one heartbeat on the bus.
    pub heartbeat_bytes: f64,
    /// Processor time to read one, in microseconds.
    pub heartbeat_us: f64,
    /// Messages a second of a node at rest.
    pub rest_messages: f64,
    /// Messages a second more for a minute after a death, of all nodes together.
    pub scan_messages: f64,
    /// Of the partitions, how many the worker serves first that serves most, of 100 workers.
    pub most_partitions: f64,
}

/// What is taken to be so.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    /// Cores of a host.
    pub cores: f64,
    /// Memory of a host that may be used, in bytes.
    pub memory: f64,
    /// Disk of a host, in bytes.
    pub disk: f64,
    /// Copies of each record.
    pub replicas: f64,
    /// Turns of a session in its life.
    pub turns: f64,
    /// How long a turn takes, in seconds.
    pub turn_seconds: f64,
    /// Frames of text a second while a model answers.
    pub frames: f64,
    /// Partitions of the cluster.
    pub partitions: f64,
}

/// What there is a lot of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// Sessions in memory.
    Resident(f64),
    /// Sessions that were, and are not deleted.
    Archived(f64),
    /// Turns that run at once.
    Turns(f64),
    /// Workers at one bus.
    Workers(f64),
}

/// Whether more hosts give more of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// One host more is one share more.
    Hosts,
    /// There is one of it, whatever the number of hosts.
    One,
}

/// One thing that a load needs.
#[derive(Clone, Debug)]
pub struct Need {
    pub what: &'static str,
    /// How much of it.
    pub amount: f64,
    pub unit: &'static str,
    /// What one host gives, or what there is.
    pub one: f64,
    /// Whether hosts add up.
    pub bound: Bound,
    /// How it was computed.
    pub formula: String,
}

impl Default for Given {
    fn default() -> Self {
        Self {
            cores: 16.0,
            memory: 48.0 * GIB,
            disk: 4.0 * TB,
            replicas: 3.0,
            turns: 10.0,
            turn_seconds: 30.0,
            frames: 20.0,
            partitions: 256.0,
        }
    }
}

// === impl Need ===

impl Need {
    /// How many hosts, or how many times what there is.
    pub fn ratio(&self) -> f64 {
        self.amount / self.one
    }
}

/// What a load needs.
pub fn needs(load: Load, costs: &Costs, given: &Given) -> Vec<Need> {
    match load {
        Load::Resident(sessions) => resident(sessions, costs, given),
        Load::Archived(sessions) => archived(sessions, costs, given),
        Load::Turns(turns) => concurrent(turns, costs, given),
        Load::Workers(workers) => at_one_bus(workers, costs, given),
    }
}

/// The limit that comes first: if a limit of a thing that exists once is exceeded, the one that is
/// exceeded most; otherwise the one that needs most hosts.
pub fn first_limit(needs: &[Need]) -> Option<&Need> {
    let most = |bound: Bound| {
        let bounded = needs.iter().filter(move |need| need.bound == bound);
        bounded.max_by(|a, b| a.ratio().total_cmp(&b.ratio()))
    };
    most(Bound::One).filter(|need| need.ratio() > 1.0).or_else(|| most(Bound::Hosts))
}

fn resident(sessions: f64, costs: &Costs, given: &Given) -> Vec<Need> {
    let mut all = vec![Need {
        what: "workers' memory",
        amount: sessions * costs.resident_bytes / GIB,
        unit: "GiB",
        one: given.memory / GIB,
        bound: Bound::Hosts,
        formula: format!("sessions x {:.0} B", costs.resident_bytes),
    }];
    all.extend(stored(sessions, costs, given));
    all
}

fn archived(sessions: f64, costs: &Costs, given: &Given) -> Vec<Need> {
    let mut all = stored(sessions, costs, given);
    all.push(Need {
        what: "memory, were it one process",
        amount: sessions * costs.passivated_bytes / GIB,
        unit: "GiB",
        one: given.memory / GIB,
        bound: Bound::Hosts,
        formula: format!("sessions x {:.0} B", costs.passivated_bytes),
    });
    all
}

/// What the journals of so many sessions need: every session is a subject of one stream, and each
/// replica of a stream has all of it.
fn stored(sessions: f64, costs: &Costs, given: &Given) -> Vec<Need> {
    let bytes = costs.session_stored + given.turns * costs.turn_stored;
    vec![
        Need {
            what: "memory of each NATS server",
            amount: sessions * costs.subject_bytes / GIB,
            unit: "GiB",
            one: given.memory / GIB,
            bound: Bound::One,
            formula: format!("sessions x {:.0} B a subject", costs.subject_bytes),
        },
        Need {
            what: "disk of each NATS server",
            amount: sessions * bytes / TB,
            unit: "TB",
            one: given.disk / TB,
            bound: Bound::One,
            formula: format!(
                "sessions x ({:.0} B + {} turns x {:.0} B)",
                costs.session_stored, given.turns, costs.turn_stored
            ),
        },
        Need {
            what: "disk of all",
            amount: given.replicas * sessions * bytes / TB,
            unit: "TB",
            one: given.disk / TB,
            bound: Bound::Hosts,
            formula: format!("{} replicas of that", given.replicas),
        },
        Need {
            what: "a server's start after a kill",
            amount: sessions * costs.subject_restart,
            unit: "s",
            // Longer than this, and rolling restarts take a night.
            one: 3_600.0,
            bound: Bound::One,
            formula: format!("sessions x {:.1} us", costs.subject_restart * MICROS),
        },
    ]
}

fn concurrent(turns: f64, costs: &Costs, given: &Given) -> Vec<Need> {
    let a_second = turns / given.turn_seconds;
    let frames = turns * given.frames;
    let each = |of_turn: f64, of_frame: f64| a_second * of_turn + frames * of_frame;
    let formula = |of_turn: f64, of_frame: f64, unit: &str| {
        format!("{a_second:.0}/s x {of_turn:.1}{unit} + {frames:.0} frames/s x {of_frame:.1}{unit}")
    };
    vec![
        Need {
            what: "workers' and gateways' cores",
            amount: each(costs.turn_us, costs.frame_us) / MICROS,
            unit: "cores",
            one: given.cores,
            bound: Bound::Hosts,
            formula: formula(costs.turn_us, costs.frame_us, " us"),
        },
        Need {
            what: "NATS servers' cores, of one copy",
            amount: each(costs.bus_turn_us, costs.bus_frame_us) / MICROS,
            unit: "cores",
            one: given.cores,
            bound: Bound::Hosts,
            formula: formula(costs.bus_turn_us, costs.bus_frame_us, " us"),
        },
        Need {
            what: "the stream leader's core",
            amount: a_second * costs.bus_turn_us / MICROS,
            unit: "cores",
            // A stream's writes go through one lock.
            one: 1.0,
            bound: Bound::One,
            formula: format!("{a_second:.0}/s x {:.1} us", costs.bus_turn_us),
        },
        Need {
            what: "messages, in and out",
            amount: each(costs.turn_messages, costs.frame_messages),
            unit: "/s",
            // What a server of these takes, going by its processor time alone.
            one: given.cores * MICROS * costs.frame_messages / costs.bus_frame_us,
            bound: Bound::Hosts,
            formula: formula(costs.turn_messages, costs.frame_messages, ""),
        },
        Need {
            what: "journal records",
            amount: a_second * costs.turn_records,
            unit: "/s",
            one: MICROS * costs.turn_records / costs.bus_turn_us,
            bound: Bound::One,
            formula: format!("{a_second:.0}/s x {:.1}", costs.turn_records),
        },
        Need {
            what: "workers' memory",
            amount: turns * costs.resident_bytes / GIB,
            unit: "GiB",
            one: given.memory / GIB,
            bound: Bound::Hosts,
            formula: format!("turns x {:.0} B (resident, at rest)", costs.resident_bytes),
        },
    ]
}

/// Processes that pull each partition.
const PULLING: f64 = 4.0;
/// Pulls that each of them has waiting, and for how many seconds.
const PULLS: (f64, f64) = (2.0, 30.0);

fn at_one_bus(workers: f64, costs: &Costs, given: &Given) -> Vec<Need> {
    let heard = workers * workers;
    let pulls = given.partitions * PULLING.min(workers) * PULLS.0 / PULLS.1;
    vec![
        Need {
            what: "heartbeats heard by one",
            amount: workers * costs.heartbeat_us / MICROS,
            unit: "cores",
            one: given.cores,
            bound: Bound::One,
            formula: format!("workers x {:.1} us, once a second", costs.heartbeat_us),
        },
        Need {
            what: "heartbeats out of the bus",
            amount: heard * costs.heartbeat_bytes * 8.0 / 1e9,
            unit: "Gbit/s",
            one: 10.0,
            bound: Bound::One,
            formula: format!("workers^2 x {:.0} B, once a second", costs.heartbeat_bytes),
        },
        Need {
            what: "messages at rest",
            amount: workers * costs.rest_messages + heard,
            unit: "/s",
            one: given.cores * MICROS * costs.frame_messages / costs.bus_frame_us,
            bound: Bound::One,
            formula: format!("workers x {:.1} (all pulls at one) + workers^2", costs.rest_messages),
        },
        Need {
            what: "scans for a minute after a death",
            amount: costs.scan_messages,
            unit: "/s",
            one: given.cores * MICROS * costs.frame_messages / costs.bus_frame_us,
            bound: Bound::One,
            formula: format!(
                "{} partitions once a second, by the first worker of each",
                given.partitions
            ),
        },
        Need {
            what: "pull requests",
            amount: pulls,
            unit: "/s",
            one: given.cores * MICROS * costs.frame_messages / costs.bus_frame_us,
            bound: Bound::One,
            formula: format!(
                "{} partitions x {PULLING} ranks x {} in {} s",
                given.partitions, PULLS.0, PULLS.1
            ),
        },
        Need {
            what: "the busiest worker's share",
            amount: costs.most_partitions * workers / given.partitions,
            unit: "of the mean",
            // Twice the mean: beyond it half of the paid capacity does nothing.
            one: 2.0,
            bound: Bound::One,
            formula: format!(
                "{:.0} partitions of {} x workers",
                costs.most_partitions, given.partitions
            ),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs() -> Costs {
        Costs {
            node_bytes: 20e6,
            resident_bytes: 24_000.0,
            passivated_bytes: 2_000.0,
            turn_us: 1_000.0,
            frame_us: 50.0,
            bus_turn_us: 300.0,
            bus_frame_us: 10.0,
            turn_messages: 30.0,
            frame_messages: 2.0,
            turn_records: 2.0,
            session_stored: 500.0,
            turn_stored: 1_500.0,
            subject_bytes: 300.0,
            subject_restart: 1e-6,
            heartbeat_bytes: 500.0,
            heartbeat_us: 10.0,
            rest_messages: 20.0,
            scan_messages: 500.0,
            most_partitions: 7.0,
        }
    }

    fn need<'a>(needs: &'a [Need], what: &str) -> Option<&'a Need> {
        needs.iter().find(|need| need.what == what)
    }

    fn near(amount: Option<f64>, expected: f64) -> bool {
        amount.is_some_and(|amount| (amount - expected).abs() < expected * 1e-6)
    }

    #[test]
    fn a_billion_subjects_do_not_fit_into_one_stream() {
        let needs = needs(Load::Archived(1e9), &costs(), &Given::default());
        let memory = need(&needs, "memory of each NATS server");
        assert!(near(memory.map(|need| need.amount), 1e9 * 300.0 / GIB));
        let disk = need(&needs, "disk of all").map(|need| need.amount);
        assert!(near(disk, 3.0 * 1e9 * 15_500.0 / TB));
        let first = first_limit(&needs);
        assert!(first.is_some_and(|need| need.bound == Bound::One && need.ratio() > 1.0));
    }

    #[test]
    fn a_million_resident_sessions_ask_for_memory() {
        let needs = needs(Load::Resident(1e6), &costs(), &Given::default());
        let first = first_limit(&needs);
        assert_eq!(first.map(|need| need.what), Some("workers' memory"));
        assert!(near(first.map(Need::ratio), 1e6 * 24_000.0 / (48.0 * GIB)));
    }

    #[test]
    fn turns_cost_what_they_and_their_frames_cost() {
        let needs = needs(Load::Turns(20_000.0), &costs(), &Given::default());
        let cores = need(&needs, "workers' and gateways' cores").map(|need| need.amount);
        assert!(near(cores, 20_000.0 / 30.0 * 1e-3 + 400_000.0 * 50e-6));
        let messages = need(&needs, "messages, in and out").map(|need| need.amount);
        assert!(near(messages, 20_000.0 / 30.0 * 30.0 + 800_000.0));
    }

    #[test]
    fn what_there_is_one_of_comes_before_what_hosts_give() {
        let needs = needs(Load::Workers(100.0), &costs(), &Given::default());
        let first = first_limit(&needs);
        assert_eq!(first.map(|need| need.what), Some("the busiest worker's share"));
        let heartbeats = need(&needs, "heartbeats out of the bus").map(|need| need.amount);
        assert!(near(heartbeats, 1e4 * 500.0 * 8.0 / 1e9));
    }

    #[test]
    fn within_all_limits_the_first_is_whatever_asks_for_most_hosts() {
        let needs = needs(Load::Turns(100.0), &costs(), &Given::default());
        assert!(first_limit(&needs).is_some_and(|need| need.bound == Bound::Hosts));
    }
}
