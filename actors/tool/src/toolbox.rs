//! Tools by name, and what holds for each run of any of them.
//!
//! However an executor behaves, a run ends: on its timeout or when it is cancelled the executor is
//! asked to stop and given a moment to clean up; then its future is dropped (`stopped_run` says how
//! that ends). A panic is an outcome like another, and no output is longer than [`OUTPUT_BYTES`].
//! Nothing runs without a pass of the kill switch, and what an operator stops has a shorter moment.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use clawnode_guard::kill_switch::{StoppableWork, SwitchGate, WorkPermit};
use clawnode_kernel::job_machine::Probe;
use clawnode_proto::{
    Capability, Digest, ToolName,
    agents::AgentLimit,
    job::Callbacks,
    kill_switch::KillSwitch,
    llm::Text,
    policy::Action,
    provider::ProviderKind,
    session::ToolEnd,
    tool::{ToolFailure, ToolOutcome, ToolSpec},
};
use futures_util::FutureExt;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use crate::{
    CallBack, Executor, ToolRun,
    append::append,
    provider_health::{Providers, name_of},
    stopped_run::RunStop,
};

/// Bytes of output that an executor may hand on (1 MiB): more is cut, with a note. The caller moves
/// what does not fit into a journal to the blob store.
pub const OUTPUT_BYTES: usize = 1 << 20;

/// A tool that can be run.
#[derive(Clone, Debug)]
pub struct Tool {
    spec: ToolSpec,
    executor: Arc<dyn Executor>,
    switch_gate: SwitchGate,
    providers: Providers,
}

/// Tools by name. Cheap to clone; made again when an executor's tools change.
#[derive(Clone, Debug, Default)]
pub struct Toolbox {
    tools: Arc<BTreeMap<ToolName, Tool>>,
    #[cfg(feature = "test-util")]
    planted: clawnode_guard::policy::PolicyBug,
}

/// Executors that do not go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolboxError {
    /// It is unclear which of the two would run.
    #[error("two tools are called `{0}`")]
    Duplicate(ToolName),
}

// === impl Toolbox ===

impl Toolbox {
    /// The tools that these executors have now.
    pub fn new(
        executors: impl IntoIterator<Item = Arc<dyn Executor>>,
    ) -> Result<Self, ToolboxError> {
        let mut tools = BTreeMap::new();
        for executor in executors {
            for spec in executor.tools() {
                let name = spec.name.clone();
                let (executor, switch_gate) = (Arc::clone(&executor), SwitchGate::default());
                let tool = Tool { spec, executor, switch_gate, providers: Providers::default() };
                if tools.insert(name.clone(), tool).is_some() {
                    return Err(ToolboxError::Duplicate(name));
                }
            }
        }
        Ok(Self { tools: Arc::new(tools), ..Self::default() })
    }

    /// The same, with a bug in it.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn plant(self, planted: clawnode_guard::policy::PolicyBug) -> Self {
        Self { planted, ..self }
    }

    /// The same, whose runs an operator can stop.
    #[must_use]
    pub fn behind(&self, switch_gate: &SwitchGate) -> Self {
        let tools = self.tools.iter().map(|(name, tool)| {
            let tool = Tool { switch_gate: switch_gate.clone(), ..tool.clone() };
            (name.clone(), tool)
        });
        Self { tools: Arc::new(tools.collect()), ..self.clone() }
    }

    /// The same, and its runs are reported to `providers`.
    #[must_use]
    pub fn told(&self, providers: &Providers) -> Self {
        let tools = self.tools.iter().map(|(name, tool)| {
            let tool = Tool { providers: providers.clone(), ..tool.clone() };
            (name.clone(), tool)
        });
        Self { tools: Arc::new(tools.collect()), ..self.clone() }
    }

    /// The tool of this name.
    pub fn find(&self, name: &ToolName) -> Option<&Tool> {
        self.tools.get(name)
    }

    /// Whether the same executors would run the same tools.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let same = |one: &Tool, another: &Tool| {
            one.spec == another.spec && Arc::ptr_eq(&one.executor, &another.executor)
        };
        self.tools.len() == other.tools.len()
            && self.tools.values().zip(other.tools.values()).all(|(a, b)| same(a, b))
    }

    /// All of them, by name.
    pub fn specs(&self) -> impl Iterator<Item = &ToolSpec> {
        self.tools.values().map(Tool::spec)
    }

    /// Whether an action, with what is behind its tool here, is the one that was decided on (APR-2);
    /// a tool that is not here is for [`Self::execute`] to miss.
    ///
    /// # Errors
    /// The refusal, for the model.
    pub fn is_decided(&self, action: Action, decided: Digest) -> Result<(), ToolOutcome> {
        #[cfg(feature = "test-util")]
        if self.planted == clawnode_guard::policy::PolicyBug::NotCompared {
            return Ok(());
        }
        let Some(tool) = self.find(&action.tool) else { return Ok(()) };
        let name = action.tool.clone();
        let here = Action { pin: tool.spec.pin, ..action };
        if here.digest().ok() == Some(decided) {
            return Ok(());
        }
        let why = format!(
            "the settings of `{name}` on this node differ from those that were approved, or have \
             changed since"
        );
        Err(ToolOutcome::failed(ToolFailure::Refused, why))
    }

    /// Runs a call to its end; a tool that is not here is unavailable.
    pub async fn execute(&self, run: ToolRun, cancelled: CancellationToken) -> ToolOutcome {
        outcome_of(self.end(run, cancelled).await)
    }

    /// The same, with an uncertain end if it is unknown what an interrupted run has done.
    pub async fn end(&self, run: ToolRun, cancelled: CancellationToken) -> ToolEnd {
        let Some(tool) = self.find(&run.tool) else {
            let why = format!("no executor here has a tool `{}`", run.tool);
            let outcome = ToolOutcome::failed(ToolFailure::Unavailable, why);
            return ToolEnd::Known { outcome };
        };
        tool.end(run, CallBack::default(), cancelled).await
    }

    /// The same for a call that its caller runs: what holds for each run of this tool holds for it, too.
    pub async fn end_by(
        &self,
        executor: Arc<dyn Executor>,
        run: ToolRun,
        cancelled: CancellationToken,
    ) -> ToolEnd {
        match self.find(&run.tool) {
            Some(tool) => {
                let tool = Tool { executor, ..tool.clone() };
                tool.end(run, CallBack::default(), cancelled).await
            }
            None => self.end(run, cancelled).await,
        }
    }

    /// The same for a run that may call `callbacks` meanwhile, as far as a node that has these
    /// capabilities can run them.
    pub async fn end_calling(
        &self,
        run: ToolRun,
        callbacks: Option<Callbacks>,
        capabilities: BTreeSet<Capability>,
        cancelled: CancellationToken,
    ) -> ToolEnd {
        match self.find(&run.tool) {
            Some(tool) if callbacks.is_some() => {
                let back = CallBack::new(self.clone(), capabilities, callbacks);
                tool.end(run, back, cancelled).await
            }
            _ => self.end(run, cancelled).await,
        }
    }

    /// Whether the policy judges calls from running code: always, except in tests that check that
    /// this is noticed.
    #[cfg_attr(not(feature = "test-util"), expect(clippy::unused_self, reason = "nothing planted"))]
    pub(super) fn obeys_policy(&self) -> bool {
        #[cfg(feature = "test-util")]
        if self.planted == clawnode_guard::policy::PolicyBug::CodeUnjudged {
            return false;
        }
        true
    }

    /// Whether an earlier run of a call has happened.
    pub async fn probe(&self, run: ToolRun) -> Probe {
        match self.find(&run.tool) {
            Some(tool) => tool.probe(run).await,
            None => Probe::Unclear(format!("no executor here has a tool `{}`", run.tool)),
        }
    }
}

// === impl Tool ===

impl Tool {
    pub const fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Whether its executor can run anything now.
    pub async fn health_check(&self) -> Result<(), String> {
        self.executor.health_check().await
    }

    /// Runs a call of it to its end, within its timeout.
    pub async fn execute(&self, run: ToolRun, cancelled: CancellationToken) -> ToolOutcome {
        outcome_of(self.end(run, CallBack::default(), cancelled).await)
    }

    /// The same, with an uncertain end if it is unknown what an interrupted run has done, for a run
    /// that may call other tools meanwhile.
    async fn end(&self, run: ToolRun, back: CallBack, cancelled: CancellationToken) -> ToolEnd {
        let known = |outcome| ToolEnd::Known { outcome };
        let pass = tokio::select! {
            biased;
            entered = self.switch_gate.pass(self.work(&run)) => {
                let counted = entered.and_then(|pass| self.count(&run).map(|()| pass));
                match counted {
                    Ok(pass) => pass,
                    Err(switch) => {
                        let why = format!("not run: {switch}");
                        return known(ToolOutcome::failed(ToolFailure::Refused, why));
                    }
                }
            }
            () = cancelled.cancelled() => return known(RunStop::Cancelled.outcome()),
        };
        let name = name_of(&self.spec);
        let in_hand = self.providers.begin(ProviderKind::Execution, &name);
        let end = self.run(run, back, cancelled, &pass).await;
        in_hand.ran(&end);
        end
    }

    /// Runs a call to its end, or to that of its time or right to run.
    async fn run(
        &self,
        run: ToolRun,
        back: CallBack,
        cancelled: CancellationToken,
        pass: &WorkPermit,
    ) -> ToolEnd {
        let (name, call, limit) = (run.tool.clone(), run.call, run.limit.clone());
        // What an executor needs beside is not a matter of the call.
        let longest = run.timeout + self.margin();
        // When this future is dropped, the guard cancels what the executor has started elsewhere.
        let asked = cancelled.child_token();
        let _guard = asked.clone().drop_guard();
        let mut work =
            AssertUnwindSafe(self.executor.end(run, back, asked.clone())).catch_unwind().boxed();
        let stop = tokio::select! {
            biased;
            ended = &mut work => {
                return match ended {
                    Ok(end) => bounded_end(end),
                    Err(panic) => ToolEnd::Known { outcome: crashed(&name, panic.as_ref()) },
                };
            }
            why = pass.stopped() => RunStop::Stopped(why),
            () = cancelled.cancelled() => RunStop::Cancelled,
            () = sleep(longest) => RunStop::TimedOut(longest, limit),
        };
        asked.cancel();
        debug!(%call, tool = %name, ?stop, "asked to stop");
        match timeout(stop.grace(), work).await {
            Ok(Ok(ToolEnd::Known { outcome })) => stop.end(self.spec.class, bounded(outcome)),
            Ok(Ok(uncertain @ ToolEnd::Uncertain { .. })) => uncertain,
            Ok(Err(panic)) => stop.end(self.spec.class, crashed(&name, panic.as_ref())),
            Err(_elapsed) => stop.end(self.spec.class, stop.outcome()),
        }
    }

    /// Whether an earlier run of a call has happened.
    async fn probe(&self, run: ToolRun) -> Probe {
        let pass = match self.switch_gate.pass(self.work(&run)).await {
            Ok(pass) => pass,
            Err(switch) => return Probe::Unclear(switch.to_string()),
        };
        let (name, margin) = (run.tool.clone(), self.margin());
        let longest = run.timeout + margin;
        tokio::select! {
            biased;
            probe = AssertUnwindSafe(self.executor.probe(run)).catch_unwind() => match probe {
                Ok(Probe::Happened(outcome)) => Probe::Happened(bounded(outcome)),
                Ok(probe) => probe,
                Err(panic) => {
                    crashed(&name, panic.as_ref());
                    Probe::Unclear("its probe crashed".to_owned())
                }
            },
            why = pass.stopped() => Probe::Unclear(why.to_string()),
            () = sleep(longest) => {
                Probe::Unclear(format!("its probe took longer than {} s", longest.as_secs_f64()))
            }
        }
    }

    /// The time that its executor needs beside a call's own time.
    fn margin(&self) -> Duration {
        let margin = self.spec.time.as_ref().map_or(0, |time| time.margin_ms);
        Duration::from_millis(u64::from(margin))
    }

    /// Counts a call that begins against the limit of its agent.
    fn count(&self, run: &ToolRun) -> Result<(), KillSwitch> {
        self.switch_gate.count(&run.agent, AgentLimit::ToolCallsPerMinute, 1)
    }

    fn work(&self, run: &ToolRun) -> StoppableWork {
        let (agent, tool) = (run.agent.clone(), run.tool.clone());
        let reaches_out = self.executor.reaches_out(&tool);
        StoppableWork::Tool { agent, tool, reaches_out }
    }
}

/// The outcome for a caller that does not take uncertain ends.
fn outcome_of(end: ToolEnd) -> ToolOutcome {
    match end {
        ToolEnd::Known { outcome } => outcome,
        ToolEnd::Uncertain { detail } => ToolOutcome::failed(ToolFailure::Cancelled, detail),
    }
}

fn crashed(name: &ToolName, panic: &(dyn Any + Send)) -> ToolOutcome {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    error!(tool = %name, panic = said.unwrap_or("?"), "an executor panicked");
    let why = format!("`{name}` crashed; it is unknown whether the call did anything");
    ToolOutcome::failed(ToolFailure::Crashed, why)
}

fn bounded_end(end: ToolEnd) -> ToolEnd {
    match end {
        ToolEnd::Known { outcome } => ToolEnd::Known { outcome: bounded(outcome) },
        uncertain @ ToolEnd::Uncertain { .. } => uncertain,
    }
}

fn bounded(mut outcome: ToolOutcome) -> ToolOutcome {
    if let Text::Inline { text } = &mut outcome.content
        && text.len() > OUTPUT_BYTES
    {
        let bytes = text.len();
        text.truncate(text.floor_char_boundary(OUTPUT_BYTES));
        append(text, format_args!("\n[cut: the first {OUTPUT_BYTES} of {bytes} bytes]"));
    }
    outcome
}

#[cfg(test)]
mod tests {
    use std::{future::pending, sync::Mutex};

    use async_trait::async_trait;
    use clawnode_proto::{
        CallId, Position, SwitchId, Timestamp,
        kill_switch::{KillSwitch, SwitchRecord},
        tool::{EffectClass, Risk},
    };

    use super::*;
    use clawnode_guard::kill_switch::SwitchBug;

    /// Does what the tool's name says.
    #[derive(Debug, Default)]
    struct Various {
        tools: Vec<&'static str>,
        /// What it was seen to clean up.
        cleaned: Mutex<Vec<String>>,
    }

    fn spec(name: &str) -> ToolSpec {
        ToolSpec {
            name: name.parse().unwrap(),
            description: String::new(),
            input_schema: r#"{"type":"object"}"#.to_owned(),
            class: EffectClass::Safe,
            risk: Risk::ReadOnly,
            capability: None,
            timeout_ms: 1_000,
            pin: None,
            time: None,
        }
    }

    #[async_trait]
    impl Executor for Various {
        fn tools(&self) -> Vec<ToolSpec> {
            self.tools.iter().map(|name| spec(name)).collect()
        }

        async fn execute(&self, run: ToolRun, cancelled: CancellationToken) -> ToolOutcome {
            match run.tool.as_str() {
                "echo" => ToolOutcome::done(run.idempotency_key),
                "long" => ToolOutcome::done("é".repeat(OUTPUT_BYTES)),
                "panic" => panic!("on purpose"),
                "deaf" => pending().await,
                "part" => {
                    cancelled.cancelled().await;
                    ToolOutcome::failed(ToolFailure::Cancelled, "line 1")
                }
                "late" => {
                    cancelled.cancelled().await;
                    ToolOutcome::done("just done")
                }
                _ => {
                    cancelled.cancelled().await;
                    self.cleaned.lock().unwrap().push(run.tool.to_string());
                    ToolOutcome::failed(ToolFailure::Cancelled, "")
                }
            }
        }

        async fn health_check(&self) -> Result<(), String> {
            Ok(())
        }
    }

    fn toolbox() -> (Toolbox, Arc<Various>) {
        let tools = vec!["echo", "long", "panic", "deaf", "part", "late", "clean"];
        let various = Arc::new(Various { tools, ..Various::default() });
        let executor: Arc<dyn Executor> = various.clone();
        (Toolbox::new([executor]).unwrap(), various)
    }

    fn run(tool: &str) -> ToolRun {
        ToolRun {
            call: CallId::from_u128(7),
            agent: "main".parse().unwrap(),
            tool: tool.parse().unwrap(),
            arguments: serde_json::Map::new(),
            idempotency_key: "job_7".to_owned(),
            timeout: Duration::from_secs(30),
            sink: crate::RunSink::default(),
            shown: crate::ShownMedia::default(),
            limit: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_ends_whatever_its_executor_does() {
        let (toolbox, various) = toolbox();
        for (tool, failure, content) in [
            ("echo", None, "job_7"),
            ("none", Some(ToolFailure::Unavailable), "no executor here has a tool `none`"),
            ("panic", Some(ToolFailure::Crashed), "unknown whether the call did anything"),
            ("deaf", Some(ToolFailure::TimedOut), "it ran longer than 30 s"),
            ("part", Some(ToolFailure::TimedOut), "line 1"),
            ("late", None, "just done"),
            ("clean", Some(ToolFailure::TimedOut), "it ran longer than 30 s"),
        ] {
            let outcome = toolbox.execute(run(tool), CancellationToken::new()).await;
            assert_eq!(outcome.failure, failure, "{tool}");
            assert!(outcome.content.inline().unwrap().contains(content), "{tool}: {outcome:?}");
        }
        assert_eq!(*various.cleaned.lock().unwrap(), ["clean"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_run_may_clean_up_and_no_more() {
        let (toolbox, various) = toolbox();
        for (tool, failure) in [
            ("clean", Some(ToolFailure::Cancelled)),
            ("deaf", Some(ToolFailure::Cancelled)),
            ("late", None),
        ] {
            let cancelled = CancellationToken::new();
            cancelled.cancel();
            let outcome = toolbox.execute(run(tool), cancelled).await;
            assert_eq!(outcome.failure, failure, "{tool}");
        }
        assert_eq!(*various.cleaned.lock().unwrap(), ["clean"]);
    }

    #[tokio::test]
    async fn dropping_a_run_tells_its_executor() {
        #[derive(Debug)]
        struct Watched(tokio::sync::watch::Sender<Option<CancellationToken>>);

        #[async_trait]
        impl Executor for Watched {
            fn tools(&self) -> Vec<ToolSpec> {
                vec![spec("watched")]
            }
            async fn execute(&self, _: ToolRun, cancelled: CancellationToken) -> ToolOutcome {
                self.0.send_replace(Some(cancelled));
                pending().await
            }
            async fn health_check(&self) -> Result<(), String> {
                Ok(())
            }
        }

        let (sender, mut seen) = tokio::sync::watch::channel(None);
        let executor: Arc<dyn Executor> = Arc::new(Watched(sender));
        let toolbox = Toolbox::new([executor]).unwrap();
        let token = tokio::select! {
            _ = toolbox.execute(run("watched"), CancellationToken::new()) => unreachable!(),
            token = seen.wait_for(Option::is_some) => token.unwrap().clone().unwrap(),
        };
        assert!(token.is_cancelled());
    }

    #[tokio::test]
    async fn long_output_is_cut_between_characters() {
        let (toolbox, _) = toolbox();
        let outcome = toolbox.execute(run("long"), CancellationToken::new()).await;
        let text = outcome.content.inline().unwrap();
        assert!(text.len() < OUTPUT_BYTES + 100 && text.ends_with("of 2097152 bytes]"));
    }

    #[test]
    fn no_two_tools_have_one_name() {
        let one: Arc<dyn Executor> = Arc::new(Various { tools: vec!["a"], ..Various::default() });
        let two: Arc<dyn Executor> =
            Arc::new(Various { tools: vec!["b", "a"], ..Various::default() });
        let error = Toolbox::new([one, two]).unwrap_err();
        assert_eq!(error.to_string(), "two tools are called `a`");
    }

    fn stopped(scope: &str) -> SwitchRecord {
        let switch = KillSwitch {
            id: SwitchId::from_u128(1),
            scope: scope.parse().unwrap(),
            by: "token at a".to_owned(),
            at: Timestamp(1),
            why: "enough".to_owned(),
        };
        SwitchRecord::Set { switch }
    }

    /// Waits for ever, and is of this class; counts its runs.
    #[derive(Debug)]
    struct Endless(EffectClass, bool, Mutex<u32>);

    #[async_trait]
    impl Executor for Endless {
        fn tools(&self) -> Vec<ToolSpec> {
            vec![ToolSpec { class: self.0, ..spec("endless") }, spec("other")]
        }
        fn reaches_out(&self, tool: &ToolName) -> bool {
            self.1 && tool.as_str() == "endless"
        }
        async fn execute(&self, run: ToolRun, cancelled: CancellationToken) -> ToolOutcome {
            *self.2.lock().unwrap() += 1;
            if run.tool.as_str() == "other" {
                return ToolOutcome::done("other");
            }
            cancelled.cancelled().await;
            ToolOutcome::failed(ToolFailure::Cancelled, "")
        }
        async fn health_check(&self) -> Result<(), String> {
            Ok(())
        }
    }

    fn endless(
        class: EffectClass,
        reaches_out: bool,
        switch_gate: &SwitchGate,
    ) -> (Toolbox, Arc<Endless>) {
        let executor = Arc::new(Endless(class, reaches_out, Mutex::default()));
        let shared: Arc<dyn Executor> = executor.clone();
        (Toolbox::new([shared]).unwrap().behind(switch_gate), executor)
    }

    /// KILL-1 and KILL-2 for runs of tools: the failure if this gate has a bug.
    async fn obeys_the_kill_switch(switch_gate: SwitchGate) -> Result<(), String> {
        let (toolbox, executor) = endless(EffectClass::Safe, false, &switch_gate);
        let running = tokio::spawn({
            let toolbox = toolbox.clone();
            async move { toolbox.end(run("endless"), CancellationToken::new()).await }
        });
        let any = "all".parse().unwrap();
        while switch_gate.running(&any) == 0 {
            tokio::task::yield_now().await;
        }
        switch_gate.take(Position(1), stopped("tool:endless"));
        let end = timeout(Duration::from_secs(20), running).await;
        let Ok(Ok(ToolEnd::Known { outcome })) = end else {
            return Err(format!("KILL-2: {end:?}"));
        };
        if outcome.failure != Some(ToolFailure::Cancelled) {
            return Err(format!("KILL-2: {outcome:?}"));
        }
        let before = *executor.2.lock().unwrap();
        let again = timeout(
            Duration::from_secs(20),
            toolbox.execute(run("endless"), CancellationToken::new()),
        );
        match again.await {
            Ok(ToolOutcome { failure: Some(ToolFailure::Refused), content, .. })
                if content.inline().is_some_and(|text| text.contains("token at a: enough")) => {}
            other => return Err(format!("KILL-1: {other:?}")),
        }
        if *executor.2.lock().unwrap() != before {
            return Err("KILL-1: it ran".to_owned());
        }
        let other = toolbox.execute(run("other"), CancellationToken::new()).await;
        assert_eq!(other.failure, None, "another tool goes on");
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn kill_1_a_frozen_tool_is_cancelled_and_refused_and_others_go_on() {
        assert_eq!(obeys_the_kill_switch(SwitchGate::default()).await, Ok(()));
    }

    /// The twin of the test before.
    #[tokio::test(start_paused = true)]
    async fn a_runner_that_does_not_ask_the_kill_switch_is_found() {
        for planted in [SwitchBug::ToolsUnasked, SwitchBug::NothingCancelled] {
            assert!(
                obeys_the_kill_switch(SwitchGate::planted(planted)).await.is_err(),
                "{planted:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_an_interrupted_run_has_done_is_told_by_its_class() {
        use EffectClass::{Check, Idempotent, Once, Safe};
        for (class, uncertain) in [(Safe, false), (Idempotent, false), (Check, true), (Once, true)]
        {
            for scope in ["all", "agent:main", "egress"] {
                let switch_gate = SwitchGate::default();
                let (toolbox, _) = endless(class, true, &switch_gate);
                let running = tokio::spawn({
                    let toolbox = toolbox.clone();
                    async move { toolbox.end(run("endless"), CancellationToken::new()).await }
                });
                let any = "all".parse().unwrap();
                while switch_gate.running(&any) == 0 {
                    tokio::task::yield_now().await;
                }
                switch_gate.take(Position(1), stopped(scope));
                let end = running.await.unwrap();
                let is_uncertain = matches!(end, ToolEnd::Uncertain { .. });
                assert_eq!(is_uncertain, uncertain, "{class:?} {scope}: {end:?}");
                // A refused call has not run, of any class.
                let end = toolbox.end(run("endless"), CancellationToken::new()).await;
                assert!(matches!(end, ToolEnd::Known { .. }), "{class:?} {scope}: {end:?}");
            }
        }
    }
}
