//! How a provider is reached: what a person may set, and why it is what it is by default.
//!
//! Keys are read here and nowhere else. They live in [`SecretString`]s, which print as nothing, and
//! are never written out again.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use clawnode_proto::units::{duration, maybe_duration};
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::wire::Wire;

/// Bytes of a key file; a longer one is not a key but a mistake.
const KEY_FILE_BYTES: u64 = 16 << 10;
/// Most retries that may be configured: with `retry_most` at its default, beyond the total deadline.
const RETRIES_MAX: u32 = 20;
/// The longest any timeout may be (a day); so that sums of times cannot overflow.
const TIMEOUT_MAX: Duration = Duration::from_hours(24);

/// The shortest and the longest time between two probes.
const PROBE_LEAST: Duration = Duration::from_secs(5);
const PROBE_MOST: Duration = Duration::from_hours(1);

/// Reads the environment.
pub(super) type Lookup<'a> = &'a (dyn Fn(&str) -> Option<String> + Sync);

/// One provider, `[providers.NAME]` in the configuration.
///
/// Durations are text with a unit: `"500ms"`, `"10s"`, `"10m"`, `"1h"`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderOptions {
    /// Which wire format it speaks; there is no default, because guessing wrong only shows late.
    pub wire: Wire,
    /// Where it is. Default: where the wire's variable says (`OPENAI_BASE_URL` and its like), else the wire's own
    /// inventor, with or without a `/v1` as that vendor's own clients have it. Without user info, query and fragment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<BaseUrl>,
    /// Name of the environment variable that holds the key. Default: that of the wire's inventor where
    /// `base_url` is left at its default; none elsewhere, so that a key never goes to a host that it
    /// was not meant for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// File that holds the key and nothing else (white space around it is dropped). Default: none.
    /// Read once, when the configuration is loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<PathBuf>,
    /// The key itself. Default: none; a file or the environment is harder to commit by accident.
    /// Never printed.
    #[serde(default, deserialize_with = "secret", skip_serializing)]
    pub api_key: Option<SecretString>,
    /// The region of Amazon's. Default: `AWS_REGION`, then `AWS_DEFAULT_REGION`. It is a part of the address,
    /// and of signatures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// File with keys of an account at Amazon, as its own programs write it; `AWS_PROFILE` names the profile.
    /// Default: none; the keys are `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`.
    /// They sign requests and do not leave the process, so they go to any `base_url`. Read once, when the
    /// configuration is loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_file: Option<PathBuf>,
    /// Whether to sign with the keys of the machine's role at Amazon: that of its container if
    /// `AWS_CONTAINER_CREDENTIALS_RELATIVE_URI` is set, else that of its instance. Default: no, because asking for
    /// them elsewhere waits for an answer that does not come.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub machine_role: bool,
    /// How long a connection may take, TLS included. Default `10s`: a reachable host needs one or
    /// two; longer delays the retry, shorter fails on bad mobile links.
    #[serde(default = "connect_timeout", with = "duration")]
    pub connect_timeout: Duration,
    /// How long the provider may be silent, before its answer's first byte or within it. Default
    /// `60s`: providers send signs of life about every 15 s. Raise it for a local server that loads
    /// a large model before it answers.
    #[serde(default = "idle_timeout", with = "duration")]
    pub idle_timeout: Duration,
    /// How long a call may take with all its retries and waits. Default `10m`: the longest reply
    /// that vendors allow on one stream.
    #[serde(default = "total_timeout", with = "duration")]
    pub total_timeout: Duration,
    /// How often a refused call is tried again. Default 4: about half a minute of a provider's bad
    /// time. 0 leaves it to people.
    #[serde(default = "retries")]
    pub retries: u32,
    /// The most to wait before the first retry; it doubles with each, and the wait is a random part
    /// of it (full jitter), unless the provider says when. After a connection that broke,
    /// the first retry comes at once. Default `500ms`.
    #[serde(default = "retry_first", with = "duration")]
    pub retry_first: Duration,
    /// The most to wait before any retry, unless the provider asks for more. Default `30s`: more
    /// than that and a person had better know.
    #[serde(default = "retry_most", with = "duration")]
    pub retry_most: Duration,
    /// Tokens that one reply may have if the agent sets no limit; only Anthropic's wire needs one.
    /// Default 8192: fits every current model, and stops a runaway at a few cents.
    #[serde(default = "max_tokens")]
    pub max_tokens: u32,
    /// How often the provider is asked for a list of its models, to learn whether it can be reached. Default:
    /// never; calls show it too. More often shows an outage sooner, and costs a request each time.
    #[serde(default, with = "maybe_duration", skip_serializing_if = "Option::is_none")]
    pub probe: Option<Duration>,
    /// How many model calls this process makes of it at a time; others wait. Default 64: more than most
    /// vendors take of one account at once. Lower it for a local server, so that it does not slow down.
    #[serde(default = "max_calls")]
    pub max_calls: u32,
}

/// How many model calls a process makes of one provider at a time, unless it is configured.
pub const MAX_CALLS: u32 = 64;

const fn max_calls() -> u32 {
    MAX_CALLS
}

const fn connect_timeout() -> Duration {
    Duration::from_secs(10)
}
const fn idle_timeout() -> Duration {
    Duration::from_mins(1)
}
const fn total_timeout() -> Duration {
    Duration::from_mins(10)
}
const fn retries() -> u32 {
    4
}
const fn retry_first() -> Duration {
    Duration::from_millis(500)
}
const fn retry_most() -> Duration {
    Duration::from_secs(30)
}
const fn max_tokens() -> u32 {
    8192
}

/// What is wrong with a provider's options. Never holds a key.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// Over or under what makes sense.
    #[error("`{field}` is out of range: {detail}")]
    Range {
        field: &'static str,
        /// What it may be.
        detail: &'static str,
    },
    /// Two fields that exclude each other.
    #[error(
        "only one of `api_key`, `api_key_env`, `api_key_file`, `credentials_file` and `machine_role` may be set"
    )]
    ManyKeys,
    /// A field that only Amazon's services have.
    #[error("`{0}` is only for the wire `bedrock`")]
    OnlyAws(&'static str),
    /// A provider that cannot be asked without cost.
    #[error(
        "`probe` is not for the wires `bedrock` and `demo`: they have no request that costs nothing"
    )]
    NoProbe,
    /// Bedrock needs keys, and there are none.
    #[error(
        "no key: set `AWS_BEARER_TOKEN_BEDROCK` (a Bedrock API key), or both `AWS_ACCESS_KEY_ID` and \
         `AWS_SECRET_ACCESS_KEY`, or `credentials_file`, or `machine_role = true`"
    )]
    NoAwsKeys,
    /// The path of a container's keys leads somewhere else.
    #[error("the variable `{0}` is not a path such as `/v2/credentials/ID`")]
    ContainerPath(&'static str),
    /// The file has no keys of this profile.
    #[error(
        "the file `{}` has no `aws_access_key_id` and `aws_secret_access_key` of the profile \
         `{profile}` (`AWS_PROFILE` names another)",
        path.display()
    )]
    NoProfile {
        /// Which file.
        path: PathBuf,
        profile: String,
    },
    /// Bedrock needs a region, and there is none.
    #[error(
        "no region: set `region` or the environment variable `AWS_REGION`, to `us-east-1` or another"
    )]
    NoRegion,
    /// No name of a region.
    #[error("the region is not the name of one, such as `us-east-1`")]
    Region,
    /// The build cannot sign.
    #[error(
        "this build cannot sign requests to Bedrock: build it with `--features full`, or use a Bedrock \
         API key (`AWS_BEARER_TOKEN_BEDROCK`)"
    )]
    NoSignatures,
    /// The vendor needs a key, and there is none.
    #[error("no API key: set the environment variable `{variable}`, or `api_key_file`")]
    NoKey {
        /// The variable that would hold it.
        variable: String,
    },
    /// The key's file cannot be read.
    #[error("cannot read the API key in `{}`", path.display())]
    KeyFile {
        /// Which file.
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// An address in the environment that is none.
    #[error("the variable `{variable}` is not usable")]
    Url {
        variable: &'static str,
        #[source]
        source: ParseBaseUrlError,
    },
    /// What was found is not a key.
    #[error("the API key in {place} is not usable: {detail}")]
    BadKey {
        /// Where it came from.
        place: String,
        /// What is wrong with it.
        detail: &'static str,
    },
}

/// Where a provider is.
#[derive(Clone, PartialEq, Eq)]
pub struct BaseUrl(Url);

/// Text that is not a base URL. Does not repeat the text: it may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a base URL: {0}")]
pub struct ParseBaseUrlError(&'static str);

// === impl ProviderOptions ===

impl ProviderOptions {
    /// The defaults of a wire format.
    pub const fn new(wire: Wire) -> Self {
        Self {
            wire,
            base_url: None,
            api_key_env: None,
            api_key_file: None,
            api_key: None,
            region: None,
            credentials_file: None,
            machine_role: false,
            connect_timeout: connect_timeout(),
            idle_timeout: idle_timeout(),
            total_timeout: total_timeout(),
            retries: retries(),
            retry_first: retry_first(),
            retry_most: retry_most(),
            max_tokens: max_tokens(),
            probe: None,
            max_calls: MAX_CALLS,
        }
    }

    /// The same, at the address that the environment names, if the settings name none. The key is then that of
    /// the wire's inventor, unless the settings name one: who sets the address sets the key, too.
    pub(super) fn located(mut self, lookup: Lookup<'_>) -> Result<Self, OptionsError> {
        let Some(row) = self.wire.row().filter(|_| self.base_url.is_none()) else {
            return Ok(self);
        };
        let Some(url) = row.url(lookup)? else { return Ok(self) };
        let has_key = self.api_key.is_some() || self.api_key_file.is_some() || self.machine_role;
        if !has_key && self.api_key_env.is_none() && self.credentials_file.is_none() {
            self.api_key_env = row.key_variable.map(str::to_owned);
        }
        self.base_url = Some(url);
        Ok(self)
    }

    /// Where the provider is; `None` for the demo, which is nowhere.
    pub fn url(&self) -> Option<BaseUrl> {
        let row = self.wire.row()?;
        self.base_url.clone().or_else(|| row.default_url())
    }

    /// Checks what the types cannot.
    pub fn check(&self) -> Result<(), OptionsError> {
        let keys = [
            self.api_key.is_some(),
            self.api_key_env.is_some(),
            self.api_key_file.is_some(),
            self.credentials_file.is_some(),
            self.machine_role,
        ];
        let of_aws = [
            ("region", self.region.is_some()),
            ("credentials_file", self.credentials_file.is_some()),
            ("machine_role", self.machine_role),
        ];
        if let Some((field, _)) = of_aws.into_iter().find(|(_, is_set)| *is_set)
            && !self.wire.row().is_some_and(|row| row.is_of_aws)
        {
            return Err(OptionsError::OnlyAws(field));
        }
        if keys.into_iter().filter(|set| *set).count() > 1 {
            return Err(OptionsError::ManyKeys);
        }
        let timeouts = [
            ("connect_timeout", self.connect_timeout),
            ("idle_timeout", self.idle_timeout),
            ("total_timeout", self.total_timeout),
            ("retry_first", self.retry_first),
            ("retry_most", self.retry_most),
        ];
        for (field, time) in timeouts {
            if time.is_zero() || time > TIMEOUT_MAX {
                return Err(OptionsError::Range { field, detail: "more than 0, at most 24h" });
            }
        }
        if self.retries > RETRIES_MAX {
            return Err(OptionsError::Range { field: "retries", detail: "at most 20" });
        }
        if self.probe.is_some_and(|every| !(PROBE_LEAST..=PROBE_MOST).contains(&every)) {
            return Err(OptionsError::Range { field: "probe", detail: "from 5s to 1h" });
        }
        if self.max_tokens == 0 {
            return Err(OptionsError::Range { field: "max_tokens", detail: "more than 0" });
        }
        if self.max_calls == 0 {
            return Err(OptionsError::Range { field: "max_calls", detail: "more than 0" });
        }
        Ok(())
    }

    /// The key, from wherever it is set; `None` where the provider needs none.
    pub(super) fn key(&self, lookup: Lookup<'_>) -> Result<Option<SecretString>, OptionsError> {
        if let Some(key) = &self.api_key {
            return usable(key.expose_secret(), "`api_key`".to_owned()).map(Some);
        }
        if let Some(path) = &self.api_key_file {
            return read_key(path).map(Some);
        }
        let Some(variable) = self.key_variable() else { return Ok(None) };
        match lookup(variable).filter(|key| !key.trim().is_empty()) {
            Some(key) => usable(&key, format!("the variable `{variable}`")).map(Some),
            None => Err(OptionsError::NoKey { variable: variable.to_owned() }),
        }
    }

    /// The environment variable that holds the key, if neither a file nor the configuration does.
    pub(super) fn key_variable(&self) -> Option<&str> {
        let default = || self.wire.key_variable().filter(|_| self.base_url.is_none());
        self.api_key_env.as_deref().or_else(default)
    }

    /// Where people set the key of the provider of this name.
    pub(super) fn key_setting(&self, name: &str) -> String {
        let field = match (&self.api_key, &self.api_key_file, self.key_variable()) {
            (Some(_), ..) => "api_key",
            (None, Some(_), _) => "api_key_file",
            (None, None, Some(variable)) => return variable.to_owned(),
            (None, None, None) => "api_key_env",
        };
        format!("providers.{name}.{field}")
    }
}

fn read_key(path: &Path) -> Result<SecretString, OptionsError> {
    usable(&key_text(path)?, format!("the file `{}`", path.display()))
}

/// The text of a file with keys.
pub(super) fn key_text(path: &Path) -> Result<String, OptionsError> {
    let failed = |source| OptionsError::KeyFile { path: path.to_owned(), source };
    if fs::metadata(path).map_err(failed)?.len() > KEY_FILE_BYTES {
        let place = format!("the file `{}`", path.display());
        return Err(OptionsError::BadKey { place, detail: "the file is over 16 KiB" });
    }
    fs::read_to_string(path).map_err(failed)
}

/// A key without the white space around it, if it can be one.
pub(super) fn usable(key: &str, place: String) -> Result<SecretString, OptionsError> {
    let key = key.trim();
    if key.is_empty() {
        return Err(OptionsError::BadKey { place, detail: "it is empty" });
    }
    if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        let detail = "it has characters other than visible ASCII";
        return Err(OptionsError::BadKey { place, detail });
    }
    Ok(SecretString::from(key))
}

fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SecretString>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.map(SecretString::from))
}

// === impl BaseUrl ===

impl BaseUrl {
    /// The address of `path` below it.
    pub(super) fn join(&self, path: &str) -> Url {
        let mut url = self.0.clone();
        let joined = format!("{}/{path}", url.path().trim_end_matches('/'));
        url.set_path(&joined);
        url
    }

    /// Its host.
    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    /// Its port, also where it is the scheme's usual one.
    pub fn port(&self) -> u16 {
        self.0.port_or_known_default().unwrap_or_default()
    }

    /// Whether the connection is encrypted.
    pub fn is_tls(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// Whether its path already ends in `part`.
    pub(super) fn ends_in(&self, part: &str) -> bool {
        self.0.path().trim_end_matches('/').rsplit('/').next() == Some(part)
    }
}

impl FromStr for BaseUrl {
    type Err = ParseBaseUrlError;

    fn from_str(text: &str) -> Result<Self, ParseBaseUrlError> {
        let Ok(url) = Url::parse(text) else {
            return Err(ParseBaseUrlError("write it like `https://host/v1`"));
        };
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
            return Err(ParseBaseUrlError("it must begin with `http://` or `https://` and a host"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(ParseBaseUrlError("it must not contain a key; use `api_key_env`"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(ParseBaseUrlError("it must not have a `?query` or `#fragment`"));
        }
        Ok(Self(url))
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str().trim_end_matches('/'))
    }
}

impl fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl Serialize for BaseUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BaseUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<ProviderOptions, serde_json::Error> {
        serde_json::from_str(json)
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let read = parse(r#"{"wire":"openai"}"#).unwrap();
        assert_eq!(format!("{read:?}"), format!("{:?}", ProviderOptions::new(Wire::Openai)));
        assert_eq!(read.connect_timeout, Duration::from_secs(10));
        assert_eq!(read.idle_timeout, Duration::from_mins(1));
        assert_eq!(read.total_timeout, Duration::from_mins(10));
        assert_eq!((read.retries, read.retry_first), (4, Duration::from_millis(500)));
        assert_eq!(read.url().unwrap().to_string(), "https://api.openai.com/v1");
        read.check().unwrap();
    }

    #[test]
    fn mistakes_are_named() {
        for (json, says) in [
            (r"{}", "missing field `wire`"),
            (r#"{"wire":"grpc"}"#, "unknown variant `grpc`"),
            (r#"{"wire":"demo","retires":1}"#, "unknown field `retires`"),
            (r#"{"wire":"demo","idle_timeout":"10 x"}"#, "`10 x` is not a duration"),
            (r#"{"wire":"openai","base_url":"ftp://h"}"#, "begin with `http://`"),
            (r#"{"wire":"openai","base_url":"http://u:hunter2@h/v1"}"#, "use `api_key_env`"),
            (r#"{"wire":"openai","base_url":"http://h/?key=hunter2"}"#, "not have a `?query`"),
        ] {
            let error = parse(json).unwrap_err().to_string();
            assert!(error.contains(says), "{json}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn ranges_are_checked() {
        let zero = r#"{"wire":"demo","total_timeout":"0s"}"#;
        assert!(parse(zero).unwrap().check().unwrap_err().to_string().contains("total_timeout"));
        let many = r#"{"wire":"demo","retries":21}"#;
        assert!(parse(many).unwrap().check().unwrap_err().to_string().contains("retries"));
        let region = r#"{"wire":"openai","region":"us-east-1"}"#;
        assert!(matches!(parse(region).unwrap().check(), Err(OptionsError::OnlyAws("region"))));
        for (probe, is_good) in [("4s", false), ("5s", true), ("1h", true), ("61m", false)] {
            let json = format!(r#"{{"wire":"openai","probe":"{probe}"}}"#);
            assert_eq!(parse(&json).unwrap().check().is_ok(), is_good, "{probe}");
        }
        let keys = r#"{"wire":"openai","api_key":"k","api_key_env":"K"}"#;
        assert!(matches!(parse(keys).unwrap().check(), Err(OptionsError::ManyKeys)));
    }

    #[test]
    fn a_key_is_never_shown() {
        let options = parse(r#"{"wire":"openai","api_key":"hunter2"}"#).unwrap();
        assert!(!format!("{options:?}").contains("hunter2"));
        assert!(!serde_json::to_string(&options).unwrap().contains("hunter2"));
        let options = parse(r#"{"wire":"openai","api_key":"hunter 2"}"#).unwrap();
        let error = options.key(&|_| None).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter"), "{error}");
    }

    #[test]
    fn a_key_goes_only_where_it_was_meant_to() {
        let env = |name: &str| (name == "OPENAI_API_KEY").then(|| " sk-1\n".to_owned());
        let own = parse(r#"{"wire":"openai"}"#).unwrap();
        assert_eq!(own.key(&env).unwrap().unwrap().expose_secret(), "sk-1");
        let other = parse(r#"{"wire":"openai","base_url":"http://elsewhere/v1"}"#).unwrap();
        assert!(other.key(&env).unwrap().is_none());
        let error = own.key(&|_| None).unwrap_err().to_string();
        assert!(error.contains("OPENAI_API_KEY"), "{error}");
    }

    #[test]
    fn a_key_file_is_trimmed_and_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let mut options = ProviderOptions::new(Wire::Anthropic);
        options.api_key_file = Some(path.clone());
        assert!(matches!(options.key(&|_| None), Err(OptionsError::KeyFile { .. })));
        fs::write(&path, "sk-2\n").unwrap();
        assert_eq!(options.key(&|_| None).unwrap().unwrap().expose_secret(), "sk-2");
        fs::write(&path, vec![b'k'; 20 << 10]).unwrap();
        assert!(matches!(options.key(&|_| None), Err(OptionsError::BadKey { .. })));
    }

    #[test]
    fn paths_join_below_the_base() {
        for (base, joined) in [
            ("https://h", "https://h/v1/messages"),
            ("https://h/", "https://h/v1/messages"),
            ("https://h:1/proxy/", "https://h:1/proxy/v1/messages"),
        ] {
            let base: BaseUrl = base.parse().unwrap();
            assert_eq!(base.join("v1/messages").as_str(), joined);
        }
    }
}
