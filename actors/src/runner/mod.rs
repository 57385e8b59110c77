//! The job runner: takes jobs of the capabilities that this process has, and runs them.
//!
//! Supervised by: the node, as a task that is started again. Messages come from: the queues of jobs,
//! the state keys, its own runs, and other processes (`Cancel`). It is a thin driver of
//! [`JobMachine`](clawnode_kernel::job_machine::JobMachine), which decides everything. On crash: its runs
//! are dropped with it, and what they were is decided by the next delivery and the job's effect
//! class.
//!
//! A job goes to the best node that waits for one: each node asks at a **rank** ([`JobRank`]), by the
//! scores that `scheduler.diagnose` shows, and asks again when that changes. A node without a free
//! place does not ask, so no job waits for a better node that is busy.
//!
//! Bounds: at most [`RunnerOptions::max_jobs`] jobs in hand for each capability; what is beyond
//! waits in the queue, where another process may take it.

mod actor;
mod handle;
mod job_run;
mod state;
mod take;

pub use handle::JobRunner;
pub use state::{JobRank, RunnerContext, RunnerOptions};
