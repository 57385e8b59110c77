//! `discover_skills` and `activate_skill`: a model finds and reads its agent's skills. They run beside the session, on
//! the worker that owns it, and read what that worker has. `create_skill` is run by the session itself, so this only
//! describes it.

use std::time::Duration;

use async_trait::async_trait;
use clawnode_proto::{
    NodeName,
    limits::{SKILL_BYTES, SKILL_ENTRIES},
    skill::CREATE_SKILL,
    tool::{EffectClass, Risk, ToolFailure, ToolOutcome, ToolSpec},
};
use clawnode_tool::{
    Executor, ToolRun, arguments,
    skill::{AgentSkills, Skill, SkillShelf},
    spec::BuiltIn,
};
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// Finds skills.
pub const DISCOVER_SKILLS: &str = "discover_skills";
/// Reads one.
pub const ACTIVATE_SKILL: &str = "activate_skill";
/// Both read small files of this machine.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Characters of a part of a text: less than a model is shown of one result, beside what is said of the skill.
const PART_CHARS: usize = 40_000;
/// Skills with their whole descriptions in one answer.
const FOUND: usize = 10;
/// Characters of a description in a list of all.
const LINE_CHARS: usize = 100;
const QUERY_BYTES: usize = 200;

/// The tools for an agent's skills.
#[derive(Clone, Debug)]
pub struct SkillTools {
    shelf: SkillShelf,
    node: NodeName,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Discover {
    query: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Activate {
    name: String,
    file: Option<String>,
    #[serde(default = "first")]
    part: usize,
}

const fn first() -> usize {
    1
}

impl SkillTools {
    /// The tools for the skills of this node.
    pub const fn new(shelf: SkillShelf, node: NodeName) -> Self {
        Self { shelf, node }
    }

    fn run(&self, mut run: ToolRun) -> Result<ToolOutcome, ToolOutcome> {
        let skills = self.shelf.of(&run.agent);
        let told = match run.tool.as_str() {
            DISCOVER_SKILLS => {
                let Discover { query } = arguments::read(&mut run)?;
                Ok(discovered(&skills, query.as_deref().unwrap_or_default()))
            }
            ACTIVATE_SKILL => {
                let asked: Activate = arguments::read(&mut run)?;
                self.activated(&skills, &asked)
            }
            // Only code that an agent runs comes here: it has no session of its own.
            CREATE_SKILL => {
                let why = format!(
                    "`{CREATE_SKILL}` is not for code: the model calls it itself, and so does a plan"
                );
                return Err(ToolOutcome::failed(ToolFailure::Refused, why));
            }
            other => Err(format!("there is no tool `{other}` here")),
        };
        told.map(ToolOutcome::done).map_err(|why| ToolOutcome::failed(ToolFailure::Invalid, why))
    }

    /// The text of a skill, or of one of its files, with what a journal has to say of it.
    fn activated(&self, skills: &AgentSkills, asked: &Activate) -> Result<String, String> {
        let Some(skill) = skills.get(&asked.name) else {
            return Err(self.unknown(skills, &asked.name));
        };
        let (name, text, beside) = match &asked.file {
            Some(file) => (format!("File `{file}` of the skill"), skill.file(file)?, String::new()),
            None => ("Skill".to_owned(), skill.text.clone(), files_of(skill)),
        };
        let parts = text.chars().count().div_ceil(PART_CHARS).max(1);
        if asked.part == 0 || asked.part > parts {
            return Err(format!("there is no part {}: it has {parts}", asked.part));
        }
        let from = (asked.part - 1).saturating_mul(PART_CHARS);
        let text: String = text.chars().skip(from).take(PART_CHARS).collect();
        let more =
            if parts > 1 { format!(", part {} of {parts}", asked.part) } else { String::new() };
        let Skill { head, digest, .. } = &**skill;
        Ok(format!("{name} `{}` (digest {digest}{more}).{beside}\n\n{text}", head.name))
    }

    fn unknown(&self, skills: &AgentSkills, name: &str) -> String {
        let names: Vec<&str> =
            skills.skills.iter().map(|skill| skill.head.name.as_str()).take(FOUND).collect();
        let has = match names.as_slice() {
            [] => "the agent has none there".to_owned(),
            names if names.len() < skills.skills.len() => {
                format!("`{DISCOVER_SKILLS}` lists the agent's {}", skills.skills.len())
            }
            names => format!("the agent has {}", names.join(", ")),
        };
        format!("there is no skill `{name}` on node `{}`: {has}", self.node)
    }
}

/// What the answer says of a skill's other files.
fn files_of(skill: &Skill) -> String {
    if skill.files.is_empty() {
        return String::new();
    }
    let names = skill.files.join(", ");
    format!(" Its files, which `{ACTIVATE_SKILL}` reads with `file`: {names}.")
}

/// The skills that have words of a query, the best first; all of them, in brief, if there is no query.
fn discovered(skills: &AgentSkills, query: &str) -> String {
    let words: Vec<String> = query.split_whitespace().map(str::to_lowercase).collect();
    if skills.is_empty() {
        return "This agent has no skills.".to_owned();
    }
    if words.is_empty() {
        let line = |skill: &Skill| format!("- `{}`: {}", skill.head.name, skill.brief(LINE_CHARS));
        return skills.skills.iter().map(|skill| line(skill)).collect::<Vec<_>>().join("\n");
    }
    let score = |skill: &Skill| {
        let (name, about) = (&skill.head.name, skill.head.description.to_lowercase());
        let score_of = |word: &String| {
            usize::from(name.contains(word.as_str())) * 2
                + usize::from(about.contains(word.as_str()))
        };
        words.iter().map(score_of).sum::<usize>()
    };
    let mut found: Vec<_> = skills.skills.iter().map(|skill| (score(skill), skill)).collect();
    found.retain(|(score, _)| *score > 0);
    if found.is_empty() {
        return format!(
            "None of {} skills has these words. Without `query` all are listed.",
            skills.skills.len()
        );
    }
    found.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    let all = found.len();
    let line = |skill: &Skill| format!("- `{}`: {}", skill.head.name, skill.brief(usize::MAX));
    let mut lines: Vec<String> = found.iter().take(FOUND).map(|(_, skill)| line(skill)).collect();
    if all > FOUND {
        lines.push(format!("({} more; more exact words find them)", all - FOUND));
    }
    lines.join("\n")
}

/// The tool that writes a skill, which is the same each time that a call is run.
fn creation() -> BuiltIn {
    BuiltIn {
        name: CREATE_SKILL,
        description: "Writes a skill from entries of your work ledger, after a person's approval. `text` has its \
                      instructions. `replaces`: the digest of the skill that it replaces.",
        input: json!({
            "type": "object",
            "properties": {
                "name": { "type": "string" },
                "description": { "type": "string", "description": "When to use it." },
                "text": { "type": "string", "maxLength": SKILL_BYTES },
                "entries": {
                    "type": "array",
                    "items": { "type": "integer", "minimum": 1 },
                    "minItems": 1,
                    "maxItems": SKILL_ENTRIES,
                },
                "replaces": { "type": "string" },
            },
            "required": ["name", "description", "text", "entries"],
            "additionalProperties": false,
        }),
        class: EffectClass::Idempotent,
        risk: Risk::Write,
        capability: None,
        timeout: TIMEOUT,
    }
}

#[async_trait]
impl Executor for SkillTools {
    fn tools(&self) -> Vec<ToolSpec> {
        let tool = |name, description, input| BuiltIn {
            name,
            description,
            input,
            class: EffectClass::Safe,
            risk: Risk::ReadOnly,
            capability: None,
            timeout: TIMEOUT,
        };
        let discover = tool(
            DISCOVER_SKILLS,
            "Lists your skills, or those with certain words.",
            json!({
                "type": "object",
                "properties": { "query": { "type": "string", "maxLength": QUERY_BYTES } },
                "additionalProperties": false,
            }),
        );
        let activate = tool(
            ACTIVATE_SKILL,
            "Reads the instructions of a skill, or one of its files.",
            json!({
                "type": "object",
                "properties": {
                    "name": { "type": "string" },
                    "file": { "type": "string", "description": "As the skill names it." },
                    "part": { "type": "integer", "minimum": 1 },
                },
                "required": ["name"],
                "additionalProperties": false,
            }),
        );
        vec![discover.spec(), activate.spec(), creation().spec()]
    }

    async fn execute(&self, run: ToolRun, _cancelled: CancellationToken) -> ToolOutcome {
        let tools = self.clone();
        let ran =
            tokio::task::spawn_blocking(move || tools.run(run).unwrap_or_else(|failed| failed));
        ran.await
            .unwrap_or_else(|error| ToolOutcome::failed(ToolFailure::Failed, error.to_string()))
    }

    async fn health_check(&self) -> Result<(), String> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, sync::Arc};

    use clawnode_proto::CallId;
    use clawnode_tool::{schema, skill::read_folders};

    use super::*;

    fn write(folder: &Path, name: &str, about: &str, text: &str) {
        fs::create_dir_all(folder.join(name)).unwrap();
        let text = format!("---\nname: {name}\ndescription: {about}\n---\n{text}");
        fs::write(folder.join(name).join("SKILL.md"), text).unwrap();
    }

    fn tools(folder: &Path) -> SkillTools {
        let shelf = SkillShelf::default();
        let found = read_folders(&[folder.to_owned()]);
        let skills = AgentSkills::chosen(&found.skills, &["*".to_owned()]);
        shelf.replace([("main".parse().unwrap(), Arc::new(skills))]);
        SkillTools::new(shelf, "node-1".parse().unwrap())
    }

    fn call(tools: &SkillTools, agent: &str, tool: &str, arguments: &str) -> ToolOutcome {
        let spec = tools.tools().into_iter().find(|spec| spec.name.as_str() == tool).unwrap();
        let arguments = schema::judge(&spec, arguments).unwrap();
        let run = ToolRun {
            call: CallId::from_u128(1),
            agent: agent.parse().unwrap(),
            tool: spec.name,
            arguments,
            idempotency_key: "job_1".to_owned(),
            timeout: TIMEOUT,
            sink: clawnode_tool::RunSink::default(),
            shown: clawnode_tool::ShownMedia::default(),
            limit: None,
        };
        tools.run(run).unwrap_or_else(|failed| failed)
    }

    fn said(outcome: &ToolOutcome) -> &str {
        outcome.content.inline().unwrap()
    }

    #[test]
    fn a_skill_is_read_with_its_digest_and_its_files() {
        let home = tempfile::tempdir().unwrap();
        write(home.path(), "pdf", "Fills forms.", "Use qpdf.");
        fs::create_dir_all(home.path().join("pdf/references")).unwrap();
        fs::write(home.path().join("pdf/references/forms.md"), "Fields.").unwrap();
        let tools = tools(home.path());
        for spec in tools.tools() {
            schema::check(&spec).unwrap();
        }
        let read = call(&tools, "main", ACTIVATE_SKILL, r#"{"name":"pdf"}"#);
        let digest = &tools.shelf.of(&"main".parse().unwrap()).skills[0].digest;
        assert!(said(&read).starts_with(&format!("Skill `pdf` (digest {digest}).")), "{read:?}");
        assert!(
            said(&read).contains("references/forms.md") && said(&read).ends_with("\n\nUse qpdf.")
        );
        let file = r#"{"name":"pdf","file":"references/forms.md"}"#;
        assert!(said(&call(&tools, "main", ACTIVATE_SKILL, file)).ends_with("\n\nFields."));
        for (agent, arguments, why) in [
            ("main", r#"{"name":"pdf","file":"../x"}"#, "no file"),
            ("main", r#"{"name":"pdf","part":2}"#, "no part 2"),
            ("main", r#"{"name":"../pdf"}"#, "on node `node-1`: the agent has pdf"),
            ("other", r#"{"name":"pdf"}"#, "the agent has none there"),
        ] {
            let refused = call(&tools, agent, ACTIVATE_SKILL, arguments);
            assert_eq!(refused.failure, Some(ToolFailure::Invalid));
            assert!(said(&refused).contains(why), "{refused:?}");
        }
    }

    /// Nothing of a long one is lost to the limit of results.
    #[test]
    fn a_long_skill_comes_in_parts() {
        let home = tempfile::tempdir().unwrap();
        let text = format!("{}é{}", "a".repeat(39_999), "b".repeat(20_000));
        write(home.path(), "long", "Long.", &text);
        let tools = tools(home.path());
        let part = |part: usize| {
            let arguments = format!(r#"{{"name":"long","part":{part}}}"#);
            let read = call(&tools, "main", ACTIVATE_SKILL, &arguments);
            let (head, text) = said(&read).split_once("\n\n").unwrap();
            assert!(head.contains(&format!("part {part} of 2")), "{head}");
            text.to_owned()
        };
        assert_eq!(part(1) + &part(2), text);
    }

    /// The session runs it, and nothing else does.
    #[test]
    fn code_writes_no_skill() {
        let home = tempfile::tempdir().unwrap();
        let tools = tools(home.path());
        let good = r#"{"name":"a","description":"d","text":"t","entries":[1]}"#;
        let refused = call(&tools, "main", CREATE_SKILL, good);
        assert_eq!(refused.failure, Some(ToolFailure::Refused), "{refused:?}");
        let specs = tools.tools();
        let spec = specs.iter().find(|spec| spec.name.as_str() == CREATE_SKILL).unwrap();
        schema::check(spec).unwrap();
        for wrong in [
            r#"{"name":"a","description":"d","text":"t"}"#,
            r#"{"name":"a","description":"d","text":"t","entries":[]}"#,
            r#"{"name":"a","description":"d","text":"t","entries":[0]}"#,
            r#"{"name":"a","description":"d","text":"t","entries":[1],"folder":"/etc"}"#,
        ] {
            assert!(schema::judge(spec, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn skills_are_found_by_words() {
        let home = tempfile::tempdir().unwrap();
        for number in 0..12 {
            write(home.path(), &format!("deploy-{number}"), "Ships a release.", "x");
        }
        write(home.path(), "review", "Reads a diff before a release.", "x");
        let tools = tools(home.path());
        let found = |query: &str| {
            let arguments = json!({ "query": query }).to_string();
            said(&call(&tools, "main", DISCOVER_SKILLS, &arguments)).to_owned()
        };
        assert!(
            found("Review RELEASE").starts_with("- `review`: Reads a diff"),
            "{}",
            found("review")
        );
        assert_eq!(found("release").lines().count(), FOUND + 1);
        assert!(found("release").ends_with("(3 more; more exact words find them)"));
        assert!(found("weather").contains("None of 13 skills"));
        assert_eq!(found("").lines().count(), 13);
        let none = call(&tools, "other", DISCOVER_SKILLS, "{}");
        assert_eq!(said(&none), "This agent has no skills.");
    }
}
