//! Which blocks run together, what surrounds them, and the script that this makes.

use super::page::{Block, blocks};

/// Blocks of one README that run in one shell, in this order.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// The README, from the root of the repository.
    pub readme: &'static str,
    /// The folder in the copy where its shell starts.
    pub folder: &'static str,
    /// Its blocks.
    pub steps: &'static [Step],
}

/// One block.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The beginning of its first line.
    pub begins: &'static str,
    /// Commands before it, which make what the README takes as given.
    pub given: &'static str,
    /// How it runs.
    pub how: How,
    /// Commands after it, which judge it. The file `$SAID` has what it printed.
    pub then: &'static str,
}

/// How a block runs.
#[derive(Clone, Copy, Debug)]
pub enum How {
    AsWritten,
    /// As written, but for these pieces.
    But(&'static [Change]),
    /// Not at all, for this reason.
    Left(&'static str),
}

/// A piece of a block that cannot run as written.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// As the README has it.
    pub written: &'static str,
    /// What runs instead.
    pub run: &'static str,
    pub why: &'static str,
}

/// Functions that scenes use.
const HELPERS: &str = r#"
set -eu
ip link set lo up
SAID=/dev/null STDIN=/dev/null
trap 'status=$?; [ $status = 0 ] || { echo "ends with $status; the block printed:"; cat "$SAID"; }' EXIT
# Repeats a command until it succeeds, for a minute.
await() {
    for _ in $(seq 300); do if "$@" >/dev/null 2>&1; then return 0; fi; sleep 0.2; done
    echo "this did not succeed within a minute: $*"; "$@"
}
# Starts a node with these arguments, and waits until it serves.
serve() { clawnode up "$@" >>"$HOME/node.log" 2>&1 & NODE=$!; await clawnode status; }
stop() { kill "$NODE"; wait "$NODE" || true; }
# Fails unless the block printed this.
shows() { grep -qF -- "$1" "$SAID" || { echo "the block did not print: $1"; exit 1; }; }
"#;

// === impl Scene ===

impl Scene {
    /// The script that runs it; an error names a step that fits no block, or a change that fits none.
    pub fn script(&self, readme: &str) -> Result<String, String> {
        let found = blocks(readme);
        let mut script = HELPERS.to_owned();
        for step in self.steps {
            let block = found.iter().find(|block| step.is(block)).ok_or_else(|| {
                format!("{}: no block begins with `{}`", self.readme, step.begins)
            })?;
            let place = format!("{}:{}", self.readme, block.line);
            let Some(text) = step.changed(block).map_err(|why| format!("{place}: {why}"))? else {
                continue;
            };
            let said = format!("$HOME/said.{}", block.line);
            script.extend([
                format!("echo '==> {place}'\n{}\nSAID={said}\n", step.given),
                format!(
                    "{{\n{text}}} <\"$STDIN\" >\"$SAID\" 2>&1\nSTDIN=/dev/null\n{}\n",
                    step.then
                ),
            ]);
        }
        Ok(script)
    }
}

// === impl Step ===

impl Step {
    /// A block that runs as written.
    pub const fn new(begins: &'static str, given: &'static str, then: &'static str) -> Self {
        Self { begins, given, how: How::AsWritten, then }
    }

    /// The same, with these changes.
    #[must_use]
    pub const fn but(mut self, changes: &'static [Change]) -> Self {
        self.how = How::But(changes);
        self
    }

    /// A block that does not run.
    pub const fn left(begins: &'static str, why: &'static str) -> Self {
        Self { begins, given: "", how: How::Left(why), then: "" }
    }

    fn is(&self, block: &Block) -> bool {
        block.begins().starts_with(self.begins)
    }

    /// What runs of the block, if anything does.
    fn changed(&self, block: &Block) -> Result<Option<String>, String> {
        let mut text = block.text.clone();
        match self.how {
            How::AsWritten => {}
            How::But(changes) => {
                for change in changes {
                    if !text.contains(change.written) {
                        return Err(format!("the block does not have `{}`", change.written));
                    }
                    text = text.replace(change.written, change.run);
                }
            }
            How::Left(_) => return Ok(None),
        }
        Ok(Some(match block.language.as_str() {
            "python" => format!("python3 - <<'END'\n{text}END\n"),
            _ => text,
        }))
    }
}

/// What is wrong with the scenes of one README: blocks that none has, or that several have, and steps
/// that fit no block.
pub fn faults(path: &str, readme: &str, scenes: &[Scene]) -> Vec<String> {
    let found = blocks(readme);
    let steps = || scenes.iter().filter(|scene| scene.readme == path).flat_map(|scene| scene.steps);
    let mut faults = Vec::new();
    for block in &found {
        let named = steps().filter(|step| step.is(block)).count();
        if named != 1 {
            faults.push(format!(
                "{path}:{}: {named} steps name this block, and one must: add it to a scene in \
                 tests/src/readme, or say there why it is left",
                block.line
            ));
        }
    }
    for step in steps() {
        if found.iter().filter(|block| step.is(block)).count() != 1 {
            faults.push(format!("{path}: not one block begins with `{}`", step.begins));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGE: Change = Change { written: "PLACE", run: "here", why: "a placeholder" };
    const SCENE: Scene = Scene {
        readme: "A.md",
        folder: "",
        steps: &[
            Step::new("one", "before", "shows x").but(&[CHANGE]),
            Step::left("two", "it takes a day"),
        ],
    };

    #[test]
    fn a_block_runs_between_what_surrounds_it() {
        let script = SCENE.script("```sh\none PLACE\n```\n```sh\ntwo\n```\n").unwrap();
        let order =
            ["before\n", "{\none here\n}", "shows x\n"].map(|text| script.find(text).unwrap());
        assert!(order.is_sorted() && !script.contains("two\n"), "{script}");
    }

    #[test]
    fn a_change_that_fits_nothing_is_an_error() {
        let error = SCENE.script("```sh\none\n```\n```sh\ntwo\n```\n").unwrap_err();
        assert_eq!(error, "A.md:2: the block does not have `PLACE`");
        assert!(SCENE.script("").unwrap_err().contains("no block begins with `one`"));
    }

    #[test]
    fn a_block_that_no_step_names_is_a_fault() {
        let readme = "```sh\none PLACE\n```\n```sh\ntwo\n```\n";
        assert!(faults("A.md", readme, &[SCENE]).is_empty());
        let more = format!("{readme}```console\n$ three\n```\n");
        let [fault] = <[String; 1]>::try_from(faults("A.md", &more, &[SCENE])).unwrap();
        assert!(fault.starts_with("A.md:8: 0 steps name this block"), "{fault}");
        let [fault] =
            <[String; 1]>::try_from(faults("A.md", "```sh\none\n```\n", &[SCENE])).unwrap();
        assert_eq!(fault, "A.md: not one block begins with `two`");
        assert_eq!(faults("A.md", readme, &[SCENE, SCENE]).len(), 2);
    }
}
