//! How a call of a tool becomes a command: `run_command`, `run_python`, `execute_code`, and what a
//! person defined.

use std::time::Duration;

use clawnode_proto::{
    Capability, Digest, ToolName,
    timeout::{TimeBound, TimeLimit, ToolTime},
    tool::{EXECUTE_CODE, EffectClass, RUN_COMMAND, Risk, ToolFailure, ToolOutcome, ToolSpec},
};
use clawnode_tool::{RunSink, ToolRun, arguments, schema, spec::BuiltIn};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    ProcessOptions, code,
    options::{CommandTool, SandboxOptions, SandboxPlace},
    spec::{Argv, Image, SandboxCommand, SpecError},
};

pub(super) const RUN_PYTHON: &str = "run_python";
/// What a call may take beside its command: a container is made, and removed.
const MARGIN: Duration = Duration::from_secs(30);
/// Bytes of a command line or a program (256 KiB); both are handed on standard input where they are
/// longer than one argument may be.
const CODE_BYTES: usize = 256 << 10;
/// Arguments of one command.
const ITEMS: usize = 1_000;

/// What is wrong with a tool's definition: the key, what, and what to do.
type RecipeError = (&'static str, String, &'static str);

/// A tool, and how its calls become commands.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    pub(super) spec: ToolSpec,
    /// In which image, in Docker.
    pub(super) image: Option<Image>,
    timeouts: Timeouts,
    how: How,
    /// The command that finds out whether an earlier run of a call has happened, of class `check`.
    probe: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug)]
struct Timeouts {
    usual: Duration,
    most: Duration,
}

#[derive(Clone, Debug)]
enum How {
    Command,
    Python,
    /// Python that calls tools.
    Code,
    Template(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunCommand {
    command: Option<String>,
    argv: Option<Vec<String>>,
    stdin: Option<String>,
    timeout_s: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RunPython {
    code: String,
    timeout_s: Option<f64>,
}

/// The tools of a place, as configured.
pub(super) fn recipes(options: &SandboxOptions, place: SandboxPlace) -> Vec<Recipe> {
    let usual = match place {
        SandboxPlace::Docker => options.docker.timeout,
        SandboxPlace::Process => options.process.timeout,
    };
    let timeouts = Timeouts { usual, most: options.max_timeout.0 };
    let in_docker = |image: &Image| (place == SandboxPlace::Docker).then(|| image.clone());
    let mut recipes = Vec::new();
    if options.run_in == place {
        recipes.push(Recipe {
            spec: run_command(place, timeouts),
            image: in_docker(&options.docker.image),
            timeouts,
            how: How::Command,
            probe: None,
        });
        recipes.push(Recipe {
            spec: run_python(place, timeouts),
            image: in_docker(&options.docker.python_image),
            timeouts,
            how: How::Python,
            probe: None,
        });
        recipes.push(Recipe {
            spec: execute_code(place, timeouts),
            image: in_docker(&options.docker.python_image),
            timeouts,
            how: How::Code,
            probe: None,
        });
    }
    for (name, tool) in options.tools.iter().filter(|(_, tool)| tool.env == place) {
        let usual = tool.timeout.unwrap_or(usual);
        recipes.push(Recipe {
            spec: ToolSpec {
                name: name.clone(),
                description: tool.description.clone(),
                input_schema: tool.input_schema.clone(),
                class: tool.class,
                risk: tool.risk,
                capability: capability(place),
                timeout_ms: milliseconds(usual + MARGIN),
                pin: None,
                time: None,
            },
            image: in_docker(tool.image.as_ref().unwrap_or(&options.docker.image)),
            timeouts: Timeouts { usual, most: usual },
            how: How::Template(tool.command.clone()),
            probe: tool.probe.clone(),
        });
    }
    for recipe in &mut recipes {
        recipe.spec.pin = Some(recipe.pin(options, place));
        recipe.spec.time = Some(recipe.time(options, place));
    }
    recipes
}

/// What a node needs to run tools of a place.
fn capability(place: SandboxPlace) -> Option<Capability> {
    place.capability().parse().ok()
}

fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

// === impl SandboxPlace ===

impl SandboxPlace {
    /// What a node announces that has it.
    pub const fn capability(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Process => "process",
        }
    }
}

// === impl Recipe ===

impl Recipe {
    /// The digest of the command and its sandbox, without its limits of time and size.
    fn pin(&self, options: &SandboxOptions, place: SandboxPlace) -> Digest {
        let command = match &self.how {
            How::Command | How::Python | How::Code => &[],
            How::Template(items) => items.as_slice(),
        };
        let surroundings = match place {
            SandboxPlace::Docker => {
                json!({ "image": self.image, "network": options.docker.network })
            }
            SandboxPlace::Process => {
                let ProcessOptions { isolation, paths, .. } = &options.process;
                json!({ "isolation": isolation, "paths": paths })
            }
        };
        let mut what = vec![json!(self.spec.name), json!(self.spec.description), json!(command)];
        what.extend(self.probe.iter().map(|probe| json!({ "probe": probe })));
        let all = json!([what, place, surroundings, options.workspace]);
        Digest::of(all.to_string().as_bytes())
    }

    /// Whether what it runs calls other tools.
    pub(super) const fn calls(&self) -> bool {
        matches!(self.how, How::Code)
    }

    /// How long its calls may take, and where that is set.
    fn time(&self, options: &SandboxOptions, place: SandboxPlace) -> ToolTime {
        let own = options.tools.get(&self.spec.name).and_then(|tool| tool.timeout);
        let bound = |duration, set_in| TimeBound { ms: milliseconds(duration), set_in };
        let set_in = match own {
            Some(_) => format!("sandbox.tools.{}.timeout", self.spec.name),
            None => format!("sandbox.{}.timeout", place.capability()),
        };
        let asks = matches!(self.how, How::Command | How::Python | How::Code);
        ToolTime {
            provider: Some(bound(options.max_timeout.0, "sandbox.max_timeout".to_owned())),
            command: bound(self.timeouts.usual, set_in),
            argument: asks.then(|| "timeout_s".to_owned()),
            margin_ms: milliseconds(MARGIN),
        }
    }

    /// The limit that holds for a run: the one that it came with, unless this node has a stricter
    /// one.
    pub(super) fn limit(&self, run: &ToolRun) -> TimeLimit {
        let time = self.spec.time();
        let asked = time.argument.as_ref().and_then(|name| run.arguments.get(name)?.as_f64());
        time.limit(asked, run.limit.clone().into_iter().collect())
    }

    /// The command of a call.
    pub(super) fn command(&self, mut run: ToolRun) -> Result<SandboxCommand, ToolOutcome> {
        let idempotency_key = run.idempotency_key.clone();
        let (argv, stdin, timeout) = match &self.how {
            How::Command => {
                let RunCommand { command, argv, stdin, timeout_s } = arguments::read(&mut run)?;
                let argv = match (command, argv) {
                    (Some(line), None) => shell(line),
                    (None, Some(argv)) => argv,
                    _ => return Err(invalid("give either `command` or `argv`".to_owned())),
                };
                (argv, stdin.unwrap_or_default().into_bytes(), timeout_s)
            }
            How::Python => {
                let RunPython { code, timeout_s } = arguments::read(&mut run)?;
                // `-` reads the program from standard input: it may be longer than an argument.
                (["python3", "-I", "-"].map(str::to_owned).into(), code.into_bytes(), timeout_s)
            }
            How::Code => {
                let RunPython { code, timeout_s } = arguments::read(&mut run)?;
                let argv = ["python3", "-I", "-c", code::PROGRAM].map(str::to_owned);
                (argv.into(), code.into_bytes(), timeout_s)
            }
            How::Template(items) => {
                let stdin = Value::Object(run.arguments.clone()).to_string().into_bytes();
                (filled(items, &run.arguments)?, stdin, None)
            }
        };
        let timeout = self.timeout(timeout)?;
        let argv = Argv::new(argv)?;
        let timeout = timeout.min(run.timeout);
        Ok(SandboxCommand { argv, stdin, idempotency_key, timeout, sink: run.sink })
    }

    /// The command that finds out whether an earlier run of a call has happened: it has the
    /// arguments and the key of the call. `None` if there is none.
    pub(super) fn probe(&self, run: &ToolRun) -> Option<Result<SandboxCommand, ToolOutcome>> {
        let items = self.probe.as_ref()?;
        let make = || {
            let argv = Argv::new(filled(items, &run.arguments)?)?;
            let stdin = Value::Object(run.arguments.clone()).to_string().into_bytes();
            let timeout = self.timeouts.usual.min(run.timeout);
            let (idempotency_key, sink) = (run.idempotency_key.clone(), RunSink::default());
            Ok(SandboxCommand { argv, stdin, idempotency_key, timeout, sink })
        };
        Some(make())
    }

    fn timeout(&self, seconds: Option<f64>) -> Result<Duration, ToolOutcome> {
        let Some(seconds) = seconds else { return Ok(self.timeouts.usual) };
        let most = self.timeouts.most;
        let wanted = Duration::try_from_secs_f64(seconds).ok();
        wanted.filter(|timeout| !timeout.is_zero() && *timeout <= most).ok_or_else(|| {
            invalid(format!("`timeout_s` must be more than 0 and at most {}", most.as_secs_f64()))
        })
    }
}

fn invalid(why: String) -> ToolOutcome {
    ToolOutcome::failed(ToolFailure::Invalid, why)
}

fn shell(line: String) -> Vec<String> {
    vec!["sh".to_owned(), "-c".to_owned(), line]
}

/// The items of a template with the arguments in their places.
fn filled(items: &[String], arguments: &Map<String, Value>) -> Result<Vec<String>, ToolOutcome> {
    let fill = |item: &String| match placeholder(item) {
        None => Ok(item.clone()),
        Some(name) => match arguments.get(name) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => Ok(value.to_string()),
            Some(_) | None => {
                Err(invalid(format!("`{name}` must be a text, a number, `true` or `false`")))
            }
        },
    };
    items.iter().map(fill).collect()
}

/// Which argument an item is a placeholder for.
fn placeholder(item: &str) -> Option<&str> {
    let name = item.strip_prefix('{')?.strip_suffix('}')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    (!name.is_empty() && name.chars().all(plain)).then_some(name)
}

/// Whether a tool can be what it is defined to be.
pub(super) fn check(
    name: &ToolName,
    tool: &CommandTool,
    most: Duration,
) -> Result<(), RecipeError> {
    if [RUN_COMMAND, RUN_PYTHON, EXECUTE_CODE].contains(&name.as_str()) {
        let what = format!("`{name}` is built in");
        return Err(("command", what, "give it another name"));
    }
    for (key, items) in [("command", Some(&tool.command)), ("probe", tool.probe.as_ref())] {
        let Some(items) = items else { continue };
        Argv::new(items.clone()).map_err(|error: SpecError| {
            (key, error.to_string(), "write a program and its arguments, one item each")
        })?;
    }
    let spec = ToolSpec {
        name: name.clone(),
        description: tool.description.clone(),
        input_schema: tool.input_schema.clone(),
        class: tool.class,
        risk: tool.risk,
        capability: capability(tool.env),
        timeout_ms: milliseconds(most),
        pin: None,
        time: None,
    };
    schema::check(&spec).map_err(|error| {
        let what = clawnode_proto::ErrorChain(&error).to_string();
        ("input_schema", what, "write a JSON Schema whose type is `object`, as JSON text")
    })?;
    let input: Value = serde_json::from_str(&tool.input_schema).unwrap_or_default();
    placeholders("command", &tool.command, &input)?;
    placeholders("probe", tool.probe.as_deref().unwrap_or_default(), &input)?;
    if tool.timeout.is_some_and(|timeout| timeout.is_zero() || timeout > most) {
        let what = "the timeout is not 1 ms to `sandbox.max_timeout`".to_owned();
        return Err(("timeout", what, "write a duration such as `30s`"));
    }
    if tool.class == EffectClass::Check && tool.probe.is_none() {
        let what = "it has no `probe` that checks whether a call has happened".to_owned();
        return Err(("class", what, "add a `probe`, or write `safe`, `idempotent` or `once`"));
    }
    if tool.class != EffectClass::Check && tool.probe.is_some() {
        let what = "only a tool of class `check` can have a probe".to_owned();
        return Err(("probe", what, "write `class = \"check\"`, or remove it"));
    }
    if tool.env == SandboxPlace::Process && tool.image.is_some() {
        let what = "a process has no image".to_owned();
        return Err(("image", what, "remove it, or write `env = \"docker\"`"));
    }
    Ok(())
}

/// Whether all arguments that a command's items stand for are there in every call.
fn placeholders(key: &'static str, items: &[String], input: &Value) -> Result<(), RecipeError> {
    for named in items.iter().filter_map(|item| placeholder(item)) {
        if input.pointer(&format!("/properties/{named}")).is_none() {
            let what = format!("its schema has no argument `{named}` for `{{{named}}}`");
            return Err((key, what, "name a property of `input_schema`"));
        }
        let required = input.get("required").and_then(Value::as_array);
        if !required.is_some_and(|all| all.iter().any(|name| name == named)) {
            let what = format!("the schema does not require `{named}`, which the command needs");
            return Err((key, what, "add it to `required`, or read it from standard input"));
        }
    }
    Ok(())
}

fn run_command(place: SandboxPlace, timeouts: Timeouts) -> ToolSpec {
    let (usual, most) = (timeouts.usual.as_secs_f64(), timeouts.most.as_secs_f64());
    built_in(
        place,
        timeouts,
        RUN_COMMAND,
        "Runs a command in a sandbox and returns what it printed, its errors after `[stderr]` and \
         its exit code if it is not 0. Give `command`, a line for `sh`, or `argv`, a program and \
         its arguments. Each call has a fresh sandbox: only files in `/workspace`, if there is \
         one, outlive it. There is no network unless the operator has allowed it. A command that \
         takes too long is killed, and what it printed until then is returned.",
        json!({
            "type": "object",
            "properties": {
                "command": {
                    "type": "string",
                    "description": "A line for `sh -c`.",
                    "minLength": 1,
                    "maxLength": 100_000,
                },
                "argv": {
                    "type": "array",
                    "description": "A program and its arguments; no shell looks at them.",
                    "items": {"type": "string"},
                    "minItems": 1,
                    "maxItems": ITEMS,
                },
                "stdin": {
                    "type": "string",
                    "description": "What the command reads.",
                    "maxLength": CODE_BYTES,
                },
                "timeout_s": timeout_input(usual, most),
            },
            "additionalProperties": false,
        }),
    )
}

fn run_python(place: SandboxPlace, timeouts: Timeouts) -> ToolSpec {
    python(
        place,
        timeouts,
        RUN_PYTHON,
        "Runs a Python 3 program in a sandbox and returns what it printed: use `print`. Each call \
         is a fresh interpreter; only files in `/workspace`, if there is one, outlive it. There is \
         no network unless the operator has allowed it. A program that takes too long is killed, \
         and what it printed until then is returned.",
    )
}

fn execute_code(place: SandboxPlace, timeouts: Timeouts) -> ToolSpec {
    python(place, timeouts, EXECUTE_CODE, code::DESCRIPTION)
}

fn python(
    place: SandboxPlace,
    timeouts: Timeouts,
    name: &'static str,
    description: &'static str,
) -> ToolSpec {
    let (usual, most) = (timeouts.usual.as_secs_f64(), timeouts.most.as_secs_f64());
    built_in(
        place,
        timeouts,
        name,
        description,
        json!({
            "type": "object",
            "properties": {
                "code": {
                    "type": "string",
                    "description": "The program.",
                    "minLength": 1,
                    "maxLength": CODE_BYTES,
                },
                "timeout_s": timeout_input(usual, most),
            },
            "required": ["code"],
            "additionalProperties": false,
        }),
    )
}

fn timeout_input(usual: f64, most: f64) -> Value {
    json!({
        "type": "number",
        "description": format!("Seconds that it may take. Default: {usual}, at most {most}."),
        "exclusiveMinimum": 0,
        "maximum": most,
    })
}

fn built_in(
    place: SandboxPlace,
    timeouts: Timeouts,
    name: &'static str,
    description: &'static str,
    input: Value,
) -> ToolSpec {
    BuiltIn {
        name,
        description,
        input,
        class: EffectClass::Once,
        risk: Risk::Write,
        capability: Some(place.capability()),
        timeout: timeouts.most + MARGIN,
    }
    .spec()
}

#[cfg(test)]
mod tests {
    use clawnode_proto::CallId;

    use super::*;

    fn run(tool: &str, arguments: Value) -> ToolRun {
        let Value::Object(arguments) = arguments else { unreachable!() };
        ToolRun {
            call: CallId::from_u128(1),
            agent: "main".parse().unwrap(),
            tool: tool.parse().unwrap(),
            arguments,
            idempotency_key: "job_1".to_owned(),
            timeout: Duration::from_secs(400),
            sink: RunSink::default(),
            shown: clawnode_tool::ShownMedia::default(),
            limit: None,
        }
    }

    fn options() -> SandboxOptions {
        let schema = json!({
            "type": "object",
            "properties": {"q": {"type": "string"}, "n": {"type": "integer"}, "o": {}},
            "required": ["q", "n", "o"],
        });
        let tools = json!({
            "find": {
                "description": "Finds.",
                "input_schema": schema.to_string(),
                "command": ["find", "{q}", "-{n}", "{n}", "{}", "{o}"],
                "image": "finder:1",
                "timeout": "5s",
                "class": "safe",
                "risk": "READ_ONLY",
            }
        });
        let options = json!({ "tools": tools });
        let options: SandboxOptions = serde_json::from_value(options).unwrap();
        options.check().unwrap();
        options
    }

    fn command(tool: &str, arguments: Value) -> Result<SandboxCommand, String> {
        let recipes = recipes(&options(), SandboxPlace::Docker);
        let recipe = recipes.iter().find(|recipe| recipe.spec.name.as_str() == tool).unwrap();
        let text = |outcome: ToolOutcome| outcome.content.inline().unwrap().to_owned();
        recipe.command(run(tool, arguments)).map_err(text)
    }

    #[test]
    fn they_may_be_offered_and_are_where_they_run() {
        let mut options = options();
        let names = |options: &SandboxOptions, place| -> Vec<String> {
            recipes(options, place).iter().map(|recipe| recipe.spec.name.to_string()).collect()
        };
        for recipe in recipes(&options, SandboxPlace::Docker) {
            schema::check(&recipe.spec).unwrap();
            assert_eq!(recipe.spec.capability.unwrap().as_str(), "docker");
        }
        assert_eq!(
            names(&options, SandboxPlace::Docker),
            [RUN_COMMAND, RUN_PYTHON, EXECUTE_CODE, "find"]
        );
        assert_eq!(names(&options, SandboxPlace::Process), [""; 0]);
        options.run_in = SandboxPlace::Process;
        assert_eq!(names(&options, SandboxPlace::Docker), ["find"]);
        assert_eq!(names(&options, SandboxPlace::Process), [RUN_COMMAND, RUN_PYTHON, EXECUTE_CODE]);
        let once = &recipes(&options, SandboxPlace::Process)[0].spec;
        // What is behind a tool is known by its pin.
        let pin = |options: &SandboxOptions| recipes(options, SandboxPlace::Docker)[0].spec.pin;
        let mut other = options.clone();
        other.docker.memory = "64m".parse().unwrap();
        assert_eq!(pin(&options), pin(&other));
        other.docker.network = crate::sandbox::spec::Network::Bridge;
        assert_ne!(pin(&options), pin(&other));
        let mut other = options.clone();
        other.tools.values_mut().for_each(|tool| tool.command.push("-x".to_owned()));
        assert_ne!(pin(&options), pin(&other));
        assert_eq!((once.class, once.risk), (EffectClass::Once, Risk::Write));
    }

    #[test]
    fn a_call_is_a_line_for_a_shell_or_a_program() {
        let line = command(RUN_COMMAND, json!({"command": "a | b"})).unwrap();
        assert_eq!(line.argv.items(), ["sh", "-c", "a | b"]);
        assert_eq!(line.timeout, Duration::from_secs(30));
        assert_eq!(line.idempotency_key, "job_1");
        let argv = json!({"argv": ["a", "$(b)"], "stdin": "in", "timeout_s": 1.5});
        let argv = command(RUN_COMMAND, argv).unwrap();
        assert_eq!(argv.argv.items(), ["a", "$(b)"]);
        assert_eq!(
            (argv.stdin.as_slice(), argv.timeout),
            (b"in".as_slice(), Duration::from_millis(1_500))
        );
        let python = command(RUN_PYTHON, json!({"code": "print(1)"})).unwrap();
        assert_eq!(
            (python.argv.items()[0].as_str(), python.stdin),
            ("python3", b"print(1)".to_vec())
        );
        for (arguments, words) in [
            (json!({}), "either `command` or `argv`"),
            (json!({"command": "a", "argv": ["b"]}), "either `command` or `argv`"),
            (json!({"command": "a", "timeout_s": 301}), "at most 300"),
            (json!({"command": "a", "timeout_s": -1}), "more than 0"),
            (json!({"argv": ["a\u{0}b"]}), "zero byte"),
            (json!({"argv": [""]}), "no command"),
        ] {
            let why = command(RUN_COMMAND, arguments.clone()).unwrap_err();
            assert!(why.contains(words), "{arguments}: {why}");
        }
    }

    #[test]
    fn arguments_of_a_template_stay_one_item_each() {
        let hostile = "a b; rm -rf / $(x) {n} --privileged";
        let filled = command("find", json!({"q": hostile, "n": 3, "o": true})).unwrap();
        assert_eq!(filled.argv.items(), ["find", hostile, "-{n}", "3", "{}", "true"]);
        let stdin: Value = serde_json::from_slice(&filled.stdin).unwrap();
        assert_eq!(stdin["q"], hostile);
        assert_eq!(filled.timeout, Duration::from_secs(5));
        let why = command("find", json!({"q": "a", "n": 3, "o": {"b": 1}})).unwrap_err();
        assert!(why.contains("`o` must be a text"), "{why}");
    }
}
