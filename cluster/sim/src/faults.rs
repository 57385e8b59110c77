//! What may go wrong, and how often.

use rand::Rng;

/// Probabilities of the faults of one request or delivery; without any, all are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// The request is lost; the asker hears nothing in time.
    pub lost_request: f64,
    /// The request takes effect, but its answer is lost.
    pub lost_answer: f64,
    /// The asker gave up, perhaps died; the request takes effect seconds later.
    pub ghost: f64,
    /// Refused for a while; nothing takes effect.
    pub busy: f64,
    /// An append is refused although it fits: an old leader's answer.
    pub spurious_refusal: f64,
    /// The request takes effect twice; the second effect's answer is the one that is heard.
    pub twice: f64,
    /// The request or its answer is slow.
    pub slow: f64,
    /// A read shows what was so up to five seconds ago.
    pub stale_read: f64,
    /// A delivery goes to another process than the one it should.
    pub misrouted: f64,
    /// A delivery goes to a second process as well.
    pub delivered_twice: f64,
    /// A delivery is lost on its way.
    pub lost_delivery: f64,
    /// A message between processes is lost.
    pub lost_message: f64,
}

impl Faults {
    /// Nothing goes wrong.
    pub fn none() -> Self {
        Self::default()
    }

    /// A replicated store over a network: each kind of fault is there or not, and more or less so.
    pub fn network(rng: &mut impl Rng) -> Self {
        let mut some = |most: f64| {
            if rng.random_bool(0.6) { rng.random_range(0.0..most) } else { 0.0 }
        };
        Self {
            lost_request: some(0.06),
            lost_answer: some(0.10),
            ghost: some(0.08),
            busy: some(0.08),
            spurious_refusal: some(0.06),
            twice: some(0.06),
            slow: some(0.15),
            stale_read: some(0.20),
            misrouted: some(0.20),
            delivered_twice: some(0.15),
            lost_delivery: some(0.10),
            lost_message: some(0.15),
        }
    }

    /// A store in the same process: deliveries may come again, answers come or the process dies.
    pub fn local(rng: &mut impl Rng) -> Self {
        let mut some = |most: f64| {
            if rng.random_bool(0.6) { rng.random_range(0.0..most) } else { 0.0 }
        };
        Self { busy: some(0.05), slow: some(0.1), lost_delivery: some(0.1), ..Self::none() }
    }
}

/// Bugs of a store that the simulator must find.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a bug of its own")]
pub struct Bugs {
    /// Answers before the data would survive a power cut.
    pub acknowledge_before_sync: bool,
    /// Appends whatever the expected position is.
    pub no_fencing: bool,
    /// Forgets an input when it is delivered.
    pub forget_on_delivery: bool,
    /// Keeps jobs for ever, however old they are.
    pub keeps_old_jobs: bool,
}
