//! The pages of `docs/reference` are what the code says. `INSTA_UPDATE=always` writes them.
// `cfg(test)` always holds here; it tells the linter that helpers may unwrap as tests do.
#![cfg(test)]
#![expect(clippy::format_push_string, reason = "pages are small, and this reads as they do")]

mod cli;
mod configuration;
mod errors;
mod events;
mod limits;
mod methods;
mod page;
mod schema;
