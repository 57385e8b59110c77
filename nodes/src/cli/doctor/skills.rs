//! The check of the skills of this machine. A node works without those that are left out.

use super::Check;
use crate::{config::LoadedConfig, node::skills};

const NAME: &str = "skills";
/// Problems that are shown.
const SHOWN: usize = 8;

/// Whether all skills can be used; nothing if there are none.
pub(super) fn checks(loaded: &LoadedConfig) -> Vec<Check> {
    let found = skills::found(loaded);
    let warnings = skills::warnings(loaded, &found);
    let fix = "correct it; `clawnode skills check` shows all problems";
    if !warnings.is_empty() {
        let told = warnings.into_iter().take(SHOWN);
        return told.map(|warning| Check::yellow(NAME, warning, fix)).collect();
    }
    match found.skills.len() {
        0 => Vec::new(),
        count => vec![Check::green(NAME, format!("{count} of them, all of which can be used"))],
    }
}
