//! The machines of the kernel with the kinds that there are, on stores that a test answers for.

mod bench;
mod calls;
mod drafts;
mod names;
mod owners;
mod scenarios;
mod turns;
