//! A model's Markdown for a terminal, as it streams. Pure.
//!
//! Printed text is never taken back, so that nothing depends on what the terminal did with it: a
//! resized window cannot break it. So words are printed once their style is clear: plain words at
//! once, `**bold**` and a line of code in colours at its end, a table once it is whole. What is
//! unclear at the end of its line is plain text. However the text is cut on its way, the output is
//! the same.

mod code;
mod flow;
mod span;
mod stream;
mod table;

pub(super) use self::stream::Markdown;
