//! Several hooks of one point: in the order of their names, each shown what those before it made of
//! it. Neighbours that only judge cannot matter to each other, and are asked together.

use std::future::Future;

use clawnode_proto::{
    AgentName, CallId, SessionKey, TurnId,
    hook::{HookBlock, HookFault, HookPoint, HookSpec, HookTrail, PassedOver},
};
use futures_util::future::join_all;
use serde::Serialize;
use serde_json::Value;
use tracing::{debug, warn};

use super::{Hooks, answer::HookAnswer};

/// The version of the documents that hooks read.
const VERSION: u32 = 1;

/// Whose call it is.
#[derive(Clone, Debug, Serialize)]
pub struct About {
    pub point: HookPoint,
    pub session: SessionKey,
    /// On behalf of which agent.
    pub agent: AgentName,
    pub turn: TurnId,
    /// The call: the same whenever it is asked about again.
    pub call: CallId,
}

/// What hooks are asked about.
pub trait Subject: Send {
    /// What the next hook is shown.
    fn document(&self) -> impl Future<Output = Result<Value, HookFault>> + Send;
    /// Takes a change, or says that it cannot be made.
    fn change(&mut self, patch: Value) -> Result<(), HookFault>;
}

#[derive(Serialize)]
struct HookDocument<'a> {
    version: u32,
    about: &'a About,
    subject: Value,
}

/// Why a hook gave no answer that counts.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub(super) fault: HookFault,
    /// What it wrote on standard error, if it ended with an error.
    pub(super) complaint: String,
}

impl From<HookFault> for Unanswered {
    fn from(fault: HookFault) -> Self {
        Self { fault, complaint: String::new() }
    }
}

/// Asks hooks, which are in the order of their names; what they changed is in `subject`.
pub async fn judge(
    hooks: &Hooks,
    about: &About,
    specs: &[HookSpec],
    subject: &mut impl Subject,
) -> HookTrail {
    let mut trail = HookTrail::default();
    for group in specs.chunk_by(|one, next| !one.modifies && !next.modifies) {
        let answers = ask_all(hooks, about, group, subject).await;
        for (spec, answer) in group.iter().zip(answers) {
            let answer = answer.and_then(|answer| match answer {
                HookAnswer::Modify { .. } if !spec.modifies => Err(HookFault::Unfit.into()),
                HookAnswer::Modify { patch } => {
                    subject.change(patch)?;
                    trail.changed_by.push(spec.name.clone());
                    Ok(None)
                }
                HookAnswer::Block { reason } => Ok(Some(reason)),
                HookAnswer::Allow => Ok(None),
            });
            hooks.fared(spec, answer.as_ref().err().map(|why| why.fault));
            let reason = answer.unwrap_or_else(|why| fails(about, spec, why, &mut trail));
            if let Some(reason) = reason {
                debug!(hook = %spec.name, point = %about.point, call = %about.call, "blocked");
                trail.blocked = Some(HookBlock { hook: spec.name.clone(), reason });
                return trail;
            }
        }
    }
    trail
}

/// What follows when none of these gives an answer.
pub fn unanswered(about: &About, specs: &[HookSpec], fault: HookFault) -> HookTrail {
    let mut trail = HookTrail::default();
    for spec in specs {
        if let Some(reason) = fails(about, spec, fault.into(), &mut trail) {
            trail.blocked = Some(HookBlock { hook: spec.name.clone(), reason });
            return trail;
        }
    }
    trail
}

async fn ask_all(
    hooks: &Hooks,
    about: &About,
    group: &[HookSpec],
    subject: &impl Subject,
) -> Vec<Result<HookAnswer, Unanswered>> {
    let document = subject.document().await.and_then(|subject| {
        let document = HookDocument { version: VERSION, about, subject };
        serde_json::to_vec(&document).map_err(|_plain_data| HookFault::TooLarge)
    });
    match document {
        Ok(document) => join_all(group.iter().map(|spec| hooks.ask(spec, about, &document))).await,
        Err(fault) => group.iter().map(|_| Err(fault.into())).collect(),
    }
}

/// What follows when a hook gives no answer that counts; a reason if nothing goes on.
fn fails(
    about: &About,
    spec: &HookSpec,
    Unanswered { fault, complaint }: Unanswered,
    trail: &mut HookTrail,
) -> Option<String> {
    let (hook, point, call) = (&spec.name, about.point, about.call);
    let why = fault.as_str();
    if spec.required {
        warn!(%hook, %point, %call, why, "a required hook gave no answer; the call is blocked");
        // A complaint may quote the conversation. It goes neither into a log nor to a model, and a model
        // reads the reasons of blocked tool calls and results.
        let is_told = point == HookPoint::BeforeLlmCall && !complaint.is_empty();
        let says = if is_told { format!(": {complaint}") } else { String::new() };
        return Some(format!("it is required, and it {why}{says}"));
    }
    warn!(%hook, %point, %call, why, "a hook gave no answer; it is skipped");
    trail.passed_over.push(PassedOver { hook: hook.clone(), fault });
    None
}
