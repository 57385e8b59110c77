//! Keys of the role that a machine has at Amazon: that of its container (ECS), else that of its instance (`IMDSv2`).
//!
//! Each is asked for at one fixed link-local address, without a proxy and without following redirects. Keys are kept in
//! memory alone, and renewed [`RENEW_BEFORE`] they expire. While a renewal fails, the old ones are used until they
//! expire.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use clawnode_proto::{ErrorChain, Timestamp, llm::FailureClass};
use clawnode_tool::egress::tls;
use reqwest::{Client, Method, Response, Url, redirect};
use secrecy::SecretString;
use serde::Deserialize;

use super::{
    aws::{Aws, AwsKeys, RolePlace},
    http::AttemptFailure,
    options::usable,
};

/// Where the keys of an instance's roles are.
const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
/// How long before their end keys are renewed: Amazon has new ones from then on.
const RENEW_BEFORE: Duration = Duration::from_mins(5);
/// How long after a renewal the next one is tried at the earliest, while there are keys.
const NEXT_TRY: Duration = Duration::from_secs(30);
/// How long one answer may take: it comes from the same machine.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);
/// Bytes of an answer (16 KiB); a session token has about 1 KiB.
const ANSWER_BYTES: usize = 16 << 10;
/// What asks for the token of the metadata (`IMDSv2`), and what a request has it in. It is used at once.
const TOKEN_TIME: (&str, &str) = ("x-aws-ec2-metadata-token-ttl-seconds", "60");
const TOKEN: &str = "x-aws-ec2-metadata-token";

/// What requests to a service of Amazon's are signed with.
#[derive(Clone, Debug)]
pub(super) struct AwsSigner {
    aws: Aws,
    machine: Option<Arc<MachineKeys>>,
}

/// The keys of the machine's role, as far as they are known.
#[derive(Debug)]
pub(super) struct MachineKeys {
    place: RolePlace,
    known: Mutex<KnownKeys>,
    /// One asks at a time; others wait for the same answer.
    asks: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct KnownKeys {
    keys: Option<TimedKeys>,
    /// Before that no other renewal is tried.
    next_try: Timestamp,
}

#[derive(Clone, Debug)]
struct TimedKeys {
    keys: Arc<AwsKeys>,
    expire: Timestamp,
}

/// An answer with keys, as both places write it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RoleAnswer {
    access_key_id: String,
    secret_access_key: String,
    token: String,
    expiration: String,
}

/// Why there are no keys. Never holds one.
#[derive(Debug, thiserror::Error)]
enum RoleError {
    #[error("no HTTP client: {0}")]
    NoClient(String),
    #[error("`{0}` does not answer: {1}")]
    Unreachable(Url, String),
    #[error("`{0}` answered {1}")]
    Refused(Url, u16),
    #[error("`{0}` answered with something else than {1}")]
    Unreadable(Url, &'static str),
}

// === impl AwsSigner ===

impl AwsSigner {
    pub(super) fn new(aws: Aws) -> Self {
        let machine = aws.role.clone().map(MachineKeys::new).map(Arc::new);
        Self { aws, machine }
    }

    /// The keys that hold now, and the region; nothing if nothing is signed.
    pub(super) fn now(&self, now: Timestamp) -> Option<(Arc<AwsKeys>, &str)> {
        let known = || self.machine.as_ref().and_then(|machine| machine.known(now));
        let keys = self.aws.keys.clone().map(Arc::new).or_else(known)?;
        Some((keys, self.aws.region.as_deref()?))
    }

    /// What has to be asked before.
    pub(super) fn machine(&self) -> Option<&MachineKeys> {
        self.machine.as_deref()
    }
}

// === impl MachineKeys ===

impl MachineKeys {
    fn new(place: RolePlace) -> Self {
        Self { place, known: Mutex::default(), asks: tokio::sync::Mutex::default() }
    }

    /// Those that hold now, if they were asked for.
    fn known(&self, now: Timestamp) -> Option<Arc<AwsKeys>> {
        let known = self.lock().keys.clone().filter(|keys| keys.expire > now)?;
        Some(known.keys)
    }

    /// Asks for new ones if there are none, or if those end soon.
    pub(super) async fn renew(&self, now: Timestamp) -> Result<(), AttemptFailure> {
        if self.lock().are_fresh(now) {
            return Ok(());
        }
        let _one = self.asks.lock().await;
        if self.lock().are_fresh(now) {
            return Ok(());
        }
        let asked = ask(&self.place).await;
        let mut known = self.lock();
        known.next_try = now.plus(NEXT_TRY);
        match asked {
            Ok(keys) => known.keys = Some(keys),
            Err(error) if known.keys.as_ref().is_some_and(|keys| keys.expire > now) => {
                tracing::warn!(error = %ErrorChain(&error), "the keys of the machine's role are not renewed");
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, KnownKeys> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl KnownKeys ===

impl KnownKeys {
    fn are_fresh(&self, now: Timestamp) -> bool {
        let Some(TimedKeys { expire, .. }) = self.keys else { return false };
        expire > now.plus(RENEW_BEFORE) || expire > now && self.next_try > now
    }
}

/// Asks for the keys of a role.
async fn ask(place: &RolePlace) -> Result<TimedKeys, RoleError> {
    let client = client()?;
    let (url, body) = match place {
        RolePlace::Container(url) => (url.clone(), text(&client, Method::GET, url, None).await?),
        RolePlace::Instance(base) => {
            let at = |path: &str| {
                let url = base.join(path).ok().filter(|url| url.origin() == base.origin());
                url.ok_or_else(|| RoleError::Unreadable(base.clone(), "the name of a role"))
            };
            let token_url = at("/latest/api/token")?;
            let token = text(&client, Method::PUT, &token_url, Some(TOKEN_TIME)).await?;
            let token = Some((TOKEN, token.trim()));
            let roles = text(&client, Method::GET, &at(ROLES)?, token).await?;
            let role = roles.lines().next().unwrap_or_default().trim();
            let url = at(&format!("{ROLES}{role}"))?;
            let body = text(&client, Method::GET, &url, token).await?;
            (url, body)
        }
    };
    read(&body).ok_or(RoleError::Unreadable(url, "keys that expire"))
}

fn client() -> Result<Client, RoleError> {
    let built = tls(false).map_err(|error| error.to_string()).and_then(|tls| {
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .no_proxy()
            .redirect(redirect::Policy::none())
            .timeout(ANSWERED_WITHIN);
        client.build().map_err(|error| ErrorChain(&error).to_string())
    });
    built.map_err(RoleError::NoClient)
}

/// The body of an answer of success.
async fn text(
    client: &Client,
    method: Method,
    url: &Url,
    header: Option<(&str, &str)>,
) -> Result<String, RoleError> {
    let unreachable = |error: reqwest::Error| {
        let why = ErrorChain(&error.without_url()).to_string();
        RoleError::Unreachable(url.clone(), why)
    };
    let mut request = client.request(method, url.clone());
    if let Some((name, value)) = header {
        request = request.header(name, value);
    }
    let mut answer: Response = request.send().await.map_err(unreachable)?;
    if !answer.status().is_success() {
        return Err(RoleError::Refused(url.clone(), answer.status().as_u16()));
    }
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(unreachable)? {
        body.extend_from_slice(&chunk);
        if body.len() > ANSWER_BYTES {
            return Err(RoleError::Unreadable(url.clone(), "a short text"));
        }
    }
    String::from_utf8(body).map_err(|_bytes| RoleError::Unreadable(url.clone(), "a text"))
}

fn read(body: &str) -> Option<TimedKeys> {
    let RoleAnswer { access_key_id, secret_access_key, token, expiration } =
        serde_json::from_str(body).ok()?;
    let sent = |text: &str| usable(text, String::new()).ok();
    let (secret, token): (SecretString, _) = (sent(&secret_access_key)?, sent(&token)?);
    let keys = AwsKeys::of_role(&access_key_id, secret, token).ok()?;
    let expiration: jiff::Timestamp = expiration.parse().ok()?;
    let expire = Timestamp(u64::try_from(expiration.as_millisecond()).ok()?);
    Some(TimedKeys { keys: Arc::new(keys), expire })
}

// === impl RoleError ===

impl From<RoleError> for AttemptFailure {
    fn from(error: RoleError) -> Self {
        let (class, again) = match error {
            RoleError::Unreachable(..) => (FailureClass::Unreachable, true),
            RoleError::Refused(_, 500..) => (FailureClass::Overloaded, true),
            RoleError::NoClient(_) | RoleError::Refused(..) | RoleError::Unreadable(..) => {
                (FailureClass::Unauthorized, false)
            }
        };
        let what = format!(
            "not sent: no keys of the machine's role: {} (give the machine or the task a role, or set other keys)",
            ErrorChain(&error)
        );
        Self::last(class, what).again(again)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use secrecy::ExposeSecret as _;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    const SECRET: &str = "hunter2/+=";
    const NOW: Timestamp = Timestamp(1_767_225_600_000);

    /// What a scripted metadata server answers, by method and path, and what it was asked.
    #[derive(Clone, Default)]
    struct Metadata {
        answers: Arc<Mutex<BTreeMap<String, (u16, String)>>>,
        asked: Arc<Mutex<Vec<String>>>,
    }

    impl Metadata {
        async fn start(self) -> Url {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
            tokio::spawn(async move {
                while let Ok((mut stream, _)) = listener.accept().await {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        head.push(stream.read_u8().await.unwrap());
                    }
                    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
                    let line = head.lines().next().unwrap().replace(" http/1.1", "");
                    let is_of_token = line.contains("/latest/") && !line.starts_with("put");
                    if line.starts_with("put") {
                        assert!(
                            head.contains("x-aws-ec2-metadata-token-ttl-seconds: 60"),
                            "{head}"
                        );
                    }
                    let knows = !is_of_token || head.contains("x-aws-ec2-metadata-token: t0ken");
                    self.asked.lock().unwrap().push(line.clone());
                    let found = self.answers.lock().unwrap().get(&line).cloned();
                    let (status, body) = match found {
                        _ if !knows => (401, String::new()),
                        Some(found) => found,
                        None => (404, String::new()),
                    };
                    let length = body.len();
                    let answer = format!(
                        "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                    );
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            });
            url
        }

        fn set(&self, line: &str, status: u16, body: &str) {
            self.answers.lock().unwrap().insert(line.to_owned(), (status, body.to_owned()));
        }

        fn asked(&self) -> usize {
            self.asked.lock().unwrap().len()
        }
    }

    /// Keys that expire so many minutes from now.
    fn keys(id: &str, minutes: i64) -> String {
        let ends = jiff::Timestamp::from_millisecond(i64::try_from(NOW.0).unwrap()).unwrap();
        let ends = ends + jiff::SignedDuration::from_mins(minutes);
        format!(
            r#"{{"Code":"Success","AccessKeyId":"{id}","SecretAccessKey":"{SECRET}",
                "Token":"hunter3==","Expiration":"{ends}","RoleArn":"arn"}}"#
        )
    }

    const ROLE: &str = "get /latest/meta-data/iam/security-credentials/node";

    fn instance() -> Metadata {
        let server = Metadata::default();
        server.set("put /latest/api/token", 200, "t0ken");
        server.set("get /latest/meta-data/iam/security-credentials/", 200, "node\n");
        server
    }

    fn after(minutes: u64) -> Timestamp {
        NOW.plus(Duration::from_mins(minutes))
    }

    #[tokio::test]
    async fn keys_of_an_instance_are_kept_until_shortly_before_they_expire() {
        let server = instance();
        server.set(ROLE, 200, &keys("AKIDONE", 60));
        let role = MachineKeys::new(RolePlace::Instance(server.clone().start().await));
        assert!(role.known(NOW).is_none());
        let (one, other) = tokio::join!(role.renew(NOW), role.renew(NOW));
        one.and(other).unwrap();
        assert_eq!(server.asked(), 3, "one asks, and the other waits for its answer");
        let known = role.known(NOW).unwrap();
        let token = known.session_token.as_ref().unwrap().expose_secret();
        assert_eq!((known.access_key_id.as_str(), token), ("AKIDONE", "hunter3=="));
        assert_eq!(known.secret.expose_secret(), SECRET);
        assert!(!format!("{role:?}").contains("hunter"), "{role:?}");
        server.set(ROLE, 200, &keys("AKIDTWO", 120));
        role.renew(after(54)).await.unwrap();
        assert_eq!(server.asked(), 3, "those are good for more than five minutes");
        role.renew(after(56)).await.unwrap();
        assert_eq!(role.known(after(56)).unwrap().access_key_id, "AKIDTWO");
    }

    #[tokio::test]
    async fn a_renewal_that_fails_leaves_the_old_keys_until_they_expire() {
        let server = instance();
        server.set(ROLE, 200, &keys("AKIDONE", 60));
        let role = MachineKeys::new(RolePlace::Instance(server.clone().start().await));
        role.renew(NOW).await.unwrap();
        server.set(ROLE, 500, "");
        role.renew(after(56)).await.unwrap();
        let asked = server.asked();
        role.renew(after(56)).await.unwrap();
        assert_eq!(server.asked(), asked, "the next try is half a minute later");
        assert!(role.known(after(59)).is_some());
        assert!(role.known(after(60)).is_none());
        let failed = role.renew(after(60)).await.unwrap_err();
        assert_eq!((failed.failure.class, failed.again), (FailureClass::Overloaded, true));
    }

    #[tokio::test]
    async fn a_container_is_asked_at_its_own_path() {
        let server = Metadata::default();
        server.set("get /v2/credentials/1?a=b", 200, &keys("AKIDTHREE", 60));
        let url = server.clone().start().await.join("/v2/credentials/1?a=b").unwrap();
        let role = MachineKeys::new(RolePlace::Container(url));
        role.renew(NOW).await.unwrap();
        assert_eq!(role.known(NOW).unwrap().access_key_id, "AKIDTHREE");
        for bad in ["", "{}", &keys("A/B", 60), &"x".repeat(ANSWER_BYTES + 1)] {
            server.set("get /v2/credentials/1?a=b", 200, bad);
            let failed = role.renew(after(61)).await.unwrap_err().failure;
            assert_eq!(failed.class, FailureClass::Unauthorized, "{}", failed.message);
            assert!(!failed.message.contains("hunter"), "{}", failed.message);
        }
    }

    #[tokio::test]
    async fn a_machine_without_a_role_or_without_metadata_says_so() {
        let server = Metadata::default();
        server.set("put /latest/api/token", 200, "t0ken");
        let role = MachineKeys::new(RolePlace::Instance(server.start().await));
        let failed = role.renew(NOW).await.unwrap_err().failure;
        assert_eq!(failed.class, FailureClass::Unauthorized);
        assert!(failed.message.contains("answered 404"), "{}", failed.message);
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let nowhere = format!("http://{free}/").parse().unwrap();
        let failed = MachineKeys::new(RolePlace::Instance(nowhere)).renew(NOW).await.unwrap_err();
        assert_eq!((failed.failure.class, failed.again), (FailureClass::Unreachable, true));
    }
}
