//! Anthropic's Messages API: what is asked (`request`), and what a reply says (`reply`).

mod reply;
mod request;

pub(super) use reply::AnthropicReader;
pub(super) use request::Anthropic;
