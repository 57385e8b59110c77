//! Asks the providers of models of this process whether they can be reached, as often as the configuration says.
//!
//! A probe is a request that costs nothing. What it finds goes to the circuit of its provider, and an operator
//! who stops what leaves for other machines stops it too.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use clawnode_guard::kill_switch::{StoppableWork, SwitchGate};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::time::{Instant, sleep};

use super::current_models::CurrentModels;

/// How often it is looked for providers to probe: the configuration may change.
const LOOK: Duration = Duration::from_secs(1);
/// How soon a provider is probed again that was not reached, so that its circuit opens before calls find out.
const AGAIN: Duration = Duration::from_secs(5);
/// Such probes, one after the other: as many failures open a circuit.
const AGAIN_MOST: u32 = 5;

/// Which providers are probed when. Pure.
#[derive(Debug, Default)]
struct ProbeSchedule {
    due: BTreeMap<String, Instant>,
    /// Probes in a row that did not reach their provider.
    missed: BTreeMap<String, u32>,
    under_way: BTreeSet<String>,
}

/// Probes them for as long as the process runs.
pub async fn keep(models: CurrentModels, gate: SwitchGate) {
    let mut schedule = ProbeSchedule::default();
    let mut under_way = FuturesUnordered::new();
    loop {
        let every = models.probed();
        for name in schedule.begin(&every, Instant::now(), rand::random()) {
            let (models, gate) = (models.clone(), gate.clone());
            under_way.push(async move {
                let reached = probe(&models, &gate, &name).await;
                (name, reached)
            });
        }
        tokio::select! {
            () = sleep(LOOK) => {}
            Some((name, reached)) = under_way.next() => {
                let every = every.get(&name).copied().unwrap_or(AGAIN);
                schedule.ended(name, reached, every, Instant::now(), rand::random());
            }
        }
    }
}

/// Whether a provider was reached; unknown if nothing was sent.
async fn probe(models: &CurrentModels, gate: &SwitchGate, name: &str) -> Option<bool> {
    let ask = models.probe(name)?;
    // A probe that an operator has stopped says nothing about its provider.
    let pass = gate.pass(StoppableWork::Egress { agent: None }).await.ok()?;
    tokio::select! {
        biased;
        _why = pass.stopped() => None,
        ended = ask => Some(ended.is_ok()),
    }
}

// === impl ProbeSchedule ===

impl ProbeSchedule {
    /// The providers to probe now, at most one probe of each at a time. The first comes at any time within its
    /// interval, so that the nodes of a cluster do not ask at once; `random` is from 0 to 1.
    fn begin(
        &mut self,
        every: &BTreeMap<String, Duration>,
        now: Instant,
        random: f64,
    ) -> Vec<String> {
        self.due.retain(|name, _| every.contains_key(name));
        self.missed.retain(|name, _| every.contains_key(name));
        for (name, every) in every {
            self.due.entry(name.clone()).or_insert_with(|| now + every.mul_f64(random));
        }
        let due = self.due.iter().filter(|(_, at)| **at <= now).map(|(name, _)| name.clone());
        let names: Vec<String> = due.filter(|name| !self.under_way.contains(name)).collect();
        self.under_way.extend(names.iter().cloned());
        names
    }

    /// A probe has ended: the next one comes after the interval, give or take a tenth.
    fn ended(
        &mut self,
        name: String,
        reached: Option<bool>,
        every: Duration,
        now: Instant,
        random: f64,
    ) {
        self.under_way.remove(&name);
        let missed = self.missed.entry(name.clone()).or_default();
        *missed = if reached == Some(false) { missed.saturating_add(1) } else { 0 };
        let wait = if (1..AGAIN_MOST).contains(missed) { every.min(AGAIN) } else { every };
        self.due.insert(name, now + wait.mul_f64(random.mul_add(0.2, 0.9)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clawnode_actors::llm::{Models, ProviderOptions, Wire};
    use clawnode_cluster::{Clock, SystemClock};
    use clawnode_proto::{
        Position, SwitchId, Timestamp,
        kill_switch::{KillSwitch, SwitchRecord, SwitchScope},
    };

    use super::*;

    /// KILL-1 for probes: nothing is sent, and nothing is said of the provider.
    #[tokio::test]
    async fn what_an_operator_lets_not_out_is_not_probed() {
        let mut options = ProviderOptions::new(Wire::Ollama);
        // Nothing listens there.
        options.base_url = Some("http://127.0.0.1:1".parse().unwrap());
        options.probe = Some(Duration::from_secs(30));
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let models = Models::new(BTreeMap::from([("lab".to_owned(), options)]), &|_| None, &clock);
        let models = CurrentModels::new(models, Vec::new());
        assert_eq!(models.probed(), BTreeMap::from([("lab".to_owned(), Duration::from_secs(30))]));
        let gate = SwitchGate::default();
        let switch = KillSwitch {
            id: SwitchId::from_u128(1),
            scope: SwitchScope::Egress,
            by: "ada".to_owned(),
            at: Timestamp(1),
            why: String::new(),
        };
        gate.take(Position(1), SwitchRecord::Set { switch: switch.clone() });
        assert_eq!(probe(&models, &gate, "lab").await, None);
        assert!(models.circuits().reports().is_empty());
        let (by, at) = (String::new(), Timestamp(2));
        gate.take(Position(2), SwitchRecord::Cleared { switch, by, at });
        assert_eq!(probe(&models, &gate, "lab").await, Some(false));
        assert!(models.circuits().reports()["lab"].probe.unwrap().failure.is_some());
        assert_eq!(probe(&models, &gate, "other").await, None);
    }

    #[test]
    fn a_provider_is_probed_by_its_interval_and_sooner_while_it_is_missed() {
        let every = Duration::from_mins(1);
        let all = BTreeMap::from([("p".to_owned(), every)]);
        let (mut schedule, begun) = (ProbeSchedule::default(), Instant::now());
        let after = |seconds| begun + Duration::from_secs(seconds);
        assert!(schedule.begin(&all, begun, 0.5).is_empty());
        assert!(schedule.begin(&all, after(29), 0.0).is_empty(), "the first draw holds");
        assert_eq!(schedule.begin(&all, after(30), 0.0), ["p"]);
        assert!(schedule.begin(&all, after(200), 0.0).is_empty(), "one at a time");
        let mut waits = Vec::new();
        for reached in [true, false, false, false, false, false, false, true] {
            let now = after(1_000);
            schedule.ended("p".to_owned(), Some(reached), every, now, 0.5);
            waits.push(schedule.due["p"].duration_since(now).as_secs());
        }
        assert_eq!(waits, [60, 5, 5, 5, 5, 60, 60, 60]);
        for (random, wait) in [(0.0, 54), (1.0, 66)] {
            schedule.ended("p".to_owned(), None, every, begun, random);
            assert_eq!(schedule.due["p"].duration_since(begun).as_secs(), wait);
        }
        assert!(schedule.begin(&BTreeMap::new(), after(10_000), 0.0).is_empty(), "it is gone");
    }
}
