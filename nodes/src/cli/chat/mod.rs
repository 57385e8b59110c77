//! The chat: a person at a terminal, or a script.
//!
//! A person has a line to edit, commands, and the reply as it is written, with Markdown rendered. A
//! script sends a turn a line and gets each reply whole, once its turn has ended, so that a reply that
//! had to begin again is printed once.
//!
//! [`keys`], [`editor`], [`commands`], [`approve`] and [`markdown`] are pure; [`tty`] reads the
//! terminal, [`screen`] draws on it. [`follow`] takes a turn to its end, over as many connections as
//! that needs; [`person`] and [`script`] are the two loops around it.

mod allow_budget;
mod always_rule;
mod approval_questions;
mod approve;
mod asked;
mod attach;
mod choices;
mod command_actions;
mod commands;
mod conversation;
mod desk;
mod editor;
mod feedback;
mod follow;
mod history;
mod keys;
mod lines;
mod lost_turns;
mod markdown;
mod opening;
mod person;
mod screen;
mod script;
mod start;
mod terminal_style;
mod tty;
mod warnings;

pub(super) use self::start::{ChatArgs, ChatWishes, Which, is_at_terminal, run, talk};
use self::{
    lines::ReadLine,
    start::{Chat, Did, Person, TurnResult},
    tty::TerminalEvent,
};
