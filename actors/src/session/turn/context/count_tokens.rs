//! How many tokens a request has before it is made. Pure.

use clawnode_proto::{
    TurnId,
    session::{Profile, UserMessage},
};

use super::super::state::SessionState;
use super::{model_input::assemble, token_estimate::fixed_tokens};

/// The share of a context from which on its tools are worth a warning, in percent.
const MUCH_OF_TOOLS: u64 = 40;

/// About how many tokens the first model call of a session has that begins with this message: what the agent
/// adds is counted, and nothing is left out, however small the window is.
pub fn tokens_alone(profile: &Profile, message: UserMessage) -> u64 {
    let mut state = SessionState::default();
    state.begin_turn(TurnId::from_u128(0), message, None);
    let profile = Profile { window_tokens: u32::MAX, ..profile.clone() };
    state.running().map_or(0, |turn| assemble(&state, &profile, turn).estimate())
}

/// What people should know of an agent whose context has little room for a conversation: what comes before the messages
/// is sent with every call, and never cut. Nothing of an agent without a budget for its context.
pub fn warning(profile: &Profile) -> Option<String> {
    let budget = u64::from(profile.context?.tokens);
    let tools = fixed_tokens(0, &profile.tools, None);
    let schema = profile.response_schema.as_ref();
    let all = fixed_tokens(profile.system.bytes(), &profile.tools, schema);
    let agent = &profile.agent;
    if all >= budget {
        return Some(format!(
            "agent `{agent}` shows its model no earlier turn once its context is bounded: system prompt and tools take \
             about {all} tokens, and `context_tokens` is {budget}"
        ));
    }
    let percent = tools.saturating_mul(100).checked_div(budget)?;
    (percent > MUCH_OF_TOOLS).then(|| {
        format!(
            "the tools of agent `{agent}` take {percent}% of its context, about {tools} of {budget} tokens: remove some \
             of them, or raise `context_tokens`"
        )
    })
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        client_tool::ClientTool,
        context::{ContextMode, ContextRules, ContextSettings},
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
        let told = Profile { system: "s".repeat(3_000).into(), ..profile.clone() };
        assert!(tokens_alone(&told, UserMessage::text("hi")) >= 1_000);
    }

    #[test]
    fn an_agent_with_little_room_for_a_conversation_is_noticed() {
        let model = "sim/model".parse().unwrap();
        let mut agent = AgentOptions::new("main".parse().unwrap(), model);
        let (rules, mode) = (ContextRules::V2, ContextMode::Auto);
        agent.context = Some(ContextSettings { rules, mode, tokens: 1_000, recent_turns: 5 });
        let tool = ClientTool {
            name: "look".parse().unwrap(),
            description: "x".repeat(1_198),
            input_schema: "{}".to_owned(),
        };
        agent.tools = vec![tool.spec()];
        assert_eq!(warning(&agent.profile()), None, "40% are not too much");
        agent.tools[0].description.push_str(&"x".repeat(30));
        assert!(warning(&agent.profile()).unwrap().contains("41% of its context"));
        agent.system = "s".repeat(3_000);
        assert!(warning(&agent.profile()).unwrap().contains("no earlier turn"));
        agent.context = None;
        assert_eq!(warning(&agent.profile()), None);
    }
}
