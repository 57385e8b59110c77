//! `execute_code`: what code gets from the tools that it calls, and what hostile code does not get.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use clawnode_cluster::SystemClock;
use clawnode_executors::{
    Basics, SandboxOptions,
    sandbox::{Commands, ContainerOwner, Docker, Processes},
};
use clawnode_guard::policy::PolicyBug as PolicyPlanted;
use clawnode_proto::{
    CallId, JobId,
    job::Callbacks,
    policy::{Policy, Rule, Verdict},
    session::ToolEnd,
    tool::{EffectClass, Risk, ToolFailure, ToolOutcome, ToolSpec},
};
use clawnode_tool::{Executor, ToolRun, Toolbox};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{ME, Outcome, engine, told, ulid};

/// Tools that write down what they were asked for.
#[derive(Debug, Default)]
struct Witness {
    seen: Mutex<Vec<(String, Duration)>>,
    /// `slow` has begun; it ends when it is cancelled.
    begun: Notify,
    cancelled: Mutex<u32>,
}

fn spec(name: &str, risk: Risk, capability: Option<&str>) -> ToolSpec {
    ToolSpec {
        name: name.parse().unwrap(),
        description: String::new(),
        input_schema: r#"{"type":"object","properties":{"n":{"type":"integer"}}}"#.to_owned(),
        class: EffectClass::Safe,
        risk,
        capability: capability.map(|text| text.parse().unwrap()),
        timeout_ms: 60_000,
        time: None,
        pin: None,
    }
}

#[async_trait]
impl Executor for Witness {
    fn tools(&self) -> Vec<ToolSpec> {
        vec![
            spec("look", Risk::ReadOnly, None),
            spec("slow", Risk::ReadOnly, None),
            spec("change", Risk::Write, None),
            spec("deploy", Risk::Admin, None),
            spec("differs", Risk::ReadOnly, None),
            spec("not_given", Risk::ReadOnly, None),
            spec("far", Risk::ReadOnly, Some("elsewhere")),
        ]
    }

    async fn execute(&self, run: ToolRun, cancelled: CancellationToken) -> ToolOutcome {
        self.seen.lock().unwrap().push((run.tool.to_string(), run.timeout));
        if run.tool.as_str() == "slow" {
            self.begun.notify_one();
            cancelled.cancelled().await;
            *self.cancelled.lock().unwrap() += 1;
            return ToolOutcome::failed(ToolFailure::Cancelled, "");
        }
        ToolOutcome::done(format!("{} \"{}\"\n", run.tool, Value::Object(run.arguments)))
    }

    async fn health_check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Where code runs, what it may call, and what was called.
struct Place {
    name: &'static str,
    toolbox: Toolbox,
    witness: Arc<Witness>,
    docker: Option<Docker>,
}

impl Place {
    /// In containers of the engine at this socket, or as processes.
    fn new(socket: Option<&Path>) -> Self {
        let run_in = if socket.is_some() { "docker" } else { "process" };
        let docker = json!({
            "socket": socket.unwrap_or(Path::new("/nowhere")),
            "python_image": "python:test",
            "memory": "128m",
            "pids": 32,
        });
        let options = json!({ "run_in": run_in, "docker": docker });
        let options: SandboxOptions = serde_json::from_value(options).unwrap();
        let docker = socket.map(|_| {
            Docker::new(
                options.docker.clone(),
                ContainerOwner::new("tests", ME),
                Arc::new(|_| false),
            )
        });
        let commands = match &docker {
            Some(docker) => Commands::in_docker(&options, docker.clone(), None),
            None => Commands::in_processes(&options, Processes::new(options.process.clone()), None),
        };
        let witness = Arc::new(Witness::default());
        let executors: [Arc<dyn Executor>; 3] =
            [Arc::new(commands), Arc::new(Basics::new(Arc::new(SystemClock))), witness.clone()];
        Self { name: run_in, toolbox: Toolbox::new(executors).unwrap(), witness, docker }
    }

    /// What the agent of these tests has, and may do.
    fn callbacks(&self) -> Callbacks {
        let names =
            ["calculate", "look", "slow", "change", "deploy", "differs", "far", "execute_code"];
        let tools = names.map(|name| {
            let mut spec = self.toolbox.find(&name.parse().unwrap()).unwrap().spec().clone();
            if name == "differs" {
                spec.description.push('.');
            }
            (spec.name.clone(), spec.digest().unwrap())
        });
        let rule = |tool: &str, arguments: &[(&str, &str)], verdict| Rule {
            tool: Some(tool.to_owned()),
            risk: None,
            arguments: arguments
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect::<BTreeMap<_, _>>(),
            exact: false,
            verdict,
            reason: Some("for a reason".to_owned()),
        };
        let rules = vec![
            rule("change", &[("n", "1")], Verdict::Allow),
            rule("look", &[("path", "secret/*")], Verdict::Deny),
            rule("deploy", &[], Verdict::Deny),
            rule("execute_code", &[], Verdict::Allow),
        ];
        Callbacks {
            tools: tools.into(),
            policy: Policy { rules, ..Policy::default() },
            at_once: 100,
        }
    }

    async fn run(&self, code: &str, seconds: u32) -> (Option<ToolFailure>, String) {
        self.run_until(code, seconds, CancellationToken::new()).await
    }

    async fn run_until(
        &self,
        code: &str,
        seconds: u32,
        cancelled: CancellationToken,
    ) -> (Option<ToolFailure>, String) {
        let arguments = json!({ "code": code, "timeout_s": seconds });
        let Value::Object(arguments) = arguments else { unreachable!() };
        let call = CallId::from_u128(ulid());
        let run = ToolRun {
            call,
            agent: "main".parse().unwrap(),
            tool: "execute_code".parse().unwrap(),
            arguments,
            idempotency_key: JobId::from(call).to_string(),
            timeout: Duration::from_secs(330),
            limit: None,
            sink: clawnode_tool::RunSink::default(),
            shown: clawnode_tool::ShownMedia::default(),
        };
        let here = ["docker", "process"].map(|capability| capability.parse().unwrap()).into();
        match self.toolbox.end_calling(run, Some(self.callbacks()), here, cancelled).await {
            ToolEnd::Known { outcome } => told(outcome),
            ToolEnd::Uncertain { detail } => unreachable!("{detail}"),
        }
    }

    /// What was run, since it was last asked.
    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut *self.witness.seen.lock().unwrap())
            .into_iter()
            .map(|(tool, _)| tool)
            .collect()
    }

    async fn close(self) {
        if let Some(docker) = self.docker {
            docker.close().await;
        }
    }
}

/// What code is given: values of its calls, and errors that say why not.
async fn gets_what_it_may(place: &Place) {
    let name = place.name;
    let (failure, text) = place
        .run("import json\nprint('noise' * 1000)\n'a text\\n' + json.dumps(clawnode.call('look', n=3))", 30)
        .await;
    assert_eq!(
        (failure, text.as_str()),
        (None, "a text\n\"look \\\"{\\\"n\\\":3}\\\"\\n\""),
        "{name}"
    );
    for (code, value) in [
        ("return None", "null"),
        ("1 + 1", "2"),
        ("def f(n): return 1 if n < 2 else n * f(n - 1)\nreturn {'f': f(5)}", r#"{"f":120}"#),
        ("clawnode.tools.calculate(expression='6*7')", "42"),
        ("return '\\ud800'", "?"),
        ("print('x')", "null\n[what code prints is not shown: `return` a value]"),
        (
            "import time\nreturn [clawnode.parallel(*[('calculate', {'expression': f'{n}+1'}) for n in range(20)])[19]]",
            r#"["20"]"#,
        ),
        ("", "null"),
        (
            "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()\n7",
            "7",
        ),
    ] {
        let (failure, text) = place.run(code, 30).await;
        assert_eq!((failure, text.as_str()), (None, value), "{name}: {code}");
    }
    for (code, words) in [
        ("x = 1\nraise ValueError('no ' + str(x))", "raise ValueError('no ' + str(x))\n"),
        ("def f(:", "SyntaxError"),
        (
            "print('last words')\nimport sys\nsys.exit(3)",
            "SystemExit: 3\n[printed, its end]\nlast words",
        ),
        ("return {1, 2}", "cannot be handed on: Object of type set"),
        ("return float('nan')", "cannot be handed on: Out of range"),
        ("return 'x' * (1 << 20)", "cannot be handed on: 1048"),
        ("import os\nos._exit(4)", "the code ended with exit code 4 and returned nothing"),
        ("import socket\nsocket.create_connection(('1.1.1.1', 80), 3)", "unreachable"),
    ] {
        let (failure, text) = place.run(code, 30).await;
        assert_eq!(failure, Some(ToolFailure::Failed), "{name}: {code}: {text}");
        assert!(text.contains(words), "{name}: {code}: {text}");
    }
    assert_eq!(place.seen(), ["look"], "{name}");
}

/// CODE-1, S-12: code may call only tools that its agent has, that its policy allows without a
/// person, and that this node has: the failure if it may call more.
async fn s_12_is_not_widened(place: &Place) -> Result<(), String> {
    for (call, failure, words) in [
        ("'change', n=2", "refused", "a person must approve the call"),
        ("'change'", "refused", "make it a separate tool call"),
        ("'deploy'", "refused", "not allowed with these arguments (for a reason)"),
        ("'not_given'", "refused", "the agent has no tool `not_given`"),
        ("'no such/tool'", "refused", "the agent has no tool"),
        ("'differs'", "refused", "other settings on this node"),
        ("'execute_code', code='1'", "refused", "code cannot call"),
        ("'far'", "unavailable", "another node runs"),
        ("'look', n='x'", "invalid", "`n` must be of type integer"),
        ("'look', path='secret/k'", "refused", "not allowed with these arguments"),
        ("'look', path='.//secret/./k'", "refused", "not allowed with these arguments"),
        ("'look', path='a/../secret/k'", "refused", "not allowed with these arguments"),
    ] {
        let code = format!(
            "try: clawnode.call({call})\nexcept clawnode.ToolError as e:\n    return [e.failure, e.text]"
        );
        let (_, text) = place.run(&code, 30).await;
        let got: (String, String) =
            serde_json::from_str(&text).map_err(|_no_refusal| format!("S-12: {call}: {text}"))?;
        if got.0 != failure || !got.1.contains(words) {
            return Err(format!("S-12: {call}: {got:?}"));
        }
    }
    if !place.seen().is_empty() {
        return Err("S-12: something was run".to_owned());
    }
    let (failure, text) = place.run("clawnode.call('change', n=1)", 30).await;
    assert_eq!(failure, None, "what is allowed is run: {text}");
    assert_eq!(place.seen(), ["change"]);
    Ok(())
}

/// Writes this to every descriptor, whichever the node listens to, and waits to be ended.
fn forged(bytes: &str) -> String {
    format!(
        "import os, threading\ndata = {bytes}\nfor fd in range(3, 10):\n    at = 0\n    try:\n        \
         while at < len(data): at += os.write(fd, data[at:])\n    except OSError: pass\n\
         threading.Event().wait()"
    )
}

/// Whatever code says, its node is well, and nothing is run that may not be.
async fn hostile_code_gets_nothing(place: &Place) {
    let name = place.name;
    for (bytes, words) in [
        (r"b'garbage\n'", "a line that is not a message"),
        (r"b'\xff\xfe\n'", "a line that is not a message"),
        ("b'[' * 1000000 + b'\\n'", "a line that is not a message"),
        (r#"b'{"type":"begin","code":"","tools":[]}\n'"#, "a line that is not a message"),
        ("b'x' * (2 << 20)", "a line of more than 1048576 bytes"),
        (
            r#"b'{"type":"call","id":0,"tool":"deploy","arguments":{},"agent":"root"}\n'"#,
            "a line that is not a message",
        ),
        // Its answers are never read: no more is begun than may run at a time.
        (r#"b'{"type":"call","id":0,"tool":"change","arguments":{}}\n' * 2000"#, "1000 lines"),
    ] {
        let (failure, text) = place.run(&forged(bytes), 20).await;
        assert_eq!(failure, Some(ToolFailure::Failed), "{name}: {bytes}: {text}");
        assert!(text.contains(words), "{name}: {bytes}: {text}");
    }
    // The thread of `clawnode` hears an answer to an unknown call, and dies; the node does not.
    let (failure, text) =
        place.run(&forged(r#"b'{"type":"call","id":7,"tool":"look","arguments":{}}\n'"#), 4).await;
    assert_eq!(failure, Some(ToolFailure::TimedOut), "{name}: {text}");
    assert_eq!(place.seen(), ["look"], "{name}");

    let endless = "n = 0\nwhile True:\n    try: clawnode.call('look')\n    \
                   except clawnode.ToolError as e: last = e; n += 1\n    if n == 5: return str(last)";
    let (failure, text) = place.run(endless, 60).await;
    assert_eq!(failure, None, "{name}: {text}");
    assert!(text.contains("code may call tools 100 times, and it has"), "{name}: {text}");
    assert_eq!(place.seen().len(), 100, "{name}");

    let forks = "import os, threading\nfor n in range(10000):\n    try:\n        if os.fork() == 0: \
                 threading.Event().wait()\n    except OSError as e: return 'no more: ' + str(n < 1000)";
    let (failure, text) = place.run(forks, 60).await;
    assert_eq!((failure, text.as_str()), (None, "no more: True"), "{name}");
}

/// What is running when its code is ended is ended with it, and told.
async fn an_end_reaches_what_it_calls(place: &Place) {
    let name = place.name;
    let slow = "import threading\nprint('begun')\nfor n in range(20):\n    \
                threading.Thread(target=clawnode.call, args=('slow',), daemon=True).start()\n\
                threading.Event().wait()";
    let (failure, text) = place.run(slow, 6).await;
    assert_eq!(failure, Some(ToolFailure::TimedOut), "{name}: {text}");
    assert!(text.starts_with("timed_out: the code was ended after 6 s"), "{name}: {text}");
    assert!(text.contains("[it called `slow` 8x"), "{name}: no more than 8 at once: {text}");
    assert!(text.ends_with("[printed, its end]\nbegun"), "{name}: {text}");
    let seen = std::mem::take(&mut *place.witness.seen.lock().unwrap());
    assert_eq!(seen.len(), 8, "{name}");
    assert!(seen.iter().all(|(_, left)| *left <= Duration::from_secs(6)), "{name}: {seen:?}");
    assert_eq!(std::mem::take(&mut *place.witness.cancelled.lock().unwrap()), 8, "{name}");

    let cancelled = CancellationToken::new();
    let running = place.run_until("clawnode.call('slow')", 60, cancelled.clone());
    let stop = async {
        // Those of the run before have each left a word.
        while *place.witness.cancelled.lock().unwrap() == 0 && place.seen().is_empty() {
            place.witness.begun.notified().await;
        }
        cancelled.cancel();
    };
    let ((failure, text), ()) = tokio::join!(running, stop);
    assert_eq!(failure, Some(ToolFailure::Cancelled), "{name}: {text}");
    assert_eq!(*place.witness.cancelled.lock().unwrap(), 1, "{name}");
}

async fn all_of_it(place: Place) -> Outcome {
    gets_what_it_may(&place).await;
    s_12_is_not_widened(&place).await.unwrap();
    hostile_code_gets_nothing(&place).await;
    an_end_reaches_what_it_calls(&place).await;
    place.close().await;
    Ok(())
}

#[tokio::test]
async fn code_calls_tools_from_docker() -> Outcome {
    let engine = engine().await?;
    engine.import_python().await?;
    all_of_it(Place::new(Some(&engine.socket()))).await?;
    assert_eq!(engine.containers().await?, [""; 0]);
    engine.stop().await
}

#[tokio::test]
async fn code_calls_tools_from_a_process() -> Outcome {
    all_of_it(Place::new(None)).await
}

/// The twin: without a look at the policy something is run that a person should be asked about.
#[tokio::test]
async fn s_12_a_planted_bug_in_what_code_calls_is_found() {
    let place = Place::new(None);
    let place = Place { toolbox: place.toolbox.plant(PolicyPlanted::CodeUnjudged), ..place };
    let found = s_12_is_not_widened(&place).await.unwrap_err();
    assert!(found.starts_with("S-12: 'change', n=2: null"), "{found}");
    assert_eq!(place.seen(), ["change"]);
}
