//! The check of the hooks of this machine. A node with one that is refused does not start.

use super::Check;
use crate::{config::Loaded, node::hooks};

const NAME: &str = "hooks";

/// Whether all that is in the folder of hooks may be asked.
pub(super) fn checks(loaded: &Loaded) -> Vec<Check> {
    let found = hooks::found(loaded);
    let refused: Vec<Check> = found
        .iter()
        .filter_map(|it| {
            let what = format!("`{}`: {}", it.entry.path.display(), it.refused.as_ref()?);
            Some(Check::red(NAME, what, "mend it, or move it elsewhere: no node starts with it"))
        })
        .collect();
    if !refused.is_empty() || found.is_empty() {
        return refused;
    }
    let names: Vec<String> = found
        .iter()
        .filter_map(|it| it.entry.hook.as_ref().ok())
        .map(|it| format!("{}/{}", it.spec.point, it.spec.name))
        .collect();
    vec![Check::green(NAME, names.join(", "))]
}
