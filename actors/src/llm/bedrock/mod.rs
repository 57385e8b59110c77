//! Amazon Bedrock's Converse, streamed: what is asked (`request`, its `body`, and names of `documents` that it takes), what
//! a reply says (`reply`, from its `events`), and the signature of a request (`sign`), which needs the feature
//! `bedrock`. `embedding` asks for the vectors of texts. Keys and regions are those of `llm/aws`, the messages of a stream those of `llm/event_stream`.

mod body;
mod documents;
mod embedding;
mod events;
mod reply;
mod request;
mod sign;

pub(super) use body::settings;
pub(super) use reply::BedrockReader;
pub(super) use request::Bedrock;
