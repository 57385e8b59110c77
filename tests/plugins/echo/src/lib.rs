//! A plugin of clawnode in Rust: repeats a text, counts what it remembers, fetches, and keeps.

use std::cell::Cell;

wit_bindgen::generate!({ path: "../../../actors/wasm/wit", world: "tool" });

use clawnode::plugin::{
    http::{self, Method, Request},
    store::{self, StoreError},
    types::{EffectClass, Risk},
};

thread_local! {
    /// How often this instance was called: once, as each call has one of its own.
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

struct Echo;

impl Guest for Echo {
    fn describe() -> Vec<ToolSpec> {
        let tool = |name: &str, description: &str, schema: &str| ToolSpec {
            name: name.to_owned(),
            description: description.to_owned(),
            input_schema: schema.to_owned(),
            class: EffectClass::Safe,
            risk: Risk::ReadOnly,
        };
        let text = r#"{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}"#;
        let url = r#"{"type":"object","properties":{"url":{"type":"string"}},"required":["url"]}"#;
        let kept = r#"{"type":"object","properties":{"store":{"type":"string"},
            "key":{"type":"string"},"value":{"type":"string"},"expected":{"type":"integer"}},
            "required":["store"]}"#;
        vec![
            tool("remember", "Puts a value under a key.", kept),
            tool("recall", "Says what is under a key, and its revision.", kept),
            tool("forget", "Removes a key.", kept),
            tool("keys", "Says which keys there are.", kept),
            tool("hoard", "Asks the store until it may not any more.", kept),
            tool("say", "Says the text that it gets.", text),
            tool("count", "Says how often it was called.", r#"{"type":"object"}"#),
            tool("fetch", "Fetches a URL and says what is there.", url),
            tool("panic", "Breaks.", r#"{"type":"object"}"#),
            tool("eat", "Takes all memory that it can get.", r#"{"type":"object"}"#),
        ]
    }

    fn handle_tool_call(call: Call) -> Result<String, String> {
        CALLS.set(CALLS.get() + 1);
        match call.tool.as_str() {
            "say" => field(&call.arguments, "text"),
            "count" => Ok(CALLS.get().to_string()),
            "fetch" => {
                let url = field(&call.arguments, "url")?;
                let headers = vec![("accept".to_owned(), "text/plain".to_owned())];
                let reply = http::fetch(&Request { method: Method::Get, url, headers })?;
                Ok(format!("{} {}", reply.status, String::from_utf8_lossy(&reply.body)))
            }
            "remember" | "recall" | "forget" | "keys" | "hoard" => {
                keep(&call.tool, &call.arguments).unwrap_or_else(|error| Err(format!("{error:?}")))
            }
            "panic" => panic!("on purpose"),
            "eat" => {
                let mut eaten = Vec::new();
                loop {
                    eaten.push(vec![1_u8; 1 << 20]);
                }
            }
            other => Err(format!("there is no tool `{other}`")),
        }
    }
}

/// What the stores are asked for; the outer error is theirs.
fn keep(tool: &str, arguments: &str) -> Result<Result<String, String>, StoreError> {
    let text = |name: &str| field(arguments, name).unwrap_or_default();
    let (store, key) = (text("store"), text("key"));
    let expected = serde_json::from_str::<serde_json::Value>(arguments).ok();
    let expected = expected.and_then(|params| params.get("expected")?.as_u64());
    Ok(Ok(match tool {
        "remember" => store::put(&store, &key, text("value").as_bytes(), expected)?.to_string(),
        "recall" => match store::get(&store, &key)? {
            Some(entry) => format!("{} {}", entry.revision, String::from_utf8_lossy(&entry.value)),
            None => "nothing".to_owned(),
        },
        "forget" => store::delete(&store, &key, expected).map(|()| "gone".to_owned())?,
        "keys" => store::keys(&store)?.join(" "),
        _ => {
            let asked = (0..).take_while(|_| store::get(&store, &key).is_ok()).count();
            format!("{asked} {:?}", store::get(&store, &key).unwrap_err())
        }
    }))
}

/// A field that is text, of arguments that fit the schema.
fn field(arguments: &str, name: &str) -> Result<String, String> {
    let arguments: serde_json::Value =
        serde_json::from_str(arguments).map_err(|error| error.to_string())?;
    let value = arguments.get(name).and_then(serde_json::Value::as_str);
    value.map(str::to_owned).ok_or_else(|| format!("`{name}` is missing"))
}

export!(Echo);
