//! `errors.md`: error codes and exit codes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use clawnode::{
    cli,
    failure::{COMMAND_CODES, Exit, Failure},
};
use clawnode_proto::{ErrorBody, ErrorCode};

use super::page;

const INTRO: &str = "\
Every error has a code that does not change. In HTTP it is `code` in an `application/problem+json` body, in JSON-RPC it
is `data.code` of the error, and commands print it with `--json`. `message` says what happened and where, and `hint`
says what to do.";

#[test]
fn reference_of_errors() {
    let exits = exits();
    let rows: Vec<_> = ErrorCode::ALL
        .iter()
        .map(|code| {
            let (means, remedy) = code.about().split_once("\n\n").unwrap();
            let exit = Failure::from(ErrorBody::new(*code, "")).exit as u8;
            assert!(exits.contains_key(&exit), "{code}: the help does not explain {exit}");
            [
                page::code(code.as_str()),
                code.http_status().to_string(),
                code.rpc_code().to_string(),
                exit.to_string(),
                page::plain(means),
                page::plain(remedy),
            ]
        })
        .collect();
    let codes = page::table(["code", "HTTP", "JSON-RPC", "exit", "means", "do"], &rows);
    let known = |code: &String| ErrorCode::ALL.iter().any(|one| one.as_str() == code);
    let mut given = given();
    given.retain(|code, _| !known(code));
    let rows: Vec<_> = COMMAND_CODES
        .iter()
        .map(|(code, means)| {
            let exits =
                given.remove(*code).unwrap_or_else(|| panic!("no command fails with {code}"));
            let exits: Vec<_> = exits.iter().map(u8::to_string).collect();
            [page::code(code), exits.join(", "), (*means).to_owned()]
        })
        .collect();
    assert!(given.is_empty(), "`COMMAND_CODES` does not say what these mean: {given:?}");
    let own = page::table(["code", "exit", "means"], &rows);
    let rows: Vec<_> = exits.into_iter().map(|(code, means)| [code.to_string(), means]).collect();
    let exits = page::table(["exit code", "means"], &rows);
    let text = format!(
        "{INTRO}\n\n## Error codes\n\n{codes}## Codes of commands\n\n{own}## Exit codes\n\n{exits}"
    );
    page::compare("errors", "Errors and exit codes", &text);
}

/// The exit codes of `clawnode --help`.
fn exits() -> BTreeMap<u8, String> {
    let help = cli::documented().get_after_help().unwrap().to_string();
    let (_, list) = help.split_once("Exit codes:\n").unwrap();
    let row = |line: &str| {
        let (code, means) = line.trim().split_once(' ')?;
        Some((code.parse().ok()?, means.trim().to_owned()))
    };
    list.lines().map_while(row).collect()
}

/// The codes that the sources of commands and nodes give to errors, and the exit codes with them.
fn given() -> BTreeMap<String, BTreeSet<u8>> {
    let mut given = BTreeMap::<String, BTreeSet<u8>>::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap_or_default();
            for (code, exit) in codes(&text) {
                given.entry(code.to_owned()).or_default().insert(exit);
            }
        }
    }
    given
}

/// The codes in `Failure::new(Exit::Usage, "code", …)` and in `StartError::usage("code", …)`.
fn codes(text: &str) -> Vec<(&str, u8)> {
    let mut found = Vec::new();
    for exit in [Exit::Failed, Exit::Usage, Exit::Unreachable, Exit::Refused, Exit::Config] {
        let name = format!("{exit:?}");
        for start in [format!("Exit::{name},"), format!("StartError::{}(", name.to_lowercase())] {
            found.extend(text.split(&start).skip(1).filter_map(|rest| {
                let (code, _) = rest.trim_start().strip_prefix('"')?.split_once('"')?;
                let is_code = code.chars().all(|c| c.is_ascii_lowercase() || c == '_');
                is_code.then_some((code, exit as u8))
            }));
        }
    }
    found
}
