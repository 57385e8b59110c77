//! Which refusals mean that a request is too long for its model, and how long it may be: by the words that
//! providers use. Pure.

use clawnode_proto::llm::{FailureClass, ModelFailure, PromptTooLong};

/// The statuses of such refusals; in a stream they have none.
const STATUSES: [u16; 3] = [400, 413, 422];

/// What such a refusal says, in lower case. Then, the words before the size of the window and of the request,
/// if it says so.
type Words = (&'static str, &'static [&'static str], &'static [&'static str]);

/// The words, the more telling ones first.
const KNOWN: [Words; 22] = [
    // Anthropic.
    ("prompt is too long", &["tokens >"], &["too long:"]),
    ("exceed context limit", &[" > "], &["context limit:"]),
    ("request exceeds the maximum size", &[], &[]),
    ("request_too_large", &[], &[]),
    // Mistral.
    ("too large for model with", &["too large for model with"], &["contains"]),
    // OpenAI, Azure, vLLM, OpenRouter, DeepSeek. What is requested may have the completion in it; the prompt
    // alone comes in parentheses.
    (
        "maximum context length",
        &["context length is", "context length of"],
        &["resulted in", "(", "requested about", "requested"],
    ),
    ("exceeds the context window", &[], &[]),
    ("input tokens exceed the configured limit", &["limit of"], &["resulted in"]),
    ("context_length_exceeded", &[], &[]),
    ("longer than the maximum model length", &["model length of"], &["(length"]),
    // Gemini.
    ("input token count", &["tokens allowed (", "tokens allowed"], &["token count ("]),
    // llama.cpp and LM Studio.
    ("exceeds the available context size", &["context size ("], &["request ("]),
    ("greater than the context length", &["context length of", "context length ("], &[]),
    ("larger than the maximum context", &[], &[]),
    // xAI.
    ("maximum prompt length", &["prompt length is"], &["contains"]),
    // Cohere.
    ("too many tokens", &["cannot exceed"], &["received"]),
    // Bedrock.
    ("input is too long", &[], &[]),
    ("input tokens exceeded", &[], &[]),
    // Moonshot, MiniMax, Groq.
    ("exceeded model token limit", &["limit:", "limit"], &["requested:"]),
    ("context window exceeds limit", &["limit ("], &[]),
    ("reduce the length of the messages", &[], &[]),
    ("token limit exceeded", &[], &[]),
];

/// What a provider's refusal says about the length of its request; nothing if it is about something else.
pub(super) fn too_long(failure: &ModelFailure) -> Option<PromptTooLong> {
    let fits = failure.status.is_none_or(|status| STATUSES.contains(&status));
    if failure.class != FailureClass::Rejected || !fits {
        return None;
    }
    let text = failure.message.to_ascii_lowercase();
    let (_, window, request) = KNOWN.into_iter().find(|(words, ..)| text.contains(words))?;
    let number = |places: &[&str]| places.iter().find_map(|place| number_after(&text, place));
    let window = number(window);
    // What fits is no reason: the number is about something else.
    let request = number(request).filter(|tokens| window.is_none_or(|most| *tokens > most));
    Some(PromptTooLong { window, request })
}

/// The number directly after this text; digits may be in groups.
fn number_after(text: &str, place: &str) -> Option<u64> {
    let (_, after) = text.split_once(place)?;
    let after = after.trim_start();
    let end = after.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(after.len());
    let digits: String = after.get(..end)?.chars().filter(char::is_ascii_digit).collect();
    digits.parse().ok().filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(status: Option<u16>, message: &str) -> Option<(Option<u64>, Option<u64>)> {
        let failure = ModelFailure { status, ..ModelFailure::new(FailureClass::Rejected, message) };
        too_long(&failure).map(|found| (found.window, found.request))
    }

    /// What vendors say, and the sizes of the window and of the request in it.
    const SAYINGS: [(&str, Option<u64>, Option<u64>); 18] = [
        ("prompt is too long: 213462 tokens > 200000 maximum", Some(200_000), Some(213_462)),
        (
            "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, \
                 decrease input length or `max_tokens` and try again",
            Some(200_000),
            None,
        ),
        ("Request exceeds the maximum size", None, None),
        (
            "This model's maximum context length is 8192 tokens. However, your messages resulted \
                 in 8545 tokens. Please reduce the length of the messages.",
            Some(8_192),
            Some(8_545),
        ),
        (
            "This model's maximum context length is 4,097 tokens, however you requested 10346 \
                 tokens (10341 in your prompt; 5 for the completion).",
            Some(4_097),
            Some(10_341),
        ),
        (
            "This endpoint's maximum context length is 131072 tokens. However, you requested \
                 about 150000 tokens (149000 of text input, 1000 in the output).",
            Some(131_072),
            Some(149_000),
        ),
        (
            "Your input exceeds the context window of this model. Please adjust your input and \
                 try again.",
            None,
            None,
        ),
        (
            "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted \
                 in 300001 tokens.",
            Some(272_000),
            Some(300_001),
        ),
        (
            "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
            Some(4_096),
            Some(5_000),
        ),
        (
            "The input token count (1196265) exceeds the maximum number of tokens allowed \
                 (1048575).",
            Some(1_048_575),
            Some(1_196_265),
        ),
        (
            "The input token count exceeds the maximum number of tokens allowed 1048576.",
            Some(1_048_576),
            None,
        ),
        (
            "request (5014 tokens) exceeds the available context size (4096 tokens), try \
                 increasing it",
            Some(4_096),
            Some(5_014),
        ),
        (
            "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 \
                 maximum context length",
            Some(32_768),
            Some(40_000),
        ),
        (
            "This model's maximum prompt length is 131072 but the request contains 537812 \
                 tokens.",
            Some(131_072),
            Some(537_812),
        ),
        (
            "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received \
                 5000",
            Some(4_081),
            Some(5_000),
        ),
        ("Input is too long for requested model.", None, None),
        (
            "Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the \
                 input to try again.",
            None,
            None,
        ),
        (
            "Invalid request: Your request exceeded model token limit: 262144 (requested: \
                 300000)",
            Some(262_144),
            Some(300_000),
        ),
    ];

    #[test]
    fn the_words_of_each_vendor_are_known_with_their_numbers() {
        for (message, window, request) in SAYINGS {
            for status in [None, Some(400), Some(413)] {
                assert_eq!(read(status, message), Some((window, request)), "{message}");
            }
        }
    }

    #[test]
    fn other_refusals_are_about_something_else() {
        for message in [
            "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens",
            "prompt is too odd",
            "model 'x' not found",
            "tools.0.name: too long",
            "",
        ] {
            assert_eq!(read(Some(400), message), None, "{message}");
        }
        let words = "prompt is too long: 2 tokens > 1 maximum";
        for status in [401, 404, 429, 500] {
            assert_eq!(read(Some(status), words), None, "{status}");
        }
        let limited = ModelFailure::new(FailureClass::RateLimited, words);
        assert_eq!(too_long(&limited), None);
    }

    #[test]
    fn numbers_that_make_no_sense_are_left_out() {
        for (message, window, request) in [
            ("prompt is too long: many tokens > few maximum", None, None),
            ("prompt is too long: 99999999999999999999999 tokens > 0 maximum", None, None),
            ("prompt is too long: 5 tokens > 10 maximum", Some(10), None),
        ] {
            assert_eq!(read(Some(400), message), Some((window, request)), "{message}");
        }
    }
}
