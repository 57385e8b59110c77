//! What a service of Amazon's needs besides its address, a region and keys, and what its exceptions mean.

use std::path::Path;

use clawnode_proto::llm::FailureClass;
use reqwest::{Url, header::HeaderMap};
use secrecy::SecretString;

use super::options::{BaseUrl, Lookup, OptionsError, ProviderOptions, key_text, usable};

/// The variables with keys, as Amazon's own programs have them.
const ACCESS_KEY_ID: &str = "AWS_ACCESS_KEY_ID";
const SECRET_ACCESS_KEY: &str = "AWS_SECRET_ACCESS_KEY";
const SESSION_TOKEN: &str = "AWS_SESSION_TOKEN";
/// Those with the region, in this order.
const REGIONS: [&str; 2] = ["AWS_REGION", "AWS_DEFAULT_REGION"];
/// The one with the path of the keys of a container's role.
const CONTAINER_PATH: &str = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
/// Where containers ask for keys of their role: the agent of their host.
const CONTAINER: &str = "http://169.254.170.2";
/// Where instances ask for those: their metadata.
const INSTANCE: &str = "http://169.254.169.254";
/// The one with the profile of a file with keys.
const PROFILE: &str = "AWS_PROFILE";
/// The profile where none is named.
const DEFAULT_PROFILE: &str = "default";

/// What to do about a refusal for want of rights.
const NO_RIGHT: &str = " (allow these keys `bedrock:InvokeModelWithResponseStream`, and check in the Bedrock \
                        console that the account has access to the model in this region)";

/// Where a service is, and who asks it.
#[derive(Clone, Debug)]
pub(super) struct Aws {
    /// Absent only where nothing needs it.
    pub(super) region: Option<String>,
    /// What requests are signed with; absent if they have a key in the usual way, or none.
    pub(super) keys: Option<AwsKeys>,
    /// Where those of the machine's role are asked for; absent if they are not used.
    pub(super) role: Option<RolePlace>,
}

/// Where the keys of a machine's role are asked for: at a fixed link-local address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RolePlace {
    /// Here.
    Container(Url),
    /// Below this address, after a token.
    Instance(Url),
}

/// The keys of an account.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(any(test, feature = "bedrock")),
    expect(dead_code, reason = "a build that cannot sign refuses them")
)]
pub(super) struct AwsKeys {
    pub(super) access_key_id: String,
    pub(super) secret: SecretString,
    pub(super) session_token: Option<SecretString>,
    /// Whether a file has them.
    is_of_file: bool,
}

/// The name of an exception, in lower case.
#[derive(Debug)]
pub(super) struct AwsException(String);

// === impl Aws ===

impl Aws {
    /// What is configured, else what the environment has: a key of the service's own goes before keys of an
    /// account.
    pub(super) fn read(
        options: &ProviderOptions,
        lookup: Lookup<'_>,
    ) -> Result<Self, OptionsError> {
        let set = |name: &str| lookup(name).filter(|value| !value.trim().is_empty());
        let has_key = !options.machine_role
            && (options.api_key.is_some()
                || options.api_key_file.is_some()
                || options.key_variable().is_some_and(|name| set(name).is_some()));
        let container = set(CONTAINER_PATH);
        let role = options.machine_role.then(|| {
            let place = RolePlace::new(container.as_deref());
            place.ok_or(OptionsError::ContainerPath(CONTAINER_PATH))
        });
        let role = role.transpose()?;
        let keys = match &options.credentials_file {
            Some(path) => {
                let profile = set(PROFILE);
                let profile = profile.as_deref().map_or(DEFAULT_PROFILE, str::trim);
                Some(AwsKeys::of_file(path, profile)?)
            }
            None if has_key || role.is_some() => None,
            None => AwsKeys::of_variables(&set)?,
        };
        let signs = keys.is_some() || role.is_some();
        if signs && !cfg!(feature = "bedrock") {
            return Err(OptionsError::NoSignatures);
        }
        let is_anonymous = !signs && !has_key;
        let usual = options.wire.key_variable();
        let is_named = options.api_key_env.is_some() && options.api_key_env.as_deref() != usual;
        if is_anonymous && options.base_url.is_none() && !is_named {
            return Err(OptionsError::NoAwsKeys);
        }
        let region = options.region.clone().or_else(|| REGIONS.into_iter().find_map(set));
        let region = region.map(|region| region.trim().to_owned());
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        match &region {
            Some(region) if region.is_empty() || !region.bytes().all(plain) => {
                Err(OptionsError::Region)
            }
            None if signs || options.base_url.is_none() => Err(OptionsError::NoRegion),
            _ => Ok(Self { region, keys, role }),
        }
    }

    /// Where Bedrock is in the region.
    pub(super) fn bedrock(&self) -> Option<BaseUrl> {
        let region = self.region.as_ref()?;
        format!("https://bedrock-runtime.{region}.amazonaws.com").parse().ok()
    }

    /// Whether requests are signed.
    pub(super) const fn signs(&self) -> bool {
        self.keys.is_some() || self.role.is_some()
    }

    /// Where people set the keys; nothing if there are none.
    pub(super) fn key_setting(&self, provider: &str) -> Option<String> {
        if self.role.is_some() {
            return Some(format!("providers.{provider}.machine_role"));
        }
        let is_of_file = self.keys.as_ref()?.is_of_file;
        let file = || format!("providers.{provider}.credentials_file");
        Some(if is_of_file { file() } else { ACCESS_KEY_ID.to_owned() })
    }
}

// === impl RolePlace ===

impl RolePlace {
    /// At the agent of a container's host if the environment names the path of its role, else at the metadata of
    /// the instance.
    fn new(container_path: Option<&str>) -> Option<Self> {
        match container_path {
            Some(path) => below(CONTAINER, path.trim()).map(Self::Container),
            None => below(INSTANCE, "/").map(Self::Instance),
        }
    }
}

/// An address on this host and no other.
fn below(host: &str, path: &str) -> Option<Url> {
    let base: Url = host.parse().ok()?;
    let url = base.join(path).ok().filter(|_| path.starts_with('/'))?;
    (url.origin() == base.origin() && url.username().is_empty()).then_some(url)
}

// === impl AwsKeys ===

impl AwsKeys {
    #[cfg(all(test, feature = "bedrock"))]
    pub(super) fn for_tests(id: &str, secret: &str, token: Option<&str>) -> Self {
        Self {
            access_key_id: id.to_owned(),
            secret: SecretString::from(secret),
            session_token: token.map(SecretString::from),
            is_of_file: false,
        }
    }

    /// Those of a role, which expire.
    pub(super) fn of_role(
        id: &str,
        secret: SecretString,
        token: SecretString,
    ) -> Result<Self, OptionsError> {
        let access_key_id = access_key_id(id, "the answer".to_owned())?;
        Ok(Self { access_key_id, secret, session_token: Some(token), is_of_file: false })
    }

    /// Those of the environment, if it has both halves.
    fn of_variables(set: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>, OptionsError> {
        let (Some(id), Some(secret)) = (set(ACCESS_KEY_ID), set(SECRET_ACCESS_KEY)) else {
            return Ok(None);
        };
        let place = |name: &str| format!("the variable `{name}`");
        let token =
            set(SESSION_TOKEN).map(|token| usable(&token, place(SESSION_TOKEN))).transpose()?;
        Ok(Some(Self {
            access_key_id: access_key_id(&id, place(ACCESS_KEY_ID))?,
            secret: usable(&secret, place(SECRET_ACCESS_KEY))?,
            session_token: token,
            is_of_file: false,
        }))
    }

    /// Those of a profile in a file, as Amazon's own programs write it.
    fn of_file(path: &Path, profile: &str) -> Result<Self, OptionsError> {
        let place = || format!("the file `{}`", path.display());
        let text = key_text(path)?;
        let value = |name: &str| {
            let lines = text.lines().map(str::trim);
            let lines = lines.skip_while(|line| section(line) != Some(profile)).skip(1);
            let mut fields = lines.take_while(|line| section(line).is_none());
            fields.find_map(|line| {
                let (key, value) = line.split_once('=')?;
                (key.trim() == name).then(|| value.trim().to_owned())
            })
        };
        let (Some(id), Some(secret)) = (value("aws_access_key_id"), value("aws_secret_access_key"))
        else {
            let profile = profile.to_owned();
            return Err(OptionsError::NoProfile { path: path.to_owned(), profile });
        };
        let token = value("aws_session_token").map(|token| usable(&token, place())).transpose()?;
        Ok(Self {
            access_key_id: access_key_id(&id, place())?,
            secret: usable(&secret, place())?,
            session_token: token,
            is_of_file: true,
        })
    }
}

/// The name in the head of a section.
fn section(line: &str) -> Option<&str> {
    line.strip_prefix('[')?.strip_suffix(']').map(str::trim)
}

/// The id of a key, which is written into a header with separators of its own.
fn access_key_id(id: &str, place: String) -> Result<String, OptionsError> {
    let id = id.trim();
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        let detail = "the id of the access key has other characters than letters and digits";
        return Err(OptionsError::BadKey { place, detail });
    }
    Ok(id.to_owned())
}

// === impl AwsException ===

impl AwsException {
    /// The one that an answer names.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get("x-amzn-errortype")?.to_str().ok()?;
        // Some write an address behind it.
        Some(Self::named(value.split(':').next().unwrap_or_default()))
    }

    pub(super) fn named(name: &str) -> Self {
        Self(name.trim().to_ascii_lowercase())
    }

    /// What kind of failure it is; nothing if it is not known.
    pub(super) fn class(&self) -> Option<FailureClass> {
        Some(match self.0.as_str() {
            "throttlingexception" | "toomanyrequestsexception" | "modelnotreadyexception" => {
                FailureClass::RateLimited
            }
            "serviceunavailableexception"
            | "internalserverexception"
            | "internalfailure"
            | "modelerrorexception"
            | "modelstreamerrorexception" => FailureClass::Overloaded,
            "modeltimeoutexception" => FailureClass::Timeout,
            "accessdeniedexception"
            | "unrecognizedclientexception"
            | "expiredtokenexception"
            | "invalidsignatureexception"
            | "incompletesignatureexception"
            | "missingauthenticationtokenexception" => FailureClass::Unauthorized,
            "validationexception"
            | "resourcenotfoundexception"
            | "servicequotaexceededexception" => FailureClass::Rejected,
            _ => return None,
        })
    }

    /// The provider's own words, and what to do about them.
    pub(super) fn advised(&self, words: String) -> String {
        if self.0 != "accessdeniedexception" {
            return words;
        }
        format!("{}{NO_RIGHT}", words.trim_end().trim_end_matches('.'))
    }
}

#[cfg(test)]
#[cfg(feature = "bedrock")]
mod tests {
    use std::fs;

    use secrecy::ExposeSecret;

    use super::*;
    use crate::llm::Wire;

    fn read(json: &str, env: &[(&str, &str)]) -> Result<Aws, String> {
        let options: ProviderOptions = serde_json::from_str(json).unwrap();
        assert_eq!(options.wire, Wire::Bedrock);
        let lookup = |name: &str| {
            env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        Aws::read(&options, &lookup).map_err(|error| {
            let error = format!("{error} {error:?}");
            assert!(!error.contains("hunter"), "{error}");
            error
        })
    }

    const ID: (&str, &str) = (ACCESS_KEY_ID, "AKIDEXAMPLE");
    const SECRET: (&str, &str) = (SECRET_ACCESS_KEY, "hunter2/+=");
    const TOKEN: (&str, &str) = (SESSION_TOKEN, "hunter3==");
    const REGION: (&str, &str) = ("AWS_REGION", "eu-central-1");
    const BEARER: (&str, &str) = ("AWS_BEARER_TOKEN_BEDROCK", "hunter4");
    const PLAIN: &str = r#"{"wire":"bedrock"}"#;

    #[test]
    fn keys_and_region_come_from_the_configuration_or_the_environment() {
        let aws = read(PLAIN, &[ID, SECRET, TOKEN, REGION]).unwrap();
        let keys = aws.keys.as_ref().unwrap();
        assert_eq!(keys.access_key_id, "AKIDEXAMPLE");
        assert_eq!(keys.secret.expose_secret(), "hunter2/+=");
        assert_eq!(keys.session_token.as_ref().unwrap().expose_secret(), "hunter3==");
        assert!(!format!("{aws:?}").contains("hunter"), "{aws:?}");
        let url = aws.bedrock().unwrap().to_string();
        assert_eq!(url, "https://bedrock-runtime.eu-central-1.amazonaws.com");
        let configured = r#"{"wire":"bedrock","region":"us-east-1"}"#;
        let aws = read(configured, &[ID, SECRET, REGION]).unwrap();
        assert_eq!(aws.region.as_deref(), Some("us-east-1"), "the configuration wins");
        let aws = read(PLAIN, &[ID, SECRET, ("AWS_DEFAULT_REGION", " us-west-2 ")]).unwrap();
        assert_eq!(aws.region.as_deref(), Some("us-west-2"));
        assert!(aws.keys.unwrap().session_token.is_none());
        let aws = read(PLAIN, &[BEARER, ID, SECRET, REGION]).unwrap();
        assert!(aws.keys.is_none(), "a key of the service's own goes first");
        let elsewhere = r#"{"wire":"bedrock","base_url":"http://127.0.0.1:1"}"#;
        let aws = read(elsewhere, &[BEARER]).unwrap();
        assert!(aws.keys.is_none() && aws.region.is_none(), "a server that asks for none");
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for (json, env, says) in [
            (PLAIN, &[REGION][..], "AWS_BEARER_TOKEN_BEDROCK"),
            (PLAIN, &[REGION, ID], "AWS_SECRET_ACCESS_KEY"),
            (PLAIN, &[ID, SECRET], "AWS_REGION"),
            (PLAIN, &[BEARER], "AWS_REGION"),
            (r#"{"wire":"bedrock","base_url":"http://h"}"#, &[ID, SECRET], "AWS_REGION"),
            (r#"{"wire":"bedrock","region":"a/b"}"#, &[ID, SECRET], "us-east-1"),
            (PLAIN, &[(ACCESS_KEY_ID, "A/B"), SECRET, REGION], "letters and digits"),
            (PLAIN, &[ID, (SECRET_ACCESS_KEY, "hunter é"), REGION], "visible ASCII"),
        ] {
            let error = read(json, env).unwrap_err();
            assert!(error.contains(says), "{json} {env:?}: {error}");
        }
    }

    #[test]
    fn a_file_of_amazons_own_programs_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials");
        let json = format!(r#"{{"wire":"bedrock","credentials_file":{path:?}}}"#);
        assert!(read(&json, &[REGION]).unwrap_err().contains("cannot read"));
        let text = "# mine\n[default]\naws_access_key_id = AKIDONE\naws_secret_access_key=hunter2=\n\
                    \n[ work ]\naws_access_key_id=AKIDTWO\n aws_secret_access_key = hunter3\n\
                    aws_session_token = hunter4==\n[none]\n";
        fs::write(&path, text).unwrap();
        let keys = read(&json, &[REGION, ID, SECRET, BEARER]).unwrap().keys.unwrap();
        assert_eq!(
            (keys.access_key_id.as_str(), keys.secret.expose_secret()),
            ("AKIDONE", "hunter2=")
        );
        assert!(keys.session_token.is_none(), "that of another profile");
        let aws = read(&json, &[REGION, (PROFILE, "work")]).unwrap();
        assert_eq!(aws.key_setting("p").unwrap(), "providers.p.credentials_file");
        let keys = aws.keys.unwrap();
        assert_eq!(keys.access_key_id, "AKIDTWO");
        assert_eq!(keys.session_token.unwrap().expose_secret(), "hunter4==");
        for profile in ["none", "other"] {
            let error = read(&json, &[REGION, (PROFILE, profile)]).unwrap_err();
            assert!(error.contains(&format!("`{profile}`")), "{error}");
        }
    }

    #[test]
    fn keys_of_the_machines_role_are_used_only_where_the_section_says_so() {
        let role = r#"{"wire":"bedrock","machine_role":true}"#;
        let container = (CONTAINER_PATH, "/v2/credentials/1");
        let aws = read(role, &[REGION, ID, SECRET, BEARER, container]).unwrap();
        assert!(aws.signs() && aws.keys.is_none(), "the section goes first");
        let url = |url: &str| url.parse().unwrap();
        let path = url("http://169.254.170.2/v2/credentials/1");
        assert_eq!(aws.role, Some(RolePlace::Container(path)));
        assert_eq!(aws.key_setting("p").unwrap(), "providers.p.machine_role");
        let aws = read(role, &[REGION]).unwrap();
        assert_eq!(aws.role, Some(RolePlace::Instance(url("http://169.254.169.254/"))));
        assert!(read(role, &[]).unwrap_err().contains("AWS_REGION"), "it signs for a region");
        for elsewhere in ["//evil.example/", "v2/x", "http://evil.example/", "@evil.example/"] {
            let error = read(role, &[REGION, (CONTAINER_PATH, elsewhere)]).unwrap_err();
            assert!(error.contains(CONTAINER_PATH), "{elsewhere}: {error}");
        }
        assert!(read(PLAIN, &[REGION, container]).unwrap_err().contains("AWS_BEARER_TOKEN"));
    }

    #[test]
    fn exceptions_are_classed_by_their_names() {
        let mut headers = HeaderMap::new();
        let value = "ThrottlingException:http://internal.amazon.com/coral/com.amazon.bedrock/";
        headers.insert("x-amzn-errortype", value.parse().unwrap());
        let limit = AwsException::of(&headers).unwrap();
        assert_eq!(limit.class(), Some(FailureClass::RateLimited));
        let denied = AwsException::named("accessDeniedException");
        assert_eq!(denied.class(), Some(FailureClass::Unauthorized));
        let words = denied.advised("No.".to_owned());
        assert!(words.starts_with("No (allow these keys `bedrock:InvokeModelWith"), "{words}");
        assert_eq!(limit.advised("No.".to_owned()), "No.");
        assert_eq!(AwsException::named("novelException").class(), None);
    }
}
