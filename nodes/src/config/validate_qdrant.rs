//! What is wrong with the server that has the store of memories.

use super::{ConfigError, memory::MemoryStoreChoice, secret::ServerUrl, validate::Checks};

/// Characters of a prefix.
const PREFIX_CHARS: usize = 64;

// === impl Checks ===

impl Checks<'_> {
    /// Refuses a server that cannot be used, that is missing, or that nothing would use.
    pub(super) fn qdrant(&self) -> Result<(), ConfigError> {
        let memory = &self.config.memory;
        let section = match (memory.store, &memory.qdrant) {
            (MemoryStoreChoice::Local, Some(section)) if section.url.is_some() => {
                let hint = "set `memory.store = \"qdrant\"`, or remove the section";
                return self.fail(&["memory", "qdrant"], "the store `local` has no server", hint);
            }
            (MemoryStoreChoice::Local, _) => return Ok(()),
            (MemoryStoreChoice::Qdrant, section) => section.clone().unwrap_or_default(),
        };
        if !cfg!(feature = "qdrant") {
            let hint = "build clawnode with `--features full`, or use the store `local`";
            return self.fail(&["memory", "store"], "this build has no store `qdrant`", hint);
        }
        let key = ["memory", "qdrant", "url"];
        let Some(url) = section.url.as_ref().map(ServerUrl::expose) else {
            let hint = "write such as `url = \"http://127.0.0.1:6334\"` into `[memory.qdrant]`";
            return self.fail(&key, "the store `qdrant` has no address", hint);
        };
        let is_tls = url.starts_with("https://");
        if !is_tls && !url.starts_with("http://") || url.contains([',', '@', '?', '#']) {
            let what = "not one address that begins with `http://` or `https://`";
            let hint = "name the port of gRPC, 6334 as a rule; a key has a setting of its own";
            return self.fail(&key, what, hint);
        }
        if section.ca.is_some() && !is_tls {
            let hint = "begin `memory.qdrant.url` with `https://`, or remove `ca`";
            return self.fail(&["memory", "qdrant", "ca"], "the address is without TLS", hint);
        }
        let keys = [
            section.api_key_env.is_some(),
            section.api_key_file.is_some(),
            section.api_key.is_some(),
        ];
        if keys.iter().filter(|is_set| **is_set).count() > 1 {
            let what = "only one of `api_key`, `api_key_env` and `api_key_file` may be set";
            return self.fail(&["memory", "qdrant"], what, "remove the others");
        }
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
        let (prefix, key) = (&section.prefix, ["memory", "qdrant", "prefix"]);
        if !(1..=PREFIX_CHARS).contains(&prefix.len()) || !prefix.chars().all(is_plain) {
            let what = format!("not 1 to {PREFIX_CHARS} letters, digits, `-` and `_`");
            return self.fail(&key, what, "choose a name such as `clawnode`");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Sources, load};
    use crate::config::Env;

    /// What is wrong with this configuration.
    fn refused(text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        std::fs::write(&file, text).unwrap();
        let env = Env::from([("HOME", "/h")]);
        match load(&Sources { env, file: Some(file), flags: Vec::new() }) {
            Ok(loaded) => {
                let shown = format!("{:?}", loaded.config);
                assert!(!shown.contains("sk-1"), "{shown}");
                String::new()
            }
            Err(error) => format!("{} {}", error.key, error.what),
        }
    }

    #[test]
    fn a_section_that_nothing_uses_is_refused() {
        let found = refused("[memory.qdrant]\nurl = 'http://h:6334'");
        assert_eq!(found, "memory.qdrant the store `local` has no server");
    }

    #[cfg(not(feature = "qdrant"))]
    #[test]
    fn a_build_without_it_says_so() {
        let found = refused("[memory]\nstore = 'qdrant'");
        assert_eq!(found, "memory.store this build has no store `qdrant`");
    }

    #[cfg(feature = "qdrant")]
    #[test]
    fn a_server_that_cannot_be_used_is_refused() {
        let with =
            |rest: &str| refused(&format!("[memory]\nstore='qdrant'\n[memory.qdrant]\n{rest}"));
        assert_eq!(with("url='https://h:6334'\nca='a.pem'\napi_key='sk-1'\nprefix='a-b_1'"), "");
        let url = "memory.qdrant.url";
        for (wrong, key) in [
            ("", url),
            ("url='h:6334'", url),
            ("url='grpc://h:6334'", url),
            ("url='http://u:p@h:6334'", url),
            ("url='http://a:6334,http://b:6334'", url),
            ("url='http://h:6334'\nca='a.pem'", "memory.qdrant.ca"),
            ("url='http://h:6334'\napi_key='sk-1'\napi_key_env='K'", "memory.qdrant "),
            ("url='http://h:6334'\nprefix=''", "memory.qdrant.prefix"),
            ("url='http://h:6334'\nprefix='a/b'", "memory.qdrant.prefix"),
        ] {
            let found = with(wrong);
            assert!(found.starts_with(key), "{wrong}: {found}");
            assert!(!found.contains("sk-1") && !found.contains("u:p"), "{found}");
        }
    }
}
