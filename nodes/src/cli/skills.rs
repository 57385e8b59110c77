//! `skills`: the instructions for agents that are on this machine. `skill_bundles` packs and installs
//! them.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use clawnode_tool::skill::{
    AgentSkills, BundleState, FoundSkills, PIPELINE_FILE, Pipeline, Skill, SkillFault,
    read_folders, read_skill,
};
use serde_json::{Value, json};

use super::{
    command_context::CliContext,
    output::{Output, Tone, clean},
    skill_bundles::{self, SkillInstallArgs, SkillKeyArgs, SkillPackArgs},
};
use crate::{
    config::{AgentSection, Config, agents::DEFAULT_AGENT},
    failure::{Exit, Failure},
    node::skills,
};

const SKILL_FILE: &str = "SKILL.md";
/// Characters of a description in a list.
const BRIEF_CHARS: usize = 60;

/// What `skills --help` ends with.
const EXAMPLES: &str = "\
A skill is a folder NAME with a file SKILL.md in the open Agent Skills format, in the folder
`skills` beside the configuration file, or in `skills.folders`. Nodes read it again when it changes.

Examples:
  clawnode skills list
  clawnode skills list --json | jq '.faults'
  clawnode skills show pdf-forms
  clawnode skills check
  clawnode skills check ./pdf-forms
  clawnode skills key team.pem
  clawnode skills pack ./pdf-forms --key team.pem
  clawnode skills install pdf-forms.skill";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum SkillsCommand {
    /// List the skills of this machine, and files that are left out, with the reason
    List,
    /// Show a skill: what it is for, its files and its instructions
    Show(ShowArgs),
    /// Check skills: exit code 0 if all are valid, 78 if not
    Check(CheckSkillsArgs),
    /// Make a key that signs bundles of skills
    Key(SkillKeyArgs),
    /// Pack a skill into one signed file, a bundle
    Pack(SkillPackArgs),
    /// Install a bundle that a trusted key has signed, unless it is older than what is there
    Install(SkillInstallArgs),
}

/// `skills show`.
#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// The name of the skill
    pub name: String,
}

#[derive(Debug, Args)]
pub(super) struct CheckSkillsArgs {
    /// A skill's folder, or a folder of skills, instead of those of the configuration
    pub folder: Option<PathBuf>,
}

pub(super) fn run(command: SkillsCommand, context: &CliContext) -> Result<Exit, Failure> {
    match command {
        SkillsCommand::List => list(context),
        SkillsCommand::Show(args) => show(&args.name, context),
        SkillsCommand::Check(args) => check(args.folder.as_deref(), context),
        SkillsCommand::Key(args) => skill_bundles::key(&args, context),
        SkillsCommand::Pack(args) => skill_bundles::package(&args, context),
        SkillsCommand::Install(args) => skill_bundles::install(&args, context),
    }
}

fn list(context: &CliContext) -> Result<Exit, Failure> {
    let (found, config, out) =
        (skills::found(&context.loaded), &context.loaded.config, context.out);
    let document = json!({
        "folders": skills::folders(&context.loaded),
        "skills": found.skills.iter().map(|skill| shown(skill, config)).collect::<Vec<_>>(),
        "faults": found.faults.iter().map(fault).collect::<Vec<_>>(),
    });
    out.document(&document, |_| {
        if found.skills.is_empty() && found.faults.is_empty() {
            return "there are no skills".to_owned();
        }
        let row = |skill: &std::sync::Arc<Skill>| {
            let triggers = skill.head.triggers.join(", ");
            let agents = agents(skill, config).join(" ");
            let bundle = bundled(skill).unwrap_or_default();
            [skill.head.name.clone(), skill.brief(BRIEF_CHARS), agents, triggers, bundle]
                .map(|cell| clean(&cell))
                .to_vec()
        };
        let head = ["skill", "description", "agents", "triggers", "bundle"];
        let table = out.table(&head, found.skills.iter().map(row));
        [table, told(out, &found.faults)].join("\n").trim_end().to_owned()
    })?;
    Ok(Exit::Ok)
}

fn show(name: &str, context: &CliContext) -> Result<Exit, Failure> {
    let found = skills::found(&context.loaded);
    let Some(skill) = found.skills.iter().find(|skill| skill.head.name == name) else {
        let left_out = found
            .faults
            .iter()
            .find(|fault| fault.path.components().any(|c| c.as_os_str() == name));
        let hint = match left_out {
            Some(fault) => format!("`{}`: {}", fault.path.display(), fault.what),
            None => "`clawnode skills list` lists all".to_owned(),
        };
        let what = format!("there is no skill `{name}` on this machine");
        return Err(Failure::new(Exit::Failed, "not_found", what).hint(hint));
    };
    let mut document = shown(skill, &context.loaded.config);
    if let Some(document) = document.as_object_mut() {
        document.insert("text".to_owned(), Value::String(skill.text.clone()));
    }
    context.out.document(&document, |_| clean_lines(&page(skill, &context.loaded.config)))?;
    Ok(Exit::Ok)
}

fn check(folder: Option<&Path>, context: &CliContext) -> Result<Exit, Failure> {
    let out = context.out;
    let (mut found, warnings) = match folder {
        None => {
            let found = skills::found(&context.loaded);
            let warnings = skills::warnings(&context.loaded, &found);
            // The faults are shown by themselves.
            let warnings = warnings.into_iter().skip(found.faults.len()).collect();
            (found, warnings)
        }
        Some(folder) if folder.join(SKILL_FILE).exists() => (one(folder), Vec::new()),
        Some(folder) => (read_folders(&[folder.to_owned()]), Vec::new()),
    };
    found.faults.extend(pipeline_faults(&found.skills));
    let names: Vec<&str> = found.skills.iter().map(|skill| skill.head.name.as_str()).collect();
    let document = json!({
        "ok": found.faults.is_empty(),
        "skills": names,
        "faults": found.faults.iter().map(fault).collect::<Vec<_>>(),
        "warnings": warnings,
    });
    out.document(&document, |_| {
        let valid = match names.as_slice() {
            [] => "no skill is valid".to_owned(),
            names => format!("valid: {}", names.join(", ")),
        };
        let warnings: Vec<String> =
            warnings.iter().map(|warning| out.paint(Tone::Warn, &clean(warning))).collect();
        [valid, told(out, &found.faults), warnings.join("\n")].join("\n").trim_end().to_owned()
    })?;
    Ok(if found.faults.is_empty() { Exit::Ok } else { Exit::Config })
}

/// Pipelines that cannot be run. Their skills can be read without them.
fn pipeline_faults(skills: &[std::sync::Arc<Skill>]) -> Vec<SkillFault> {
    let has_one =
        |skill: &&std::sync::Arc<Skill>| skill.files.iter().any(|file| file == PIPELINE_FILE);
    let fault = |skill: &std::sync::Arc<Skill>| {
        let what = match skill.file(PIPELINE_FILE) {
            Ok(text) => Pipeline::parse(&text).err()?.to_string(),
            Err(what) => what,
        };
        Some(SkillFault { path: skill.folder.join(PIPELINE_FILE), what })
    };
    skills.iter().filter(has_one).filter_map(fault).collect()
}

/// The skill of one folder, which need not be in a folder of skills.
fn one(folder: &Path) -> FoundSkills {
    match read_skill(folder) {
        Ok(skill) => FoundSkills { skills: vec![skill.into()], faults: Vec::new() },
        Err(fault) => FoundSkills { skills: Vec::new(), faults: vec![fault] },
    }
}

/// The agents that have a skill, by the configuration of this machine.
fn agents(skill: &std::sync::Arc<Skill>, config: &Config) -> Vec<String> {
    let usual = AgentSection::default();
    let has_default = config.agents.keys().any(|name| name.as_str() == DEFAULT_AGENT);
    let default = (!has_default).then_some((DEFAULT_AGENT, &usual));
    let named = config.agents.iter().map(|(name, section)| (name.as_str(), section));
    let has = |section: &AgentSection| {
        !AgentSkills::chosen(std::slice::from_ref(skill), &section.skills).is_empty()
    };
    named
        .chain(default)
        .filter(|(_, section)| has(section))
        .map(|(name, _)| name.to_owned())
        .collect()
}

fn shown(skill: &std::sync::Arc<Skill>, config: &Config) -> Value {
    let head = &skill.head;
    let metadata: serde_json::Map<String, Value> = head
        .metadata
        .iter()
        .map(|(key, value)| (key.clone(), Value::String(value.clone())))
        .collect();
    json!({
        "name": head.name,
        "description": head.description,
        "license": head.license,
        "compatibility": head.compatibility,
        "metadata": metadata,
        "allowed_tools": head.allowed_tools,
        "triggers": head.triggers,
        "agents": agents(skill, config),
        "folder": skill.folder,
        "digest": skill.digest,
        "files": skill.files,
        "bundle": BundleState::of(skill).map(|state| json!({
            "version": state.record.version,
            "signer": state.record.signer,
            "key": state.record.key,
            "digest": state.record.digest,
            "is_changed": state.is_changed,
        })),
    })
}

/// The bundle that a skill came from, in a few words.
fn bundled(skill: &Skill) -> Option<String> {
    let BundleState { record, is_changed } = BundleState::of(skill)?;
    let changed = if is_changed { ", changed since" } else { "" };
    Some(format!("{}, signed by {}{changed}", record.version, record.signer))
}

fn page(skill: &std::sync::Arc<Skill>, config: &Config) -> String {
    let head = &skill.head;
    let folder = skill.folder.display().to_string();
    let agents = agents(skill, config).join(", ");
    // Triggers have a line of their own.
    let others = head.metadata.iter().filter(|(key, _)| key != "triggers");
    let others: Vec<String> = others.map(|(key, value)| format!("{key}: {value}")).collect();
    let lines = [
        ("description", head.description.clone()),
        ("license", head.license.clone().unwrap_or_default()),
        ("compatibility", head.compatibility.clone().unwrap_or_default()),
        ("triggers", head.triggers.join(", ")),
        ("metadata", others.join(", ")),
        ("tools", head.allowed_tools.join(" ")),
        ("agents", agents),
        ("folder", folder),
        ("digest", skill.digest.to_string()),
        ("files", skill.files.join(", ")),
        ("bundle", bundled(skill).unwrap_or_default()),
    ];
    let lines = lines.into_iter().filter(|(_, value)| !value.is_empty());
    let lines: Vec<String> = lines.map(|(key, value)| format!("{key:<14} {value}")).collect();
    format!("{}\n{}\n\n{}", head.name, lines.join("\n"), skill.text)
}

/// Each line without what would command a terminal.
fn clean_lines(text: &str) -> String {
    text.lines().map(clean).collect::<Vec<_>>().join("\n")
}

fn fault(fault: &SkillFault) -> Value {
    json!({ "path": fault.path, "what": fault.what })
}

fn told(out: Output, faults: &[SkillFault]) -> String {
    let told = |fault: &SkillFault| {
        let what = format!("`{}` is left out: {}", fault.path.display(), fault.what);
        out.paint(Tone::Bad, &clean(&what))
    };
    faults.iter().map(told).collect::<Vec<_>>().join("\n")
}
