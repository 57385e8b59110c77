//! A page: Markdown, compared with its file.

use std::{env, fs, path::Path};

/// Said at the top of each page.
const COMMAND: &str = "INSTA_UPDATE=always cargo xtest reference";

/// A file of the repository.
pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
}

/// Compares `docs/reference/NAME.md` with this text, or writes it if that is asked for.
pub(crate) fn compare(name: &str, title: &str, text: &str) {
    let path = format!("docs/reference/{name}.md");
    let made = format!(
        "# {title}\n\n<!-- A test generates this page from the code: {COMMAND} -->\n\n{}\n",
        text.trim()
    );
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(&path);
    if env::var("INSTA_UPDATE").is_ok_and(|value| value == "always") {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, &made).unwrap();
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    let differs = made.lines().zip(found.lines()).find(|(made, found)| made != found);
    assert!(made == found, "`{path}` is not what the code says ({differs:?}): {COMMAND}");
}

/// A table with these headings; none if it has no rows.
pub(crate) fn table<const N: usize>(heads: [&str; N], rows: &[[String; N]]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let line = |cells: [&str; N]| format!("| {} |\n", cells.map(cell).join(" | "));
    let body: String = rows.iter().map(|row| line(row.each_ref().map(String::as_str))).collect();
    format!("{}|{}\n{body}\n", line(heads), "---|".repeat(N))
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// The text of a doc comment in one line, without its links to code, which lead nowhere here.
pub(crate) fn plain(text: &str) -> String {
    let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    while let Some((before, rest)) = text.split_once("[`")
        && let Some((name, after)) = rest.split_once("`]")
    {
        let target = after.starts_with('(').then(|| after.split_once(')')).flatten();
        text = format!("{before}`{name}`{}", target.map_or(after, |(_, after)| after));
    }
    text
}

/// Text as code.
pub(crate) fn code(text: &str) -> String {
    format!("`{text}`")
}
