//! Removes a server's secrets from all output of its transport: its standard error, and the errors
//! of connections, which quote addresses and answers of services.

use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use super::options::McpTransport;

/// The shortest text that is looked for: shorter ones stand everywhere.
const SECRET_MIN: usize = 4;
/// The shortest part of an address's path that is held for a secret; names of endpoints are shorter.
const PATH_SECRET_MIN: usize = 12;
/// The text that replaces a secret.
const REDACTED: &str = "[redacted]";

/// The secrets of one server, the longest first.
#[derive(Debug, Default)]
pub(super) struct Secrets(Vec<SecretString>);

// === impl Secrets ===

impl Secrets {
    /// The secrets in a server's configuration: the values of its environment or of its headers,
    /// and the parts of its address besides the host.
    pub(super) fn of(transport: &McpTransport) -> Self {
        let mut texts = Vec::new();
        match transport {
            McpTransport::Stdio(program) => {
                texts.extend(program.env.values().map(|value| value.expose_secret().to_owned()));
            }
            McpTransport::Http(service) => {
                for value in service.headers.values().map(SecretString::expose_secret) {
                    texts.push(value.to_owned());
                    // `Bearer TOKEN`: the token is a secret without its scheme as well.
                    texts.extend(value.split_once(' ').map(|(_, token)| token.trim().to_owned()));
                }
                of_address(service.url.expose_secret(), &mut texts);
            }
        }
        Self::new(&texts)
    }

    fn new(texts: &[String]) -> Self {
        // A secret of several lines, such as a key, is shown line by line.
        let lines = texts.iter().flat_map(|text| text.lines());
        let mut all: Vec<&str> =
            lines.map(str::trim).filter(|line| line.len() >= SECRET_MIN).collect();
        all.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        all.dedup();
        Self(all.into_iter().map(SecretString::from).collect())
    }

    /// The text on one line, without secrets and control characters, of at most so many characters.
    pub(super) fn hide(&self, text: &str, most: usize) -> String {
        let mut text = text.to_owned();
        for secret in &self.0 {
            text = text.replace(secret.expose_secret(), REDACTED);
        }
        let clean = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
        clean.take(most).collect()
    }

    /// The same of a text whose end was cut off, maybe in the middle of a secret.
    pub(super) fn hide_cut(&self, text: &str, most: usize) -> String {
        let hidden = self.hide(text, usize::MAX);
        let partly = self.0.first().map_or(0, |longest| longest.expose_secret().len() - 1);
        let whole = hidden.chars().count().saturating_sub(partly);
        let shown: String = hidden.chars().take(whole.min(most)).collect();
        shown.trim_end().to_owned()
    }
}

/// User, password, query and long parts of the path, as they are written and as they are meant.
fn of_address(address: &str, texts: &mut Vec<String>) {
    let Ok(url) = Url::parse(address) else {
        texts.push(address.to_owned());
        return;
    };
    texts.extend([url.username(), url.password().unwrap_or_default()].map(str::to_owned));
    let query = url.query().unwrap_or_default();
    texts.push(query.to_owned());
    texts.extend(
        query.split('&').filter_map(|pair| pair.split_once('=')).map(|(_, value)| value.to_owned()),
    );
    texts.extend(url.query_pairs().map(|(_, value)| value.into_owned()));
    let path = url.path_segments().into_iter().flatten();
    texts.extend(path.filter(|part| part.len() >= PATH_SECRET_MIN).map(str::to_owned));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(texts: &[&str]) -> Secrets {
        Secrets::new(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_shown_has_no_secret_and_no_escapes() {
        let secrets = secrets(&["hunter22", "abc"]);
        assert_eq!(secrets.hide("key=hunter22 \u{1b}[31mabc\n", 300), "key=[redacted]  [31mabc");
        assert_eq!(secrets.hide(&"x".repeat(900), 300).len(), 300);
    }

    #[test]
    fn a_secret_that_holds_another_is_hidden_whole() {
        let secrets = secrets(&["hunter22", "hunter22-and-more"]);
        assert_eq!(secrets.hide("hunter22-and-more", 300), "[redacted]");
    }

    #[test]
    fn a_secret_of_several_lines_is_hidden_line_by_line() {
        let secrets = secrets(&["-----BEGIN KEY-----\nMIIEvQIBADAN\n-----END KEY-----\n"]);
        assert_eq!(secrets.hide("loaded MIIEvQIBADAN", 300), "loaded [redacted]");
    }

    #[test]
    fn a_secret_that_is_cut_off_is_not_shown_in_part() {
        let secrets = secrets(&["hunter22"]);
        for cut in 1..="hunter22".len() {
            let text = format!("the key is {}", "hunter22".chars().take(cut).collect::<String>());
            let shown = secrets.hide_cut(&text, 300);
            assert!("the key is [redacted]".starts_with(&shown), "{shown}");
        }
    }

    #[test]
    fn of_an_address_the_host_alone_is_shown() {
        let mut texts = Vec::new();
        let address =
            "https://ada:pass%20word@mcp.example/v1/s3cr3t-t0ken-of-the-path?key=a%2Fbcd&x=1";
        of_address(address, &mut texts);
        let secrets = Secrets::new(&texts);
        let shown = secrets.hide(&format!("error for url ({address}): a/bcd is wrong"), 500);
        assert!(shown.contains("mcp.example"), "{shown}");
        for secret in ["pass%20word", "s3cr3t", "a%2Fbcd", "a/bcd"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}
