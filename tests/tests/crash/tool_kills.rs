//! Kills at random times and at the points of a tool's run, with turns in flight in several sessions
//! that each use a tool of every class; an independent count of effects says what really happened.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use clawnode_cluster::Peek;
use clawnode_proto::{
    CallId, JobId,
    llm::Role,
    session::TurnOutcome,
    view::{EventView, HistoryView},
};
use clawnode_tests::{
    effects::EffectCounter,
    model::{DefaultReply, Script},
    process::{Client, Message, Node, ProcessError, Start, sound},
};
use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use rustix::process::Signal;
use serde_json::json;
use tokio::{sync::watch, task::JoinSet};

use super::support::{Outcome, Scene, Under};

/// Sessions with a turn in flight, each of which runs one tool of each class.
const TALKERS: usize = 6;
/// Messages of one session; then its talker begins a new one.
const SESSION: usize = 10;
/// A tool's effect happens this long after it was asked for, and is answered so long after that.
const PACE: Duration = Duration::from_millis(15);
/// A life ends within this time of its start, if its point is not passed before.
const LIFE: Duration = Duration::from_millis(600);
/// Every so many lives one lasts until every talker has had two answers: see `kills`.
const CALM: u32 = 3;
/// Sooner than usual on NATS, so that many deaths need not be waited for: a death is known, then
/// what the dead had is delivered again. Who is only slow may be held dead, which is harmless.
const SOON: [(&str, &str); 3] = [
    ("CLAWNODE_CLUSTER__HEARTBEAT", "400ms"),
    ("CLAWNODE_CLUSTER__DEAD_AFTER", "1500ms"),
    ("CLAWNODE_TEST_ACK_WAIT", "3000"),
];
/// The points around a run.
const POINTS: [&str; 8] = [
    "before-job",
    "after-job",
    "before-started",
    "after-started",
    "before-done",
    "after-done",
    "before-result",
    "after-result",
];

const ONCE: &str = "effect_once";
const TOOLS: [&str; 3] = [ONCE, "effect_safe", "effect_idempotent"];

/// How long a node that was lost is left alone, unless another one serves sooner.
const LET_GO: Duration = Duration::from_millis(200);

/// What talkers need.
struct Stage {
    /// The node that serves now.
    node: watch::Receiver<Option<Client>>,
    /// Whether the kills are over.
    over: watch::Receiver<bool>,
}

/// One call of a tool, as its session has it.
#[derive(Clone, Debug)]
struct Call {
    tool: String,
    job: String,
    /// Whether the model and the journal say that it is unknown whether it happened.
    uncertain: bool,
}

/// What all calls came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    calls: usize,
    /// Ones of class `once` whose end is unknown, with and without their effect.
    uncertain_done: usize,
    uncertain_undone: usize,
    /// Ones of the other classes that had their effect more than once.
    again: usize,
}

/// Holds the sessions' word against the counter's.
fn tally(calls: &[Call], counts: &BTreeMap<String, usize>) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let known: BTreeSet<&String> = calls.iter().map(|call| &call.job).collect();
    if let Some(stray) = counts.keys().find(|key| !known.contains(key)) {
        return Err(format!("an effect of `{stray}`, which no session asked for"));
    }
    for call in calls {
        let effects = counts.get(&call.job).copied().unwrap_or_default();
        tally.calls += 1;
        match (call.tool == ONCE, call.uncertain, effects) {
            (true, _, 2..) => return Err(format!("JOB-4: {call:?} had {effects} effects")),
            (true, true, 0) => tally.uncertain_undone += 1,
            (true, true, 1) => tally.uncertain_done += 1,
            (false, true, _) => return Err(format!("{call:?} may run again, and did not")),
            (_, false, 0) => return Err(format!("{call:?} is reported as done, and was not")),
            (true, false, 1) => {}
            (false, false, effects) => tally.again += usize::from(effects > 1),
        }
    }
    Ok(tally)
}

/// Sends one message after another until the kills are over; each under one key until answered.
async fn talk(
    stage: Arc<Stage>,
    talker: usize,
    answered: watch::Sender<usize>,
) -> Result<Vec<Message>, ProcessError> {
    let mut node = stage.node.clone();
    let mut sent = Vec::new();
    while !stage.over.peek(|over| *over) {
        let n = sent.len();
        let peer = format!("talker{talker}-{}", n / SESSION);
        let asks = TOOLS.map(|tool| format!("/tool {tool} {{\"n\":{n}}}"));
        let key = format!("k-{n}");
        let message = Message { key, ..Message::new(&peer, &asks.join("\n")) };
        loop {
            let client = node.wait_for(Option::is_some).await.unwrap().clone().unwrap();
            match client.chat(&message).await {
                Ok(_) => break,
                // Whatever was not heard is asked for again, from the next process.
                Err(error) if error.is_lost() => {
                    let gone = |now: &Option<Client>| {
                        now.as_ref().is_none_or(|now| now.url() != client.url())
                    };
                    // The same one may have let go of us.
                    let gone = node.wait_for(gone);
                    drop(tokio::time::timeout(LET_GO, gone).await);
                }
                Err(error) => return Err(error),
            }
        }
        sent.push(message);
        answered.send_modify(|answered| *answered += 1);
    }
    Ok(sent)
}

/// The calls of one session; each of its turns is whole.
async fn calls_of(client: &Client, session: &str) -> Result<(usize, Vec<Call>), ProcessError> {
    let history: HistoryView = client.history(session).await?;
    let mut told = Vec::new();
    for turn in &history.turns {
        assert!(matches!(turn.outcome, Some(TurnOutcome::Completed { .. })), "{turn:?}");
        let roles: Vec<Role> = turn.messages.iter().map(|message| message.role).collect();
        assert_eq!(roles, [Role::User, Role::Assistant, Role::User, Role::Assistant], "{turn:?}");
        let replies = &turn.messages[2].tool_replies;
        assert_eq!(replies.len(), TOOLS.len(), "one reply a call: {turn:?}");
        for (tool, reply) in TOOLS.iter().zip(replies) {
            let text = reply.content.inline().unwrap_or_default();
            let unknown = format!(" knows whether the call of `{tool}` happened");
            let uncertain = text.contains(&unknown);
            assert!(if uncertain { reply.is_error } else { text == "done" }, "{reply:?}");
            told.push(uncertain);
        }
    }
    let events: Vec<EventView> = client.journal(session).await?;
    assert!(events.len() < 1_000, "the whole journal is looked at");
    let call_in = |event: &EventView| event.body["call"].as_str().unwrap().to_owned();
    let mut ends: BTreeMap<String, bool> = BTreeMap::new();
    for event in
        events.iter().filter(|event| event.kind == "tool_done" || event.kind == "tool_uncertain")
    {
        let second = ends.insert(call_in(event), event.kind == "tool_uncertain");
        assert_eq!(second, None, "I3: {event:?}");
    }
    let mut calls = Vec::new();
    for event in events.iter().filter(|event| event.kind == "tool_asked") {
        let call = call_in(event);
        let uncertain = ends.remove(&call).unwrap();
        let job = JobId::from(call.parse::<CallId>().unwrap()).to_string();
        let tool = event.body["tool"].as_str().unwrap().to_owned();
        calls.push(Call { tool, job, uncertain });
    }
    assert_eq!(ends, BTreeMap::new(), "an end without a call");
    let once = calls.iter().filter(|call| call.tool == ONCE && call.uncertain).count();
    let said = told.iter().filter(|uncertain| **uncertain).count();
    assert_eq!(once, said, "what is unknown is shown to be: {history:?}");
    Ok((history.turns.len(), calls))
}

/// Everything that the kills go around.
pub(crate) struct Kills {
    pub(crate) scene: Scene,
    counter: EffectCounter,
    random: ChaCha8Rng,
    pub(crate) serves: watch::Sender<Option<Client>>,
    end: watch::Sender<bool>,
    talkers: JoinSet<Result<Vec<Message>, ProcessError>>,
    answers: Vec<watch::Receiver<usize>>,
    /// Lives that were to end at a point and did.
    pointed: u32,
    _dir: tempfile::TempDir,
}

// === impl Kills ===

impl Kills {
    pub(crate) async fn new(under: Under, seed: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let counter = EffectCounter::paced(dir.path(), PACE).await.unwrap();
        let default = DefaultReply { tokens: 1, delay_ms: 1, flush: true };
        let scene = Scene::on(under, Script { default, ..Script::default() }).await;
        let settings = scene.home.path().join(".config/clawnode");
        std::fs::create_dir_all(&settings).unwrap();
        let config =
            format!("[tools]\nmax_jobs = 16\n[agents.default]\ntools = {}\n", json!(TOOLS));
        std::fs::write(settings.join("config.toml"), config).unwrap();
        let scene = scene.with_var("CLAWNODE_TEST_EFFECTS", &counter.url());
        let scene = SOON.iter().fold(scene, |scene, (name, value)| scene.with_var(name, value));
        let (serves, node) = watch::channel(None);
        let (end, over) = watch::channel(false);
        let stage = Arc::new(Stage { node, over });
        let mut talkers = JoinSet::new();
        let mut answers = Vec::new();
        for talker in 0..TALKERS {
            let (tell, answered) = watch::channel(0);
            talkers.spawn(talk(Arc::clone(&stage), talker, tell));
            answers.push(answered);
        }
        let random = ChaCha8Rng::seed_from_u64(seed);
        Self { scene, counter, random, serves, end, talkers, answers, pointed: 0, _dir: dir }
    }

    /// Waits until every talker has had two more answers: the first may be of a turn that ended in an
    /// earlier life.
    pub(crate) async fn calm(&mut self) -> Outcome {
        let before: Vec<usize> =
            self.answers.iter().map(|count| count.peek(|count| *count)).collect();
        for (count, before) in self.answers.iter_mut().zip(before) {
            if count.wait_for(|now| *now > before + 1).await.is_err() {
                // A talker gave up: it says why.
                self.talkers.join_next().await.unwrap().unwrap()?;
                unreachable!("a talker left before the kills were over");
            }
        }
        Ok(())
    }

    /// A start that may end at a point, the first few times that it is passed.
    fn start(&mut self, role: Option<&'static str>) -> Start {
        let point = POINTS.choose(&mut self.random).unwrap();
        let times = self.random.random_range(1..=4);
        let kill = self.random.random_bool(0.6).then(|| format!("{point}:{times}"));
        Start { role, kill, ..Start::default() }
    }

    /// A random part of a life.
    fn life(&mut self) -> Duration {
        self.random.random_range(Duration::ZERO..LIFE)
    }

    /// One process on its directory; the next one takes over what it left.
    async fn alone(&mut self, wanted: u32) -> Result<String, ProcessError> {
        while self.scene.kills < wanted {
            let calm = self.scene.kills % CALM == CALM - 1;
            let start = if calm { Start::default() } else { self.start(None) };
            let mut node = Node::spawn(&self.scene.home, start)?;
            if calm {
                node.ready(&self.scene.home).await?;
                self.serves.send_replace(Some(node.client()?));
                self.calm().await?;
            }
            let life = if calm { LIFE / 10 } else { LIFE };
            let life = self.random.random_range(life / 2..life);
            // Some lives are counted from their start, so that a few end before they serve; the others
            // from when they serve, however busy the machine is: else none would come to its point.
            let from_start = !calm && self.random.random_bool(0.2);
            let is_over = !calm && !from_start && !self.serve(&mut node).await?;
            let rest = async {
                if is_over || from_start && !self.serve(&mut node).await? {
                    return Ok(());
                }
                died(&mut node).await
            };
            match tokio::time::timeout(life, rest).await {
                Ok(ended) => {
                    ended?;
                    self.pointed += 1;
                }
                Err(_elapsed) => node.kill().await?,
            }
            self.serves.send_replace(None);
            self.scene.kills += 1;
        }
        let node = Node::up(&self.scene.home).await?;
        self.serves.send_replace(Some(node.client()?));
        let tally = self.judge(&node.client()?).await?;
        node.stop().await?;
        Ok(self.worth(&tally, wanted))
    }

    /// Waits until talkers can speak to a node; `false` if it died of its point before.
    async fn serve(&self, node: &mut Node) -> Result<bool, ProcessError> {
        match node.ready(&self.scene.home).await {
            Err(ProcessError::NotReady { status, .. }) if status.contains("SIGKILL") => {
                return Ok(false);
            }
            ready => ready?,
        }
        self.serves.send_replace(Some(node.client()?));
        Ok(true)
    }

    /// A gateway and four workers, of which three die in each round: two that may do so by themselves,
    /// and the older one of those that do not.
    async fn among_workers(&mut self, wanted: u32) -> Result<String, ProcessError> {
        let gateway = Node::start(&self.scene.home, Start::role("gateway")).await?;
        self.serves.send_replace(Some(gateway.client()?));
        let mut lasting = Node::start(&self.scene.home, Start::role("worker")).await?;
        let mut armed = self.two_armed().await?;
        for round in 0.. {
            if self.scene.kills >= wanted {
                break;
            }
            if round % CALM == 0 {
                self.calm().await?;
            }
            let next = Node::start(&self.scene.home, Start::role("worker")).await?;
            let life = self.life();
            for node in &mut armed {
                self.end_of(node, life / 2).await?;
            }
            let mut old = std::mem::replace(&mut lasting, next);
            self.end_of(&mut old, Duration::ZERO).await?;
            armed = self.two_armed().await?;
        }
        // They may still die, and the test would not wait for it.
        for node in &mut armed {
            self.end_of(node, Duration::ZERO).await?;
        }
        let tally = self.judge(&gateway.client()?).await?;
        gateway.stop().await?;
        lasting.stop().await?;
        Ok(self.worth(&tally, wanted))
    }

    /// Two workers that may die by themselves, also before they serve.
    async fn two_armed(&mut self) -> Result<[Node; 2], ProcessError> {
        let starts = [(); 2].map(|()| self.start(Some("worker")));
        let home = &self.scene.home;
        let [first, second] = starts.map(|start| Node::spawn(home, start));
        let mut nodes = [first?, second?];
        let (first, second) = nodes.split_at_mut(1);
        let (first, second) = tokio::join!(first[0].ready(home), second[0].ready(home));
        for ready in [first, second] {
            match ready {
                Err(ProcessError::NotReady { status, .. }) if status.contains("SIGKILL") => {}
                ready => ready?,
            }
        }
        Ok(nodes)
    }

    /// Waits this long for a node to die of its point, and kills it if it does not.
    async fn end_of(&mut self, node: &mut Node, life: Duration) -> Outcome {
        match tokio::time::timeout(life, died(node)).await {
            Ok(ended) => {
                ended?;
                self.pointed += 1;
            }
            Err(_elapsed) => {
                node.signal(Signal::KILL)?;
                node.ended().await?;
            }
        }
        self.scene.kills += 1;
        Ok(())
    }

    /// All that was sent is answered, and is what the counter says.
    pub(crate) async fn judge(&mut self, client: &Client) -> Result<Tally, ProcessError> {
        self.end.send_replace(true);
        let mut sent: BTreeMap<String, usize> = BTreeMap::new();
        while let Some(messages) = self.talkers.join_next().await {
            for message in messages.unwrap()? {
                *sent.entry(message.session()).or_default() += 1;
            }
        }
        let mut calls = Vec::new();
        for (session, messages) in &sent {
            let (turns, of_session) = calls_of(client, session).await?;
            assert_eq!(turns, *messages, "nothing is lost in `{session}`");
            assert_eq!(of_session.len(), turns * TOOLS.len(), "`{session}`");
            calls.extend(of_session);
        }
        assert!(sound(&self.scene.home).await? > 0, "there are journals");
        let counts = self.counter.counts().unwrap();
        let found = tally(&calls, &counts).map_err(ProcessError::Broken)?;
        // A judge who would not see a second run has proved nothing.
        let once = calls.iter().find(|call| call.tool == ONCE && counts.contains_key(&call.job));
        let mut twice = counts.clone();
        *twice.get_mut(&once.unwrap().job).unwrap() += 1;
        assert!(tally(&calls, &twice).unwrap_err().starts_with("JOB-4"));
        Ok(found)
    }

    /// Kills that hit nothing prove nothing; what these hit.
    fn worth(&self, tally: &Tally, wanted: u32) -> String {
        assert!(self.scene.kills >= wanted);
        assert!(self.pointed >= wanted / 10, "{} kills at points", self.pointed);
        assert!(tally.uncertain_done + tally.uncertain_undone > 0, "{tally:?}");
        assert!(tally.again > 0, "{tally:?}");
        format!("{} kills, {} of them at a point: {tally:?}", self.scene.kills, self.pointed)
    }
}

/// A node dies by its own kill, some time.
async fn died(node: &mut Node) -> Outcome {
    use std::os::unix::process::ExitStatusExt;
    let status = node.ended().await?;
    assert_eq!(status.signal(), Some(9), "{status}");
    Ok(())
}

/// A seed of one's own reproduces the times of the kills.
pub(crate) fn seed() -> u64 {
    std::env::var("CLAWNODE_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap())
}

/// How many kills a soak makes; `CLAWNODE_KILLS` says another number.
pub(crate) fn soak(kills: u32) -> u32 {
    std::env::var("CLAWNODE_KILLS").map_or(kills, |text| text.parse().unwrap())
}

#[tokio::test]
async fn job_4_kills_50_around_runs_of_tools() -> Outcome {
    let seed = seed();
    eprintln!("CLAWNODE_SEED={seed}");
    eprintln!("{}", Kills::new(Under::Local, seed).await.alone(50).await?);
    Ok(())
}

#[tokio::test]
async fn job_4_kills_30_of_workers_around_runs_of_tools_on_nats() -> Outcome {
    let seed = seed();
    eprintln!("CLAWNODE_SEED={seed}");
    eprintln!("{}", Kills::new(Under::Nats, seed).await.among_workers(30).await?);
    Ok(())
}

#[tokio::test]
async fn job_4_kills_500_around_runs_of_tools_soak() -> Outcome {
    let seed = seed();
    eprintln!("CLAWNODE_SEED={seed}");
    eprintln!("{}", Kills::new(Under::Local, seed).await.alone(soak(500)).await?);
    Ok(())
}

#[tokio::test]
async fn job_4_kills_500_of_workers_around_runs_of_tools_on_nats_soak() -> Outcome {
    let seed = seed();
    eprintln!("CLAWNODE_SEED={seed}");
    eprintln!("{}", Kills::new(Under::Nats, seed).await.among_workers(soak(500)).await?);
    Ok(())
}

/// The judge's own eyes.
#[test]
fn the_judge_of_effects_sees_what_is_wrong() {
    let call =
        |tool: &str, uncertain| Call { tool: tool.to_owned(), job: "j".to_owned(), uncertain };
    let count = |n: usize| (n > 0).then(|| ("j".to_owned(), n)).into_iter().collect();
    let right = [(ONCE, false, 1), (ONCE, true, 0), (ONCE, true, 1), ("effect_safe", false, 3)];
    for (tool, uncertain, effects) in right {
        tally(&[call(tool, uncertain)], &count(effects)).unwrap();
    }
    let wrong = [
        (ONCE, false, 2),
        (ONCE, true, 2),
        (ONCE, false, 0),
        ("effect_safe", false, 0),
        ("effect_safe", true, 1),
    ];
    for (tool, uncertain, effects) in wrong {
        tally(&[call(tool, uncertain)], &count(effects)).unwrap_err();
    }
    tally(&[], &count(1)).unwrap_err();
}
