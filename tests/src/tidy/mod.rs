//! The house rules that no lint can hold, as checks over the sources.
//!
//! [`Tree`] reads the repository, [`CHECKS`] is the table. Each check says how much it looked at,
//! so that one that looks at nothing fails, and brings a bad sample that it must find. Violations
//! that are older than a rule are in a list beside the rule; such a list may only get shorter.
//!
//! Run by `tests/tests/tidy.rs`. Not here: what clippy, rustfmt and rustc check.

mod circles;
mod comments;
mod docs;
mod edges;
mod layers;
mod names;
mod parameters;
mod paths;
mod scan;
mod shape;
mod spelling;
mod tree;
mod variables;
mod words;

pub use tree::{File, Tree};

/// What a check has to say.
#[derive(Debug, Default)]
pub struct Findings {
    /// How many things it looked at.
    pub scanned: usize,
    /// What offends, as `path:line: what`.
    pub found: Vec<String>,
}

/// One rule.
#[derive(Debug)]
pub struct Check {
    /// What a failure is called.
    pub name: &'static str,
    /// Looks at everything.
    pub run: fn(&Tree) -> Findings,
    /// Files that offend, for the check of the check.
    pub bad: &'static [(&'static str, &'static str)],
}

/// All rules.
pub const CHECKS: &[Check] = &[
    shape::FILES_ARE_SHORT,
    shape::FILES_SAY_WHAT_THEY_ARE,
    shape::MOD_FILES_HOLD_NO_CODE,
    shape::ACTORS_HAVE_THE_SAME_FILES,
    shape::EVERY_FILE_IS_REACHED,
    shape::TESTS_OF_PROGRAMS_ARE_RUN,
    shape::OPTIONS_ARE_DOCUMENTED,
    edges::MANIFESTS_KEEP_THE_EDGES,
    edges::SOURCES_KEEP_THE_EDGES,
    circles::FILES_STAND_IN_NO_CIRCLE,
    layers::MODULES_KEEP_THEIR_LAYERS,
    layers::PURE_MODULES_STAY_PURE,
    names::TYPES_HAVE_NAMES_OF_THEIR_OWN,
    names::TYPES_MEAN_ONE_THING,
    names::MONEY_IS_WHOLE_NUMBERS,
    parameters::NO_PARAMETER_IS_A_TUPLE,
    spelling::SUBJECTS_HAVE_ONE_SPELLING,
    spelling::VARIABLES_HAVE_ONE_SPELLING,
    spelling::TESTS_DO_NOT_SLEEP,
    spelling::WORK_LEFT_NAMES_ITS_ISSUE,
    spelling::NO_MACHINE_IS_NAMED,
    variables::VARIABLES_SAY_WHAT_THEY_HOLD,
    words::THEY_BECOME_FEWER,
    comments::COMMENTS_SAY_MORE_THAN_NAMES,
    docs::ARCHITECTURE_IS_SHORT,
    docs::ONE_TITLE_EACH,
    docs::LINKS_LEAD_SOMEWHERE,
    docs::THE_INDEX_HAS_EVERY_PAGE,
    docs::INVARIANTS_ARE_WRITTEN_DOWN,
    docs::INVARIANTS_ARE_TESTED,
];
