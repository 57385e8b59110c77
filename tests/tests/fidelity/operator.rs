//! Doing it, and what is seen then.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    future::Future,
    time::Duration,
};

use bytes::Bytes;
use clawnode_cluster::{
    AppendAnswer, BucketEntry, BucketError, Consumer, Delivery, JobConsumer, JobDelivery, Record,
    Storage, StoreError, Write,
};
use clawnode_proto::{
    CallId, Capability, EntityId, EventId, Input, JobId, Kind, Position, Timestamp, TurnId,
    job::Job, tool::EffectClass,
};
use clawnode_tests::conformance::Result;

use crate::operations::{EACH, Expect, Op, PARTITION, PARTITIONS, PATIENCE};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Seen {
    /// Stored, above all that was known to be there, or not.
    Stored {
        above: bool,
    },
    Refused,
    Unknown,
    Both(Box<(Seen, Seen)>),
    Labels(Vec<String>),
    Count(usize),
    /// Each with whether it was delivered before.
    Delivered(BTreeSet<(u32, bool)>),
    /// It did not come, or did not go, however long one waits.
    Never,
    Done,
    /// Nothing is in hand.
    NothingToDo,
}

/// An operator of a storage backend, and what it knows of it.
pub(crate) struct Operator {
    pub(crate) storage: Storage,
    pub(crate) consumer: Box<dyn Consumer>,
    pub(crate) name: String,
    pub(crate) entities: Vec<(String, EntityId)>,
    pub(crate) journals: Vec<BTreeSet<Position>>,
    pub(crate) values: Vec<BTreeSet<Position>>,
    pub(crate) hand: BTreeMap<u32, Delivery>,
    pub(crate) deliverable: usize,
    capability: Capability,
    /// Made when jobs are taken for the first time.
    jobs: Option<Box<dyn JobConsumer>>,
    jobs_in_hand: BTreeMap<u32, JobDelivery>,
    /// Jobs that wait and are in no hand.
    jobs_waiting: BTreeSet<u32>,
}

impl Operator {
    /// `seed` names what it works on, so that sequences do not meet.
    pub(crate) fn new(storage: Storage, consumer: Box<dyn Consumer>, seed: u64) -> Result<Self> {
        let entities = (0_u32..)
            .map(|n| format!("fidelity-{seed}-{n}"))
            .map(|key| (key.clone(), EntityId::derive(Kind::SESSION, &key)))
            .filter(|(_, entity)| entity.partition(PARTITIONS) == PARTITION)
            .take(EACH)
            .collect();
        Ok(Self {
            storage,
            consumer,
            name: format!("fidelity-{seed}"),
            entities,
            journals: vec![BTreeSet::new(); EACH],
            values: vec![BTreeSet::new(); EACH],
            hand: BTreeMap::new(),
            deliverable: 0,
            capability: format!("fidelity.{seed}").parse()?,
            jobs: None,
            jobs_in_hand: BTreeMap::new(),
            jobs_waiting: BTreeSet::new(),
        })
    }

    pub(crate) async fn perform(&mut self, op: Op) -> Result<Seen> {
        match op {
            Op::Append { journal, expect, rollup, label } => {
                let answer = self.append(journal, expect, rollup, label).await;
                appended(answer, &mut self.journals[journal])
            }
            Op::AppendPair { journal, expect: [first, second], rollup, label } => {
                let answers = tokio::join!(
                    self.append(journal, first, rollup, label),
                    self.append(journal, second, false, label + 1)
                );
                let known = &mut self.journals[journal];
                let before = known.clone();
                let first = appended(answers.0, &mut before.clone())?;
                let second = appended(answers.1, &mut before.clone())?;
                Ok(Seen::Both(Box::new((first, second))))
            }
            Op::Read { journal, after } => {
                let (id, after) = (self.entities[journal].1, at(after, &self.journals[journal]));
                let records = steady(|| self.storage.journal.read(id, after)).await?;
                self.learn(journal, &records)
            }
            Op::Tail { journal } => {
                let id = self.entities[journal].1;
                let tail = steady(|| self.storage.journal.tail(id)).await?;
                self.learn(journal, tail.as_slice())
            }
            Op::Set { key, expect, label } => {
                let answer = self.set(key, expect, label).await;
                changed(answer, &mut self.values[key])
            }
            Op::SetPair { key, expect: [first, second], label } => {
                let answers =
                    tokio::join!(self.set(key, first, label), self.set(key, second, label + 1));
                let before = self.values[key].clone();
                let first = changed(answers.0, &mut before.clone())?;
                let second = changed(answers.1, &mut before.clone())?;
                Ok(Seen::Both(Box::new((first, second))))
            }
            Op::Remove { key, expect } => {
                let (name, position) = (self.key(key), at(expect, &self.values[key]));
                match self.storage.bucket.delete(&name, position).await {
                    Ok(()) => Ok(Seen::Done),
                    Err(error) => changed(Err(error), &mut self.values[key]),
                }
            }
            Op::Get { key } => {
                let name = self.key(key);
                let entry = steady(|| self.storage.bucket.get(&name)).await?;
                Ok(Seen::Labels(self.value(key, entry.as_ref())?.into_iter().collect()))
            }
            Op::List => self.list().await,
            other => self.perform_on_inbox(other).await,
        }
    }

    pub(crate) async fn perform_on_inbox(&mut self, op: Op) -> Result<Seen> {
        match op {
            Op::Put { inbox, label } => {
                let (key, name) = (&self.entities[inbox].0, label.to_string());
                let input = Input::new(Kind::SESSION, key, name.parse()?, Timestamp(1), &name)?;
                self.storage.inbox.put(&input).await?;
                self.deliverable += 1;
                Ok(Seen::Done)
            }
            Op::ReadInbox { inbox } => {
                let id = self.entities[inbox].1;
                let waiting = steady(|| self.storage.inbox.read(id, Position(0))).await?;
                let names = waiting.iter().map(|one| Ok(label_of(&one.bytes)?.to_string()));
                names.collect::<Result<_>>().map(Seen::Labels)
            }
            Op::Pending { inbox } => {
                let id = self.entities[inbox].1;
                Ok(Seen::Count(steady(|| self.storage.inbox.pending(id)).await?))
            }
            Op::Deliver => self.deliver().await,
            Op::Ack { pick } => match self.pick(pick) {
                Some((_, delivery)) => self.acknowledge(&delivery).await,
                None => Ok(Seen::NothingToDo),
            },
            Op::Nak { pick } => match self.pick(pick) {
                Some((_, delivery)) => {
                    delivery.handle.nak(Duration::ZERO).await?;
                    self.deliverable += 1;
                    Ok(Seen::Done)
                }
                None => Ok(Seen::NothingToDo),
            },
            other => self.perform_on_jobs(other).await,
        }
    }

    async fn perform_on_jobs(&mut self, op: Op) -> Result<Seen> {
        match op {
            Op::PutJob { job } => {
                let number = u32::try_from(job)?;
                let job = self.job(number)?;
                steady(|| self.storage.jobs.put(&job)).await?;
                if !self.jobs_in_hand.contains_key(&number) {
                    self.jobs_waiting.insert(number);
                }
                Ok(Seen::Done)
            }
            Op::Jobs => Ok(Seen::Labels(self.jobs_left().await?)),
            Op::DeliverJobs => {
                if self.jobs.is_none() {
                    self.jobs = Some(self.storage.jobs.consume(&self.capability).await?);
                }
                let Some(consumer) = &mut self.jobs else { return Ok(Seen::Never) };
                let mut seen = BTreeSet::new();
                for _ in 0..std::mem::take(&mut self.jobs_waiting).len() {
                    let Ok(delivery) = tokio::time::timeout(PATIENCE, consumer.next()).await else {
                        return Ok(Seen::Never);
                    };
                    let delivery = delivery?;
                    let number = u32::try_from(delivery.job_id.as_u128())?;
                    seen.insert((number, delivery.redelivered));
                    self.jobs_in_hand.insert(number, delivery);
                }
                Ok(Seen::Delivered(seen))
            }
            Op::AckJob { pick } => {
                let Some((number, delivery)) = self.pick_job(pick) else {
                    return Ok(Seen::NothingToDo);
                };
                delivery.handle.ack().await?;
                let gone = async {
                    while self.jobs_left().await?.contains(&number.to_string()) {
                        tokio::task::yield_now().await;
                    }
                    Result::Ok(Seen::Done)
                };
                tokio::time::timeout(PATIENCE, gone).await.unwrap_or(Ok(Seen::Never))
            }
            Op::NakJob { pick } => {
                let Some((number, delivery)) = self.pick_job(pick) else {
                    return Ok(Seen::NothingToDo);
                };
                delivery.handle.nak(Duration::ZERO).await?;
                self.jobs_waiting.insert(number);
                Ok(Seen::Done)
            }
            other => Err(format!("{other:?} is nothing for an inbox, nor for jobs").into()),
        }
    }

    fn pick_job(&mut self, pick: usize) -> Option<(u32, JobDelivery)> {
        let number = *self.jobs_in_hand.keys().nth(pick % self.jobs_in_hand.len().max(1))?;
        self.jobs_in_hand.remove_entry(&number)
    }

    /// The jobs of this sequence that wait, delivered or not.
    async fn jobs_left(&self) -> Result<Vec<String>> {
        let mut left = Vec::new();
        for bytes in steady(|| self.storage.jobs.list()).await? {
            let job = Job::from_bytes(&bytes)?;
            if job.capability == self.capability {
                left.push(job.id.as_u128().to_string());
            }
        }
        left.sort_unstable();
        Ok(left)
    }

    fn job(&self, number: u32) -> Result<Job> {
        Ok(Job {
            id: JobId::from_u128(number.into()),
            capability: self.capability.clone(),
            session: "a:cli:local:p".parse()?,
            turn: TurnId::from_u128(1),
            call: CallId::from_u128(1),
            nonce: EventId::from_u128(1),
            tool: "tool".parse()?,
            arguments: "{}".to_owned(),
            class: EffectClass::Safe,
            timeout_ms: 1_000,
            limit: None,
            action: None,
            callbacks: None,
            traceparent: None,
            not_after: None,
        })
    }

    pub(crate) async fn append(
        &self,
        journal: usize,
        expect: Expect,
        rollup: bool,
        label: u32,
    ) -> AppendAnswer {
        let expected = at(expect, &self.journals[journal]);
        let write = Write { bytes: Bytes::from(label.to_string()), rollup };
        self.storage.journal.append(self.entities[journal].1, expected, write).await
    }

    pub(crate) async fn set(
        &self,
        key: usize,
        expect: Expect,
        label: u32,
    ) -> std::result::Result<Position, BucketError> {
        let (name, expected) = (self.key(key), at(expect, &self.values[key]));
        self.storage.bucket.put(&name, expected, Bytes::from(label.to_string()), None).await
    }

    pub(crate) async fn list(&mut self) -> Result<Seen> {
        let prefix = format!("{}.", self.name);
        let listed = steady(|| self.storage.bucket.list(&prefix)).await?;
        let mut seen = Vec::new();
        for key in 0..EACH {
            let name = self.key(key);
            let entry = listed.iter().find(|(listed, _)| *listed == name).map(|(_, entry)| entry);
            seen.extend(self.value(key, entry)?.map(|label| format!("{key}: {label}")));
        }
        Ok(Seen::Labels(seen))
    }

    pub(crate) async fn deliver(&mut self) -> Result<Seen> {
        let mut seen = BTreeSet::new();
        for _ in 0..std::mem::take(&mut self.deliverable) {
            let Ok(delivery) = tokio::time::timeout(PATIENCE, self.consumer.next()).await else {
                return Ok(Seen::Never);
            };
            let delivery = delivery?;
            let label = label_of(&delivery.bytes)?;
            seen.insert((label, delivery.redelivered));
            self.hand.insert(label, delivery);
        }
        Ok(Seen::Delivered(seen))
    }

    pub(crate) async fn acknowledge(&self, delivery: &Delivery) -> Result<Seen> {
        delivery.handle.ack().await?;
        let gone = async {
            loop {
                let look = || self.storage.inbox.read(delivery.entity, Position(0));
                if steady(look).await?.iter().all(|one| one.position != delivery.position) {
                    return Result::Ok(());
                }
                tokio::task::yield_now().await;
            }
        };
        match tokio::time::timeout(PATIENCE, gone).await {
            Ok(gone) => gone.map(|()| Seen::Done),
            Err(_elapsed) => Ok(Seen::Never),
        }
    }

    /// What journals and values hold, without learning from it.
    pub(crate) async fn truth(&self) -> Result<String> {
        let mut truth = Vec::new();
        for (at, (_, id)) in self.entities.iter().enumerate() {
            let records = self.storage.journal.read(*id, Position(0)).await?;
            let value = self.storage.bucket.get(&self.key(at)).await?;
            truth.push(format!("{records:?} {value:?}"));
        }
        Ok(truth.join(" "))
    }

    /// Leaves nothing to the next operator; gives the consumer back.
    pub(crate) async fn leave(mut self) -> Result<Box<dyn Consumer>> {
        self.deliver().await?;
        for delivery in self.hand.values() {
            self.acknowledge(delivery).await?;
        }
        Ok(self.consumer)
    }

    pub(crate) fn pick(&mut self, pick: usize) -> Option<(u32, Delivery)> {
        let label = *self.hand.keys().nth(pick % self.hand.len().max(1))?;
        self.hand.remove_entry(&label)
    }

    pub(crate) fn key(&self, key: usize) -> String {
        format!("{}.{key}", self.name)
    }

    pub(crate) fn learn(&mut self, journal: usize, records: &[Record]) -> Result<Seen> {
        self.journals[journal].extend(records.iter().map(|record| record.position));
        let texts = records.iter().map(|record| Ok(String::from_utf8(record.bytes.to_vec())?));
        texts.collect::<Result<_>>().map(Seen::Labels)
    }

    pub(crate) fn value(
        &mut self,
        key: usize,
        entry: Option<&BucketEntry>,
    ) -> Result<Option<String>> {
        let Some(entry) = entry else { return Ok(None) };
        self.values[key].insert(entry.position);
        Ok(Some(String::from_utf8(entry.value.to_vec())?))
    }
}

fn at(expect: Expect, known: &BTreeSet<Position>) -> Position {
    let last = known.last().copied().unwrap_or(Position(0));
    match expect {
        Expect::Nothing => Position(0),
        Expect::Last => last,
        Expect::BeforeLast => known.iter().rev().nth(1).copied().unwrap_or(Position(0)),
        // Far, so that no store's way of counting makes it true.
        Expect::BeyondLast => Position(last.0 + 1_000_000_000),
    }
}

pub(crate) fn stored(position: Position, known: &mut BTreeSet<Position>) -> Seen {
    let above = known.last().is_none_or(|last| *last < position);
    known.insert(position);
    Seen::Stored { above }
}

fn appended(answer: AppendAnswer, known: &mut BTreeSet<Position>) -> Result<Seen> {
    match answer {
        AppendAnswer::Stored(position) => Ok(stored(position, known)),
        AppendAnswer::Refused => Ok(Seen::Refused),
        AppendAnswer::Unknown(_) => Ok(Seen::Unknown),
        AppendAnswer::Defect(error) => Err(error.into()),
    }
}

pub(crate) fn changed(
    answer: std::result::Result<Position, BucketError>,
    known: &mut BTreeSet<Position>,
) -> Result<Seen> {
    match answer {
        Ok(position) => Ok(stored(position, known)),
        Err(BucketError::Conflict { .. }) => Ok(Seen::Refused),
        Err(BucketError::Store(error)) if error.is_transient() => Ok(Seen::Unknown),
        Err(BucketError::Store(error)) => Err(error.into()),
    }
}

fn label_of(input: &[u8]) -> Result<u32> {
    Ok(Input::from_bytes(input)?.idempotency_key.as_str().parse()?)
}

/// Reads again while the store is out of reach, which shows nothing.
async fn steady<T, F>(mut read: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = std::result::Result<T, StoreError>>,
{
    let reading = async {
        loop {
            match read().await {
                Err(error) if error.is_transient() => tokio::task::yield_now().await,
                answer => return answer,
            }
        }
    };
    Ok(tokio::time::timeout(PATIENCE, reading).await??)
}
