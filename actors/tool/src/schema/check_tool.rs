//! Whether a tool may be configured.

use clawnode_proto::tool::ToolSpec;
use jsonschema::{PatternOptions, ValidationError, Validator, error::ValidationErrorKind};
use serde_json::Value;

use super::weigh::weigh;

/// Bytes of one tool's schema (64 KiB); all tools of an agent have to fit into their own limit.
const SCHEMA_BYTES: usize = 64 << 10;
/// Bytes of one tool's description (16 KiB).
const DESCRIPTION_BYTES: usize = 16 << 10;
/// Bytes that one compiled pattern may take, and as many for the states it is run with.
const PATTERN_BYTES: usize = 256 << 10;
/// Characters of a foreign error that are shown.
const SHOWN: usize = 300;
/// Characters of a wrong `type` that are shown.
const TYPE_SHOWN: usize = 80;
/// The types that a schema can name.
const TYPES: &str = "`string`, `number`, `integer`, `boolean`, `object`, `array` and `null`";

/// Why a tool may not be configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// More text than a model should read about one tool.
    #[error("its {what} is longer than {most} bytes")]
    TooLong {
        /// The part that is too long.
        what: &'static str,
        most: usize,
    },
    /// Its schema cannot be used.
    #[error("its input {0}")]
    Schema(#[from] SchemaFault),
    /// A call's arguments are an object.
    #[error("its input schema is not of `\"type\": \"object\"`")]
    NotAnObject,
    /// Without a capability it is run beside the session, and again after a crash.
    #[error("without a capability it must be safe or idempotent")]
    NotRepeatable,
    /// It may run for no time at all.
    #[error("its timeout is 0")]
    NoTime,
}

/// Why a schema cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaFault {
    /// It is longer than a schema may be.
    #[error("schema is longer than {most} bytes")]
    TooLong { most: usize },
    /// It is not JSON.
    #[error("schema is not JSON: {0}")]
    NotJson(String),
    /// It is nested too deeply, references followed.
    #[error("schema is more than {most} deep")]
    TooDeep { most: usize },
    /// Judging by it would take too long, references followed.
    #[error("schema has more than {most} parts, references and patterns counted")]
    TooHeavy { most: u64 },
    /// It refers to something that is not in it.
    #[error("schema refers to `{reference}`, which is not a pointer to a part of it")]
    Reference { reference: String },
    /// It refers to itself.
    #[error("schema refers to `{reference}` in a circle")]
    Circular { reference: String },
    /// It uses a keyword that changes what references mean.
    #[error("schema uses `{keyword}`, which is not supported")]
    Foreign { keyword: String },
    /// No value at all fits it.
    #[error("schema cannot be met by any reply: {0}")]
    Unmeetable(String),
    /// It says something that no schema can say.
    #[error("schema is not valid: {0}")]
    NotASchema(String),
}

/// A schema that can be used.
pub(super) struct Usable {
    pub(super) schema: Value,
    pub(super) validator: Validator,
    pub(super) weight: u64,
}

/// Whether the tool may be given to an agent.
pub fn check(spec: &ToolSpec) -> Result<(), SchemaError> {
    if spec.description.len() > DESCRIPTION_BYTES {
        return Err(SchemaError::TooLong { what: "description", most: DESCRIPTION_BYTES });
    }
    if spec.capability.is_none() && !spec.class.is_repeatable() {
        return Err(SchemaError::NotRepeatable);
    }
    if spec.timeout_ms == 0 {
        return Err(SchemaError::NoTime);
    }
    Usable::of_arguments(&spec.input_schema).map(drop)
}

impl Usable {
    /// The schema of a tool's arguments.
    pub(super) fn of_arguments(text: &str) -> Result<Self, SchemaError> {
        let usable = Self::read(text, SCHEMA_BYTES)?;
        match usable.schema.get("type").and_then(Value::as_str) {
            Some("object") => Ok(usable),
            _ => Err(SchemaError::NotAnObject),
        }
    }

    /// A schema of at most so many bytes.
    pub(super) fn read(text: &str, most: usize) -> Result<Self, SchemaFault> {
        if text.len() > most {
            return Err(SchemaFault::TooLong { most });
        }
        let schema: Value =
            serde_json::from_str(text).map_err(|error| SchemaFault::NotJson(error.to_string()))?;
        let weight = weigh(&schema)?;
        let patterns =
            PatternOptions::regex().size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES);
        let built = jsonschema::options()
            .offline()
            .should_validate_formats(false)
            .with_pattern_options(patterns)
            .build(&schema);
        let validator = built.map_err(|error| {
            let place = error.instance_path().to_string();
            let why = unknown_type(&error, &place).unwrap_or_else(|| error.masked().to_string());
            let why: String = why.chars().take(SHOWN).collect();
            SchemaFault::NotASchema(if place.is_empty() {
                why
            } else {
                format!("`{place}`: {why}")
            })
        })?;
        Ok(Self { schema, validator, weight })
    }
}

/// What is wrong with a `type`, and what it can be: the validator only says that none of its own rules holds.
fn unknown_type(error: &ValidationError<'_>, place: &str) -> Option<String> {
    let is_type = place.rsplit('/').next() == Some("type")
        && matches!(error.kind(), ValidationErrorKind::AnyOf { .. });
    let given: String = error.instance().to_string().chars().take(TYPE_SHOWN).collect();
    is_type
        .then(|| format!("{given} is not a type of JSON; write one of {TYPES}, or a list of them"))
}
