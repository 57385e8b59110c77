//! What a running call may call in its turn: never more than its agent does by itself (CODE-1).
//!
//! A call is let through only if the agent has the tool (as the owner of its session says), this
//! node has the same tool and can run it now, the arguments fit its schema, and the agent's policy
//! allows them without a person. It needs a permit of the kill switch like any other, keeps what every run
//! keeps, and has nothing that it may call itself.
//!
//! Not here: tools that only another node can run. A job's result is an input of its session, and
//! no session waits for calls that its journal does not name.

use std::{collections::BTreeSet, time::Duration};

use clawnode_guard::policy::judge;
use clawnode_proto::{
    AgentName, CallId, Capability, JobId, ToolName,
    job::Callbacks,
    policy::Verdict,
    session::ToolEnd,
    tool::{EXECUTE_CODE, ToolFailure, ToolOutcome, ToolSpec},
};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::{RunSink, ShownMedia, ToolRun, Toolbox, append::append, schema};

/// Calls of one run at a time, even if its agent may have more.
const AT_ONCE: u32 = 8;

/// The tools that one running call may call.
#[derive(Clone, Debug, Default)]
pub struct CallBack {
    toolbox: Toolbox,
    /// The tools that this node can run now.
    capabilities: BTreeSet<Capability>,
    callbacks: Option<Callbacks>,
}

/// On whose behalf it calls.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The call that is running.
    pub call: CallId,
    pub agent: AgentName,
}

/// One call that a running call makes.
#[derive(Clone, Debug)]
pub struct Nested {
    /// Which, from 0.
    pub index: u32,
    pub tool: String,
    pub arguments: Map<String, Value>,
    /// What is left of the time of the call that makes it.
    pub left: Duration,
}

// === impl CallBack ===

impl CallBack {
    /// These, as far as they can be run in `toolbox` by what the node can do now.
    pub fn new(
        toolbox: Toolbox,
        capabilities: BTreeSet<Capability>,
        callbacks: Option<Callbacks>,
    ) -> Self {
        Self { toolbox, capabilities, callbacks }
    }

    /// The tools that may be called here, if the arguments are allowed as well.
    pub fn offered(&self) -> Vec<&ToolName> {
        let tools = self.callbacks.iter().flat_map(|callbacks| callbacks.tools.keys());
        tools.filter(|name| self.find(name.as_str()).is_ok()).collect()
    }

    /// Calls at a time.
    pub fn at_once(&self) -> usize {
        let wanted = self.callbacks.as_ref().map_or(AT_ONCE, |callbacks| callbacks.at_once);
        usize::try_from(wanted.clamp(1, AT_ONCE)).unwrap_or(1)
    }

    /// Makes a call, or says why not.
    pub async fn call(
        &self,
        caller: &Caller,
        nested: Nested,
        cancelled: CancellationToken,
    ) -> ToolOutcome {
        let (spec, arguments) = match self.allowed(&nested) {
            Ok(allowed) => allowed,
            Err(refused) => return refused,
        };
        let call = CallId::derive_tool(caller.call, nested.index);
        let run = ToolRun {
            call,
            agent: caller.agent.clone(),
            tool: spec.name.clone(),
            arguments,
            idempotency_key: JobId::from(call).to_string(),
            timeout: Duration::from_millis(u64::from(spec.timeout_ms)).min(nested.left),
            limit: None,
            // The log is the outer run's own.
            sink: RunSink::default(),
            // Code that calls a tool gets text.
            shown: ShownMedia::default(),
        };
        match self.toolbox.end(run, cancelled).await {
            ToolEnd::Known { outcome } => outcome,
            ToolEnd::Uncertain { detail } => {
                let why = format!("it is unknown whether it happened: {detail}");
                ToolOutcome::failed(ToolFailure::Cancelled, why)
            }
        }
    }

    /// The tool and the arguments of a call that may be made.
    fn allowed(&self, nested: &Nested) -> Result<(&ToolSpec, Map<String, Value>), ToolOutcome> {
        let refused = |why| ToolOutcome::failed(ToolFailure::Refused, why);
        let spec = self.find(&nested.tool)?;
        // As text, because that is what is judged of a model's calls too.
        let text = Value::Object(nested.arguments.clone()).to_string();
        let arguments = schema::judge(spec, &text)
            .map_err(|why| ToolOutcome::failed(ToolFailure::Invalid, why))?;
        if self.toolbox.obeys_policy()
            && let Some(callbacks) = &self.callbacks
        {
            let judgement = judge(&callbacks.policy, spec, &arguments);
            let name = &spec.name;
            let mut why = match judgement.verdict {
                Verdict::Allow => return Ok((spec, arguments)),
                Verdict::Ask => format!(
                    "code cannot call `{name}` with these arguments, because a person must approve \
                     the call; make it a separate tool call"
                ),
                Verdict::Deny => format!("`{name}` is not allowed with these arguments"),
            };
            if let Some(reason) = judgement.reason {
                append(&mut why, format_args!(" ({reason})"));
            }
            return Err(refused(why));
        }
        Ok((spec, arguments))
    }

    /// The tool of this name, if the agent has it and this node can run what the agent has.
    fn find(&self, name: &str) -> Result<&ToolSpec, ToolOutcome> {
        let refused = |why: String| ToolOutcome::failed(ToolFailure::Refused, why);
        let shown: String = name.chars().take(80).collect();
        if name == EXECUTE_CODE {
            return Err(refused(format!("code cannot call `{EXECUTE_CODE}`")));
        }
        let tools = self.callbacks.as_ref().map(|callbacks| &callbacks.tools);
        let known = name.parse::<ToolName>().ok().and_then(|name| tools?.get(&name).copied());
        let Some(digest) = known else {
            return Err(refused(format!("the agent has no tool `{shown}`")));
        };
        let tool = name.parse().ok().and_then(|name| self.toolbox.find(&name));
        let here = tool.map(crate::Tool::spec).filter(|spec| {
            spec.capability.as_ref().is_none_or(|capability| self.capabilities.contains(capability))
        });
        let Some(spec) = here else {
            let why = format!(
                "another node runs `{shown}`, which code cannot call; make it a separate tool call"
            );
            return Err(ToolOutcome::failed(ToolFailure::Unavailable, why));
        };
        if spec.digest().ok() != Some(digest) {
            return Err(refused(format!(
                "`{shown}` has other settings on this node than the agent's tool has"
            )));
        }
        Ok(spec)
    }
}
