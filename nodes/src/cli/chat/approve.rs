//! What a person at the terminal sees of a tool call that waits for them: all of it, and the rule
//! that would allow such calls from then on. Pure.

use clawnode_guard::policy::{self, PolicyCall};
use clawnode_proto::{
    policy::{Approval, Rule},
    tool::Risk,
};
use serde_json::{Map, Value};
use similar::{ChangeTag, TextDiff};

use super::terminal_style::{TerminalStyle, TextRole};
use crate::{cli::output::exact, config::agents::RuleOptions};

/// Characters of an argument that are shown in its own line.
const INLINE_CHARS: usize = 100;
/// Lines around a change.
const AROUND: usize = 3;

/// What a person answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ApprovalAnswer {
    Yes,
    No,
    Always,
    Why,
    Unclear,
}

pub(super) fn answer(text: &str) -> ApprovalAnswer {
    match text.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => ApprovalAnswer::Yes,
        "n" | "no" => ApprovalAnswer::No,
        "always" | "a" => ApprovalAnswer::Always,
        "why" | "w" | "?" => ApprovalAnswer::Why,
        _ => ApprovalAnswer::Unclear,
    }
}

/// The path of the file that a call writes, if it is one that does.
pub(super) fn writes(approval: &Approval) -> Option<String> {
    let arguments = arguments(approval)?;
    let whole = approval.action.tool.as_str() == "file_write" && arguments.contains_key("content");
    arguments.get("path").filter(|_| whole).and_then(Value::as_str).map(str::to_owned)
}

/// All of a call, in lines; `old` is what the file has now that it writes, if that is known.
pub(super) fn card(approval: &Approval, old: Option<&str>, look: TerminalStyle) -> Vec<String> {
    let action = &approval.action;
    let risk = approval.risk.as_str();
    let why =
        approval.reason.as_deref().map_or_else(String::new, |why| format!(", {}", exact(why)));
    let head = format!("{} wants to run ({risk}{why})", exact(action.tool.as_str()));
    let mut lines = vec![look.paint(TextRole::Question, &head)];
    let Ok(Value::Object(arguments)) = serde_json::from_str(&action.arguments) else {
        lines.push(format!("  {}", exact(&action.arguments)));
        return lines;
    };
    let content = writes(approval).and_then(|_| arguments.get("content")?.as_str());
    // What it is about first, a whole file last.
    let (whole, about): (Vec<_>, Vec<_>) =
        arguments.iter().partition(|(name, _)| name.as_str() == "content");
    for (name, value) in about.into_iter().chain(whole) {
        match (name.as_str(), content, old) {
            ("content", Some(new), Some(old)) => {
                lines.push("  content, with these changes:".to_owned());
                lines.extend(diff(old, new, look));
            }
            ("content", Some(new), None) => {
                lines.push("  content, all new:".to_owned());
                let added =
                    |line: &str| look.paint(TextRole::Added, &format!("  + {}", exact(line)));
                lines.extend(new.lines().map(added));
                if !new.is_empty() && !new.ends_with('\n') {
                    lines.push("    (no newline at the end)".to_owned());
                }
            }
            _ => lines.extend(argument(name, value)),
        }
    }
    if arguments.is_empty() {
        lines.push("  without arguments".to_owned());
    }
    lines.extend(approval.about.iter().map(|about| format!("  about: {}", exact(about))));
    lines
}

/// An argument: in its line if it fits, else in lines of its own. Every character is seen.
fn argument(name: &str, value: &Value) -> Vec<String> {
    let name = exact(name);
    match value {
        Value::String(text) if text.contains('\n') || text.chars().count() > INLINE_CHARS => {
            let mut lines = vec![format!("  {name}:")];
            lines.extend(text.split('\n').map(|line| format!("    {}", exact(line))));
            lines
        }
        Value::String(text) => vec![format!("  {name}: {}", exact(text))],
        Value::Object(_) | Value::Array(_) => {
            let mut lines = vec![format!("  {name}:")];
            let pretty = format!("{value:#}");
            lines.extend(pretty.lines().map(|line| format!("    {}", exact(line))));
            lines
        }
        value => vec![format!("  {name}: {value}")],
    }
}

/// The lines that change, with those around them.
fn diff(old: &str, new: &str, look: TerminalStyle) -> Vec<String> {
    if old == new {
        return vec!["    (nothing)".to_owned()];
    }
    let diff = TextDiff::from_lines(old, new);
    let mut lines = Vec::new();
    for group in diff.grouped_ops(AROUND) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let was = first.old_range().start + 1..=last.old_range().end;
        let at = format!("  @@ lines {} to {} @@", was.start(), was.end());
        lines.push(look.paint(TextRole::Aside, &at));
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let text = exact(change.value().trim_end_matches('\n'));
            lines.push(match change.tag() {
                ChangeTag::Delete => look.paint(TextRole::Removed, &format!("  - {text}")),
                ChangeTag::Insert => look.paint(TextRole::Added, &format!("  + {text}")),
                ChangeTag::Equal => format!("    {text}"),
            });
            if change.missing_newline() {
                lines.push("    (no newline at the end)".to_owned());
            }
        }
    }
    lines
}

/// The rule that allows exactly such calls from then on, whatever a file gets that they write. `Err`:
/// why there is no such rule.
pub(super) fn rule(approval: &Approval) -> Result<RuleOptions, &'static str> {
    let given = arguments(approval).ok_or("its arguments are not an object")?;
    let anything = writes(approval).map(|_| "content");
    let rule = policy::exactly(call(approval, &given), anything)?;
    // What a rule says is read by people, too.
    let texts = rule.arguments.iter().flat_map(|(name, text)| [name, text]);
    if texts.into_iter().any(|text| exact(text) != *text || text.contains('\n')) {
        return Err("its arguments have invisible characters or line breaks");
    }
    Ok(rule.into())
}

/// Where such a rule belongs: before the one that has a person asked, so that it lifts no other.
pub(super) fn place(approval: &Approval, rules: &[Rule]) -> usize {
    let decides = arguments(approval)
        .and_then(|arguments| policy::deciding(rules, call(approval, &arguments)));
    decides.unwrap_or(rules.len())
}

fn call<'a>(approval: &'a Approval, arguments: &'a Map<String, Value>) -> PolicyCall<'a> {
    PolicyCall { tool: &approval.action.tool, risk: approval.risk, arguments }
}

fn arguments(approval: &Approval) -> Option<Map<String, Value>> {
    serde_json::from_str(&approval.action.arguments).ok()
}

/// Why a person is asked, and what the answers do.
pub(super) fn why(approval: &Approval) -> String {
    let rule = match (&approval.reason, approval.risk) {
        (Some(reason), _) => format!("It takes a decision of a person: {}.", exact(reason)),
        (None, Risk::ReadOnly) => "A rule of the agent asks for a decision.".to_owned(),
        (None, _) => {
            "It changes something, and no rule allows it, or one asks for a decision.".to_owned()
        }
    };
    format!(
        "{rule}\ny runs exactly this call, once. n refuses it: the model gets the refusal, and the \
         turn continues.\n`always` shows a rule that allows exactly such calls, and asks whether to \
         write it. Ctrl-D decides later, Ctrl-C cancels the turn."
    )
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        CallId, Timestamp, TurnId,
        policy::{Action, Verdict},
        tool::EffectClass,
    };

    use super::*;
    use crate::config::rules;

    const PLAIN: TerminalStyle = TerminalStyle { color: false, utf8: true };

    fn approval(tool: &str, arguments: &str) -> Approval {
        let action = Action {
            session: "ops:cli:local:ada".parse().unwrap(),
            turn: TurnId::from_u128(1),
            call: CallId::from_u128(2),
            tool: tool.parse().unwrap(),
            pin: None,
            capability: None,
            class: EffectClass::Once,
            timeout_ms: 1_000,
            arguments: arguments.to_owned(),
        };
        let digest = action.digest().unwrap();
        let (asked, expires) = (Timestamp(1), Timestamp(2));
        Approval {
            action,
            digest,
            risk: Risk::Write,
            reason: None,
            about: None,
            asked,
            expires,
            decided: None,
        }
    }

    #[test]
    fn all_of_a_call_is_shown_to_the_last_character() {
        let asked = approval(
            "run_command",
            r#"{"command":"ls\nrm -rf \u202e x","deep":{"a":[1]},"n":2,"quick":"y\u001b[2J"}"#,
        );
        insta::assert_snapshot!(card(&asked, None, PLAIN).join("\n"));
        // An id alone says nothing to a person.
        let about = Some("semantic point of `shared/team`: Tea is \u{202e}green.".to_owned());
        let named = Approval { about, ..approval("forget", r#"{"point":"point_1"}"#) };
        let named = card(&named, None, PLAIN).join("\n");
        let says = "\n  about: semantic point of `shared/team`: Tea is \\u{202e}green.";
        assert!(named.ends_with(says), "{named}");
        let broken = card(&approval("x", "[1]"), None, PLAIN).join("\n");
        assert!(broken.ends_with("  [1]"), "{broken}");
    }

    #[test]
    fn a_write_is_shown_as_what_it_changes() {
        let asked = approval("file_write", r#"{"content":"a\nB\nc\nd","path":"notes.txt"}"#);
        assert_eq!(writes(&asked).as_deref(), Some("notes.txt"));
        insta::assert_snapshot!(card(&asked, Some("a\nb\nc\n"), PLAIN).join("\n"));
        insta::assert_snapshot!(card(&asked, None, PLAIN).join("\n"));
    }

    #[test]
    fn a_rule_is_for_this_tool_and_these_arguments_alone() {
        let text = |tool: &str, arguments: &str| {
            rule(&approval(tool, arguments)).map(|rule| rules::text("ops", &rule))
        };
        let write = text("file_write", r#"{"content":"x","path":"a \"b\".txt"}"#).unwrap();
        assert_eq!(
            write,
            "[[agents.ops.rules]]\ntool = \"file_write\"\nrisk = \"WRITE\"\n\
             arguments = { content = \"*\", path = 'a \"b\".txt' }\n\
             exact = true\nverdict = \"allow\"\n"
        );
        // What else is called `content` is an argument like others.
        let said = text("say", r#"{"content":"x","deep":{"a":[1]}}"#).unwrap();
        assert!(
            said.contains("content = \"x\"") && said.contains(r#"deep = '{"a":[1]}'"#),
            "{said}"
        );
        for unseen in [r#"{"a":"x\u200by"}"#, r#"{"a":"x\ny"}"#, r#"{"a":"\u001b"}"#, "[1]"] {
            text("run_command", unseen).unwrap_err();
        }
    }

    #[test]
    fn a_rule_lifts_no_rule_that_comes_before_the_one_that_asks() {
        let asked = approval("file_write", r#"{"content":"x","path":"a"}"#);
        let rule = |verdict, arguments: &[(&str, &str)]| Rule {
            tool: None,
            risk: None,
            arguments: arguments.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
            exact: false,
            verdict,
            reason: None,
        };
        let secrets = rule(Verdict::Deny, &[("content", "*KEY*")]);
        let asks = rule(Verdict::Ask, &[("path", "a")]);
        assert_eq!(place(&asked, &[secrets.clone(), asks.clone(), secrets.clone()]), 1);
        assert_eq!(place(&asked, std::slice::from_ref(&secrets)), 1);
        assert_eq!(place(&asked, &[]), 0);
    }

    #[test]
    fn answers_are_words() {
        for (text, is) in [
            ("y", ApprovalAnswer::Yes),
            (" YES ", ApprovalAnswer::Yes),
            ("n", ApprovalAnswer::No),
            ("always", ApprovalAnswer::Always),
            ("why", ApprovalAnswer::Why),
            ("", ApprovalAnswer::Unclear),
            ("yy", ApprovalAnswer::Unclear),
        ] {
            assert_eq!(answer(text), is, "{text}");
        }
    }
}
