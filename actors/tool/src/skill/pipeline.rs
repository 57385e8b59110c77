//! Pipelines: steps in YAML that run as a plan. Pure.
//!
//! A pipeline adds three things to a plan: names of steps, inputs that are given when it is run, and the eight
//! [`pipeline_actions`](super::pipeline_actions). All of it is resolved before there is a plan, except for references to outputs, which
//! plans have themselves ([`crate::template`]).

use std::{borrow::Cow, collections::BTreeMap};

use clawnode_proto::{
    limits::{EXECUTION_STEPS, PIPELINE_BYTES, PIPELINE_INPUTS, PLAN_BYTES},
    provider::{ExecutionSpec, StepSpec},
};
use serde_json::{Map, Value};

use super::{
    pipeline_actions::{EXPECT_SUCCESS, SHOWN, tool_of},
    yaml_tree::{self, YamlContent, YamlFault, YamlField, YamlNode},
};
use crate::template::{self, TemplatePart};

/// The file of a skill's folder that is its pipeline.
pub const PIPELINE_FILE: &str = "pipeline.yaml";
/// Characters of the name of a step or an input.
const NAME_CHARS: usize = 64;
/// What references begin and end with: `inputs.NAME`, `steps.NAME.output`.
const INPUTS: &str = "inputs.";
const STEPS: &str = "steps.";
const OUTPUT: &str = ".output";

/// A pipeline. Its references are valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pipeline {
    /// What it does, for people.
    pub description: Option<String>,
    /// What is given when it is run, in order.
    pub inputs: Vec<PipelineInput>,
    steps: Vec<PipelineStep>,
}

/// A value that a person gives when the pipeline is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineInput {
    /// Its name.
    pub name: String,
    /// Its value if none is given. Without one, it has to be given.
    pub default: Option<String>,
}

/// A step as it is written, with the tool of its action.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PipelineStep {
    name: String,
    tool: String,
    params: Vec<StepParam>,
    goes_on: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct StepParam {
    name: String,
    line: usize,
    value: Value,
}

/// The values of the inputs of one run, by their names.
type InputValues<'a> = BTreeMap<&'a str, &'a str>;

/// What the parameters of a step can refer to.
struct StepScope<'a> {
    values: &'a InputValues<'a>,
    earlier: &'a [PipelineStep],
    /// Whether the step refers to outputs, which the plan fills in.
    interpolate: bool,
}

/// What a reference means.
enum Referred<'a> {
    /// The value of an input.
    Value(&'a str),
    /// The output of the step of this number, from 1.
    Output(usize),
}

// === impl Pipeline ===

impl Pipeline {
    /// Reads a pipeline and checks all of it that does not depend on its inputs and its agent.
    pub fn parse(text: &str) -> Result<Self, YamlFault> {
        if text.len() > PIPELINE_BYTES {
            let what = format!("the pipeline has more than {PIPELINE_BYTES} bytes");
            return Err(YamlFault { line: 1, what });
        }
        let root = yaml_tree::read(text)?;
        let mut pipeline = Self { description: None, inputs: Vec::new(), steps: Vec::new() };
        for field in fields(&root, "a pipeline")? {
            let value = &field.value;
            match field.name.as_str() {
                "description" => pipeline.description = Some(text_of(field)?),
                "inputs" => pipeline.inputs = inputs(value)?,
                "steps" => pipeline.steps = steps(value)?,
                _ => return Err(unknown_field(field, "description, inputs and steps")),
            }
        }
        if pipeline.steps.is_empty() {
            return Err(root.fault("`steps` is missing".to_owned()));
        }
        // The references of all steps, with some value for each input.
        let blank: InputValues<'_> =
            pipeline.inputs.iter().map(|input| (input.name.as_str(), "")).collect();
        pipeline.resolve(&blank)?;
        Ok(pipeline)
    }

    /// The plan, with these values of inputs. The error is for the person who gave them.
    pub fn plan(&self, given: &BTreeMap<String, String>) -> Result<ExecutionSpec, String> {
        let names: Vec<&str> = self.inputs.iter().map(|input| input.name.as_str()).collect();
        if let Some(unknown) = given.keys().find(|name| !names.contains(&name.as_str())) {
            let unknown: String = unknown.chars().take(SHOWN).collect();
            let known = match names.as_slice() {
                [] => "it has none".to_owned(),
                names => format!("it has {}", names.join(", ")),
            };
            return Err(format!("the pipeline has no input `{unknown}`; {known}"));
        }
        let mut values = InputValues::new();
        for PipelineInput { name, default } in &self.inputs {
            let Some(value) = given.get(name).or(default.as_ref()) else {
                return Err(format!("the input `{name}` has no value and no default: give it one"));
            };
            values.insert(name, value);
        }
        self.resolve(&values).map_err(|fault| fault.to_string())
    }

    /// Its steps, with references to inputs replaced by their values.
    fn resolve(&self, values: &InputValues<'_>) -> Result<ExecutionSpec, YamlFault> {
        let mut room = PLAN_BYTES;
        let steps = (0..self.steps.len()).map(|at| self.resolve_step(at, values, &mut room));
        Ok(ExecutionSpec { steps: steps.collect::<Result<_, _>>()? })
    }

    fn resolve_step(
        &self,
        at: usize,
        values: &InputValues<'_>,
        room: &mut usize,
    ) -> Result<StepSpec, YamlFault> {
        let (earlier, rest) = self.steps.split_at(at);
        let Some(step) = rest.first() else { return Ok(StepSpec::default()) };
        let interpolate = step.params.iter().any(|param| refers_to_steps(&param.value));
        let scope = StepScope { values, earlier, interpolate };
        let mut params = Map::new();
        for StepParam { name, line, value } in &step.params {
            let mut value = value.clone();
            let mut change = |text: &str| -> Result<String, String> {
                let resolved = scope.resolve(text)?;
                *room = room.checked_sub(resolved.len()).ok_or_else(too_long)?;
                Ok(resolved)
            };
            template::check_argument(name, &value)
                .and_then(|()| template::each_text(&mut value, &mut change))
                .map_err(|why| {
                    let what = format!("step `{}`: `params.{name}`: {why}", step.name);
                    YamlFault { line: *line, what }
                })?;
            params.insert(name.clone(), value);
        }
        let (action, continue_on_failure) = (step.tool.clone(), step.goes_on);
        Ok(StepSpec { action, params, continue_on_failure, interpolate })
    }
}

fn too_long() -> String {
    format!("with the inputs in them, the steps have more than {PLAN_BYTES} bytes")
}

/// Whether the texts of a value refer to outputs of steps. A reference that cannot be read is refused elsewhere.
fn refers_to_steps(value: &Value) -> bool {
    let mut refers = false;
    let mut look = |text: &str| -> Result<String, String> {
        let is_to_step = |part: &TemplatePart<'_>| match part {
            TemplatePart::Reference(reference) => reference.starts_with(STEPS),
            TemplatePart::Literal(_) => false,
        };
        refers |= template::parts(text)?.iter().any(is_to_step);
        Ok(String::new())
    };
    template::each_text(&mut value.clone(), &mut look).unwrap_or_default();
    refers
}

// === impl StepScope ===

impl StepScope<'_> {
    /// A text of a parameter as the plan has it.
    fn resolve(&self, text: &str) -> Result<String, String> {
        let (mut resolved, mut literal) = (String::new(), String::new());
        for part in template::parts(text)? {
            match part {
                TemplatePart::Literal(text) => literal.push_str(text),
                TemplatePart::Reference(reference) => match self.referred(reference)? {
                    Referred::Value(value) => literal.push_str(value),
                    Referred::Output(number) => {
                        resolved.push_str(&self.written(&literal));
                        literal.clear();
                        resolved.push_str(&template::output_of(number));
                    }
                },
            }
            if literal.len() > PLAN_BYTES || resolved.len() > PLAN_BYTES {
                return Err(too_long());
            }
        }
        resolved.push_str(&self.written(&literal));
        Ok(resolved)
    }

    /// A literal in a plan. Only in a step that is interpolated, braces are read.
    fn written<'a>(&self, literal: &'a str) -> Cow<'a, str> {
        if self.interpolate { template::written(literal) } else { Cow::Borrowed(literal) }
    }

    fn referred(&self, reference: &str) -> Result<Referred<'_>, String> {
        let input = reference.strip_prefix(INPUTS).and_then(|name| self.values.get(name));
        if let Some(value) = input {
            return Ok(Referred::Value(value));
        }
        let name = reference.strip_prefix(STEPS).and_then(|rest| rest.strip_suffix(OUTPUT));
        let at = name.and_then(|name| self.earlier.iter().position(|step| step.name == name));
        at.map(|at| Referred::Output(at + 1)).ok_or_else(|| {
            let inputs = self.values.keys().map(|name| format!("{INPUTS}{name}"));
            let steps = self.earlier.iter().map(|step| format!("{STEPS}{}{OUTPUT}", step.name));
            let known: Vec<String> = inputs.chain(steps).collect();
            let known = match known.as_slice() {
                [] => "there is no input and no earlier step".to_owned(),
                known => format!("this step can refer to {}", known.join(", ")),
            };
            template::unknown(reference, &known)
        })
    }
}

// === what is in the file ===

/// The fields of a mapping.
fn fields<'a>(node: &'a YamlNode, what: &str) -> Result<&'a [YamlField], YamlFault> {
    match &node.content {
        YamlContent::Fields(fields) => Ok(fields),
        YamlContent::Scalar { .. } | YamlContent::List(_) => {
            Err(node.fault(format!("{what} is not a list of `field: value`")))
        }
    }
}

fn unknown_field(field: &YamlField, known: &str) -> YamlFault {
    let name: String = field.name.chars().take(SHOWN).collect();
    YamlFault { line: field.line, what: format!("unknown field `{name}`; there are {known}") }
}

/// The text of a field that has one.
fn text_of(field: &YamlField) -> Result<String, YamlFault> {
    let text = field.value.scalar().map(str::trim).filter(|text| !text.is_empty());
    text.map(str::to_owned).ok_or_else(|| YamlFault {
        line: field.line,
        what: format!("`{}` is not a text", field.name),
    })
}

fn inputs(node: &YamlNode) -> Result<Vec<PipelineInput>, YamlFault> {
    let mut inputs = Vec::new();
    for field in fields(node, "`inputs`")? {
        let fault = |what: String| YamlFault { line: field.line, what };
        check_name(&field.name).map_err(fault)?;
        if inputs.len() >= PIPELINE_INPUTS {
            return Err(fault(format!("a pipeline has at most {PIPELINE_INPUTS} inputs")));
        }
        if !matches!(field.value.content, YamlContent::Scalar { .. }) {
            let name = &field.name;
            return Err(fault(format!(
                "the default of input `{name}` is neither a text nor empty"
            )));
        }
        let (name, default) = (field.name.clone(), field.value.scalar().map(str::to_owned));
        inputs.push(PipelineInput { name, default });
    }
    Ok(inputs)
}

fn steps(node: &YamlNode) -> Result<Vec<PipelineStep>, YamlFault> {
    let YamlContent::List(nodes) = &node.content else {
        return Err(node.fault("`steps` is not a list".to_owned()));
    };
    if nodes.is_empty() || nodes.len() > EXECUTION_STEPS {
        let found = nodes.len();
        return Err(node.fault(format!("`steps` has {found}, not 1 to {EXECUTION_STEPS}")));
    }
    let mut steps: Vec<PipelineStep> = Vec::new();
    for node in nodes {
        let step = step(node)?;
        if steps.iter().any(|other| other.name == step.name) {
            return Err(node.fault(format!("another step has the name `{}`", step.name)));
        }
        steps.push(step);
    }
    Ok(steps)
}

fn step(node: &YamlNode) -> Result<PipelineStep, YamlFault> {
    let (mut name, mut action, mut params, mut goes_on) = (None, None, None, false);
    for field in fields(node, "a step")? {
        match field.name.as_str() {
            "name" => name = Some(text_of(field)?),
            "action" => action = Some((text_of(field)?, field.line)),
            "params" => params = Some(&field.value),
            "continue_on_failure" => {
                goes_on = field.value.json().as_bool().ok_or_else(|| {
                    field.value.fault("`continue_on_failure` is neither true nor false".to_owned())
                })?;
            }
            _ => return Err(unknown_field(field, "name, action, params and continue_on_failure")),
        }
    }
    let missing = |field: &str| node.fault(format!("a step has no `{field}`"));
    let name = name.ok_or_else(|| missing("name"))?;
    check_name(&name).map_err(|why| node.fault(why))?;
    let (action, line) = action.ok_or_else(|| missing("action"))?;
    let (tool, known) = tool_of(&action)
        .map_err(|why| YamlFault { line, what: format!("step `{name}`: {why}") })?;
    let mut found = Vec::new();
    let given = match params {
        Some(params) => fields(params, "`params`")?,
        None => &[],
    };
    for field in given {
        let param = &field.name;
        if let Some(known) = known.filter(|known| !known.contains(&param.as_str())) {
            let param: String = param.chars().take(SHOWN).collect();
            let known = known.join(", ");
            let what =
                format!("step `{name}`: `{action}` has no parameter `{param}`; it has {known}");
            return Err(YamlFault { line: field.line, what });
        }
        let (name, line, value) = (param.clone(), field.line, field.value.json());
        found.push(StepParam { name, line, value });
    }
    let has_default = known.is_some_and(|known| known.contains(&EXPECT_SUCCESS));
    if has_default && found.iter().all(|param| param.name != EXPECT_SUCCESS) {
        let (name, value) = (EXPECT_SUCCESS.to_owned(), Value::Bool(true));
        found.push(StepParam { name, line, value });
    }
    Ok(PipelineStep { name, tool, params: found, goes_on })
}

/// Whether this can be the name of a step or an input.
fn check_name(name: &str) -> Result<(), String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.is_empty() && name.len() <= NAME_CHARS && name.chars().all(is_part) {
        return Ok(());
    }
    let shown: String = name.chars().take(SHOWN).collect();
    Err(format!("the name `{shown}` is not 1 to {NAME_CHARS} of a-z, A-Z, 0-9, `-` and `_`"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::append::append;

    const RELEASE: &str = r#"
description: Fetches the notes of a release and publishes them.
inputs:
  version:
  channel: stable
steps:
  - name: fetch
    action: http.get
    params:
      url: "https://example.org/{{inputs.version}}.json"
  - name: title
    action: transform.json
    params: {input: "{{steps.fetch.output}}", pointer: /title}
  - name: publish
    action: announce
    continue_on_failure: true
    params:
      text: "{{inputs.channel}}: {{ steps.title.output }}"
      tags: ["{{inputs.version}}", {n: 7}]
"#;

    fn given(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// A pipeline of one step with these lines below `params`.
    fn with_params(params: &str) -> String {
        format!("inputs:\n  x:\nsteps:\n- name: a\n  action: look\n  params:\n    {params}\n")
    }

    #[test]
    fn a_pipeline_becomes_a_plan() {
        let pipeline = Pipeline::parse(RELEASE).unwrap();
        assert!(pipeline.description.as_ref().unwrap().starts_with("Fetches"));
        let plan = pipeline.plan(&given(&[("version", "1.4")])).unwrap();
        let wanted = json!({"steps": [
            {
                "action": "http_fetch",
                "params": {"url": "https://example.org/1.4.json", "expect_success": true},
            },
            {
                "action": "transform_json",
                "params": {"input": "{{steps.1.output}}", "pointer": "/title"},
                "interpolate": true,
            },
            {
                "action": "announce",
                "params": {"text": "stable: {{steps.2.output}}", "tags": ["1.4", {"n": 7}]},
                "continue_on_failure": true,
                "interpolate": true,
            },
        ]});
        assert_eq!(serde_json::to_value(&plan).unwrap(), wanted);
    }

    #[test]
    fn a_status_that_is_no_success_may_be_allowed() {
        let step = "action: http.post\n  params: {url: x, body: y, expect_success: false}\n";
        let pipeline = Pipeline::parse(&format!("steps:\n- name: a\n  {step}")).unwrap();
        let plan = pipeline.plan(&given(&[])).unwrap();
        assert_eq!(plan.steps[0].params["expect_success"], json!(false));
    }

    #[test]
    fn inputs_are_given_or_have_a_default() {
        let pipeline = Pipeline::parse(RELEASE).unwrap();
        let error = pipeline.plan(&given(&[])).unwrap_err();
        assert!(error.contains("`version` has no value"), "{error}");
        let error = pipeline.plan(&given(&[("version", "1"), ("chanel", "x")])).unwrap_err();
        assert!(error.contains("no input `chanel`; it has version, channel"), "{error}");
        let long = "x".repeat(PLAN_BYTES / 2 + 1);
        let error = pipeline.plan(&given(&[("version", long.as_str())])).unwrap_err();
        assert!(error.contains("more than"), "{error}");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let step = |more: &str| format!("steps:\n- name: a\n  action: look\n{more}");
        let again = "- name: b\n  action: look\n  params:\n    x: '{{steps.c.output}}'\n- name: c\n  action: look";
        let mut many = "steps:\n".to_owned();
        for number in 0..=EXECUTION_STEPS {
            append(&mut many, format_args!("- {{name: s{number}, action: look}}\n"));
        }
        for (text, line, why) in [
            ("- a".to_owned(), 1, "a pipeline is not a list of"),
            ("description: x".to_owned(), 1, "`steps` is missing"),
            ("steps: []".to_owned(), 1, "`steps` has 0, not 1 to 64"),
            (many, 2, "`steps` has 65"),
            ("steps: x".to_owned(), 1, "`steps` is not a list"),
            (step("  if: x"), 4, "unknown field `if`"),
            (step("name: x"), 4, "unknown field `name`"),
            (step("  continue_on_failure: maybe"), 4, "neither true nor false"),
            (step("- name: a\n  action: look"), 4, "another step has the name `a`"),
            (step("- action: look"), 4, "a step has no `name`"),
            (step("- name: b"), 4, "a step has no `action`"),
            (step("- name: a b\n  action: look"), 4, "the name `a b` is not"),
            (step("- name: b\n  action: http.put"), 5, "step `b`: unknown action `http.put`"),
            (step("- name: b\n  action: llm.complete"), 5, "`llm.complete` cannot run here"),
            (
                step("- name: b\n  action: http.post\n  params: {json: x}"),
                6,
                "`http.post` has no parameter `json`",
            ),
            (
                step("- name: b\n  action: fs.read\n  params:\n    file: x"),
                7,
                "`fs.read` has no parameter `file`; it has path, offset, limit",
            ),
            (step(again), 7, "step `b`: `params.x`: unknown reference `steps.c.output`"),
            (
                step("  params: {}\ninputs:\n  x: [1]"),
                6,
                "the default of input `x` is neither a text nor empty",
            ),
            (with_params("y: '{{x}}'"), 7, "this step can refer to inputs.x"),
            (with_params("y: '{{steps.a.output}}'"), 7, "unknown reference"),
            (with_params("y: '{{'"), 7, "no `}}` follows"),
            (with_params("command: 'echo {{inputs.x}}'"), 7, "`command` may have no reference"),
            (with_params("y: {{inputs.x}}"), 7, "in quotes"),
            (with_params("y: \"x"), 7, "not YAML"),
            ("x".repeat(PIPELINE_BYTES + 1), 1, "more than 65536 bytes"),
        ] {
            let fault = Pipeline::parse(&text).unwrap_err();
            assert!(fault.what.contains(why), "{text:.200}: {fault}");
            assert!(fault.line.abs_diff(line) <= 1, "{text:.200}: {fault}");
        }
    }

    /// Reads the first step's parameter `y` as its tool gets it, if the steps before it said nothing.
    fn told(step: &StepSpec) -> Result<Value, String> {
        let params = Value::Object(step.params.clone()).to_string();
        let filled =
            if step.interpolate { template::fill(&params, |_| Ok("{{out}}"))? } else { params };
        let params: Value = serde_json::from_str(&filled).map_err(|error| error.to_string())?;
        Ok(params["y"].clone())
    }

    proptest! {
        /// What is given as an input stays a text: no value becomes a reference, a field or another step.
        #[test]
        fn values_of_inputs_are_only_texts(value in "[{}\"'a.: \\n]{0,16}") {
            let mut text = with_params("y: '<{{inputs.x}}>'");
            text.push_str("- name: b\n  action: look\n  params:\n    y: '{{inputs.x}}{{steps.a.output}}{{\"{{\"}}'\n");
            let pipeline = Pipeline::parse(&text).map_err(|fault| TestCaseError::fail(fault.to_string()))?;
            let plan = pipeline.plan(&given(&[("x", value.as_str())])).map_err(TestCaseError::fail)?;
            prop_assert_eq!(plan.steps.len(), 2);
            let first = told(&plan.steps[0]).map_err(TestCaseError::fail)?;
            prop_assert_eq!(first, json!(format!("<{value}>")));
            let second = told(&plan.steps[1]).map_err(TestCaseError::fail)?;
            let wanted = format!("{value}{}{}", "{{out}}", "{{");
            prop_assert_eq!(second, json!(wanted));
        }

        /// Any text is a pipeline or is refused, and what is a pipeline is a plan within the limits.
        #[test]
        fn any_pipeline_is_read_or_refused(
            names in proptest::collection::vec("[a-c]{0,2}", 0..5),
            actions in proptest::collection::vec("(look|fs\\.read|http\\.post|x\\.y)", 5),
            params in proptest::collection::vec("[a-c{}.'\": ]{0,20}", 5),
        ) {
            let mut text = "steps:\n".to_owned();
            for ((name, action), param) in names.iter().zip(&actions).zip(&params) {
                append(
                    &mut text,
                    format_args!("- name: {name}\n  action: {action}\n  params:\n    path: {param}\n"),
                );
            }
            if let Ok(pipeline) = Pipeline::parse(&text) {
                let plan = pipeline.plan(&BTreeMap::new()).map_err(TestCaseError::fail)?;
                prop_assert!((1..=names.len()).contains(&plan.steps.len()));
                for (step, number) in plan.steps.iter().zip(1..) {
                    let params = Value::Object(step.params.clone()).to_string();
                    let is_sound = !step.interpolate || template::check(&params, number).is_ok();
                    prop_assert!(is_sound, "{}", params);
                }
            }
        }
    }
}
