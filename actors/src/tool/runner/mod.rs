//! The job runner: takes jobs of the capabilities that this process has, and runs them.
//!
//! Supervised by: the node, as a task that is started again. Messages come from: the queues of jobs,
//! the state keys, its own runs, and other processes (`Cancel`). It is a thin driver of
//! [`JobMachine`](crate::durable::jobs::JobMachine), which decides everything. On crash: its runs
//! are dropped with it, and what they were is decided by the next delivery and the job's effect
//! class.
//!
//! Bounds: at most [`RunnerOptions::max_jobs`] jobs in hand for each capability; what is beyond
//! waits in the queue, where another process may take it.

mod drive;
mod take;
mod work;

pub use drive::{JobRunner, RunnerContext, RunnerOptions};
