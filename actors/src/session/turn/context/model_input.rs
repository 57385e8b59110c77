//! What the model sees: a pure function of folded state, so that any call can be compared with
//! its replay byte for byte.

use clawnode_proto::{
    Digest, TurnId,
    block::Block,
    client_tool::ClientTool,
    codec,
    llm::{Message, ModelRef, Role, Sampling, TextBlob},
    reasoning::Reasoning,
    response::ResponseSchema,
    session::{Profile, UserMessage},
    tool::ToolSpec,
};
use serde::Serialize;

use super::super::state::{SessionState, StepEnd, Turn};
use super::{
    attachments::{AttachmentRule, all_fit, newest_that_fit, within_one_request},
    bounded::{Bounds, CutTurns, whole_history},
    dropping::{BLOCK_SHARE, Cut, Recorded},
    refused_attachments::{attachments_in_words, is_about_attachments},
    system_prompt::{prompt_bytes, system_of},
    token_estimate::{fixed_tokens, tokens},
};

/// Tokens kept free for the reply when no setting says how many.
const REPLY_TOKENS: u64 = 1_024;

/// A model request before its blobs are resolved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Assembled {
    pub model: ModelRef,
    /// The system prompt; what follows `prompt`, if that is there.
    pub system: String,
    /// The agent's system prompt, if it is in the blob store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<TextBlob>,
    /// The conversation: begins with the user, and roles take turns once neighbours of one role
    /// are joined.
    pub messages: Vec<Message>,
    /// Settings of this call.
    pub sampling: Sampling,
    /// The tools that the model may ask for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    /// What the reply has to fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<ResponseSchema>,
    /// Whole turns left out because there is no room for them.
    #[serde(skip)]
    pub dropped_turns: u32,
    /// The entry of the ledger up to which calls of the running turn are shown as entries, whatever their types.
    #[serde(skip)]
    pub closes_upto: Option<u64>,
    /// How many of them a summary is about.
    #[serde(skip)]
    pub summarized_turns: u32,
    /// What is full, if people are to know that turns are left out.
    #[serde(skip)]
    pub full: Option<FullContext>,
    /// Thoughts of another model are left out of this turn, or of the one before it.
    #[serde(skip)]
    pub withheld_thoughts: bool,
    /// Words are in the places of older attachments.
    #[serde(skip)]
    pub left_out_attachments: bool,
}

// === impl ReplyRoom ===

impl ReplyRoom {
    pub(in crate::session::turn) fn of(
        state: &SessionState,
        profile: &Profile,
        turn: &Turn,
    ) -> Self {
        let at = turn.steps.len() - usize::from(!turn.begins_call());
        let real = state.real_window(&profile.model).filter(|real| *real < profile.window_tokens);
        let window = real.unwrap_or(profile.window_tokens);
        // The limit of a reply was made for a larger window.
        let reply_tokens =
            profile.reply_tokens.map(|tokens| real.map_or(tokens, |real| tokens.min(real / 4)));
        let sampling = sampling_of(profile, turn, reply_tokens, at);
        // However much it may think: the conversation needs room too.
        let thoughts = sampling.reasoning.map_or(0, Reasoning::budget).min(window / 4);
        let reply = sampling.max_tokens.map_or(REPLY_TOKENS, u64::from) + u64::from(thoughts);
        Self { window: u64::from(window), sampling, reply }
    }
}

impl Assembled {
    /// Its size in tokens, as far as its text tells.
    pub fn estimate(&self) -> u64 {
        let schema = self.response_schema.as_ref();
        fixed_tokens(self.system_bytes(), &self.tools, schema) + tokens(&self.messages)
    }

    /// The bytes of its system prompt, wherever that is.
    pub(in crate::session::turn) fn system_bytes(&self) -> u64 {
        prompt_bytes(self.prompt, &self.system)
    }

    /// What `ModelBegun` records of it.
    pub fn digest(&self) -> Digest {
        // Encoding plain data cannot fail; if it ever did, the digest would only fail to compare.
        codec::digest(self).unwrap_or(Digest::ZERO)
    }
}

/// Why turns are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullContext {
    /// The model's window is full.
    Window,
    /// The agent's context is.
    Budget,
}

/// A request, and which of its messages are of which part of the conversation.
pub(in crate::session::turn) struct Draft {
    pub(in crate::session::turn) request: Assembled,
    /// The parts in order, and how many messages each has.
    pub(in crate::session::turn) spans: Vec<(PartOf, usize)>,
    /// Whether the budget of its context held. Nothing is said where the journal has the cut.
    pub(in crate::session::turn) is_bounded: bool,
    /// The tokens that it seems to have beside earlier turns, which leave by themselves.
    own: u64,
}

/// A part of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session::turn) enum PartOf {
    /// What the session began with.
    Seed,
    /// A summary of the oldest turns.
    Summary,
    /// A turn that is over.
    Earlier(TurnId),
    /// What was recalled for the running turn.
    Recalled,
    /// The running turn.
    Running,
}

/// What the next call of a turn is asked with, and what is kept free for its reply.
pub(in crate::session::turn) struct ReplyRoom {
    /// Tokens that the model reads.
    pub(in crate::session::turn) window: u64,
    sampling: Sampling,
    /// Tokens that are kept for the reply.
    pub(in crate::session::turn) reply: u64,
}

/// What the beginning of a request takes of a window, and how much is left.
struct RequestSizes {
    /// Tokens that the model reads.
    window: u64,
    /// Tokens that are kept for the reply.
    reply: u64,
    /// Tokens that come before the messages.
    fixed: u64,
    /// Tokens of the running turn, with what it was reminded of.
    current: u64,
    /// Tokens of that reminder alone.
    recalled: u64,
}

/// A conversation as it is sent.
struct Joined {
    messages: Vec<Message>,
    /// How many messages each part has.
    spans: Vec<(PartOf, usize)>,
    left_out_attachments: bool,
}

/// The request of the running turn's next call under `profile`.
pub fn assemble(state: &SessionState, profile: &Profile, turn: &Turn) -> Assembled {
    draft(state, profile, turn, None).request
}

/// The same, and the parts of its messages. What the journal does not say of a turn that is too large follows from its
/// size alone, which stays the same once the call has begun.
pub(in crate::session::turn) fn draft(
    state: &SessionState,
    profile: &Profile,
    turn: &Turn,
    recorded: Option<Recorded>,
) -> Draft {
    if let Some(recorded) = recorded {
        let turn = turn.closed_upto(recorded.closes_upto);
        return drafted(state, profile, &turn, Some(recorded));
    }
    let whole = drafted(state, profile, turn, None);
    let Some(entry) = turn.closable() else { return whole };
    let ReplyRoom { window, reply, .. } = ReplyRoom::of(state, profile, turn);
    let (size, room) = (whole.request.estimate(), window.saturating_sub(reply));
    let seeming = |tokens| seeming(state, profile, tokens);
    match turn.closed_for(entry, whole.own, size, seeming(window), seeming(room)) {
        Some(closed) => drafted(state, profile, &closed, None),
        None => whole,
    }
}

fn drafted(
    state: &SessionState,
    profile: &Profile,
    turn: &Turn,
    recorded: Option<Recorded>,
) -> Draft {
    let ReplyRoom { window, sampling, reply } = ReplyRoom::of(state, profile, turn);
    let system = system_of(profile, turn.system.as_deref());
    let mut current = turn.messages();
    let before = state.closed.iter().rev().find(|one| one.id != turn.id);
    let before = before.filter(|_| current.len() <= 1).map(Turn::messages);
    let withheld_thoughts =
        current.iter().chain(before.iter().flatten()).any(|one| is_foreign(one, &profile.model));
    for message in &mut current {
        without_foreign(message, &profile.model);
    }
    current.splice(..0, turn.told_skills());
    current.extend(turn.joining().iter().map(|(_, steer)| joining(steer)));
    current.extend(turn.nudge(&profile.tools));
    let of_client = turn.offer.beside(profile).map(ClientTool::spec);
    let tools: Vec<ToolSpec> = profile.tools.iter().cloned().chain(of_client).collect();
    let summary = state.summary.as_ref().map_or(0, |summary| tokens(&[summary.message()]));
    let prompt = profile.system.blob();
    let system_bytes = prompt_bytes(prompt, &system);
    let fixed = fixed_tokens(system_bytes, &tools, turn.response_schema(profile)) + summary;
    let recalled: Vec<Message> = turn.told_recalled().into_iter().collect();
    let recalled_tokens = tokens(&recalled);
    let current_tokens = tokens(&current) + recalled_tokens;
    let own = fixed.saturating_sub(summary) + current_tokens;
    let sizes =
        RequestSizes { window, reply, fixed, current: current_tokens, recalled: recalled_tokens };
    let cut = match recorded {
        Some(recorded) => Cut::Recorded(recorded.dropped_turns),
        None => cut(state, profile, turn, &sizes),
    };
    // Providers refuse calls of tools in a conversation that has none.
    let is_in_words = tools.is_empty();
    let cut = earlier_turns(state, turn.id, cut, &profile.model, is_in_words);
    let CutTurns { shown: mut parts, left_out: dropped_turns, is_bounded } = cut;
    if !recalled.is_empty() {
        parts.push((PartOf::Recalled, recalled));
    }
    parts.push((PartOf::Running, current));
    let rule = recorded.map_or(AttachmentRule::Blocks, |recorded| recorded.attachments);
    let Joined { messages, spans, left_out_attachments } = joined(parts, is_in_words, rule);
    let full = if profile.context.is_none() {
        (dropped_turns > state.summarized()).then_some(FullContext::Window)
    } else {
        // A bounded context leaves out something all the time, and a tight one more with each turn. People are
        // notified once for each configuration.
        let before = state.left_out.as_ref().map_or(0, |left_out| left_out.under(profile));
        let is_first = before <= state.summarized() && dropped_turns > state.summarized();
        is_first.then_some(FullContext::Budget)
    };
    let request = Assembled {
        model: profile.model.clone(),
        system,
        prompt,
        messages,
        sampling,
        tools,
        response_schema: turn.response_schema(profile).cloned(),
        dropped_turns,
        closes_upto: turn.closes_upto,
        summarized_turns: state.summarized(),
        full,
        withheld_thoughts,
        left_out_attachments,
    };
    Draft { request, spans, is_bounded, own }
}

/// Tokens as requests to a model seem to have them, by what its provider reported, if it did.
pub(in crate::session::turn) fn seeming(
    state: &SessionState,
    profile: &Profile,
    tokens: u64,
) -> u64 {
    let measured = state.measured.as_ref().filter(|measured| measured.model == profile.model);
    measured.map_or(tokens, |measured| measured.estimate_of(tokens))
}

/// Where the turns begin that a request shows, by the rules of its configuration.
fn cut(state: &SessionState, profile: &Profile, turn: &Turn, sizes: &RequestSizes) -> Cut {
    let seeming = |tokens| seeming(state, profile, tokens);
    let RequestSizes { window, reply, fixed, current, recalled } = *sizes;
    let before = state
        .left_out
        .as_ref()
        .map_or(0, |left_out| left_out.under(profile))
        .max(state.summarized());
    let room = seeming(window.saturating_sub(reply)).saturating_sub(fixed + current);
    let Some(settings) = profile.context else {
        return Cut::Fitting { before, room, block: seeming(window) / BLOCK_SHARE };
    };
    let is_first = state.closed.iter().all(|one| one.id == turn.id);
    let budget = seeming(u64::from(settings.tokens)).saturating_sub(fixed + recalled);
    let have_left = state.earlier.left_out() > 0;
    let whole = whole_history(&settings, window, is_first, have_left).map(seeming);
    Cut::Bounded(Bounds::new(&settings, before, room, budget, whole))
}

/// The messages of these parts as one conversation, and how many each part has of them.
fn joined(parts: Vec<(PartOf, Vec<Message>)>, is_in_words: bool, rule: AttachmentRule) -> Joined {
    let counts: Vec<(PartOf, usize)> = parts.iter().map(|(part, all)| (*part, all.len())).collect();
    let mut messages = Vec::with_capacity(counts.iter().map(|(_, count)| count).sum());
    for (_, mut part) in parts {
        messages.append(&mut part);
    }
    if is_in_words {
        messages.iter_mut().for_each(in_words);
    }
    let from = messages.iter().position(|one| one.role == Role::User).unwrap_or(0);
    messages.drain(..from);
    if all_fit(&messages) {
        let mut cut = from;
        let rest = |(part, count): (PartOf, usize)| {
            let going = count.min(cut);
            cut -= going;
            (part, count - going)
        };
        let spans = counts.into_iter().map(rest).collect();
        return Joined { messages, spans, left_out_attachments: false };
    }
    let shown = messages.len();
    let groups = match rule {
        AttachmentRule::Newest => newest_that_fit(messages),
        AttachmentRule::Blocks => within_one_request(messages),
    };
    let mut sizes = std::iter::repeat_n(0, from).chain(groups.iter().map(Vec::len));
    let size = |(part, count): (PartOf, usize)| (part, sizes.by_ref().take(count).sum());
    let spans = counts.into_iter().map(size).collect();
    let messages: Vec<Message> = groups.into_iter().flatten().collect();
    let left_out_attachments = messages.len() != shown;
    Joined { messages, spans, left_out_attachments }
}

/// The parts of a conversation and their tokens, whatever a window leaves out: what it began with, its turns,
/// and what waits to join this one. Without what only one model reads.
pub(in crate::session::turn) fn conversation<'a>(
    state: &'a SessionState,
    turn: Option<&'a Turn>,
) -> impl Iterator<Item = (Vec<Message>, u64)> + 'a {
    let closed = state.closed.iter().filter(move |one| turn.is_none_or(|turn| one.id != turn.id));
    let closed = closed.map(shown_later);
    let steers = turn.into_iter().flat_map(Turn::joining).map(|(_, steer)| joining(steer));
    let current = turn.into_iter().map(Turn::messages_running).chain(steers.map(|one| vec![one]));
    let parts = std::iter::once(state.seed.clone()).chain(closed).chain(current);
    parts.map(|mut messages| {
        for message in &mut messages {
            message.blocks = None;
        }
        let tokens = tokens(&messages);
        (messages, tokens)
    })
}

/// A message that joins the next request.
pub(in crate::session::turn) fn joining(steer: &UserMessage) -> Message {
    let attachments = steer.attachments.clone();
    Message { attachments, ..Message::text(Role::User, steer.content.clone()) }
}

/// The settings of the turn's call of this number, from 0: the turn's own, else the agent's.
fn sampling_of(profile: &Profile, turn: &Turn, reply_tokens: Option<u32>, at: usize) -> Sampling {
    Sampling {
        temperature: turn.sampling.temperature.or(profile.sampling.temperature),
        top_p: turn.sampling.top_p.or(profile.sampling.top_p),
        max_tokens: (turn.sampling.max_tokens).or(profile.sampling.max_tokens).or(reply_tokens),
        stop: if turn.sampling.stop.is_empty() {
            profile.sampling.stop.clone()
        } else {
            turn.sampling.stop.clone()
        },
        reasoning: turn.sampling.reasoning.or(profile.sampling.reasoning),
        tool_choice: turn.offer.choice(&turn.sampling, at),
        ..turn.sampling.clone()
    }
}

/// Whether it has what only another model may be sent.
fn is_foreign(message: &Message, model: &ModelRef) -> bool {
    message.blocks.as_ref().is_some_and(|blocks| blocks.model != *model)
}

/// LLM-3: what a model said beside text and tool calls is sent to it, and to no other.
fn without_foreign(message: &mut Message, model: &ModelRef) {
    #[cfg(feature = "test-util")]
    if clawnode_kernel::KernelBug::ForeignThoughtsKept.is_in_folds() {
        return;
    }
    if is_foreign(message, model) {
        message.blocks = None;
    }
}

/// What any model is shown of a turn that is over.
pub(in crate::session::turn) fn shown_later(turn: &Turn) -> Vec<Message> {
    let messages = turn.messages();
    match turn.steps.last().and_then(|step| step.end.as_ref()) {
        Some(StepEnd::Failed { failure, .. }) if is_about_attachments(failure) => {
            messages.into_iter().flat_map(attachments_in_words).collect()
        }
        _ => messages,
    }
}

/// What `model` is shown of a turn that is over.
fn earlier(turn: &Turn, model: &ModelRef) -> Vec<Message> {
    let mut messages = shown_later(turn);
    for message in &mut messages {
        without_foreign(message, model);
        if let Some(blocks) = &mut message.blocks {
            blocks.list.retain(crate::llm::outlives_its_turn);
        }
        message.blocks.take_if(|blocks| blocks.list.iter().all(Block::is_said));
    }
    messages
}

/// The earlier turns that are shown, and how many older ones are not. The seed counts as one turn.
fn earlier_turns(
    state: &SessionState,
    current: TurnId,
    cut: Cut,
    model: &ModelRef,
    is_in_words: bool,
) -> CutTurns<(PartOf, Vec<Message>)> {
    let mut total = state.closed.iter().filter(|one| one.id != current).count();
    total += usize::from(!state.seed.is_empty());
    total = total.saturating_add(state.earlier.left_out());
    let turns = state.closed.iter().rev().filter(|one| one.id != current);
    let turns = turns.map(|one| (PartOf::Earlier(one.id), earlier(one, model)));
    let seed = (!state.seed.is_empty()).then(|| {
        let mut seed = state.seed.clone();
        for message in &mut seed {
            without_foreign(message, model);
        }
        (PartOf::Seed, seed)
    });
    let newest_first = turns.chain(seed);
    let newest_first = newest_first.map(|(part, mut messages)| {
        // Under a budget, what is counted is what is sent.
        if is_in_words && matches!(cut, Cut::Bounded(_)) {
            messages.iter_mut().for_each(in_words);
        }
        (part, messages)
    });
    let mut cut = cut.shown(total, newest_first, |(_, messages)| tokens(messages));
    if let Some(summary) = &state.summary {
        cut.shown.insert(0, (PartOf::Summary, vec![summary.message()]));
    }
    cut
}

/// Tells in words what was said in calls and replies of tools that are no more.
pub(in crate::session::turn) fn in_words(message: &mut Message) {
    if message.tool_uses.is_empty() && message.tool_replies.is_empty() {
        return;
    }
    if !message.tool_uses.is_empty() {
        message.blocks = None;
    }
    let mut words: Vec<String> = message.content.inline().map(str::to_owned).into_iter().collect();
    for using in std::mem::take(&mut message.tool_uses) {
        words.push(format!("(called `{}` with {})", using.name, using.arguments));
    }
    for reply in std::mem::take(&mut message.tool_replies) {
        let said = reply.content.inline().unwrap_or("(a long result)").to_owned();
        words.push(format!("(the result: {said})"));
        message.attachments.extend(reply.media);
    }
    if message.content.inline().is_some() {
        message.content = words.join("\n").into();
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        block::Blocks,
        media::{Media, MediaType},
        session::SessionInput,
    };

    use super::*;
    use clawnode_proto::llm::{FailureClass, ModelFailure, Text, Usage};

    use crate::session::{played::PlayedActivation, turn::prepare::SessionJob};

    fn thought(signature: Option<&str>) -> Block {
        Block::Thinking { text: "hm".into(), signature: signature.map(Text::from) }
    }

    /// The request that was begun last.
    fn request(run: &PlayedActivation) -> Assembled {
        match run.started.last() {
            Some((_, SessionJob::Call(job))) => job.request.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// LLM-3, and of LLM-2 that what no provider needs back is not kept in the request.
    #[test]
    fn thoughts_are_shown_to_their_own_model_and_unsigned_ones_while_their_turn_runs() {
        let mut run = PlayedActivation::new(&[], Vec::new());
        run.says("m0");
        let own = request(&run).model;
        let other: ModelRef = "p/other".parse().unwrap();
        let says = |model: &ModelRef, signature| {
            let list = vec![thought(signature), Block::Text { bytes: 2 }];
            Some(Blocks { model: model.clone(), list })
        };
        let has = |request: &Assembled| -> Vec<bool> {
            let said = request.messages.iter().filter(|one| one.role == Role::Assistant);
            said.map(|one| one.blocks.is_some()).collect()
        };
        let mut requests = Vec::new();
        for (n, blocks) in [
            says(&own, Some("c2ln")),
            says(&own, Some("")),
            says(&own, None),
            says(&other, Some("c2ln")),
            None,
        ]
        .into_iter()
        .enumerate()
        {
            run.replies_with(Usage::default(), &[], blocks);
            run.says(&format!("m{}", n + 1));
            requests.push(request(&run));
        }
        let last = requests.last().unwrap();
        assert_eq!(has(last), [true, false, false, false, false]);
        assert_eq!(last.messages[1].blocks, says(&own, Some("c2ln")));
        let told: Vec<bool> = requests.iter().map(|request| request.withheld_thoughts).collect();
        assert_eq!(told, [false, false, false, true, false], "said once");

        // A round of tools, one of whose calls no model is shown.
        let said = vec![
            thought(Some("")),
            Block::Opaque { field: "extra_content".to_owned(), data: "{}".into() },
            Block::ToolUse {},
            thought(None),
            Block::ToolUse {},
            Block::Text { bytes: 2 },
        ];
        let blocks = Some(Blocks { model: own.clone(), list: said.clone() });
        run.replies_with(Usage::default(), &[("look", "[1"), ("look", "{}")], blocks);
        let state = &run.machine.settled().unwrap().state;
        let (turn, profile) = (state.running().unwrap(), state.profile.as_ref().unwrap());
        let shown = assemble(state, profile, turn);
        let reply = shown.messages.iter().rfind(|one| one.role == Role::Assistant).unwrap();
        // The opaque item is of the call that is not shown, and goes to no other.
        let kept: Vec<Block> = [0, 3, 4, 5].map(|at| said[at].clone()).to_vec();
        assert_eq!(reply.blocks.as_ref().unwrap().list, kept);
        assert_eq!(reply.tool_uses.len(), 1);
        let third = "p/third".parse().unwrap();
        let changed = Profile { model: third, ..profile.clone() };
        let shown = assemble(state, &changed, turn);
        assert!(shown.messages.iter().all(|one| one.blocks.is_none()));
        assert!(shown.withheld_thoughts);
    }

    fn picture(n: u8, bytes: u64) -> Media {
        let (media_type, blob) = (MediaType::Png, Digest::of(&[n]));
        Media { media_type, blob, bytes, name: Some(format!("{n}.png")), at: None }
    }

    /// One bad picture must not have each later request refused too.
    #[test]
    fn attachments_of_a_refused_request_are_not_shown_again() {
        let failure = |class, keeps_attachments| ModelFailure {
            keeps_attachments,
            ..ModelFailure::new(class, "no")
        };
        for (class, keeps_attachments, is_shown) in [
            (FailureClass::Rejected, false, false),
            (FailureClass::Rejected, true, true),
            (FailureClass::Timeout, false, true),
        ] {
            let mut run = PlayedActivation::new(&[], Vec::new());
            let message =
                UserMessage { attachments: vec![picture(1, 70)], ..UserMessage::text("see") };
            run.hears("a", &SessionInput::UserMessage(message));
            run.fails_as(failure(class, keeps_attachments), Usage::default());
            run.says("and now?");
            let messages = request(&run).messages;
            let attached = messages[0].attachments.len();
            assert_eq!(attached, usize::from(is_shown), "{class:?} {keeps_attachments}");
            let told = messages.iter().any(|one| {
                one.content.inline().is_some_and(|text| text.contains("is not shown again"))
            });
            assert_eq!(told, !is_shown, "{class:?} {keeps_attachments}");
        }
    }

    #[test]
    fn attachments_of_a_turn_are_shown_with_what_they_came_with() {
        let mut run = PlayedActivation::new(&[], Vec::new());
        let message =
            UserMessage { attachments: vec![picture(1, 70)], ..UserMessage::text("what is it?") };
        run.hears("a", &SessionInput::UserMessage(message));
        let steer = UserMessage { attachments: vec![picture(2, 9)], ..UserMessage::text("or it?") };
        run.hears("b", &SessionInput::Steer(steer));
        run.replies(&[("far", "{\"at\":1}")]);
        let state = run.machine.settled().unwrap().state.clone();
        let (turn, profile) = (state.running().unwrap(), state.profile.as_ref().unwrap());
        let attached = |messages: &[Message]| {
            let all = messages.iter().flat_map(|one| one.attachments.clone());
            all.filter_map(|media| media.name).collect::<Vec<_>>()
        };
        assert_eq!(attached(&turn.messages()), ["1.png"], "the steer waits");
        let assembled = assemble(&state, profile, turn);
        assert_eq!(attached(&assembled.messages), ["1.png", "2.png"]);
        let without = SessionState {
            open: state
                .open
                .iter()
                .cloned()
                .map(|turn| Turn { attached: Vec::new(), ..turn })
                .collect(),
            ..state.clone()
        };
        let other = assemble(&without, profile, without.running().unwrap());
        assert_ne!(assembled.digest(), other.digest(), "digests see references");
    }

    #[test]
    fn the_oldest_turns_are_left_out_and_what_a_session_began_with_is_one_of_them() {
        let mut run = PlayedActivation::new(&[], Vec::new());
        for n in 0..4 {
            run.says(&format!("m{n}"));
            run.replies(&[]);
        }
        let mut state = run.machine.settled().unwrap().state.clone();
        assert_eq!(state.closed.len(), 4);
        let model = state.profile.clone().unwrap().model;
        let newest = state.closed[3].id;
        for seeded in [false, true] {
            if seeded {
                state.seed = vec![Message::text(Role::User, "seed")];
            }
            for current in [newest, TurnId::from_u128(1)] {
                let mut all = vec![state.seed.clone()];
                all.retain(|seed| !seed.is_empty());
                let closed = state.closed.iter().filter(|one| one.id != current);
                all.extend(closed.map(Turn::messages));
                for left_out in 0..=all.len() {
                    let count = u32::try_from(left_out).unwrap();
                    let cut = Cut::Recorded(count);
                    let found = earlier_turns(&state, current, cut, &model, false);
                    let parts = found.shown.into_iter().map(|(_, messages)| messages);
                    let found = (parts.collect::<Vec<_>>(), found.left_out);
                    assert_eq!(found, (all[left_out..].to_vec(), count), "{seeded}");
                }
            }
        }
    }
}
