//! The local storage backend on disks that lose power, fill up, rot and fail.
//!
//! Needs `strace` for the system-call test.

mod cleaning;
mod damage;
mod early;
mod failing;
mod lifetimes;
mod old_jobs;
mod opening;
mod power_cuts;
mod reading;
mod support;
mod system_calls;
