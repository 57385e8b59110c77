//! Schemas of types that are written by hand: texts, for people and clients alike.

/// Says that these are texts in JSON, and what they look like.
macro_rules! texts {
    ($($name:ty = $pattern:expr;)*) => {$(
        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "pattern": $pattern })
            }
        }
    )*};
}

impl schemars::JsonSchema for Reasoning {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Reasoning".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "anyOf": [
            { "type": "string", "enum": ["off", "low", "medium", "high"] },
            { "type": "integer", "minimum": Self::MIN_TOKENS, "maximum": u32::MAX },
        ] })
    }
}

impl schemars::JsonSchema for AccountKey {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AccountKey".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "pattern": "^(cluster|agent:.+|user:[^:]+:[^:]+:[^:]+)$",
            "examples": ["cluster"],
        })
    }
}

impl schemars::JsonSchema for MemoryKey {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "MemoryKey".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "pattern": "^([^/]+/all|[^/]+/peer/[^:]+:[^:]+:[^:]+|shared/[^/]+)$",
            "examples": ["default/all"],
        })
    }
}

use crate::{
    budget::AccountKey,
    frame::FrameKey,
    id::{
        CallId, Digest, EntityId, EventId, ExecutionId, FileId, InputId, JobId, Kind,
        MemoryPointId, ProcessId, SwitchId, TimerId, TurnId,
    },
    memory::MemoryKey,
    reasoning::Reasoning,
};

texts! {
    CallId = "^call_[0-9a-z]{26}$";
    Digest = "^[0-9a-f]{64}$";
    EntityId = "^ent_[0-9a-z]{26}$";
    EventId = "^ev_[0-9a-z]{26}$";
    ExecutionId = "^exe_[0-9a-z]{26}$";
    FileId = "^file_[0-9a-z]{26}$";
    FrameKey = r"^turn_[0-9a-z]{26}\.call_[0-9a-z]{26}\.[0-9]+\.[0-9]+$";
    InputId = "^in_[0-9a-z]{26}$";
    JobId = "^job_[0-9a-z]{26}$";
    Kind = "^[a-z0-9_]+$";
    MemoryPointId = "^point_[0-9a-z]{26}$";
    SwitchId = "^latch_[0-9a-z]{26}$";
    ProcessId = "^proc_[0-9a-z]{26}$";
    TimerId = "^tmr_[0-9a-z]{26}$";
    TurnId = "^turn_[0-9a-z]{26}$";
}
