//! Adds a rule for tool calls to a configuration file: right before the rule that decided until now, and
//! all else in the file stays as it is.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, Value};

use super::{ConfigError, agents::RuleOptions, load::LoadedConfig};
use crate::files;

/// Why a rule was not written.
#[derive(Debug, thiserror::Error)]
pub enum RuleError {
    /// There is no file to write to.
    #[error("there is no home directory, and no configuration file was named")]
    Nowhere,
    /// The file is not of the format that can be edited.
    #[error("`{}` is JSON; rules can be added to TOML files only", .0.display())]
    Json(PathBuf),
    /// The file cannot be read or written.
    #[error("cannot use `{}`", file.display())]
    File { file: PathBuf, source: io::Error },
    /// It is not there any more, or a link that leads nowhere.
    #[error("`{}` no longer exists", .0.display())]
    Gone(PathBuf),
    /// The file of another user: the new one would be this user's.
    #[error("`{}` belongs to another user or group; add the rule by hand", .0.display())]
    Foreign(PathBuf),
    /// It was changed meanwhile.
    #[error("`{}` has just been changed; try again", .0.display())]
    Changed(PathBuf),
    /// It cannot be edited.
    #[error("`{}` is not valid TOML: {message}", file.display())]
    Toml {
        file: PathBuf,
        /// What is wrong, without the text around it, which may hold a secret.
        message: String,
    },
    /// The place of the rules holds something else.
    #[error("`agents.{0}.rules` is not a list of tables; add the rule by hand")]
    Shape(String),
    /// A node would refuse the result.
    #[error("the configuration would not be valid with this rule")]
    Refused(#[from] ConfigError),
}

/// A rule as a configuration file has it, with its header.
pub fn text(agent: &str, rule: &RuleOptions) -> String {
    let mut document = DocumentMut::new();
    // An empty document has no other shape.
    drop(add(&mut document, RulePlace { agent, number: 0 }, rule));
    document.to_string()
}

/// Where a rule goes.
#[derive(Clone, Copy, Debug)]
pub struct RulePlace<'a> {
    /// The agent's name.
    pub agent: &'a str,
    /// Its number among the agent's rules, from 0.
    pub number: usize,
}

/// Writes `rule` at its place among the rules of an agent into the configuration file, in one step, and
/// returns the file. A file that does not exist is made, for its owner alone; one that exists keeps its
/// permissions, and a link stays a link. Nothing is written if a node would not take the result.
pub fn write(
    loaded: &LoadedConfig,
    place: RulePlace<'_>,
    rule: &RuleOptions,
) -> Result<PathBuf, RuleError> {
    let file = loaded.own_file().ok_or(RuleError::Nowhere)?;
    let unusable = |source| RuleError::File { file: file.clone(), source };
    if file.extension().is_some_and(|name| name.eq_ignore_ascii_case("json")) {
        return Err(RuleError::Json(file));
    }
    let (target, old, mode) = match fs::canonicalize(&file) {
        Ok(target) => {
            let about = fs::metadata(&target).map_err(unusable)?;
            if !is_own(&about) {
                return Err(RuleError::Foreign(file));
            }
            let old = fs::read_to_string(&target).map_err(unusable)?;
            (target, Some(old), about.permissions().mode() & 0o777)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // What a node goes on with is not what an empty file would say.
            if loaded.file.is_some() || fs::symlink_metadata(&file).is_ok() {
                return Err(RuleError::Gone(file));
            }
            files::directory(file.parent().unwrap_or(Path::new("."))).map_err(unusable)?;
            (file.clone(), None, files::PRIVATE)
        }
        Err(error) => return Err(unusable(error)),
    };
    let text = old.clone().unwrap_or_default();
    // Its errors quote no values.
    loaded.with_text(&file, &text)?;
    let mut document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| {
        RuleError::Toml { file: file.clone(), message: error.message().to_owned() }
    })?;
    add(&mut document, place, rule)?;
    let new = document.to_string();
    loaded.with_text(&file, &new)?;
    if fs::read_to_string(&target).ok() != old {
        return Err(RuleError::Changed(file));
    }
    files::replace(&target, &new, mode).map_err(unusable)?;
    Ok(file)
}

/// Whether a file that this process makes would have the same owner and group.
fn is_own(about: &fs::Metadata) -> bool {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    (about.uid(), about.gid()) == (user.as_raw(), group.as_raw())
}

/// Adds `rule` at its place, or as the last of the agent.
fn add(
    document: &mut DocumentMut,
    RulePlace { agent, number }: RulePlace<'_>,
    rule: &RuleOptions,
) -> Result<(), RuleError> {
    let is_first = document.is_empty();
    let other = || RuleError::Shape(agent.to_owned());
    let mut place = document.as_item_mut();
    for name in ["agents", agent] {
        let table = place.as_table_like_mut().ok_or_else(other)?;
        place = table.entry(name).or_insert_with(|| {
            let mut made = Table::new();
            made.set_implicit(true);
            Item::Table(made)
        });
    }
    // A table in one line has room for a list in that line only.
    let empty = if place.is_inline_table() {
        Item::Value(Value::Array(Array::new()))
    } else {
        Item::ArrayOfTables(ArrayOfTables::new())
    };
    let table = place.as_table_like_mut().ok_or_else(other)?;
    match table.entry("rules").or_insert(empty) {
        Item::ArrayOfTables(rules) => {
            let mut made = Table::from_iter(values(rule));
            let at = number.min(rules.len());
            // Tables are printed in order of their positions; of two at one, as they are in the list.
            let neighbour = rules.get(at).or_else(|| rules.get(at.checked_sub(1)?));
            made.set_position(neighbour.and_then(Table::position));
            made.decor_mut().set_prefix(if is_first { "" } else { "\n" });
            rules.insert(at, made);
        }
        Item::Value(Value::Array(rules)) => {
            let at = number.min(rules.len());
            rules.insert(at, InlineTable::from_iter(values(rule)));
        }
        _ => return Err(other()),
    }
    Ok(())
}

fn values(rule: &RuleOptions) -> Vec<(&'static str, Value)> {
    let RuleOptions { tool, risk, arguments, exact, verdict, reason } = rule;
    let arguments = (!arguments.is_empty()).then(|| Value::from_iter(arguments));
    [
        ("tool", tool.as_deref().map(Value::from)),
        ("risk", risk.map(|risk| risk.as_str().into())),
        ("arguments", arguments),
        ("exact", exact.then(|| true.into())),
        ("verdict", Some(verdict.as_str().into())),
        ("reason", reason.as_deref().map(Value::from)),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .collect()
}

#[cfg(test)]
mod tests {
    use clawnode_proto::policy::Verdict;
    use proptest::prelude::*;

    use super::*;
    use crate::config::{Env, Sources, load};

    const FIRST: RulePlace<'static> = RulePlace { agent: "default", number: 0 };

    fn rule(path: &str) -> RuleOptions {
        RuleOptions {
            tool: Some("file_write".to_owned()),
            risk: None,
            arguments: [("path".to_owned(), path.to_owned())].into(),
            exact: true,
            verdict: Verdict::Allow,
            reason: None,
        }
    }

    fn with_rule(text: &str, agent: &str, rule: &RuleOptions) -> Result<String, String> {
        at(text, RulePlace { agent, number: 0 }, rule)
    }

    fn at(text: &str, place: RulePlace<'_>, rule: &RuleOptions) -> Result<String, String> {
        let mut document: DocumentMut = text.parse().map_err(|error| format!("{error}"))?;
        add(&mut document, place, rule).map_err(|error| error.to_string())?;
        Ok(document.to_string())
    }

    /// What the file says, but for the first rule of this agent, which is the one that was added.
    fn without(text: &str, agent: &str, added: &RuleOptions) -> toml::Table {
        let mut table: toml::Table = toml::from_str(text).unwrap();
        let rules = table["agents"][agent].get_mut("rules").expect(text).as_array_mut().unwrap();
        let first = rules.remove(0);
        assert_eq!(first, toml::Value::try_from(added).unwrap(), "{text}");
        table
    }

    #[test]
    fn a_rule_goes_before_the_others_and_all_else_stays() {
        let files = [
            "",
            "# mine\n[workspace]\nroot = \"files\"\n# the end",
            "[agents.default]\nmodel = \"a/b\" # this one\n\n[agents.other]\nmodel = \"c/d\"\n",
            // Below what comes later in the file, and with a comment of its own.
            "[[agents.default.rules]] # first\nverdict = \"deny\"\n[agents.default.rules.arguments]\n\
             path = \"x\"\n\n# second\n[[agents.default.rules]]\nverdict = \"ask\"\n\
             [agents.default.timeouts]\nturn = \"1h\"\n[agents.a]\n[agents.z]\nmodel = \"c/d\"\n",
            "[agents.z.timeouts]\nturn = \"1h\"\n[[agents.default.rules]]\nverdict = \"deny\"\n",
            "agents.default.rules = [{ verdict = \"ask\" }]\n",
            "agents = { default = { model = \"a/b\" } }\n",
            "[agents]\ndefault.model = \"a/b\"\n",
        ];
        let mut shown = String::new();
        for old in files {
            let added = rule("a \"b\".txt\n'''");
            let new = with_rule(old, "default", &added).unwrap();
            let (mut left, mut was) =
                (without(&new, "default", &added), toml::from_str::<toml::Table>(old).unwrap());
            // A list or table that was not there is there now, and empty.
            for table in [&mut left, &mut was] {
                let agents = table.entry("agents").or_insert_with(|| toml::Table::new().into());
                let agents = agents.as_table_mut().unwrap();
                let agent = agents.entry("default").or_insert_with(|| toml::Table::new().into());
                let agent = agent.as_table_mut().unwrap();
                agent.entry("rules").or_insert_with(|| toml::Value::Array(Vec::new()));
            }
            assert_eq!(left, was, "{new}");
            for line in old.lines().filter(|line| line.contains('#')) {
                assert!(new.contains(line), "{line}: {new}");
            }
            shown.push_str(&new);
            shown.push_str("\n----\n");
        }
        insta::assert_snapshot!(shown);
        let error = with_rule("[agents.default]\nrules = 1\n", "default", &rule("x")).unwrap_err();
        assert!(error.contains("agents.default.rules"), "{error}");
        assert!(with_rule("agents = 1\n", "default", &rule("x")).is_err());
        assert!(with_rule("[[", "default", &rule("x")).is_err());
    }

    #[test]
    fn a_rule_goes_where_it_belongs() {
        let three = "[[agents.default.rules]]\nverdict = \"deny\"\n\n# mine\n[[agents.default.rules]]\n\
                     verdict = \"ask\"\n\n[agents.default.timeouts]\nglobal = \"1h\"\n";
        let inline = "[agents.default]\nrules = [{ verdict = \"deny\" }, { verdict = \"ask\" }]\n";
        for old in [three, inline] {
            for place in 0..4 {
                let new =
                    at(old, RulePlace { agent: "default", number: place }, &rule("x")).unwrap();
                let table: toml::Table = toml::from_str(&new).unwrap();
                let rules = table["agents"]["default"]["rules"].as_array().unwrap();
                let at = rules.iter().position(|rule| rule.get("exact").is_some());
                assert_eq!((rules.len(), at), (3, Some(place.min(2))), "{new}");
                assert_eq!(new.contains("# mine"), old.contains("# mine"));
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_what_was_meant(path in "(?s).{1,40}", agent in "[a-z][a-z0-9-]{0,8}") {
            let (one, two) = (rule(&path), rule("two"));
            let first = text(&agent, &one);
            let both = with_rule(&first, &agent, &two).unwrap();
            prop_assert_eq!(without(&both, &agent, &two), toml::from_str(&first).unwrap());
            without(&first, &agent, &one);
        }
    }

    #[test]
    fn a_file_keeps_its_permissions_and_what_a_node_refuses_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().to_str().unwrap();
        let env = Env::from([("HOME", home)]);
        let sources = Sources { env: env.clone(), ..Sources::default() };
        let loaded = load(&sources).unwrap();
        let made = write(&loaded, FIRST, &rule("one")).unwrap();
        assert_eq!(made, dir.path().join(".config/clawnode/config.toml"));
        let bits = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(bits(&made), 0o600);
        let agent: clawnode_proto::AgentName = "default".parse().unwrap();
        let rules = || load(&sources).unwrap().config.agents[&agent].rules.clone();
        assert_eq!(rules(), [rule("one")]);

        let real = dir.path().join("real.toml");
        fs::rename(&made, &real).unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&real, &made).unwrap();
        write(&loaded, FIRST, &rule("two")).unwrap();
        assert_eq!((bits(&real), made.is_symlink()), (0o640, true));
        assert_eq!(rules(), [rule("two"), rule("one")]);

        // What was read and is gone is not made again, with one rule in it; nor is where a link led.
        let before = fs::read_to_string(&real).unwrap();
        fs::remove_file(&real).unwrap();
        let again = load(&Sources { file: Some(made.clone()), ..sources.clone() });
        again.unwrap_err();
        let error = write(&loaded, FIRST, &rule("x")).unwrap_err();
        assert!(matches!(error, RuleError::Gone(_)), "{error}");
        fs::write(&real, "token = \"sk-secret\n").unwrap();
        let error = write(&loaded, FIRST, &rule("x")).unwrap_err();
        let shown = clawnode_proto::ErrorChain(&error).to_string();
        assert!(!shown.contains("sk-secret"), "{shown}");
        fs::write(&real, &before).unwrap();
        let long = "x".repeat(10_000);
        let error = write(&loaded, FIRST, &rule(&long)).unwrap_err();
        let shown = clawnode_proto::ErrorChain(&error).to_string();
        assert!(shown.contains("too long"), "{shown}");
        assert!(
            write(&loaded, RulePlace { agent: "no such name", number: 0 }, &rule("x")).is_err()
        );
        assert_eq!(fs::read_to_string(&real).unwrap(), before);
        let json = dir.path().join("config.json");
        fs::write(&json, "{}").unwrap();
        let loaded = load(&Sources { env, file: Some(json), flags: Vec::new() }).unwrap();
        let error = write(&loaded, FIRST, &rule("x")).unwrap_err().to_string();
        assert!(error.contains("is JSON"), "{error}");
    }
}
