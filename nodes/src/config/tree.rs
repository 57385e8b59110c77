//! A configuration before it has types: values that know where they came from.

use std::{collections::BTreeMap, fmt, path::Path, sync::Arc};

/// Where a value was set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ValueOrigin {
    /// Nowhere: the program's own choice.
    #[default]
    Default,
    /// In a file, line and column from 1.
    File {
        file: Arc<Path>,
        line: usize,
        /// Which column, in characters.
        column: usize,
    },
    /// In an environment variable.
    Env(String),
    /// On the command line.
    Flag(&'static str),
}

/// One value, or a table of values.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigNode {
    /// Where the value is.
    pub origin: ValueOrigin,
    pub value: Value,
}

/// A key that is set, with its value or the keys below it.
#[derive(Clone, Debug, PartialEq)]
pub struct TableEntry {
    /// Where its key is.
    pub key: ValueOrigin,
    pub node: ConfigNode,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// From an environment variable or a flag: what it means is for the wanted type to say.
    Raw(String),
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Float(f64),
    Text(String),
    List(Vec<ConfigNode>),
    Table(BTreeMap<String, TableEntry>),
}

impl fmt::Display for ValueOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { file, line, column } => write!(f, "{}:{line}:{column}", file.display()),
            Self::Env(name) => write!(f, "environment variable `{name}`"),
            Self::Flag(name) => write!(f, "flag `{name}`"),
        }
    }
}

impl ConfigNode {
    /// A table with nothing in it.
    pub fn empty() -> Self {
        Self { origin: ValueOrigin::Default, value: Value::Table(BTreeMap::new()) }
    }

    /// Puts `value` at `path`, making the tables on the way; whatever stood there goes.
    pub fn set(&mut self, path: &[&str], origin: &ValueOrigin, value: Value) {
        let Some((first, rest)) = path.split_first() else {
            *self = Self { origin: origin.clone(), value };
            return;
        };
        if !matches!(self.value, Value::Table(_)) {
            *self = Self { origin: origin.clone(), value: Value::Table(BTreeMap::new()) };
        }
        if let Value::Table(table) = &mut self.value {
            let entry = table.entry((*first).to_owned()).or_insert_with(|| TableEntry {
                key: origin.clone(),
                node: Self { origin: origin.clone(), value: Value::Table(BTreeMap::new()) },
            });
            entry.node.set(rest, origin, value);
        }
    }

    /// Lays `over` on top: tables are joined key by key, anything else is replaced.
    pub fn merge(&mut self, over: Self) {
        match (&mut self.value, over.value) {
            (Value::Table(below), Value::Table(above)) => {
                for (key, entry) in above {
                    match below.get_mut(&key) {
                        Some(known) => known.node.merge(entry.node),
                        None => {
                            below.insert(key, entry);
                        }
                    }
                }
            }
            (_, value) => *self = Self { origin: over.origin, value },
        }
    }

    /// The value at `path`: keys, and positions in lists as decimal numbers.
    pub fn find(&self, path: &[&str]) -> Option<&Self> {
        let Some((first, rest)) = path.split_first() else { return Some(self) };
        match &self.value {
            Value::Table(table) => table.get(*first)?.node.find(rest),
            Value::List(list) => list.get(first.parse::<usize>().ok()?)?.find(rest),
            _ => None,
        }
    }

    /// Whether a file sets it, or something below it.
    pub fn is_of_file(&self) -> bool {
        match &self.value {
            Value::Table(table) => table.values().any(TableEntry::is_of_file),
            _ => matches!(self.origin, ValueOrigin::File { .. }),
        }
    }

    /// Where the value at `path` was set.
    pub fn origin_of(&self, path: &[&str]) -> ValueOrigin {
        self.find(path).map_or(ValueOrigin::Default, |node| node.origin.clone())
    }
}

impl TableEntry {
    /// Whether a file has its key, or sets something below it.
    pub fn is_of_file(&self) -> bool {
        matches!(self.key, ValueOrigin::File { .. }) || self.node.is_of_file()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_upper_layer_wins_key_by_key() {
        let low = ValueOrigin::Env("LOW".to_owned());
        let high = ValueOrigin::Flag("--high");
        let mut tree = ConfigNode::empty();
        tree.set(&["a", "x"], &low, Value::Integer(1));
        tree.set(&["a", "y"], &low, Value::Integer(2));
        let mut over = ConfigNode::empty();
        over.set(&["a", "y"], &high, Value::Integer(3));
        tree.merge(over);
        assert_eq!(tree.origin_of(&["a", "x"]), low);
        assert_eq!(tree.origin_of(&["a", "y"]), high);
        assert_eq!(tree.find(&["a", "y"]).unwrap().value, Value::Integer(3));
        assert_eq!(tree.origin_of(&["b"]), ValueOrigin::Default);
    }
}
