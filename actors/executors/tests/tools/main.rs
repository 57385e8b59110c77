//! The built-in tools as they are called, and against those who would use them for something else:
//! S-17 (files), S-19 (networks), S-25 (approvals).

#[cfg(test)]
mod approvals;
#[cfg(test)]
mod egress;
#[cfg(test)]
mod fetch;
#[cfg(test)]
mod files;
#[cfg(test)]
mod server;
#[cfg(test)]
mod spellings;
#[cfg(test)]
mod support;
#[cfg(test)]
mod workspace;
