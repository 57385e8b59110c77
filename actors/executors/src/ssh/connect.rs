//! Getting into a host: reached, known, and logged in, or not at all.

use std::{fs, os::unix::fs::PermissionsExt as _, sync::Arc, time::Duration};

use russh::{
    Disconnect,
    client::{Config, Handle, Handler, connect_stream},
    keys::{self, PrivateKey, PrivateKeyWithHashAlg, PublicKeyOrCertificate, decode_secret_key},
};
use tokio::{net::TcpStream, time::timeout};
use tracing::debug;

use super::{SshContext, SshError, SshHostOptions, known_hosts};

/// How long getting in may take, from the first packet on (10 s).
const CONNECT: Duration = Duration::from_secs(10);
/// How often the server is asked for a sign of life, and how often it may be silent: a lost server
/// is noticed within 20 s.
const KEEPALIVE: (Duration, usize) = (Duration::from_secs(5), 3);
/// Bytes of a key file.
const KEY_BYTES: u64 = 64 << 10;
/// How long saying goodbye may take.
const GOODBYE: Duration = Duration::from_millis(500);

/// What a host's server may ask of us: whether it is the one. All else is refused.
pub(super) struct Guard {
    options: Arc<SshHostOptions>,
    context: SshContext,
}

/// A host that let us in.
pub(super) type Entered = Handle<Guard>;

impl Handler for Guard {
    type Error = SshError;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, SshError> {
        match shown {
            PublicKeyOrCertificate::PublicKey { key, .. } => {
                known_hosts::judge(&self.options, &self.context, key).await.map(|()| true)
            }
            PublicKeyOrCertificate::Certificate(_) => {
                Err(SshError::Certificate(self.options.name.clone()))
            }
        }
    }
}

/// Gets into a host.
pub(super) async fn enter(
    options: &Arc<SshHostOptions>,
    context: &SshContext,
) -> Result<Entered, SshError> {
    let key = Arc::new(private_key(options)?);
    let SshHostOptions { name, host, port, user, .. } = &**options;
    let entering = async {
        let stream = TcpStream::connect((host.as_str(), *port))
            .await
            .map_err(|source| SshError::Unreachable { host: host.clone(), port: *port, source })?;
        let config = Config {
            keepalive_interval: Some(KEEPALIVE.0),
            keepalive_max: KEEPALIVE.1,
            nodelay: true,
            ..Config::default()
        };
        let guard = Guard { options: Arc::clone(options), context: context.clone() };
        let mut entered = connect_stream(Arc::new(config), stream, guard).await?;
        let key = PrivateKeyWithHashAlg::new(key, None);
        if !entered.authenticate_publickey(user.as_str(), key).await?.success() {
            leave(&entered).await;
            return Err(SshError::NotLetIn { name: name.clone(), user: user.clone() });
        }
        Ok(entered)
    };
    let slow = || SshError::Slow { name: name.clone(), after: CONNECT };
    timeout(CONNECT, entering).await.unwrap_or_else(|_elapsed| Err(slow()))
}

/// Says goodbye.
pub(super) async fn leave(entered: &Entered) {
    let goodbye = entered.disconnect(Disconnect::ByApplication, "", "");
    if !matches!(timeout(GOODBYE, goodbye).await, Ok(Ok(()))) {
        debug!("an SSH connection was closed without a disconnect message");
    }
}

/// The key that logs in. Nothing of it is in an error.
fn private_key(options: &SshHostOptions) -> Result<PrivateKey, SshError> {
    let path = &options.key;
    let wrong = |why: String| SshError::Key { path: path.clone(), why };
    let about = fs::metadata(path).map_err(|error| wrong(error.to_string()))?;
    if about.permissions().mode() & 0o077 != 0 {
        let why = "others than its owner can read it; `chmod 600` it, and think about a new one";
        return Err(wrong(why.to_owned()));
    }
    let text = known_hosts::read(path, KEY_BYTES).map_err(|error| wrong(error.to_string()))?;
    let key = decode_secret_key(&text, None).map_err(|error| {
        wrong(match error {
            keys::Error::KeyIsEncrypted => {
                "it has a passphrase, which the node cannot enter; make a key without one for this \
                 node (`ssh-keygen -t ed25519 -N ''`)"
            }
            _ => "it is not a private key that this node can read; use Ed25519 or ECDSA",
        }
        .to_owned())
    })?;
    if key.is_encrypted() {
        return Err(wrong("it has a passphrase; make a key without one for this node".to_owned()));
    }
    if key.algorithm().is_rsa() {
        return Err(wrong("it is an RSA key; use Ed25519 or ECDSA".to_owned()));
    }
    Ok(key)
}
