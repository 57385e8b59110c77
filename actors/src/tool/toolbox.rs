//! Tools by name, and what holds for each run of any of them.
//!
//! However an executor behaves, a run ends: on its timeout or when it is cancelled the executor is
//! asked to stop and given a moment to clean up; then its future is dropped. A panic is an outcome
//! like another, and no output is longer than [`OUTPUT_BYTES`].

use std::{any::Any, collections::BTreeMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use clawnode_proto::{
    ToolName,
    llm::Text,
    tool::{ToolFailure, ToolOutcome, ToolSpec},
};
use futures_util::FutureExt;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use super::{Executor, ToolRun, append::append};
use crate::durable::jobs::Probe;

/// Bytes of output that an executor may hand on (1 MiB): more is cut, and the cut is told. What
/// fits into a journal is a smaller matter, which the caller settles with the blob store.
pub const OUTPUT_BYTES: usize = 1 << 20;
/// How long an executor that was asked to stop may take to clean up.
const GRACE: Duration = Duration::from_secs(5);

/// A tool that can be run.
#[derive(Clone, Debug)]
pub struct Tool {
    spec: ToolSpec,
    executor: Arc<dyn Executor>,
}

/// Tools by name. Cheap to clone; made anew when an executor's tools change.
#[derive(Clone, Debug, Default)]
pub struct Toolbox(Arc<BTreeMap<ToolName, Tool>>);

/// Executors that do not go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolboxError {
    /// Which of two would be run is nobody's guess.
    #[error("two tools are called `{0}`")]
    Duplicate(ToolName),
}

/// Why a run is stopped.
#[derive(Clone, Copy, Debug)]
enum Stop {
    TimedOut(Duration),
    Cancelled,
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
                let tool = Tool { spec, executor: Arc::clone(&executor) };
                if tools.insert(name.clone(), tool).is_some() {
                    return Err(ToolboxError::Duplicate(name));
                }
            }
        }
        Ok(Self(Arc::new(tools)))
    }

    /// The tool of this name.
    pub fn find(&self, name: &ToolName) -> Option<&Tool> {
        self.0.get(name)
    }

    /// All of them, by name.
    pub fn specs(&self) -> impl Iterator<Item = &ToolSpec> {
        self.0.values().map(Tool::spec)
    }

    /// Runs a call to its end; a tool that is not here is unavailable.
    pub async fn execute(&self, run: ToolRun, cancelled: CancellationToken) -> ToolOutcome {
        let Some(tool) = self.find(&run.tool) else {
            let why = format!("no executor here has a tool `{}`", run.tool);
            return ToolOutcome::failed(ToolFailure::Unavailable, why);
        };
        tool.execute(run, cancelled).await
    }
}

impl Toolbox {
    /// Whether an earlier run of a call has happened.
    pub async fn probe(&self, run: ToolRun) -> Probe {
        match self.find(&run.tool) {
            Some(tool) => tool.executor.probe(run).await,
            None => Probe::Unclear(format!("no executor here has a tool `{}`", run.tool)),
        }
    }
}

// === impl Tool ===

impl Tool {
    /// What it is.
    pub const fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Whether its executor can run anything now.
    pub async fn health_check(&self) -> Result<(), String> {
        self.executor.health_check().await
    }

    /// Runs a call of it to its end, within its timeout.
    pub async fn execute(&self, run: ToolRun, cancelled: CancellationToken) -> ToolOutcome {
        let (name, call, longest) = (run.tool.clone(), run.call, run.timeout);
        // The guard tells what the executor has started elsewhere when this future is dropped.
        let asked = cancelled.child_token();
        let _guard = asked.clone().drop_guard();
        let mut work =
            AssertUnwindSafe(self.executor.execute(run, asked.clone())).catch_unwind().boxed();
        let stop = tokio::select! {
            biased;
            ended = &mut work => {
                return bounded(ended.unwrap_or_else(|panic| crashed(&name, panic.as_ref())));
            }
            () = cancelled.cancelled() => Stop::Cancelled,
            () = sleep(longest) => Stop::TimedOut(longest),
        };
        asked.cancel();
        debug!(%call, tool = %name, ?stop, "asked to stop");
        match timeout(GRACE, work).await {
            Ok(Ok(outcome)) => bounded(stop.settle(outcome)),
            Ok(Err(panic)) => crashed(&name, panic.as_ref()),
            Err(_elapsed) => stop.outcome(),
        }
    }
}

// === impl Stop ===

impl Stop {
    const fn failure(self) -> ToolFailure {
        match self {
            Self::TimedOut(_) => ToolFailure::TimedOut,
            Self::Cancelled => ToolFailure::Cancelled,
        }
    }

    fn outcome(self) -> ToolOutcome {
        let why = match self {
            Self::TimedOut(longest) => {
                format!("stopped: it ran longer than {} s", longest.as_secs_f64())
            }
            Self::Cancelled => "stopped: the call was cancelled".to_owned(),
        };
        ToolOutcome::failed(self.failure(), why)
    }

    /// What an outcome means that came after the executor was asked to stop. One that says how the
    /// call ended stands; "cancelled" only repeats what it was asked.
    fn settle(self, outcome: ToolOutcome) -> ToolOutcome {
        match outcome.failure {
            Some(ToolFailure::Cancelled) if outcome.content.bytes() == 0 => self.outcome(),
            Some(ToolFailure::Cancelled) => {
                ToolOutcome { failure: Some(self.failure()), ..outcome }
            }
            _ => outcome,
        }
    }
}

fn crashed(name: &ToolName, panic: &(dyn Any + Send)) -> ToolOutcome {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    error!(tool = %name, panic = said.unwrap_or("?"), "an executor panicked");
    let why = format!("what runs `{name}` broke; whether the call did anything is not known");
    ToolOutcome::failed(ToolFailure::Crashed, why)
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
        CallId,
        tool::{EffectClass, Risk},
    };

    use super::*;

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
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_ends_whatever_its_executor_does() {
        let (toolbox, various) = toolbox();
        for (tool, failure, content) in [
            ("echo", None, "job_7"),
            ("none", Some(ToolFailure::Unavailable), "no executor here has a tool `none`"),
            ("panic", Some(ToolFailure::Crashed), "whether the call did anything is not known"),
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
}
