//! Anthropic's Messages API: what is asked (`request`, with the markers of `cache` and what it says of `thinking`), and what a reply says (`reply`,
//! from its `events`).

mod cache;
mod events;
mod reply;
mod request;
mod thinking;

pub(super) use reply::AnthropicReader;
pub(super) use request::Anthropic;
