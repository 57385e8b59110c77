//! Tools that are pure functions of their arguments and the clock. They need no capability: they
//! run beside the session.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use clawnode_cluster::Clock;
use clawnode_proto::tool::{EffectClass, Risk, ToolFailure, ToolOutcome, ToolSpec};
use clawnode_tool::{Executor, ToolRun, arguments, spec::BuiltIn};
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    calculate, time,
    transform::{self, TRANSFORM_JSON, TRANSFORM_TEXT, TransformJson, TransformText},
};

const TIME_NOW: &str = "time_now";
const CALCULATE: &str = "calculate";
/// None can take long.
const TIMEOUT: Duration = Duration::from_secs(5);

/// `time_now`, `calculate`, `transform_json` and `transform_text`.
#[derive(Debug)]
pub struct Basics {
    clock: Arc<dyn Clock>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TimeNow {
    timezone: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Calculate {
    expression: String,
}

impl Basics {
    /// The built-in tools; `time_now` reads `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock }
    }

    fn run(&self, mut run: ToolRun) -> Result<ToolOutcome, ToolOutcome> {
        let told: Result<String, String> = match run.tool.as_str() {
            TIME_NOW => {
                let TimeNow { timezone } = arguments::read(&mut run)?;
                time::tell(self.clock.now(), timezone.as_deref())
            }
            CALCULATE => {
                let Calculate { expression } = arguments::read(&mut run)?;
                calculate::calculate(&expression).map_err(|error| error.to_string())
            }
            TRANSFORM_JSON => arguments::read::<TransformJson>(&mut run)?.run(),
            TRANSFORM_TEXT => arguments::read::<TransformText>(&mut run)?.run(),
            other => Err(format!("there is no tool `{other}` here")),
        };
        told.map(ToolOutcome::done).map_err(|why| ToolOutcome::failed(ToolFailure::Invalid, why))
    }
}

#[async_trait]
impl Executor for Basics {
    fn tools(&self) -> Vec<ToolSpec> {
        let basic = |name, description, input| BuiltIn {
            name,
            description,
            input,
            class: EffectClass::Safe,
            risk: Risk::ReadOnly,
            capability: None,
            timeout: TIMEOUT,
        };
        let time_now = basic(
            TIME_NOW,
            "Tells the current date and time, with weekday, ISO week and Unix time. \
             Use it whenever an answer depends on today's date or the time of day.",
            json!({
                "type": "object",
                "properties": {
                    "timezone": {
                        "type": "string",
                        "description": "An IANA time zone such as `Europe/Berlin`, or an offset \
                                        such as `+02:00`. Without it: UTC.",
                        "maxLength": time::ZONE_BYTES,
                    }
                },
                "additionalProperties": false,
            }),
        );
        let calculate = basic(
            CALCULATE,
            "Computes an arithmetic expression. Decimal numbers are exact to 28 places and \
             integers to 38 digits; a result that had to be rounded says `approximate`. Operators: \
             + - * / % (remainder, with the sign of the dividend) ^ (power, binds to the right), \
             parentheses. Functions: abs sqrt cbrt exp ln log10 log2 log(x,base) sin cos tan asin \
             acos atan atan2(y,x) sinh cosh tanh hypot floor ceil trunc round(x,places) min max \
             sum. Constants: pi e tau. Angles are in radians. No variables, no units, no \
             thousands separators.",
            json!({
                "type": "object",
                "properties": {
                    "expression": {
                        "type": "string",
                        "description": "For example `(19.99 * 3 + 4.50) * 1.19`.",
                        "minLength": 1,
                        "maxLength": calculate::EXPRESSION_BYTES,
                    }
                },
                "required": ["expression"],
                "additionalProperties": false,
            }),
        );
        [time_now.spec(), calculate.spec()].into_iter().chain(transform::specs(TIMEOUT)).collect()
    }

    async fn execute(&self, run: ToolRun, _cancelled: CancellationToken) -> ToolOutcome {
        self.run(run).unwrap_or_else(|failed| failed)
    }

    async fn health_check(&self) -> Result<(), String> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{CallId, Timestamp};

    use super::*;
    use clawnode_tool::schema;

    #[derive(Debug)]
    struct Fixed;

    impl Clock for Fixed {
        fn now(&self) -> Timestamp {
            Timestamp(1_700_000_000_000)
        }
    }

    fn call(tool: &str, arguments: &str) -> ToolOutcome {
        let basics = Basics::new(Arc::new(Fixed));
        let spec = basics.tools().into_iter().find(|spec| spec.name.as_str() == tool).unwrap();
        let arguments = schema::judge(&spec, arguments).unwrap();
        let run = ToolRun {
            call: CallId::from_u128(1),
            agent: "main".parse().unwrap(),
            tool: spec.name,
            arguments,
            idempotency_key: "job_1".to_owned(),
            timeout: TIMEOUT,
            sink: clawnode_tool::RunSink::default(),
            shown: clawnode_tool::ShownMedia::default(),
            limit: None,
        };
        basics.run(run).unwrap_or_else(|failed| failed)
    }

    #[test]
    fn they_may_be_offered() {
        for spec in Basics::new(Arc::new(Fixed)).tools() {
            schema::check(&spec).unwrap();
        }
    }

    #[test]
    fn the_clock_is_the_one_that_was_given() {
        let told = call(TIME_NOW, r#"{"timezone":"Europe/Berlin"}"#);
        assert!(
            told.content.inline().unwrap().starts_with("2023-11-14T23:13:20+01:00"),
            "{told:?}"
        );
        let told = call(TIME_NOW, "");
        assert!(told.content.inline().unwrap().starts_with("2023-11-14T22:13:20Z"), "{told:?}");
        assert_eq!(call(TIME_NOW, r#"{"timezone":"Mars"}"#).failure, Some(ToolFailure::Invalid));
    }

    #[test]
    fn an_expression_is_computed_or_explained() {
        assert_eq!(call(CALCULATE, r#"{"expression":"0.1+0.2"}"#), ToolOutcome::done("0.3"));
        let failed = call(CALCULATE, r#"{"expression":"1/0"}"#);
        assert_eq!(failed.failure, Some(ToolFailure::Invalid));
        let told = call(TRANSFORM_JSON, r#"{"input":"[7]","pointer":"/0"}"#);
        assert_eq!(told, ToolOutcome::done("7"));
        let told = call(TRANSFORM_TEXT, r#"{"input":"a","operation":"upper"}"#);
        assert_eq!(told, ToolOutcome::done("A"));
    }
}
