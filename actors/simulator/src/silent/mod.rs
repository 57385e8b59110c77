//! Model calls that no person sees: some agents have a model look for facts in what people say, and one rate turns
//! (`extract` and `reflect`). Their replies are well-formed, of no use, empty, too long or cut; they fail, and processes
//! die while they run.
//!
//! REFL-1 and REFL-2 are judged from journals, requests and replies alone ([`judge`]). That a call is journaled before it
//! is sent (I8), begun twice at most (C6), not made after its end (C7) and paid once (BUD-1, BUD-2) is judged where that
//! of other calls is, and what memories have of it in [`recall`](super::recall) (MEM-3).

mod deaths;
mod judge;
mod plan;
mod replies;
#[cfg(test)]
mod tests;

pub(crate) use judge::SilentCalls;
pub(crate) use plan::{SilentPlan, tells};
