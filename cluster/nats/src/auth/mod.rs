//! Who may do what on the bus: keys, credentials and permissions of NATS, made without its tools.
//!
//! A tenant is a NATS account, and a cluster has one. Three kinds of keys sign, each less than the
//! one above it: the **operator** signs accounts, an account's **signing keys** sign users, a
//! **user** signs the server's challenge. There is one signing key for each [`BusRole`], and the
//! role's permissions stand beside that key in the account, not in the users (but for admissions, which
//! are one user's each and live for hours; the account's own key signs those): changing the table in
//! `grants` and pushing the account changes what every user of the role may do, and replacing the
//! key ends them all.
//!
//! The claims are those of NATS' own library (`github.com/nats-io/jwt`, version 2), as its
//! fourteenth architecture decision record describes them; the tests hold them to a real server.
//!
//! | file | what |
//! |---|---|
//! | `jwt` | signing and reading claims |
//! | `grants` | what each role may publish and subscribe to: the one table |
//! | `authority` | the keys of a cluster's operator, and what they sign |
//! | `credential` | what one user holds |
//! | `join_token` | a join token as a line of text |
//! | `config` | the configuration of a server |
//! | `control` | telling the servers |
//! | `join_token_exchange` | a join token becomes a credential, once: both ends |
//!
//! Secrets: seeds never leave [`Authority::to_json`], [`Credential::to_creds`] and
//! [`JoinToken::to_text`]; nothing here prints them.

mod authority;
mod config;
mod control;
mod credential;
mod grants;
mod join_token;
mod join_token_exchange;
mod jwt;

pub use authority::{Authority, AuthorityError, Issued};
pub use config::{BusServer, ServerNameError, server_config};
pub use control::{PushError, Pushed, push};
pub use credential::{Credential, CredentialError};
pub use grants::BusRole;
pub use join_token::{JoinToken, TokenError};
pub use join_token_exchange::{AdmitError, admit, offer};
pub use jwt::JwtError;
