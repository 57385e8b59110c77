//! What is known of one model.

use clawnode_proto::{
    media::MediaKind,
    model::{CacheStyle, ModelPrice, ReasoningStyle, SchemaStyle},
};

/// The part of a window that a reply may take by default: one in so many.
const REPLY_SHARE: u32 = 4;

/// What is known of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about a model")]
pub struct ModelProfile {
    /// Tokens of a request and its reply together.
    pub window_tokens: u32,
    /// Most tokens of one reply, reasoning included; absent if it is not known.
    pub max_output_tokens: Option<u32>,
    /// Tokens of a reply by default; `max_output_tokens` if absent.
    pub reply_tokens: Option<u32>,
    /// What it takes beside text.
    pub input: InputKinds,
    /// Whether it calls tools.
    pub tools: bool,
    /// How it reasons.
    pub reasoning: ReasoningStyle,
    /// What it does on Anthropic's wire if a request says nothing of thinking.
    pub thinks: ThinkingDefault,
    /// How its provider caches what requests begin with.
    pub cache: CacheStyle,
    /// How a request says that the reply has to fit a schema.
    pub schema: SchemaStyle,
    /// Whether it takes `temperature` and `top_p`.
    pub sampling: bool,
    /// Whether the limit of a reply is called `max_completion_tokens` on `OpenAI`'s wire.
    pub max_completion_tokens: bool,
    /// Whether `reasoning_effort` may go beside tools on `OpenAI`'s wire.
    pub effort_with_tools: bool,
    /// Whether the system prompt has the role `developer` on `OpenAI`'s wire.
    pub developer_role: bool,
    /// What its vendor asks for it; absent if it is not known.
    pub price: Option<ModelPrice>,
}

/// What a model of Anthropic does if a request says nothing of thinking, and how a request turns that off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThinkingDefault {
    /// It does not think. Nothing is known of whether it shows the thoughts that it is asked for, or it does.
    #[default]
    Off,
    /// It does not think, and shows thoughts only if it is asked to.
    OffAndHidden,
    /// It thinks, and shows thoughts only if it is asked to. `disabled` turns thinking off.
    On,
    /// The same, and `between_tools` is the least that it thinks.
    OnBetweenTools,
    /// The same, and it always thinks: little, with the least effort.
    Always,
}

/// What a model takes beside text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputKinds {
    /// Pictures.
    pub image: bool,
    /// Documents (PDF).
    pub document: bool,
    /// Sound.
    pub audio: bool,
}

// === impl ModelProfile ===

impl ModelProfile {
    /// The default limit of a reply in a window of so many tokens: at most a quarter of it, so
    /// that there is room for the conversation. Nothing if the model is not known well enough.
    pub(crate) fn reply_in(&self, window_tokens: u32) -> Option<u32> {
        let most = (window_tokens / REPLY_SHARE).max(1);
        let wanted = self.reply_tokens.or(self.max_output_tokens)?;
        Some(self.capped(wanted).min(most))
    }

    /// What may be asked for of `wanted` tokens of a reply.
    pub(in crate::llm) fn capped(&self, wanted: u32) -> u32 {
        self.max_output_tokens.map_or(wanted, |most| wanted.min(most))
    }
}

// === impl ThinkingDefault ===

impl ThinkingDefault {
    /// Whether it thinks.
    pub(in crate::llm) const fn is_on(self) -> bool {
        matches!(self, Self::On | Self::OnBetweenTools | Self::Always)
    }

    /// Whether its thoughts are shown only if a request says so.
    pub(in crate::llm) const fn is_hidden(self) -> bool {
        !matches!(self, Self::Off)
    }

    /// The type of `thinking` that turns it off; absent if nothing has to be said, or would help.
    pub(in crate::llm) const fn off(self) -> Option<&'static str> {
        match self {
            Self::On => Some("disabled"),
            Self::OnBetweenTools => Some("between_tools"),
            Self::Off | Self::OffAndHidden | Self::Always => None,
        }
    }
}

// === impl InputKinds ===

impl InputKinds {
    /// Those in a list.
    pub fn of(kinds: &[MediaKind]) -> Self {
        let has = |kind| kinds.contains(&kind);
        Self {
            image: has(MediaKind::Image),
            document: has(MediaKind::Document),
            audio: has(MediaKind::Audio),
        }
    }

    /// Whether this kind is taken.
    pub(in crate::llm) const fn takes(self, kind: MediaKind) -> bool {
        match kind {
            MediaKind::Image => self.image,
            MediaKind::Document => self.document,
            MediaKind::Audio => self.audio,
        }
    }

    /// The kinds that are taken, in the order of the fields.
    pub fn list(self) -> Vec<MediaKind> {
        let all = [
            (self.image, MediaKind::Image),
            (self.document, MediaKind::Document),
            (self.audio, MediaKind::Audio),
        ];
        all.into_iter().filter(|(is_taken, _)| *is_taken).map(|(_, kind)| kind).collect()
    }
}
