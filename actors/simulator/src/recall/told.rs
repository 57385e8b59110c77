//! What people say of themselves, each time something else, and the memories that there are.

use clawnode_proto::{
    llm::Text,
    memory::MemoryKey,
    session::{SessionInput, UserMessage},
};

/// How each thing begins that is said or noted once in a world.
const TOKEN: &str = "Qz";
/// Letters of such a thing.
const TOKEN_CHARS: usize = 5;

/// How each lesson begins that a model writes which looks back at a turn.
pub(crate) const LESSON: &str = "Lesson ";
/// How each fact begins that a model writes in its own words, and each that it quotes.
pub(crate) const FACT: &str = "Fact ";
const QUOTED: &str = "We keep ";

/// The memories that every session reads beside that of its peer.
pub(super) const READ: [&str; 2] = ["default/all", "shared/team"];
/// Those that none reads.
pub(super) const FOREIGN: [&str; 2] = ["other/all", "shared/secret"];

/// The memory of the peer of a session.
pub(super) fn of_peer(session: usize) -> String {
    format!("default/peer/sim:local:peer{session}")
}

/// All memories of a world with so many sessions.
pub(crate) fn memories(sessions: usize) -> Vec<MemoryKey> {
    let fixed = READ.into_iter().chain(FOREIGN).map(str::to_owned);
    (0..sessions).map(of_peer).chain(fixed).filter_map(|key| key.parse().ok()).collect()
}

/// A word that is said nowhere else: which group of sayings, and which one there.
pub(super) fn token(group: usize, number: usize) -> String {
    let letter = |at: usize| char::from(b'a'.saturating_add(u8::try_from(at % 26).unwrap_or(0)));
    format!("{TOKEN}{}{}{}", letter(group), letter(number / 26), letter(number))
}

/// The first such word in a text.
pub(super) fn token_in(text: &str) -> Option<&str> {
    let at = text.find(TOKEN)?;
    text.get(at..at + TOKEN_CHARS)
}

/// What is said once of a text: a fact that a pattern finds, or all that a model found or wrote.
pub(super) fn said_once(text: &str) -> Option<&str> {
    if is_of_model(text) { Some(text) } else { token_in(text) }
}

/// Whether a model has found or written this.
pub(super) fn is_of_model(text: &str) -> bool {
    [LESSON, FACT, QUOTED].iter().any(|begins| text.starts_with(begins))
}

/// The same message with a fact, or an instruction that holds from now on; some messages say nothing of the kind.
pub(crate) fn says(session: usize, number: usize, body: SessionInput) -> SessionInput {
    let token = token(session, number);
    let said = match number % 5 {
        0 => format!("My name is {token}."),
        1 => format!("My dog is called {token}."),
        2 => format!("I live in {token}."),
        3 => format!("From now on, answer in {token}."),
        _ => "What is new?".to_owned(),
    };
    // A text may name any memory: nothing is found there for that.
    let more = |message: UserMessage| {
        let begins = message.content.inline().unwrap_or_default();
        let text = format!("{begins}\nHello. {said} What does {} say?", FOREIGN[number % 2]);
        UserMessage { content: Text::from(text), ..message }
    };
    match body {
        SessionInput::UserMessage(message) => SessionInput::UserMessage(more(message)),
        SessionInput::Steer(message) => SessionInput::Steer(more(message)),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use clawnode_memory::extract::facts;

    use super::*;

    /// Production finds one fact in each message that has one, and in no other.
    #[test]
    fn a_message_says_one_fact_or_none() {
        for number in 0..30 {
            let body = SessionInput::UserMessage(UserMessage::text(format!("#{number} ")));
            let SessionInput::UserMessage(message) = says(1, number, body) else { panic!() };
            let text = message.content.inline().unwrap();
            let found: Vec<String> = facts(text).into_iter().map(|fact| fact.text).collect();
            let tokens: Vec<&str> = found.iter().filter_map(|text| token_in(text)).collect();
            let own = token(1, number);
            let expected: &[&str] = if number % 5 == 4 { &[] } else { &[&own] };
            assert_eq!((tokens.as_slice(), found.len()), (expected, expected.len()), "{text}");
            assert!(text.starts_with(&format!("#{number} ")), "{text}");
        }
    }

    #[test]
    fn every_token_is_another_one() {
        let all = (0..9).flat_map(|group| (0..80).map(move |number| token(group, number)));
        let all: Vec<String> = all.collect();
        let different: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert!(all.iter().all(|token| token_in(token) == Some(token.as_str())));
    }
}
