//! How many tokens a request has before it is made. Pure.

use clawnode_proto::{
    TurnId,
    session::{Profile, UserMessage},
};

use super::{context::assemble, state::SessionState};

/// About how many tokens the first model call of a session has that begins with this message: what the agent
/// adds is counted, and nothing is left out, however small the window is.
pub fn tokens_alone(profile: &Profile, message: UserMessage) -> u64 {
    let mut state = SessionState::default();
    state.begin_turn(TurnId::from_u128(0), message, None);
    let profile = Profile { window_tokens: u32::MAX, ..profile.clone() };
    state.running().map_or(0, |turn| assemble(&state, &profile, turn).estimate())
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        client_tool::ClientTool,
        llm::{Message, Role},
    };

    use super::*;
    use crate::agent::AgentOptions;

    #[test]
    fn all_that_a_model_is_sent_is_counted() {
        let model = "sim/model".parse().unwrap();
        let profile = AgentOptions::new("main".parse().unwrap(), model).profile();
        let small = Profile { window_tokens: 100, ..profile.clone() };
        let count = |message| tokens_alone(&profile, message);
        let least = count(UserMessage::text("hi"));
        let long = count(UserMessage::text("word ".repeat(300)));
        assert!((least + 490..least + 510).contains(&long), "{least} {long}");
        let before = Message::text(Role::User, "word ".repeat(300));
        let history = vec![before, Message::text(Role::Assistant, "yes")];
        let after = UserMessage { history, ..UserMessage::text("hi") };
        assert!(count(after.clone()) > long);
        assert_eq!(tokens_alone(&small, after.clone()), count(after), "nothing is left out");
        let description = "x".repeat(300);
        let (name, input_schema) = ("look".parse().unwrap(), "{}".to_owned());
        let tools = vec![ClientTool { name, description, input_schema }];
        assert!(count(UserMessage { tools, ..UserMessage::text("hi") }) >= least + 100);
        let told = Profile { system: "s".repeat(3_000), ..profile.clone() };
        assert!(tokens_alone(&told, UserMessage::text("hi")) >= 1_000);
    }
}
