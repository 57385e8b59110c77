//! The check of the hooks of this machine. A node with one that is refused does not start.

use super::Check;
use crate::{config::LoadedConfig, node::hooks};

const NAME: &str = "hooks";

/// Whether all that is in the folder of hooks may be asked.
pub(super) fn checks(loaded: &LoadedConfig) -> Vec<Check> {
    let found = hooks::found(loaded);
    let refused: Vec<Check> = found
        .iter()
        .filter_map(|status| {
            let what = format!("`{}`: {}", status.entry.path.display(), status.refused.as_ref()?);
            Some(Check::red(
                NAME,
                what,
                "correct the file, or move it elsewhere; a node does not start with it",
            ))
        })
        .collect();
    if !refused.is_empty() {
        return refused;
    }
    let missing = gone(loaded);
    if !missing.is_empty() || found.is_empty() {
        return missing;
    }
    let names: Vec<String> = found
        .iter()
        .filter_map(|status| status.entry.hook.as_ref().ok())
        .map(|hook| format!("{}/{}", hook.spec.point, hook.spec.name))
        .collect();
    vec![Check::green(NAME, names.join(", "))]
}

/// The hooks that a node here once began with.
fn gone(loaded: &LoadedConfig) -> Vec<Check> {
    let file = hooks::seen_file(loaded);
    let file = file.display();
    match hooks::gone(loaded) {
        Ok(gone) => {
            let fix = format!("put it back; if you removed it, delete its line in `{file}`");
            let told = |hook| format!("`{hook}` existed at an earlier start, and is missing now");
            gone.iter().map(|hook| Check::yellow(NAME, told(hook), &fix)).collect()
        }
        Err(error) => {
            let found = format!("`{file}` cannot be read: {error}");
            vec![Check::yellow(NAME, found, "correct the owner of the file, or remove it")]
        }
    }
}
