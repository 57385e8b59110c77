//! By which key a host is known: a file's word, else what the cluster met first (SSH-1).

use std::{fmt::Write as _, path::Path};

use clawnode_cluster::BucketError;
use clawnode_proto::{Position, ssh::SshPin, subject::ssh_key};
use russh::keys::{HashAlg, PublicKey, known_hosts::known_host_keys_path};
use tracing::{info, warn};

use super::{SshContext, SshError, SshHostOptions};

/// Tries at a value that others make at the same time.
const TRIES: u32 = 4;
/// Bytes of a file of known hosts (1 MiB).
const FILE_BYTES: u64 = 1 << 20;

/// Whether this is the host's key; the first one that is met of a host is from then on.
pub(super) async fn judge(
    options: &SshHostOptions,
    context: &SshContext,
    key: &PublicKey,
) -> Result<(), SshError> {
    let changed = |known: &[PublicKey]| {
        let (name, now) = (options.name.clone(), fingerprint(key));
        Err(SshError::Changed { name, known: fingerprints(known), now })
    };
    let named = of_file(options)?;
    if !named.is_empty() {
        return if named.iter().any(|known| is_same(known, key)) {
            Ok(())
        } else {
            changed(&named)
        };
    }
    #[cfg(feature = "test-util")]
    if context.is_credulous {
        return Ok(());
    }
    let unreadable = || SshError::PinUnreadable(options.name.clone());
    let bucket_key = ssh_key(&options.name);
    for _ in 0..TRIES {
        if let Some(entry) = context.bucket.get(&bucket_key).await? {
            let pin = SshPin::from_bytes(&entry.value).ok();
            let pinned = pin.and_then(|pin| PublicKey::from_openssh(&pin.key).ok());
            let pinned = pinned.ok_or_else(unreadable)?;
            return if is_same(&pinned, key) { Ok(()) } else { changed(&[pinned]) };
        }
        let mut bare = key.clone();
        bare.set_comment("");
        let (node, at) = (context.node.clone(), context.clock.now());
        let pin = SshPin { key: bare.to_openssh().map_err(|_key| unreadable())?, node, at };
        let bytes = pin.to_bytes().map_err(|_pin| unreadable())?;
        match context.bucket.put(&bucket_key, Position(0), bytes.into(), None).await {
            Ok(_) => {
                let fingerprint = fingerprint(key);
                info!(host = %options.name, fingerprint, "recorded the key of a host");
                return Ok(());
            }
            // Another node has just met it.
            Err(BucketError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    warn!(host = %options.name, "nodes disagree about the key of a host");
    Err(SshError::Pin(BucketError::Conflict { key: bucket_key }))
}

/// The host's keys in the file of known hosts; none if no such file is configured.
fn of_file(options: &SshHostOptions) -> Result<Vec<PublicKey>, SshError> {
    let Some(path) = &options.known_hosts else { return Ok(Vec::new()) };
    let wrong = |why: String| SshError::KnownHosts { path: path.clone(), why };
    let text = read(path, FILE_BYTES).map_err(|error| wrong(error.to_string()))?;
    // `@revoked` and `@cert-authority` would be passed over.
    if text.lines().any(|line| line.trim_start().starts_with('@')) {
        let why = "it has lines that begin with `@`, which are not supported; leave them out";
        return Err(wrong(why.to_owned()));
    }
    let keys = known_host_keys_path(&options.host, options.port, path)
        .map_err(|_line| wrong("its entry for the host is not a key".to_owned()))?;
    Ok(keys.into_iter().map(|(_line, key)| key).collect())
}

/// A small file as text.
pub(super) fn read(path: &Path, most: u64) -> std::io::Result<String> {
    use std::io::Read as _;

    let mut text = String::new();
    std::fs::File::open(path)?.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        return Err(std::io::Error::other(format!("it has more than {most} bytes")));
    }
    Ok(text)
}

fn is_same(one: &PublicKey, other: &PublicKey) -> bool {
    one.key_data() == other.key_data()
}

fn fingerprint(key: &PublicKey) -> String {
    format!("{} ({})", key.fingerprint(HashAlg::Sha256), key.algorithm())
}

fn fingerprints(keys: &[PublicKey]) -> String {
    let mut all = String::new();
    for key in keys {
        let between = if all.is_empty() { "" } else { " or " };
        // Writing to a string cannot fail.
        write!(all, "{between}{}", fingerprint(key)).unwrap_or_default();
    }
    all
}
