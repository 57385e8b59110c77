//! `configuration.md`: every setting. Its texts are those of `config.example.toml`, which names each
//! setting that the program knows, and states each default as it is.

use std::{collections::BTreeMap, fs};

use clawnode::config::{Env, Sources, load, show};
use serde_json::Value;

use super::page;

const FILE: &str = "nodes/config.example.toml";
const INTRO: &str = "\
[config.example.toml](../../nodes/config.example.toml) has all of these settings as a file to copy from. A setting
without a default here is not set, or its text says what it is instead.";
/// No setting is called so.
const UNKNOWN: &str = "zzzz";
/// In the place of a name that people choose.
const NAME: &str = "NAME";

/// A table of the example: its header and its text, and the keys in it.
#[derive(Debug, Default)]
struct Table {
    /// As it is written: `[agents.default]`, `[[plugins]]`.
    header: String,
    about: String,
    keys: Vec<Key>,
}

#[derive(Debug)]
struct Key {
    name: String,
    value: String,
    about: String,
}

#[test]
fn reference_of_the_configuration() {
    let (intro, tables) = example(&page::read(FILE));
    // The first paragraph is about the file itself.
    let (_, rules) = intro.split_once("\n\n").unwrap();
    let mut text = format!("{INTRO}\n\n{rules}");
    for (at, table) in tables.iter().enumerate() {
        let opening = opening(&tables[..=at]);
        text += &format!("## `{}`\n\n", table.header);
        if !table.about.is_empty() {
            text += &format!("{}\n\n", table.about);
        }
        let row = |key: &Key| {
            let (default, about) = defaults(&opening, key);
            [page::code(&key.name), default, about]
        };
        let rows: Vec<_> = table.keys.iter().map(row).collect();
        text += &page::table(["setting", "default", "meaning"], &rows);
    }
    page::compare("configuration", "Configuration", &text);
}

/// The text before the tables, and the tables.
fn example(text: &str) -> (String, Vec<Table>) {
    let (mut intro, mut tables) = (String::new(), Vec::<Table>::new());
    let mut prose = Vec::new();
    for line in text.lines() {
        let bare = line.strip_prefix("# ").unwrap_or(line);
        let is_key =
            |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
        if bare.starts_with('[') {
            let (header, about) = commented(bare);
            let about = [prose.join(" "), about].concat();
            tables.push(Table { header, about, keys: Vec::new() });
            prose.clear();
        } else if let Some((name, value)) = bare.split_once(" = ").filter(|pair| is_key(pair.0)) {
            let (value, about) = commented(value);
            let about = [prose.join(" "), about].concat();
            assert!(!about.is_empty(), "`{name}` says nothing");
            let key = Key { name: name.to_owned(), value, about };
            tables.last_mut().unwrap().keys.push(key);
            prose.clear();
        } else if line.trim_matches(['#', ' ']).is_empty() {
            if tables.is_empty() {
                intro += &format!("{}\n\n", prose.join(" "));
            }
            // Text that belongs to what follows is right above it.
            prose.clear();
        } else {
            prose.push(bare);
        }
    }
    (intro, tables)
}

/// What a line says before and after `#`.
fn commented(line: &str) -> (String, String) {
    let (value, about) = line.split_once("  # ").unwrap_or((line.trim_end_matches("  #"), ""));
    (value.trim().to_owned(), about.trim().to_owned())
}

/// The last of these tables with what a file must have before it: the tables that it is in.
fn opening(tables: &[Table]) -> Vec<&Table> {
    let table = tables.last().unwrap();
    let path = path(&table.header);
    let outer = |at: usize| {
        let is_it = |table: &&Table| path[..at] == self::path(&table.header);
        tables.iter().rev().find(|table| table.header.starts_with("[[") && is_it(table))
    };
    (1..path.len()).filter_map(outer).chain([table]).collect()
}

fn path(header: &str) -> Vec<String> {
    let parts = header.trim_matches(['[', ']']).split('.');
    parts.map(|part| part.trim_matches('"').to_owned()).collect()
}

/// A setting's default, and what it means: what the file says is the default, or an example.
fn defaults(opening: &[&Table], key: &Key) -> (String, String) {
    let (least, needed) = least(opening);
    let example = format!("{} Example: `{}`.", key.about, key.value);
    if needed.contains(&key.name) {
        return ("required".to_owned(), example);
    }
    let full = format!("{least}{} = {}\n", key.name, key.value);
    let place = place(opening, &key.name);
    let before = values(&least).unwrap_or_else(|error| panic!("{least}\n{error}"));
    let with = match values(&full) {
        Ok(with) => with,
        // It needs another setting beside it.
        Err(error) => {
            assert!(!error.contains("unknown key"), "{error}");
            return (String::new(), example);
        }
    };
    let values_of = |values: &BTreeMap<String, Value>| -> Vec<Value> {
        let inside = format!("{place}.");
        let is_it = |text: &&String| **text == place || text.starts_with(&inside);
        values.keys().filter(is_it).map(|key| values[key].clone()).collect()
    };
    if values_of(&before) == values_of(&with) {
        return (page::code(&key.value), key.about.clone());
    }
    // An empty list is no default worth stating instead of an example.
    let is_empty = [vec![], vec![Value::Array(Vec::new())]].contains(&values_of(&before));
    let is_said = is_empty || key.about.contains("Default:");
    assert!(is_said, "`{place}` is {:?}, not {}", values_of(&before), key.value);
    (String::new(), example)
}

/// The smallest file with the last of these tables that is valid, and what is required in it.
fn least(opening: &[&Table]) -> (String, Vec<String>) {
    let (mut text, mut needed) = (String::new(), Vec::new());
    for table in opening {
        needed.clear();
        text += &format!("{}\n", table.header);
        let mut rest: Vec<&Key> = table.keys.iter().collect();
        while let Err(error) = values(&text) {
            let missing = |key: &&Key| error.contains(&format!("`{}` is missing", key.name));
            let at = rest.iter().position(missing);
            if rest.is_empty() {
                break;
            }
            let key = rest.remove(at.unwrap_or(0));
            if at.is_some() {
                needed.push(key.name.clone());
            }
            text += &format!("{} = {}\n", key.name, key.value);
        }
    }
    (text, needed)
}

/// Where a setting of the last table is, as `config show` has it.
fn place(opening: &[&Table], key: &str) -> String {
    let mut place = String::new();
    let mut done = 0;
    for table in opening {
        let path = path(&table.header);
        place += &path[done..].join(".");
        place += if table.header.starts_with("[[") { ".0." } else { "." };
        done = path.len();
    }
    place + key
}

/// Every setting that this file makes, by its place.
fn values(text: &str) -> Result<BTreeMap<String, Value>, String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    fs::write(&file, text).unwrap();
    let home = dir.path().to_str().unwrap();
    let sources = Sources { env: Env::from([("HOME", home)]), file: Some(file), flags: Vec::new() };
    let loaded = load(&sources).map_err(|error| format!("{error} ({})", error.hint))?;
    let settings = show::settings(&loaded).unwrap();
    Ok(settings.into_iter().map(|setting| (setting.key, setting.value)).collect())
}

/// The keys of a table that the program knows.
fn known(header: &str) -> Option<Vec<String>> {
    let error = values(&format!("{header}\n{UNKNOWN} = 1\n")).err()?;
    let (_, list) = error.split_once(&format!("unknown key `{UNKNOWN}`"))?;
    let (_, list) = list.split_once("known here: ")?;
    Some(list.split('`').skip(1).step_by(2).map(str::to_owned).collect())
}

/// Every key that the program knows, with dots; `NAME` where people choose a name.
fn all(header: &str, path: &[&str], found: &mut Vec<String>) {
    for key in known(header).unwrap_or_default() {
        let outer = path.join(".").replace(NAME, "default");
        let dotted = if outer.is_empty() { key.clone() } else { format!("{outer}.{key}") };
        let above = if header.starts_with("[[") { format!("{header}\n") } else { String::new() };
        let inner = [
            (format!("{above}[{dotted}]"), None),
            (format!("{above}[[{dotted}]]"), None),
            (format!("{above}[{dotted}.default]"), Some(NAME)),
        ];
        let is_table = |pair: &&(String, _)| known(&pair.0).is_some();
        let path: Vec<&str> = path.iter().copied().chain([key.as_str()]).collect();
        match inner.iter().find(is_table) {
            Some((header, name)) => {
                let path: Vec<&str> = path.into_iter().chain(*name).collect();
                all(header, &path, found);
            }
            None => found.push(path.join(".")),
        }
    }
}

#[test]
fn reference_of_the_configuration_has_every_setting() {
    let mut known = Vec::new();
    all("", &[], &mut known);
    assert!(known.len() > 100, "{known:?}");
    let (_, tables) = example(&page::read(FILE));
    let fits = |known: &str, stated: &[String]| {
        let known: Vec<&str> = known.split('.').collect();
        known.len() == stated.len()
            && known.iter().zip(stated).all(|(known, stated)| known == stated || *known == NAME)
    };
    let mut stated = Vec::new();
    for table in &tables {
        let path = path(&table.header);
        let keys = table.keys.iter().map(|key| [path.clone(), vec![key.name.clone()]].concat());
        stated.extend(keys);
        // A table whose keys people choose is a setting itself.
        stated.push(path);
    }
    let missing: Vec<_> =
        known.iter().filter(|known| !stated.iter().any(|key| fits(known, key))).collect();
    assert!(missing.is_empty(), "`{FILE}` does not have {missing:?}");
}
