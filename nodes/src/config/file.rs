//! A configuration file as a tree: TOML, or JSON if its name ends in `.json`.

use std::path::Path;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    error::ConfigError,
    json,
    line_positions::LinePositions,
    tree::{ConfigNode, TableEntry, Value, ValueOrigin},
};

/// Most bytes of a configuration file (4 MiB), so that a wrong path is an error and not a hang.
const FILE_BYTES: u64 = 4 << 20;

/// Reads `path` into a tree.
pub(super) fn read(path: &Path) -> Result<ConfigNode, ConfigError> {
    let unreadable = |what: String| {
        let hint = "check that the file exists and is readable, or leave out `--config`";
        ConfigError::new("", ValueOrigin::Default, what, hint)
    };
    let shown = path.display();
    let about = std::fs::metadata(path).map_err(|error| {
        unreadable(format!("cannot read configuration file `{shown}`: {error}"))
    })?;
    if about.len() > FILE_BYTES {
        let bytes = about.len();
        let what = format!("configuration file `{shown}` has {bytes} bytes, over {FILE_BYTES}");
        return Err(unreadable(what));
    }
    let text = std::fs::read_to_string(path).map_err(|error| {
        unreadable(format!("cannot read configuration file `{shown}`: {error}"))
    })?;
    parse(path, &text)
}

/// Parses the text of the file at `path`.
pub(super) fn parse(path: &Path, text: &str) -> Result<ConfigNode, ConfigError> {
    let places = LinePositions::new(path, text);
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json")) {
        return json::parse(&places, text);
    }
    let table = DeTable::parse(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        let what = format!("not valid TOML: {}", error.message().replace('\n', ", "));
        places.error(
            offset,
            what,
            "fix the syntax: `key = \"text\"`, `key = 1`, `key = true`, below a `[section]`",
        )
    })?;
    let start = table.span().start;
    Ok(ConfigNode { origin: places.at(start), value: table_of(&places, table.into_inner())? })
}

fn table_of(places: &LinePositions<'_>, table: DeTable<'_>) -> Result<Value, ConfigError> {
    let entry = |(key, value): (Spanned<_>, Spanned<DeValue<'_>>)| {
        let place = places.at(key.span().start);
        let name: std::borrow::Cow<'_, str> = key.into_inner();
        Ok((name.into_owned(), TableEntry { key: place, node: node_of(places, value)? }))
    };
    table.into_iter().map(entry).collect::<Result<_, _>>().map(Value::Table)
}

fn node_of(
    places: &LinePositions<'_>,
    value: Spanned<DeValue<'_>>,
) -> Result<ConfigNode, ConfigError> {
    let start = value.span().start;
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::Integer(number),
            Err(error) => {
                let what = format!("the number `{number}` is out of range: {error}");
                return Err(places.error(start, what, "use a smaller number"));
            }
        },
        DeValue::Float(number) => match number.as_str().parse() {
            Ok(number) => Value::Float(number),
            Err(error) => {
                return Err(places.error(start, format!("`{number}`: {error}"), "write a number"));
            }
        },
        DeValue::Boolean(flag) => Value::Bool(flag),
        DeValue::Datetime(time) => Value::Text(time.to_string()),
        DeValue::Array(list) => Value::List(
            list.into_iter().map(|item| node_of(places, item)).collect::<Result<_, _>>()?,
        ),
        DeValue::Table(table) => table_of(places, table)?,
    };
    Ok(ConfigNode { origin: places.at(start), value })
}
