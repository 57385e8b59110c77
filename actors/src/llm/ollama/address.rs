//! Where Ollama is, in its own words.

use crate::llm::options::{BaseUrl, ParseBaseUrlError};

/// Where Ollama is, as Ollama itself reads it: host, port and scheme may each be left out. The address
/// that a server listens on everywhere means this machine.
pub(in crate::llm) fn address(host: &str) -> Result<BaseUrl, ParseBaseUrlError> {
    let url = if host.contains("://") {
        host.to_owned()
    } else {
        let (name, path) = host.split_once('/').unwrap_or((host, ""));
        let name = if name.starts_with(':') { format!("127.0.0.1{name}") } else { name.to_owned() };
        let has_port = name.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let port = if has_port { "" } else { ":11434" };
        format!("http://{name}{port}/{path}")
    };
    url.replace("//0.0.0.0", "//127.0.0.1").replace("//[::]", "//[::1]").parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ollama_host_is_read_as_ollama_reads_it() {
        for (host, url) in [
            ("box", "http://box:11434"),
            ("box:1234", "http://box:1234"),
            (":1234", "http://127.0.0.1:1234"),
            ("0.0.0.0", "http://127.0.0.1:11434"),
            ("[::1]", "http://[::1]:11434"),
            ("[::]:99", "http://[::1]:99"),
            ("https://box", "https://box"),
            ("http://box/ollama/", "http://box/ollama"),
        ] {
            let read = address(host).unwrap();
            assert_eq!(read.to_string(), url, "{host}");
        }
    }
}
