//! `[[ssh_hosts]]`: what a person may set of a host, and why it is what it is by default.

use std::path::PathBuf;

use clawnode_proto::{SshHostName, tool::Risk};
use serde::{Deserialize, Serialize};

/// `[[ssh_hosts]]`: a host on which agents may run commands, by the tool `ssh_NAME`. Every worker that
/// has it configured, and reaches it, may be the one that does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SshHostOptions {
    /// What it is called here: its tool is `ssh_NAME`.
    pub name: SshHostName,
    /// Its address, or its name in the network.
    pub host: String,
    /// Where its server listens (22).
    #[serde(default = "port")]
    pub port: u16,
    /// The user that runs commands there.
    pub user: String,
    /// The file with the private key that logs in: Ed25519 or ECDSA, without a passphrase, readable
    /// by its owner alone.
    pub key: PathBuf,
    /// A file as OpenSSH's `known_hosts`. What it says of the host counts; where it says nothing, the
    /// key that a node of the cluster met first does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_hosts: Option<PathBuf>,
    /// The command lines that may be run: patterns of the whole line, `*` for any characters and `?`
    /// for one. Where there are some, nothing that a shell would take apart is let through. Empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    /// How much harm its commands can do: `READ_ONLY`, `WRITE`, or `ADMIN` (the default).
    #[serde(default = "risk")]
    pub risk: Risk,
}

/// What is wrong with a host: which key, what, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct SshOptionsError {
    pub key: &'static str,
    pub what: String,
    pub hint: &'static str,
}

const fn port() -> u16 {
    22
}

const fn risk() -> Risk {
    Risk::Admin
}

impl SshHostOptions {
    /// Refuses the first thing that is well-formed and wrong.
    pub fn check(&self) -> Result<(), SshOptionsError> {
        let fail = |key, what: String, hint| Err(SshOptionsError { key, what, hint });
        let is_word = |text: &str| {
            !text.is_empty() && text.len() <= 255 && text.chars().all(|c| c.is_ascii_graphic())
        };
        if !is_word(&self.host) {
            let what = format!("`{}` has no address", self.name);
            return fail("host", what, "write an address or a name, such as `db1.example.org`");
        }
        if self.port == 0 {
            return fail("port", "there is no port 0".to_owned(), "write 22, or another port");
        }
        if !is_word(&self.user) {
            let what = format!("`{}` has no user", self.name);
            return fail("user", what, "write as whom commands are run there");
        }
        if self.commands.iter().any(String::is_empty) {
            let what = "a command is empty".to_owned();
            return fail("commands", what, "write a pattern such as `systemctl status *`");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(more: &str) -> Result<SshHostOptions, String> {
        let text =
            format!(r#"{{"name":"db","host":"db.example.org","user":"ops","key":"k"{more}}}"#);
        let options: SshHostOptions =
            serde_json::from_str(&text).map_err(|error| error.to_string())?;
        options.check().map_err(|error| format!("{}: {error}", error.key))?;
        Ok(options)
    }

    #[test]
    fn what_is_promised_is_the_default_and_what_is_wrong_is_named() {
        let options = verdict("").unwrap();
        assert_eq!((options.port, options.risk, options.commands.len()), (22, Risk::Admin, 0));
        let again = serde_json::to_string(&options).unwrap();
        assert_eq!(serde_json::from_str::<SshHostOptions>(&again).unwrap(), options);
        for (more, words) in [
            (r#","port":0"#, "port: there is no port 0"),
            (r#","port":70000"#, "70000"),
            (r#","commands":[""]"#, "commands: "),
            (r#","password":"x""#, "unknown field `password`"),
        ] {
            let error = verdict(more).unwrap_err();
            assert!(error.contains(words), "{more}: {error}");
        }
        for (key, wrong) in [("host", ""), ("host", "a b"), ("user", "")] {
            let mut options = options.clone();
            *(if key == "host" { &mut options.host } else { &mut options.user }) = wrong.to_owned();
            assert_eq!(options.check().unwrap_err().key, key);
        }
    }
}
