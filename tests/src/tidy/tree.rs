//! The files that are checked.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Folders that are not ours to check.
const SKIPPED: [&str; 5] = ["target", "node_modules", "snapshots", "fixtures", "golden"];
/// What is read.
const ENDINGS: [&str; 7] = ["html", "json", "md", "rs", "toml", "txt", "wit"];

/// One text file.
#[derive(Clone, Debug)]
pub struct File {
    /// From the root, with `/`.
    pub path: String,
    pub text: String,
}

/// Every text file of the repository.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// By path.
    pub files: Vec<File>,
}

// === impl Tree ===

impl Tree {
    /// Reads everything under `root`.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        tree.read_folder(root, root)?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    /// A tree made of samples.
    pub fn of(files: &[(&str, &str)]) -> Self {
        let file = |(path, text): &(&str, &str)| File {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        };
        Self { files: files.iter().map(file).collect() }
    }

    /// Files with this ending.
    pub fn ending(&self, ending: &str) -> impl Iterator<Item = &File> {
        let ending = format!(".{ending}");
        self.files.iter().filter(move |file| file.path.ends_with(&ending))
    }

    /// The file at this path.
    pub fn get(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Whether only tests compile it: it is test code, or a `cfg` is before the line that declares its module
    /// or one around it.
    pub(super) fn is_for_tests(&self, file: &File) -> bool {
        if file.is_test() {
            return true;
        }
        let mut path = file.path.as_str();
        while let Some((folder, name)) = path.rsplit_once('/') {
            let parents = ["mod.rs", "lib.rs", "main.rs"];
            let module = name.trim_end_matches(".rs");
            let gates = |parent: &&str| {
                let parent = self.get(&format!("{folder}/{parent}"));
                parent.is_some_and(|parent| parent.has_for_tests(module))
            };
            if !parents.contains(&name) && parents.iter().any(gates) {
                return true;
            }
            path = folder;
        }
        false
    }

    fn read_folder(&mut self, root: &Path, folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                let hidden = name.starts_with('.') && name != ".config" && name != ".cargo";
                if !hidden && !SKIPPED.contains(&name.as_str()) {
                    self.read_folder(root, &path)?;
                }
            } else if ENDINGS.iter().any(|ending| name.ends_with(&format!(".{ending}"))) {
                let text = fs::read_to_string(&path)?;
                self.files.push(File { path: relative(root, &path), text });
            }
        }
        Ok(())
    }
}

fn relative(root: &Path, path: &Path) -> String {
    let path: PathBuf = path.strip_prefix(root).unwrap_or(path).to_owned();
    path.to_string_lossy().replace('\\', "/")
}

// === impl File ===

impl File {
    /// Whether all of it is test code: a scenario, a harness or a bench.
    pub fn is_test(&self) -> bool {
        let in_tests = self.path.starts_with("tests/") || self.path.contains("/tests/");
        in_tests || self.path.ends_with("_tests.rs")
    }

    /// Whether it is part of the product.
    pub fn is_product(&self) -> bool {
        let folder = self.path.split('/').next().unwrap_or_default();
        ["proto", "cluster", "actors", "nodes"].contains(&folder) && self.path.contains("/src/")
    }

    /// Its lines, numbered from 1, up to the tests at its end.
    pub fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = self.tests_begin();
        self.numbered().take_while(move |(number, _)| *number < end)
    }

    /// The lines of its tests.
    pub fn tests(&self) -> impl Iterator<Item = (usize, &str)> {
        let begin = if self.is_test() { 0 } else { self.tests_begin() };
        self.numbered().filter(move |(number, _)| *number >= begin)
    }

    /// Its lines, numbered from 1.
    pub fn numbered(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(at, line)| (at + 1, line))
    }

    /// Whether it declares this module for tests alone.
    fn has_for_tests(&self, module: &str) -> bool {
        let declared = format!("mod {module};");
        let mut before = "";
        for line in self.text.lines() {
            let is_for_tests = before.starts_with("#[cfg(") && before.contains("test");
            if is_for_tests && line.ends_with(&declared) {
                return true;
            }
            before = line;
        }
        false
    }

    fn tests_begin(&self) -> usize {
        let mut before = "";
        for (number, line) in self.numbered() {
            let for_tests = ["#[cfg(test)]", "#[cfg(all(test"]
                .iter()
                .any(|attribute| before.starts_with(attribute));
            if line.starts_with("mod tests {") && for_tests {
                return number - 1;
            }
            before = line;
        }
        usize::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_tests_compile_is_found_by_its_parents() {
        let tree = Tree::of(&[
            ("actors/src/lib.rs", "//! A.\n#[cfg(test)]\nmod a;\npub mod b;\n"),
            ("actors/src/a/mod.rs", "//! A.\nmod c;\n"),
            ("actors/src/a/c.rs", "//! C.\n"),
            ("actors/src/b/mod.rs", "//! B.\n#[cfg(feature = \"test-util\")]\npub mod d;\n"),
            ("actors/src/b/d.rs", "//! D.\n"),
            ("actors/src/b/e_tests.rs", "//! E.\n"),
        ]);
        let found: Vec<&str> = tree
            .ending("rs")
            .filter(|file| tree.is_for_tests(file))
            .map(|file| file.path.as_str())
            .collect();
        let expected = [
            "actors/src/a/mod.rs",
            "actors/src/a/c.rs",
            "actors/src/b/d.rs",
            "actors/src/b/e_tests.rs",
        ];
        assert_eq!(found, expected);
    }
}
