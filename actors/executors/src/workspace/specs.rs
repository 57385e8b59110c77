//! How the tools on files are described.

use std::time::Duration;

use clawnode_proto::tool::{EffectClass, Risk, ToolSpec};
use clawnode_tool::{
    spec::BuiltIn,
    workspace_path::{CAPABILITY, FILE_LIST, FILE_READ, FILE_SEARCH, FILE_WRITE},
};
use serde_json::{Value, json};

use super::{WorkspaceOptions, list::DEPTH, read::READ_BYTES, search::PATTERN_BYTES};

/// How long a disk may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The tools, in the order of their names.
pub fn specs(options: &WorkspaceOptions) -> Vec<ToolSpec> {
    let look = |name, description, input, timeout| BuiltIn {
        name,
        description,
        input,
        class: EffectClass::Safe,
        risk: Risk::ReadOnly,
        capability: Some(CAPABILITY),
        timeout,
    };
    let read = look(
        FILE_READ,
        "Reads a text file of the workspace. A long file is read in parts: the result says at \
         which offset to go on. Only regular files are read, no pipes or devices.",
        read_input(),
        TIMEOUT,
    );
    let list = look(
        FILE_LIST,
        "Lists what is in a directory of the workspace, by name and with sizes; at most 1,000 \
         entries. Directories end in `/`. Symbolic links are named, not followed.",
        list_input(),
        TIMEOUT,
    );
    let search = look(
        FILE_SEARCH,
        "Finds lines in the text files of the workspace that contain a text or match a regular \
         expression, with path, line number and the offset to read from; at most 200 lines. \
         Regular expressions have no look-around and no back-references. Binary files and \
         symbolic links are passed over.",
        search_input(),
        TIMEOUT + options.search_time,
    );
    let write = BuiltIn {
        name: FILE_WRITE,
        description: "Writes a whole text file in the workspace; what was in it before is \
                      replaced. Directories on the way are made. To change a part of a file, read \
                      it first and write all of it.",
        input: write_input(),
        class: EffectClass::Idempotent,
        risk: Risk::Write,
        capability: Some(CAPABILITY),
        timeout: TIMEOUT,
    };
    vec![list.spec(), read.spec(), search.spec(), write.spec()]
}

fn path(what: &str) -> Value {
    json!({
        "type": "string",
        "description": format!("{what}, relative to the workspace, with `/` between names; \
                                without `..`."),
        "minLength": 1,
        "maxLength": 1024,
    })
}

fn read_input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": path("The file"),
            "offset": {
                "type": "integer",
                "description": "The byte to begin at. Default: 0.",
                "minimum": 0,
            },
            "limit": {
                "type": "integer",
                "description": "Bytes to read. Default and most: 262144.",
                "minimum": 1,
                "maximum": READ_BYTES,
            },
        },
        "required": ["path"],
        "additionalProperties": false,
    })
}

fn write_input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": path("The file"),
            "content": {
                "type": "string",
                "description": "All that the file will contain; at most 1 MiB.",
            },
        },
        "required": ["path", "content"],
        "additionalProperties": false,
    })
}

fn list_input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": path("The directory. Default: `.`, the workspace itself"),
            "depth": {
                "type": "integer",
                "description": "1 lists the directory alone, 2 also what is in the directories \
                                in it, and so on. Default: 1.",
                "minimum": 1,
                "maximum": DEPTH,
            },
        },
        "additionalProperties": false,
    })
}

fn search_input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "pattern": {
                "type": "string",
                "description": "What to look for, within one line.",
                "minLength": 1,
                "maxLength": PATTERN_BYTES,
            },
            "path": path("The file or directory to look in. Default: `.`, the whole workspace"),
            "regex": {
                "type": "boolean",
                "description": "Whether the pattern is a regular expression. Default: false.",
            },
            "ignore_case": {
                "type": "boolean",
                "description": "Whether upper and lower case are the same. Default: false.",
            },
        },
        "required": ["pattern"],
        "additionalProperties": false,
    })
}

#[cfg(test)]
mod tests {
    use clawnode_tool::workspace_path::refusal;
    use serde_json::Map;

    use super::*;

    #[test]
    fn what_can_never_run_is_known_from_its_arguments() {
        let all = specs(&WorkspaceOptions::new("/srv/agents".into()));
        for spec in &all {
            let refused = |path: Value| {
                let arguments = Map::from_iter([("path".to_owned(), path)]);
                refusal(spec, &arguments)
            };
            assert_eq!(refused("notes/a.txt".into()), None, "{}", spec.name);
            let why = refused("../../etc/passwd".into()).unwrap();
            assert!(why.contains("it has `..` in it"), "{why}");
            assert!(refused("/etc/passwd".into()).unwrap().contains("absolute"));
        }
        // The same name, run by something else: its paths are its own.
        let other = ToolSpec { capability: None, ..all[0].clone() };
        let arguments = Map::from_iter([("path".to_owned(), "../up".into())]);
        assert_eq!(refusal(&other, &arguments), None);
    }
}
