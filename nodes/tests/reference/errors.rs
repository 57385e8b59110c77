//! `errors.md`: error codes and exit codes.

use std::collections::BTreeMap;

use clawnode::{cli, failure::Failure};
use clawnode_proto::{ErrorBody, ErrorCode};

use super::page;

const INTRO: &str = "\
Every error has a code that does not change. In HTTP it is `code` in an `application/problem+json` body, in JSON-RPC it
is `data.code` of the error, and commands print it with `--json`. `message` says what happened and where, and `hint`
says what to do. Commands have some codes of their own, such as `usage`, `config_invalid` and `not_running`.";

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
    let rows: Vec<_> = exits.into_iter().map(|(code, means)| [code.to_string(), means]).collect();
    let exits = page::table(["exit code", "means"], &rows);
    let text = format!("{INTRO}\n\n## Error codes\n\n{codes}## Exit codes\n\n{exits}");
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
