//! `events.md`: the events of turns, of journals and of the cluster.

use clawnode_proto::{
    budget::BudgetEvent,
    event::Grammar,
    feed::{ClusterEvent, EventBody},
    kernel::KernelEvent,
    memory_point::MemoryEvent,
    session::SessionEvent,
    turn::TurnBody,
};
use schemars::JsonSchema;
use serde_json::Value;

use super::{page, schema::Schema};

const TURNS: &str = "\
`chat.send` and `sessions.resume` stream these events over `/ws`, as `event`, `data` and `cursor`. Server-sent events
carry the same, with the cursor as `id`. Ignore events and fields that you do not know.";
const JOURNALS: &str = "\
`clawnode journal show` and `journal.show` print the events of a journal. Each has `n` (its number), `ts`
(milliseconds since 1970), `kind` and these fields. A field that has nothing to say is left out.";
const KERNEL: &str = "These events are the same for every kind of entity.";
const CLUSTER: &str = "\
`clawnode events` and `events.list` show what happens in the cluster. These events are best effort: some may be lost,
and none has the content of a conversation. Each has these fields:";

#[test]
fn reference_of_events() {
    let text = format!(
        "## Turns\n\n{TURNS}\n\n{}## Journals\n\n{JOURNALS}\n\n### Entities\n\n{KERNEL}\n\n{}### Sessions\n\n{}\
         ### Accounts\n\n{}### Memories\n\n{}{}## The event feed\n\n{CLUSTER}\n\n{}{}",
        turns(),
        journal::<KernelEvent>(),
        journal::<SessionEvent>(),
        journal::<BudgetEvent>(),
        journal::<MemoryEvent>(),
        others(),
        fields::<ClusterEvent>(),
        feed(),
    );
    page::compare("events", "Events", &text);
}

/// The events of a journal, in the order of their table.
fn journal<G: Grammar + JsonSchema>() -> String {
    let schema = Schema::of::<G>(false);
    let root = schema.resolved(&schema.root);
    let events = root["oneOf"].as_array().unwrap();
    assert_eq!(events.len(), G::KINDS.len());
    let one = |(event, kind): (&Value, &&str)| {
        let body = event["properties"].as_object().unwrap().values().next().unwrap();
        chapter(&schema, &format!("#### `{kind}`"), event, body)
    };
    events.iter().zip(G::KINDS).map(one).collect()
}

/// The events of kinds that are not named above: a kind whose events are not in `proto` has no schema.
fn others() -> String {
    let described = [SessionEvent::KINDS, BudgetEvent::KINDS, MemoryEvent::KINDS].concat();
    let all = clawnode::node::kinds::events().into_iter();
    let others = all.filter(|(event, _)| !described.contains(event)).map(|(event, kind)| {
        format!(
            "#### `{event}`\n\nAn event of the kind `{kind}`. Its fields are not described.\n\n"
        )
    });
    let others: Vec<String> = others.collect();
    if others.is_empty() {
        String::new()
    } else {
        format!("### Other kinds\n\n{}", others.concat())
    }
}

/// What clients see of a turn.
fn turns() -> String {
    let schema = Schema::of::<TurnBody>(false);
    let root = schema.resolved(&schema.root);
    let one = |event: &Value| {
        let (parts, kind) = (&event["properties"], schema.kind(&event["properties"]["data"]));
        let name = parts["event"]["const"].as_str().unwrap();
        let text = chapter(&schema, &format!("### `{name}`"), event, &parts["data"]);
        if kind.starts_with("object") { text } else { format!("{text}`data` is a {kind}.\n\n") }
    };
    root["oneOf"].as_array().unwrap().iter().map(one).collect()
}

/// What operators see.
fn feed() -> String {
    let schema = Schema::of::<EventBody>(false);
    let root = schema.resolved(&schema.root);
    let named = |event: &Value| {
        let kind = event["properties"]["type"]["const"].as_str()?;
        Some(chapter(&schema, &format!("### `{kind}`"), event, event))
    };
    root["oneOf"].as_array().unwrap().iter().filter_map(named).collect()
}

/// What an event is and has, under this heading.
fn chapter(schema: &Schema, heading: &str, event: &Value, body: &Value) -> String {
    let about = page::plain(event["description"].as_str().unwrap_or_default());
    assert!(!about.is_empty(), "{heading}: it does not say what it is");
    format!("{heading}\n\n{about}\n\n{}", rows(schema, body))
}

fn fields<T: JsonSchema>() -> String {
    let schema = Schema::of::<T>(false);
    rows(&schema, &schema.root)
}

fn rows(schema: &Schema, body: &Value) -> String {
    let fields = schema.fields(body, 1).into_iter().filter(|field| field.name != "type");
    let rows: Vec<_> =
        fields.map(|field| [page::code(&field.name), field.kind, field.about]).collect();
    page::table(["field", "type", "meaning"], &rows)
}
