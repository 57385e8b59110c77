//! What a turn is and what follows from it. Pure: no runtime, no store, no clock.
//!
//! `fold` takes the journal's events into `state`; `kind` decides what comes next, in `effect`s. `tools`,
//! `approval`, `client_tools`, `hooks`, `clock`, `plan`, `give_way` and `ending` are parts of that decision. `context` makes what the
//! model sees of turns as `turn_messages` tells them, `tool_frames` what clients see of tools, `prepare` what an effect needs, and `tool_jobs` what
//! becomes of a tool call's job. `token_estimate` says how large a request seems, `measured_tokens` how large it is by what providers report, `dropping`, `bounded` and `attachments` how much of
//! the conversation it shows, `reply_schema` whether a reply fits its schema, `first_model` which model is asked, `reservation_size` and `settled_cost`
//! what a call may cost, and has cost, `next_call` makes the next one, and `next_needs` says what that would need. `begin` says how turns begin, `steer` what joins one that runs,
//! `kept` which ones a state keeps, `skills` which skills they have, and `recall` what they are reminded of. `memory_tools` has what calls ask of memories, `skill_tools` which calls write skills, `permission` whether a call runs or asks a person, `learning` what memories learn
//! from a turn, and `unlearned_messages` where that was said. `feedback` has what people think of turns, and `rating` takes it. `ledger` has what an agent wrote down of its work, and
//! `ledger_blocks` what a model is shown of that. `recorded` tells who looks at a journal from outside what it says, and `explain_context`
//! what a model was shown, and why. `compaction` has summaries made of older turns, `due_summary_memo` remembers whether one is due, `compaction_fold` takes
//! them into the state, and `compaction_state` is what that keeps of them. `reflection` has a model look back at a turn, as
//! `reflection_request` shows it to be rated, and `fact_request` what its person said; `reflection_fold` takes what it writes into the state, and `reflection_state` is what that keeps of it. `room_beside` says what a summary leaves of limits for
//! its own turn, and `size_bound` how large a request is at most, without making it.

pub mod approval;
mod attachments;
mod begin;
#[cfg(test)]
mod begun_again_tests;
mod bounded;
#[cfg(test)]
mod bounded_tests;
pub mod client_tools;
pub mod clock;
mod compaction;
mod compaction_fold;
pub mod compaction_state;
#[cfg(test)]
mod compaction_tests;
pub mod context;
pub mod count_tokens;
pub mod dropping;
mod due_summary_memo;
pub mod effect;
pub(in crate::session) mod ending;
pub mod explain_context;
#[cfg(test)]
mod extraction_tests;
mod fact_request;
pub mod feedback;
#[cfg(test)]
mod feedback_tests;
pub(in crate::session) mod first_model;
pub(in crate::session) mod fold;
pub mod give_way;
pub mod hooks;
pub mod kept;
pub mod kind;
pub mod learning;
#[cfg(test)]
mod learning_tests;
pub(in crate::session) mod ledger;
mod ledger_blocks;
#[cfg(test)]
mod ledger_blocks_tests;
pub mod measured_tokens;
pub(in crate::session) mod memory_tools;
#[cfg(test)]
mod model_tests;
pub mod next_call;
pub mod next_needs;
pub mod permission;
pub(in crate::session) mod plan;
pub mod prepare;
mod rating;
pub mod recall;
#[cfg(test)]
mod recall_tests;
mod recorded;
mod reflection;
mod reflection_fold;
mod reflection_request;
pub mod reflection_state;
#[cfg(test)]
mod reflection_tests;
pub(in crate::session) mod reply_schema;
#[cfg(test)]
mod reply_schema_tests;
mod reservation_size;
#[cfg(test)]
mod reservation_size_tests;
mod room_beside;
pub mod settled_cost;
mod size_bound;
mod skill_tools;
mod skills;
#[cfg(test)]
mod standing_tests;
pub mod state;
mod steer;
mod token_estimate;
pub mod tool_frames;
pub mod tool_jobs;
pub mod tools;
mod turn_messages;
pub mod unlearned_messages;
