//! A stream or a consumer that must be as it is described: made, checked and brought up to date.

use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{Api, RequestFailure, until_answered};

/// A stream that must be as described here.
#[derive(Debug)]
pub(super) struct StreamSpec {
    pub(super) name: String,
    pub(super) config: Value,
    /// Settings that streams of older builds lack: they are changed, not insisted on.
    later: &'static [&'static str],
}

/// A consumer that must be as described here.
#[derive(Debug)]
pub(super) struct ConsumerSpec {
    pub(super) stream: String,
    pub(super) name: String,
    pub(super) config: Value,
    /// Whether it is created where its filter is seen, so that permissions can be about it.
    pub(super) by_filter: bool,
}

/// An existing stream or consumer differs from the table.
#[derive(Debug, thiserror::Error)]
pub(super) enum TopologyError {
    /// It was changed, or made by something else.
    #[error("`{field}` in `{what}` is {found}, but must be {expected}")]
    Different {
        /// The stream or consumer.
        what: String,
        /// The setting.
        field: String,
        /// The value in the table.
        expected: Value,
        found: Value,
    },
    /// The server failed.
    #[error("`{what}`: {failure}")]
    Failed {
        /// The stream or consumer.
        what: String,
        failure: RequestFailure,
    },
}

#[derive(Deserialize)]
struct Described {
    config: Value,
}

// === impl StreamSpec ===

impl StreamSpec {
    pub(super) fn new(name: String, subjects: &str, replicas: u8, mut config: Value) -> Self {
        config["name"] = json!(name);
        config["subjects"] = json!([subjects]);
        config["storage"] = json!("file");
        config["num_replicas"] = json!(replicas);
        // Direct gets are answered by any replica, so they are stale.
        config["allow_direct"] = json!(false);
        Self { name, config, later: &[] }
    }

    pub(super) fn brought_later(self, later: &'static [&'static str]) -> Self {
        Self { later, ..self }
    }

    /// How many replicas the stream has, or `None` if it does not exist.
    pub(super) async fn replicas(&self, api: &Api) -> Result<Option<u8>, RequestFailure> {
        match self.describe(api).await {
            Ok(config) => Ok(config["num_replicas"].as_u64().and_then(|n| u8::try_from(n).ok())),
            Err(failure) if failure.is_stream_not_found() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Creates the stream, unless it exists, and checks it.
    pub(super) async fn create(&self, api: &Api) -> Result<(), TopologyError> {
        match api.ask::<Described>(&format!("STREAM.CREATE.{}", self.name), &self.config).await {
            Ok(created) => self.compare(&created.config),
            Err(failure) if failure.is_stream_exists() => self.check(api).await,
            Err(failure) => Err(TopologyError::Failed { what: self.name.clone(), failure }),
        }
    }

    /// Checks the stream, which must exist.
    pub(super) async fn check(&self, api: &Api) -> Result<(), TopologyError> {
        match self.describe(api).await {
            Ok(found) => self.compare(&found),
            Err(failure) => Err(TopologyError::Failed { what: self.name.clone(), failure }),
        }
    }

    /// Gives the stream, which must exist, the settings that its build did not know; says whether
    /// there were any.
    pub(super) async fn update(&self, api: &Api) -> Result<bool, RequestFailure> {
        let mut config = self.describe(api).await?;
        let missing = |field: &&&str| config.get(**field) != self.config.get(**field);
        let missing: Vec<_> = self.later.iter().filter(missing).collect();
        for field in &missing {
            config[**field] = self.config[**field].clone();
        }
        if missing.is_empty() {
            return Ok(false);
        }
        api.ask::<Described>(&format!("STREAM.UPDATE.{}", self.name), &config).await.map(|_| true)
    }

    fn compare(&self, found: &Value) -> Result<(), TopologyError> {
        let mut expected = self.config.clone();
        if let Some(expected) = expected.as_object_mut() {
            expected.retain(|field, _| !self.later.contains(&field.as_str()));
        }
        compare(&self.name, &expected, found)
    }

    /// Whether it stores this subject.
    pub(super) async fn has(&self, api: &Api, subject: &str) -> Result<bool, RequestFailure> {
        let config = self.describe(api).await?;
        let subjects = config["subjects"].as_array();
        Ok(subjects.is_some_and(|all| all.iter().any(|other| other.as_str() == Some(subject))))
    }

    /// Changes an existing stream to be as described here; settings that the table leaves open stay
    /// as they are.
    pub(super) async fn remake(&self, api: &Api) -> Result<(), TopologyError> {
        let failed = |failure| TopologyError::Failed { what: self.name.clone(), failure };
        let mut config = self.describe(api).await.map_err(failed)?;
        for (field, value) in self.config.as_object().into_iter().flatten() {
            config[field] = value.clone();
        }
        if let Some(config) = config.as_object_mut() {
            // With it, the server lets one message replace everything.
            config.remove("subject_delete_marker_ttl");
            // A copy becomes a stream.
            config.remove("mirror");
        }
        let subject = format!("STREAM.UPDATE.{}", self.name);
        let updated: Described = api.ask(&subject, &config).await.map_err(failed)?;
        self.compare(&updated.config)
    }

    async fn describe(&self, api: &Api) -> Result<Value, RequestFailure> {
        let described: Described =
            api.ask(&format!("STREAM.INFO.{}", self.name), &json!({})).await?;
        Ok(described.config)
    }
}

// === impl ConsumerSpec ===

impl ConsumerSpec {
    /// Creates the consumer, unless it exists, and checks it.
    pub(super) async fn create(&self, api: &Api) -> Result<(), TopologyError> {
        match self.make(api, "create").await {
            // Exists with another configuration, says the server; the check says which.
            Err(TopologyError::Failed { failure, .. }) if !failure.is_transient() => {
                match self.check(api).await {
                    // An older build made it without ranks, or with a longer wait. A worker may
                    // change both.
                    Err(TopologyError::Different { field, .. })
                        if self.by_filter
                            && (field.starts_with("priority_") || field == "ack_wait") =>
                    {
                        self.make(api, "update").await
                    }
                    Err(TopologyError::Failed { .. }) | Ok(()) => {
                        Err(TopologyError::Failed { what: self.what(), failure })
                    }
                    different => different,
                }
            }
            made => made,
        }
    }

    async fn make(&self, api: &Api, action: &str) -> Result<(), TopologyError> {
        let question =
            json!({ "stream_name": self.stream, "config": self.config, "action": action });
        match api.ask::<Described>(&self.create_subject(), &question).await {
            Ok(made) => compare(&self.what(), &self.config, &made.config),
            Err(failure) => Err(TopologyError::Failed { what: self.what(), failure }),
        }
    }

    fn create_subject(&self) -> String {
        let Self { stream, name, config, by_filter } = self;
        match config["filter_subject"].as_str() {
            Some(filter) if *by_filter => {
                format!("CONSUMER.CREATE.{stream}.{name}.{filter}")
            }
            _ => format!("CONSUMER.DURABLE.CREATE.{stream}.{name}"),
        }
    }

    /// Checks the consumer, which must exist.
    pub(super) async fn check(&self, api: &Api) -> Result<(), TopologyError> {
        let subject = format!("CONSUMER.INFO.{}.{}", self.stream, self.name);
        let question = json!({});
        match until_answered(|| api.ask::<Described>(&subject, &question)).await {
            Ok(found) => compare(&self.what(), &self.config, &found.config),
            Err(failure) => Err(TopologyError::Failed { what: self.what(), failure }),
        }
    }

    fn what(&self) -> String {
        format!("{}/{}", self.stream, self.name)
    }
}

/// Compares the settings of the table; those that it leaves open are a person's choice.
fn compare(what: &str, expected: &Value, found: &Value) -> Result<(), TopologyError> {
    let Some(expected) = expected.as_object() else { return Ok(()) };
    for (field, expected) in expected {
        // The server leaves out settings that are false.
        let found = found.get(field).unwrap_or(&Value::Bool(false));
        if !covers(expected, found) {
            return Err(TopologyError::Different {
                what: what.to_owned(),
                field: field.clone(),
                expected: expected.clone(),
                found: found.clone(),
            });
        }
    }
    Ok(())
}

/// Whether `found` has all of `expected`; inside lists and objects it may have more.
fn covers(expected: &Value, found: &Value) -> bool {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => expected
            .iter()
            .all(|(key, value)| found.get(key).is_some_and(|found| covers(value, found))),
        (Value::Array(expected), Value::Array(found)) => {
            expected.len() == found.len()
                && expected.iter().zip(found).all(|(value, found)| covers(value, found))
        }
        (expected, found) => expected == found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_setting_is_named() {
        let expected = json!({ "name": "A", "allow_direct": false, "sources": [{ "name": "T" }] });
        let same = json!({ "name": "A", "sources": [{ "name": "T", "x": 1 }], "max_msgs": -1 });
        assert!(compare("A", &expected, &same).is_ok());
        let changed = json!({ "name": "A", "allow_direct": true, "sources": [{ "name": "T" }] });
        let error = compare("A", &expected, &changed).map_err(|error| error.to_string());
        assert_eq!(error, Err("`allow_direct` in `A` is true, but must be false".to_owned()));
    }
}
