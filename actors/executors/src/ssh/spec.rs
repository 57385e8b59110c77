//! A host's tool, and what its calls ask for.

use std::time::Duration;

use clawnode_proto::{
    Capability, Digest, ToolName,
    timeout::{TimeBound, ToolTime},
    tool::{EffectClass, ToolSpec},
};
use serde_json::json;

use super::SshHostOptions;

/// The longest that a command may take (120 s), and how long it does unless its call says otherwise.
pub(super) const TIMEOUT: Duration = Duration::from_mins(2);
/// What a call may take beside its command: connecting, and an end.
const MARGIN: Duration = Duration::from_secs(20);
/// Bytes of a command line.
const COMMAND_BYTES: usize = 100_000;

/// The tools of these hosts, as an agent may be given them, whichever node runs them.
pub fn specs(hosts: &[SshHostOptions]) -> Vec<ToolSpec> {
    hosts.iter().map(spec).collect()
}

/// The tool of one host.
pub(super) fn spec(host: &SshHostOptions) -> ToolSpec {
    let most = TIMEOUT.as_secs();
    let mut description = format!(
        "Runs a command line on the host `{}`, as its user `{}`, in that user's shell, and returns \
         what it printed, its errors after `[stderr]` and its exit code if it is not 0. It is a \
         real machine: what is done stays done.",
        host.name, host.user
    );
    if !host.commands.is_empty() {
        description.push_str(" Only these may be run (`*` is any text): ");
        description.push_str(&host.commands.join(", "));
    }
    let input = json!({
        "type": "object",
        "properties": {
            "command": {
                "type": "string",
                "description": "The command line.",
                "minLength": 1,
                "maxLength": COMMAND_BYTES,
            },
            "timeout_s": {
                "type": "number",
                "description": format!("Seconds that it may take. Default and most: {most}."),
                "exclusiveMinimum": 0,
                "maximum": most,
            },
        },
        "required": ["command"],
        "additionalProperties": false,
    });
    // The pin of the tool: its host, its user and its allowed commands.
    let pin = json!([host.name, host.host, host.port, host.user, host.commands]);
    ToolSpec {
        name: ToolName::of_ssh(&host.name),
        description,
        input_schema: input.to_string(),
        class: EffectClass::Once,
        risk: host.risk,
        capability: Some(Capability::of_ssh(&host.name)),
        timeout_ms: u32::try_from((TIMEOUT + MARGIN).as_millis()).unwrap_or(u32::MAX),
        time: Some(time(host)),
        pin: Some(Digest::of(pin.to_string().as_bytes())),
    }
}

/// How long its calls may take: no connection is kept longer, for any caller.
fn time(host: &SshHostOptions) -> ToolTime {
    let ms = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    // Of every host, and no setting.
    let fixed = "the SSH executor".to_owned();
    let set_in = format!("tools.timeouts.{}", ToolName::of_ssh(&host.name));
    ToolTime {
        provider: Some(TimeBound { ms: ms(TIMEOUT), set_in: fixed }),
        command: TimeBound { ms: ms(TIMEOUT), set_in },
        argument: Some("timeout_s".to_owned()),
        margin_ms: ms(MARGIN),
    }
}
