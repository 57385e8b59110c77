//! The decision of a policy about a call.

use clawnode_proto::{
    ToolName,
    policy::{Policy, Rule, Verdict},
    tool::{Risk, ToolSpec},
};
use serde_json::{Map, Value};

use super::{
    Pattern, risk_of,
    spelling::{SpelledPattern, Spellings},
};

/// Matches any value in an exact rule.
const ANYTHING: &str = "*";

/// The decision of a policy about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement<'a> {
    /// What follows.
    pub verdict: Verdict,
    /// Why, if the rule that decided says so.
    pub reason: Option<&'a str>,
}

/// What a policy looks at of a tool call.
#[derive(Clone, Copy, Debug)]
pub struct PolicyCall<'a> {
    /// The tool's name.
    pub tool: &'a ToolName,
    /// The call's risk.
    pub risk: Risk,
    pub arguments: &'a Map<String, Value>,
}

/// The decision of `policy` about a call of this tool with these arguments.
pub fn judge<'a>(
    policy: &'a Policy,
    spec: &ToolSpec,
    arguments: &Map<String, Value>,
) -> Judgement<'a> {
    let risk = risk_of(&policy.read_only, spec, arguments);
    let call = PolicyCall { tool: &spec.name, risk, arguments };
    match deciding(&policy.rules, call).and_then(|at| policy.rules.get(at)) {
        Some(rule) => Judgement { verdict: rule.verdict, reason: rule.reason.as_deref() },
        None if risk == Risk::ReadOnly => Judgement { verdict: Verdict::Allow, reason: None },
        None => Judgement { verdict: Verdict::Ask, reason: None },
    }
}

/// Which of the rules decides about a call: the first that fits.
pub fn deciding(rules: &[Rule], call: PolicyCall<'_>) -> Option<usize> {
    let PolicyCall { tool, risk, arguments } = call;
    rules.iter().position(|rule| {
        rule.tool.as_deref().is_none_or(|pattern| Pattern::from(pattern).fits(tool.as_str()))
            && rule.risk.is_none_or(|rule_risk| rule_risk == risk)
            && if rule.exact { is_exactly(rule, arguments) } else { is_about(rule, arguments) }
    })
}

fn is_about(rule: &Rule, arguments: &Map<String, Value>) -> bool {
    rule.arguments.iter().all(|(name, pattern)| {
        let Some(value) = find(arguments, name) else { return false };
        let (value, pattern) = (Spellings::of(value), SpelledPattern::from(pattern.as_str()));
        match rule.verdict {
            Verdict::Allow => value.each(&pattern),
            Verdict::Ask | Verdict::Deny => value.any(&pattern),
        }
    })
}

/// Whether these are the rule's arguments, no more and no others. A person approved of the characters
/// that they saw, so no other spelling of a path or URL is the same here.
fn is_exactly(rule: &Rule, arguments: &Map<String, Value>) -> bool {
    rule.arguments.len() == arguments.len()
        && rule.arguments.iter().all(|(name, written)| {
            let same = |value: &Value| match value {
                Value::String(text) => text == written && !is_json(written),
                other => written == &other.to_string(),
            };
            arguments.get(name).is_some_and(|value| written == ANYTHING || same(value))
        })
}

/// Whether a text in a rule matches a value that is no string.
fn is_json(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|value| !value.is_string())
}

/// The rule that allows exactly such calls from now on; `anything` names an argument whose value does
/// not matter. `Err`: why no rule can say that.
pub fn exactly(call: PolicyCall<'_>, anything: Option<&str>) -> Result<Rule, &'static str> {
    let PolicyCall { tool, risk, arguments } = call;
    let written = |(name, value): (&String, &Value)| {
        let text = match value {
            _ if anything == Some(name) => ANYTHING.to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        (name.clone(), text)
    };
    let written = arguments.iter().map(written).collect();
    let rule = Rule {
        tool: Some(tool.to_string()),
        risk: Some(risk),
        arguments: written,
        exact: true,
        verdict: Verdict::Allow,
        reason: None,
    };
    let is_any = |(name, text): (&String, &String)| text == ANYTHING && anything != Some(name);
    if rule.arguments.iter().any(is_any) {
        return Err("one of its arguments is `*`, which a rule reads as any value");
    }
    if rule.arguments.iter().any(|(name, text)| name.is_empty() || text.is_empty()) {
        return Err("an argument is empty");
    }
    // For the rest, ask the function that will judge the next call.
    let fits = deciding(std::slice::from_ref(&rule), call).is_some();
    if fits { Ok(rule) } else { Err("a text in its arguments reads like a number or other JSON") }
}

/// The argument of this name; `.` leads into objects, unless an argument is called just so.
fn find<'a>(arguments: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    if let Some(value) = arguments.get(name) {
        return Some(value);
    }
    let (head, rest) = name.split_once('.')?;
    find(arguments.get(head)?.as_object()?, rest)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clawnode_proto::tool::EffectClass;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn spec(name: &str, risk: Risk) -> ToolSpec {
        ToolSpec {
            name: name.parse().unwrap(),
            description: String::new(),
            input_schema: "{}".to_owned(),
            class: EffectClass::Once,
            risk,
            capability: None,
            timeout_ms: 1,
            pin: None,
            time: None,
        }
    }

    fn rule(verdict: Verdict) -> Rule {
        let arguments = BTreeMap::new();
        Rule { tool: None, risk: None, arguments, exact: false, verdict, reason: None }
    }

    fn verdict(rules: Vec<Rule>, spec: &ToolSpec, arguments: Value) -> Verdict {
        let policy = Policy { rules, ..Policy::default() };
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        judge(&policy, spec, &arguments).verdict
    }

    #[test]
    fn without_rules_only_looking_is_allowed() {
        for (risk, expected) in [
            (Risk::ReadOnly, Verdict::Allow),
            (Risk::Write, Verdict::Ask),
            (Risk::Admin, Verdict::Ask),
        ] {
            assert_eq!(verdict(Vec::new(), &spec("a", risk), json!({})), expected, "{risk:?}");
        }
    }

    #[test]
    fn the_first_rule_about_a_call_decides() {
        let write = spec("fs__write_file", Risk::Write);
        let named = |tool: &str, verdict| Rule { tool: Some(tool.to_owned()), ..rule(verdict) };
        for (rules, expected) in [
            (vec![named("fs__*", Verdict::Allow), named("*", Verdict::Deny)], Verdict::Allow),
            (vec![named("*", Verdict::Deny), named("fs__*", Verdict::Allow)], Verdict::Deny),
            (vec![named("write_file", Verdict::Allow)], Verdict::Ask),
            (vec![named("fs__write_fil?", Verdict::Allow)], Verdict::Allow),
            (vec![Rule { risk: Some(Risk::Admin), ..rule(Verdict::Allow) }], Verdict::Ask),
            (vec![Rule { risk: Some(Risk::Write), ..rule(Verdict::Allow) }], Verdict::Allow),
            (vec![rule(Verdict::Deny)], Verdict::Deny),
        ] {
            assert_eq!(verdict(rules.clone(), &write, json!({})), expected, "{rules:?}");
        }
    }

    #[test]
    fn a_command_that_only_looks_is_judged_as_such_and_rules_stand_before_that() {
        let tool = spec("run_command", Risk::Write);
        let deny = |risk| vec![Rule { risk: Some(risk), ..rule(Verdict::Deny) }];
        for (line, rules, expected) in [
            ("git status", Vec::new(), Verdict::Allow),
            ("git status; rm a", Vec::new(), Verdict::Ask),
            ("git status", deny(Risk::ReadOnly), Verdict::Deny),
            ("git status", deny(Risk::Write), Verdict::Allow),
            ("git status; rm a", deny(Risk::Write), Verdict::Deny),
            ("git status", vec![rule(Verdict::Ask)], Verdict::Ask),
        ] {
            let read_only = vec!["git status".to_owned()];
            let policy = Policy { rules, read_only, ..Policy::default() };
            let Value::Object(arguments) = json!({ "command": line }) else { unreachable!() };
            assert_eq!(judge(&policy, &tool, &arguments).verdict, expected, "{line}");
        }
    }

    #[test]
    fn arguments_must_be_there_and_fit_whole() {
        let write = spec("file_write", Risk::Write);
        let about = |name: &str, pattern: &str| Rule {
            arguments: [(name.to_owned(), pattern.to_owned())].into(),
            ..rule(Verdict::Allow)
        };
        let arguments = json!({
            "path": "notes/a.txt", "deep": { "er": true }, "a.b": "plain", "list": ["x"]
        });
        for (name, pattern, expected) in [
            ("path", "notes/*", Verdict::Allow),
            ("path", "notes/", Verdict::Ask),
            ("path", "otes/a*", Verdict::Ask),
            ("deep.er", "true", Verdict::Allow),
            ("deep.est", "*", Verdict::Ask),
            ("a.b", "plain", Verdict::Allow),
            ("list", r#"["x"]"#, Verdict::Allow),
            ("none", "*", Verdict::Ask),
        ] {
            let found = verdict(vec![about(name, pattern)], &write, arguments.clone());
            assert_eq!(found, expected, "{name} {pattern}");
        }
    }

    #[test]
    fn an_exact_rule_is_about_no_further_argument() {
        let write = spec("file_write", Risk::Write);
        let arguments: BTreeMap<_, _> =
            [("path", "a"), ("content", "*")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let rules = vec![Rule { arguments, exact: true, ..rule(Verdict::Allow) }];
        for (call, expected) in [
            (json!({ "path": "a", "content": "x" }), Verdict::Allow),
            (json!({ "path": "a", "content": "x", "mode": "append" }), Verdict::Ask),
            (json!({ "path": "a", "content": "x", "path.b": null }), Verdict::Ask),
            (json!({ "path": "./a", "content": "x" }), Verdict::Ask),
            (json!({ "path": "a" }), Verdict::Ask),
        ] {
            assert_eq!(verdict(rules.clone(), &write, call.clone()), expected, "{call}");
        }
        let none = vec![Rule { exact: true, ..rule(Verdict::Allow) }];
        assert_eq!(verdict(none.clone(), &write, json!({})), Verdict::Allow);
        assert_eq!(verdict(none, &write, json!({ "path": "a" })), Verdict::Ask);
    }

    /// The decision of a rule with this pattern of one argument about a value; `Ask` if it does not
    /// fit.
    fn said(on_fit: Verdict, pattern: &str, value: &Value) -> Verdict {
        let read = spec("file_read", Risk::Write);
        let arguments = [("it".to_owned(), pattern.to_owned())].into();
        verdict(vec![Rule { arguments, ..rule(on_fit) }], &read, json!({ "it": value }))
    }

    #[test]
    fn what_is_denied_is_denied_in_every_spelling() {
        let paths = [
            "secret/k",
            "./secret/k",
            ".//secret/./k",
            "secret//k",
            "secret/k/",
            "a/../secret/k",
            "./a/b/../../secret/k",
            "secret/../secret/k",
            "secret/../other",
        ];
        let urls = [
            "http://host.example/secret/k",
            "HTTP://Host.Example/secret/k",
            "http://host.example./secret/k",
            "http://host.example:80/secret/k",
            "http://host.example//secret/k",
            "http://host.example/./secret/k",
            "http://host.example/%2e/secret/k",
            "http://host.example/a/%2e%2E/secret/k",
            "http://host.example/%73ecret/k",
            "http://user:word@host.example/secret/k",
            "http://host.example/secret/k#there",
            "http:host.example/secret/k",
            "http:\\\\host.example\\secret/k",
            "http://ｈost.example/secret/k",
            "\thttp://host.example/secret/k",
        ];
        for verdict in [Verdict::Deny, Verdict::Ask] {
            for pattern in ["secret/*", "./secret/*", "secret//*", "secret/./*"] {
                for path in paths {
                    let text = json!(path);
                    assert_eq!(said(verdict, pattern, &text), verdict, "{pattern} {path}");
                }
            }
            for pattern in ["http://host.example/secret/*", "HTTP://HOST.example.:80/secret/*"] {
                for url in urls {
                    assert_eq!(said(verdict, pattern, &json!(url)), verdict, "{pattern} {url}");
                }
            }
        }
        let command = json!(["cat", "./secret/k"]);
        assert_eq!(said(Verdict::Deny, "*secret/k*", &command), Verdict::Deny);
        for (pattern, other) in [("secret/*", "secrets/k"), ("secret/*", "a/secret/k")] {
            assert_eq!(said(Verdict::Deny, pattern, &json!(other)), Verdict::Ask, "{other}");
        }
    }

    #[test]
    fn what_is_allowed_is_allowed_in_every_spelling() {
        for (pattern, value, expected) in [
            ("notes/*", "notes/a", Verdict::Allow),
            ("notes/*", "notes//a/./b", Verdict::Allow),
            ("./notes/*", "./notes/a", Verdict::Allow),
            ("./notes/*", "notes/a", Verdict::Allow),
            ("*", "../../anything", Verdict::Allow),
            ("notes/*", "notes/../secret/k", Verdict::Ask),
            ("notes/*", "notes/./../secret/k", Verdict::Ask),
            ("/srv/notes/*", "/srv/notes/../../etc/passwd", Verdict::Ask),
            ("*/public/*", "http://public/../../secret/k", Verdict::Ask),
            ("cat notes/*", "cat notes/../secret", Verdict::Ask),
            ("http://host.example/*", "http://host.example/a//b?c=d/../e", Verdict::Allow),
            ("http://host.example/*", "http://host.example/a//b?c=d", Verdict::Allow),
            ("http://host.example/*", "HTTP://HOST.example/a", Verdict::Ask),
            ("http://host.example/ok/*", "http://host.example/ok/%2e%2e/k", Verdict::Ask),
            ("http://host.example*", "http://host.example@evil.example/", Verdict::Ask),
            ("http://*.example/*", "http://user@host.example/", Verdict::Allow),
            ("1//2", "1//2", Verdict::Allow),
        ] {
            assert_eq!(said(Verdict::Allow, pattern, &json!(value)), expected, "{pattern} {value}");
        }
    }

    /// Arguments that look alike: spellings of paths and URLs, patterns, and texts that are JSON.
    fn alike() -> impl Strategy<Value = Map<String, Value>> {
        let text = prop::sample::select(vec![
            "a",
            "./a",
            "a/",
            "a//b",
            "b/../a",
            "*",
            "?",
            "a*",
            "1",
            "true",
            "null",
            "{}",
            "",
            "A",
            "https://%2A.example/",
            "https://x.example/",
            "https://X.example",
            "git://%2A/",
            "https://\u{ff0a}.example/",
            "https://u@x.example/",
            "cd a && ls ./../b",
            "\"a\"",
        ]);
        let leaf = prop_oneof![
            text.prop_map(Value::from),
            Just(json!(1)),
            Just(json!(true)),
            Just(json!(null)),
            Just(json!({})),
        ];
        let value = leaf.prop_recursive(2, 4, 2, |inner| {
            let list = prop::collection::vec(inner.clone(), 1..3).prop_map(Value::from);
            prop_oneof![list, inner.prop_map(|value| json!({ "k": value }))]
        });
        let name = prop::sample::select(vec!["a", "a.k", "b"]).prop_map(str::to_owned);
        prop::collection::btree_map(name, value, 0..3).prop_map(Map::from_iter)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        /// What a person approves of for ever is what they saw, and nothing that looks like it.
        #[test]
        fn a_rule_made_of_a_call_allows_that_call_alone(made in alike(), other in alike()) {
            let tool = spec("act", Risk::Write);
            let call = PolicyCall { tool: &tool.name, risk: tool.risk, arguments: &made };
            let Ok(rule) = exactly(call, None) else { return Ok(()) };
            let said = |call: &Map<String, Value>| verdict(vec![rule.clone()], &tool, call.clone().into());
            prop_assert_eq!(said(&made), Verdict::Allow);
            let expected = if made == other { Verdict::Allow } else { Verdict::Ask };
            prop_assert_eq!(said(&other), expected, "{:?} {:?}", made, other);
        }
    }

    #[test]
    fn no_rule_is_made_where_its_words_would_mean_more() {
        let tool = spec("act", Risk::Write);
        let made = |arguments: Value, anything| {
            let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
            let call = PolicyCall { tool: &tool.name, risk: tool.risk, arguments: &arguments };
            exactly(call, anything)
        };
        for arguments in [json!({ "a": "*" }), json!({ "a": "" }), json!({ "a": "1" })] {
            made(arguments, None).unwrap_err();
        }
        // Patterns within a text are characters here.
        made(json!({ "a": "rm *.txt", "n": 1, "deep": { "a": ["?"] } }), None).unwrap();
        let rule = made(json!({ "a": "x", "content": "" }), Some("content")).unwrap();
        let any = |content: &str| {
            verdict(vec![rule.clone()], &tool, json!({ "a": "x", "content": content }))
        };
        assert_eq!((any("y"), any("*")), (Verdict::Allow, Verdict::Allow));
    }
}
