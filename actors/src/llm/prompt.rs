//! The conversation in the form that every wire accepts: it begins and ends with the user, roles
//! alternate, nothing is empty.
//!
//! A turn that failed leaves two user messages in a row, and a model may have said nothing; some
//! vendors and many local chat templates refuse either.

use clawnode_proto::llm::{FailureClass, ModelFailure, Role};

use super::PlainMessage;

/// Between two messages of one role that become one.
const SEAM: &str = "\n\n";

/// Merges neighbours of one role and leaves out what is blank.
pub(super) fn alternate(messages: Vec<PlainMessage>) -> Result<Vec<PlainMessage>, ModelFailure> {
    let mut kept: Vec<PlainMessage> = Vec::with_capacity(messages.len());
    for message in messages {
        if message.text.trim().is_empty() {
            continue;
        }
        match kept.last_mut() {
            Some(last) if last.role == message.role => {
                last.text.push_str(SEAM);
                last.text.push_str(&message.text);
            }
            Some(_) | None => kept.push(message),
        }
    }
    let is_user = |message: Option<&PlainMessage>| message.is_some_and(|m| m.role == Role::User);
    if is_user(kept.first()) && is_user(kept.last()) {
        Ok(kept)
    } else {
        Err(ModelFailure {
            class: FailureClass::Rejected,
            message: "not sent: the conversation does not begin and end with a user's words"
                .to_owned(),
            status: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(role: Role, text: &str) -> PlainMessage {
        PlainMessage { role, text: text.to_owned() }
    }

    #[test]
    fn roles_alternate_and_nothing_is_lost() {
        let (user, model) = (Role::User, Role::Assistant);
        let merged = alternate(vec![
            said(user, "a"),
            said(model, " \n"),
            said(user, "b"),
            said(model, "c"),
            said(user, "d"),
        ]);
        assert_eq!(merged.unwrap(), [said(user, "a\n\nb"), said(model, "c"), said(user, "d")]);
    }

    #[test]
    fn a_conversation_without_a_question_is_not_sent() {
        for messages in [
            vec![],
            vec![said(Role::User, " ")],
            vec![said(Role::Assistant, "a"), said(Role::User, "b")],
            vec![said(Role::User, "a"), said(Role::Assistant, "b")],
        ] {
            assert_eq!(alternate(messages).unwrap_err().class, FailureClass::Rejected);
        }
    }
}
