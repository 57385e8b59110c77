//! The paths into its own crate that a file names.
//!
//! A path begins with `crate`, `super` or `self`. Those of a module inside the file are not followed.

use super::{File, scan::without_comment};

/// The folder of the crate's sources, and the path of a file's module in it.
pub(super) fn place(file: &File) -> Option<(&str, Vec<&str>)> {
    let (root, rest) = file.path.split_once("/src/")?;
    let mut module: Vec<&str> = rest.strip_suffix(".rs")?.split('/').collect();
    if matches!(module.last(), Some(&("mod" | "lib" | "main"))) {
        module.pop();
    }
    Some((root, module))
}

/// The paths into its crate that a file names, without the names in their groups that are `self`.
fn named(file: &File) -> Vec<String> {
    let lines: Vec<&str> = file.code().map(|(_, line)| without_comment(line).trim()).collect();
    let code = lines.join(" ");
    let starts = ["crate::", "super::", "self::"];
    let mut begins: Vec<usize> =
        starts.iter().flat_map(|start| code.match_indices(start)).map(|(at, _)| at).collect();
    begins.sort_unstable();
    let (mut paths, mut read) = (Vec::new(), 0);
    for at in begins {
        let before = code.get(..at).unwrap_or_default();
        // Within a longer path or a tree of them, or a word that ends so.
        let is_within = before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
        // It says who may see a thing, and names nothing.
        let is_visibility = before.ends_with("pub(in ");
        if at >= read && !is_within && !is_visibility {
            let rest = expand("", code.get(at..).unwrap_or_default(), &mut paths);
            read = code.len() - rest.len();
        }
    }
    paths
}

/// The paths in a tree of them: of `a::{b, c::{d, self}}` they are `a::b`, `a::c::d` and `a::c`.
/// Returns what follows it.
fn expand<'a>(prefix: &str, tree: &'a str, paths: &mut Vec<String>) -> &'a str {
    let tree = tree.trim_start();
    let ends = |c: char| !(c.is_alphanumeric() || c == '_' || c == ':');
    let (word, mut rest) = tree.split_at(tree.find(ends).unwrap_or(tree.len()));
    let path = format!("{prefix}{word}");
    let Some(mut group) = rest.strip_prefix('{').filter(|_| word.ends_with("::")) else {
        paths.push(path.trim_end_matches("::self").trim_end_matches("::").to_owned());
        return rest;
    };
    loop {
        rest = expand(&path, group, paths);
        // What is renamed has another name behind it.
        let end = rest.find([',', '}']).unwrap_or(rest.len());
        let (_, after) = rest.split_at(end);
        group = after.strip_prefix(',').map(str::trim_start).unwrap_or_default();
        if group.is_empty() || group.starts_with('}') {
            let closed = if group.is_empty() { after } else { group };
            return closed.strip_prefix('}').unwrap_or_default();
        }
    }
}

/// Where the paths of a file lead, from the root of its crate.
pub(super) fn targets(file: &File) -> Vec<Vec<String>> {
    let Some((_, module)) = place(file) else { return Vec::new() };
    let target = |named: &String| {
        let parts: Vec<&str> = named.split("::").collect();
        let ups = parts.iter().take_while(|part| **part == "super").count();
        let base = match parts.first() {
            Some(&"crate") => &[][..],
            _ => module.get(..module.len().saturating_sub(ups)).unwrap_or_default(),
        };
        let rest = parts.get(ups.max(1)..).unwrap_or_default();
        base.iter().chain(rest).map(|part| (*part).to_owned()).collect()
    };
    named(file).iter().map(target).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_paths_is_taken_apart() {
        let text = "use super::{a::{B, self, c as D}, e, super::h}; let x = crate::f::G::new(); _super::no; pub(in crate::f) g";
        let file = File { path: String::new(), text: text.to_owned() };
        let mut found = named(&file);
        found.sort();
        assert_eq!(
            found,
            [
                "crate::f::G::new",
                "super::a",
                "super::a::B",
                "super::a::c",
                "super::e",
                "super::super::h"
            ]
        );
    }

    #[test]
    fn paths_lead_from_the_root_of_the_crate() {
        let text = "use crate::a::B; use super::{c, super::d}; use self::e::F;";
        let file = File { path: "x/src/m/n/o.rs".to_owned(), text: text.to_owned() };
        let found: Vec<String> = targets(&file).iter().map(|target| target.join("::")).collect();
        assert_eq!(found, ["a::B", "m::n::c", "m::d", "m::n::o::e::F"]);
    }
}
