//! Spellings of paths and URLs: texts that differ and lead to the same place. Pure.
//!
//! It is unknown which argument of which tool is a path or a URL (tools come from servers and
//! plugins as well), so each text is taken for both. That can only make rules stricter: a rule that
//! restricts is about a call if any spelling fits, a rule that allows only if each does.
//!
//! Not here: what only a file system or another host knows (links, names that ignore case, a
//! redirect), and texts that a shell takes apart. Rules about those are no boundary.

use serde_json::Value;
use url::{Host, Url};

use super::Pattern;

/// Ports that mean the same as none, of schemes whose own the URL parser does not know.
const DEFAULT_PORTS: [(&str, u16); 4] = [("ssh", 22), ("sftp", 22), ("git", 9418), ("ldap", 389)];

/// One value, in all spellings that rules are compared with.
#[derive(Debug)]
pub(super) struct Spellings {
    /// As it is.
    raw: String,
    /// The target of each of its texts.
    place: String,
    /// The same if all of them are paths.
    path: String,
    /// The same without users: a user may look like a host.
    userless: String,
    /// The same if neither users, nor fragments, nor doubled slashes matter.
    bare: String,
    /// Whether a path in it leads up: then it may mean one thing as a URL and another as a path.
    climbs: bool,
}

/// A pattern of one value, in its spellings.
#[derive(Debug)]
pub(super) struct SpelledPattern(Vec<Pattern>);

/// The names of a path: neither empty ones nor `.`, which lead nowhere.
pub fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !matches!(*name, "" | "."))
}

// === impl Spellings ===

impl Spellings {
    pub(super) fn of(value: &Value) -> Self {
        let mut climbs = false;
        let raw = respelled(value, &mut |text| {
            climbs |= leads_up(text);
            text.to_owned()
        });
        Self {
            raw: text(&raw),
            place: text(&respelled(value, &mut place)),
            path: text(&respelled(value, &mut path)),
            userless: text(&respelled(value, &mut userless)),
            bare: text(&respelled(value, &mut bare)),
            climbs,
        }
    }

    /// Whether one of them fits: enough for what restricts.
    pub(super) fn any(&self, pattern: &SpelledPattern) -> bool {
        let all = [&self.raw, &self.place, &self.path, &self.userless, &self.bare];
        all.iter().any(|text| pattern.fits(text))
    }

    /// Whether each of them fits: as much as what allows needs.
    pub(super) fn each(&self, pattern: &SpelledPattern) -> bool {
        pattern.fits(&self.raw)
            && pattern.fits(&self.place)
            && pattern.fits(&self.userless)
            && (!self.climbs || pattern.fits(&self.path))
    }
}

// === impl SpelledPattern ===

impl SpelledPattern {
    fn fits(&self, text: &str) -> bool {
        self.0.iter().any(|pattern| pattern.fits(text))
    }
}

impl From<&str> for SpelledPattern {
    fn from(pattern: &str) -> Self {
        let mut all = vec![Pattern::from(pattern)];
        // What a `*` matches cannot be gone back over.
        if !leads_up(pattern) {
            let others =
                [place(pattern), path(pattern)].into_iter().filter(|other| other != pattern);
            all.extend(others.map(|text| Pattern::from(text.as_str())));
        }
        Self(all)
    }
}

/// A string as it is, anything else as JSON.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The value with every string in it written otherwise.
fn respelled(value: &Value, how: &mut impl FnMut(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(how(text)),
        Value::Array(items) => items.iter().map(|item| respelled(item, how)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), respelled(value, how)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn leads_up(text: &str) -> bool {
    names(text).any(|name| name == "..")
}

/// The target of a text: of a URL if it is one, else of a path.
pub fn place(text: &str) -> String {
    match url(text) {
        Some(url) => spelled(&url),
        None => path(text),
    }
}

/// A path without `.`, empty names, and `..` as far as it leads back to names before it.
pub fn path(text: &str) -> String {
    let is_absolute = text.starts_with('/');
    let mut kept: Vec<&str> = Vec::new();
    for name in names(text) {
        match kept.last() {
            Some(last) if name == ".." && *last != ".." => {
                kept.pop();
            }
            None if name == ".." && is_absolute => {}
            Some(_) | None => kept.push(name),
        }
    }
    format!("{}{}", if is_absolute { "/" } else { "" }, kept.join("/"))
}

/// The text as a URL that leads somewhere, its host in its one form and without dots at its end.
fn url(text: &str) -> Option<Url> {
    // The parser normalises the hosts of well-known schemes only. Those of others, as of
    // `git://Host%2e`, are unescaped first and then read as the others are.
    let mut url = Url::parse(&spelled(&Url::parse(text).ok()?)).ok()?;
    if url.cannot_be_a_base() || !(url.has_host() || url.scheme() == "file") {
        return None;
    }
    if let Some(Host::Domain(name)) = url.host() {
        let undotted = name.trim_end_matches('.');
        // A host of dots alone stays what it is.
        let name = if undotted.is_empty() { name } else { undotted };
        let host =
            Host::parse(name).map_or_else(|_| name.to_ascii_lowercase(), |host| host.to_string());
        url.set_host(Some(&host)).ok()?;
    }
    if DEFAULT_PORTS
        .iter()
        .any(|(scheme, port)| *scheme == url.scheme() && url.port() == Some(*port))
    {
        url.set_port(None).ok()?;
    }
    // A new host may have another form with its scheme: `file://localhost` is no host at all.
    Url::parse(url.as_str()).ok()
}

/// The same without its user, which only a URL with a host has, and none of a file.
fn anonymous(text: &str) -> Option<Url> {
    let mut url = url(text)?;
    if !url.username().is_empty() || url.password().is_some() {
        url.set_username("").ok()?;
        url.set_password(None).ok()?;
    }
    Some(url)
}

/// As [`place`], without a user.
fn userless(text: &str) -> String {
    anonymous(text).map_or_else(|| path(text), |url| spelled(&url))
}

/// As [`place`], without user, fragment and doubled slashes.
fn bare(text: &str) -> String {
    let Some(mut url) = anonymous(text) else { return path(text) };
    url.set_fragment(None);
    let names: Vec<&str> = url.path().split('/').filter(|name| !name.is_empty()).collect();
    let single = format!("/{}", names.join("/"));
    url.set_path(&single);
    spelled(&url)
}

/// A URL's text without escapes that no URL needs (RFC 3986, 6.2.2), the others in capitals. A `%`
/// that begins none is escaped itself: with what is unescaped after it, it could begin one.
fn spelled(url: &Url) -> String {
    let mut parts = url.as_str().split('%');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let hex = part.get(..2).filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let escaped = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()).map(char::from);
        match (hex, escaped) {
            (Some(_), Some(c)) if c.is_ascii_alphanumeric() || "-._~".contains(c) => out.push(c),
            (Some(hex), _) => {
                out.push('%');
                out.push_str(&hex.to_ascii_uppercase());
            }
            (None, _) => out.push_str("%25"),
        }
        out.push_str(part.get(hex.map_or(0, str::len)..).unwrap_or_default());
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_place_has_one_spelling() {
        for (texts, one) in [
            (&["a/b", "./a/b", "a//b", ".//a/./b", "a/b/", "a/./b/.", "c/../a/b"][..], "a/b"),
            (&["/a/b", "//a/b", "/../a/b", "/c/../a/b"][..], "/a/b"),
            (&["../a", "b/../../a"][..], "../a"),
            (&["", ".", "./", "a/.."][..], ""),
            (&["%2e/a"][..], "%2e/a"),
            (
                &[
                    "https://host.example/a",
                    "HTTPS://Host.Example/a",
                    "https://host.example./a",
                    "https://host.example../a",
                    "https://host.example:443/a",
                    "https://host.example/b/../a",
                    "https://host.example/%2e/a",
                    "https://host.example/b/%2E%2e/a",
                    "https://host.example/%61",
                    "https:host.example/a",
                    "https:\\\\host.example\\a",
                    " https://host.exa\tmple/a",
                    "https://ｈost.example/a",
                ][..],
                "https://host.example/a",
            ),
            (
                &["http://0x7f.1/", "http://127.0.0.1", "http://2130706433/"][..],
                "http://127.0.0.1/",
            ),
            (
                &["http://grün.de", "http://GRÜN.de/", "http://xn--grn-ioa.de"][..],
                "http://xn--grn-ioa.de/",
            ),
            (&["http://h/%2f%zz%", "http://h/%2F%25zz%25"][..], "http://h/%2F%25zz%25"),
            (&["http://h/%%36%31", "http://h/%2561"][..], "http://h/%2561"),
            (&["git://host/a", "git://host./a", "git://ho%73t%2E/a"][..], "git://host/a"),
            (&["git://./a", "git://%2e/a"][..], "git://./a"),
            (&["git://Host/", "git://host:9418/", "git://h%4Fst./"][..], "git://host/"),
            (
                &["ssh://127.0.0.1/a", "ssh://2130706433:22/a", "ssh://0x7f.1/a"][..],
                "ssh://127.0.0.1/a",
            ),
            (&["file://localhost./a", "file://LOCALHOST/a", "file:///a"][..], "file:///a"),
            (&["file:///etc/../secret"][..], "file:///secret"),
        ] {
            for text in texts {
                assert_eq!(place(text), one, "{text:?}");
            }
        }
        assert_eq!(bare("https://u:p@host//a///b#c"), "https://host/a/b");
    }

    proptest! {
        /// Whatever the text: it has spellings, a place is its own, and `*` is everything.
        #[test]
        fn spellings_come_to_an_end(text in "([a.~%36\\\\/: \0é?#@]|\\.\\.|//|(http|git|file):(//)?|localhost|H|%(2e|25|36|43|7c)){0,12}") {
            prop_assert_eq!(path(&path(&text)), path(&text));
            if url(&text).is_some() {
                for how in [place, userless, bare] {
                    prop_assert_eq!(how(&how(&text)), how(&text));
                }
            }
            let all = Spellings::of(&Value::from(text.as_str()));
            let everything = SpelledPattern::from("*");
            prop_assert!(all.each(&everything) && all.any(&everything));
            let itself = SpelledPattern(vec![Pattern::from(text.as_str())]);
            prop_assert!(text.contains(['*', '?']) || all.any(&itself));
        }
    }
}
