//! What clients attach to messages: base64 and data URLs, judged before a node sees them, and URLs of files that
//! the node fetches.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clawnode_proto::{
    ErrorBody, ErrorCode,
    api::Attachment,
    limits::ATTACHMENTS,
    media::{Content, MediaError, MediaType},
};

use super::{
    backend::{AttachmentSource, NewAttachment, RemoteFile},
    params::{invalid, parse},
};

/// What says that a URL has its content in itself, and how it is written.
const DATA: &str = "data:";
const BASE64: &str = ";base64,";
/// What begins the URL of a file that the node fetches. The case of a scheme does not matter.
const HTTPS: &str = "https://";
/// What begins one that it does not.
const HTTP: &str = "http://";

/// Why something cannot be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AttachmentError {
    /// Its text is not base64.
    #[error("it is not base64")]
    Base64,
    /// Its URL has no content in it.
    #[error("it is not a data URL (`data:image/png;base64,…`) or an `https` URL")]
    NoDataUrl,
    /// Its URL is not encrypted on its way.
    #[error("only `https` URLs are fetched, not `http`")]
    PlainHttp,
    /// Its bytes cannot be attached.
    #[error(transparent)]
    Media(#[from] MediaError),
}

/// The attachments of a message.
pub(super) fn read(attachments: Vec<Attachment>) -> Result<Vec<NewAttachment>, ErrorBody> {
    check_count(attachments.len())?;
    let read = |(at, attachment)| {
        let Attachment { file, data, name } = attachment;
        let source = match (file, data) {
            (Some(file), None) => AttachmentSource::File(parse("file", &file)?),
            (None, Some(data)) => {
                let content = content(name.as_deref(), &data);
                let content = content.map_err(|error| error.of(&format!("`attachments[{at}]`")))?;
                AttachmentSource::Content(content)
            }
            (Some(_), Some(_)) | (None, None) => {
                let what = format!("`attachments[{at}]` has neither `file` nor `data`, or both");
                return Err(invalid(what)
                    .hint(r#"write `{"file":"file_…"}` or `{"data":"BASE64","name":"NAME"}`"#));
            }
        };
        Ok(NewAttachment { history: None, at: None, source })
    };
    attachments.into_iter().enumerate().map(read).collect()
}

/// Judges how many attachments a message has.
pub(super) fn check_count(count: usize) -> Result<(), ErrorBody> {
    if count <= ATTACHMENTS {
        return Ok(());
    }
    let message = format!("the message has {count} attachments, the limit is {ATTACHMENTS}");
    Err(ErrorBody::new(ErrorCode::InvalidParams, message).hint("send them in several messages"))
}

/// Content in base64.
pub(super) fn content(name: Option<&str>, data: &str) -> Result<Content, AttachmentError> {
    let bytes = STANDARD.decode(data).map_err(|_not_base64| AttachmentError::Base64)?;
    Ok(Content::new(name, bytes)?)
}

/// What is at a URL: content that a data URL has in itself, or a file that the node fetches.
pub(super) fn at_url(name: Option<&str>, url: &str) -> Result<AttachmentSource, AttachmentError> {
    let begins = |scheme: &str| {
        url.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme))
    };
    if begins(HTTPS) {
        let (url, name) = (url.to_owned(), name.map(str::to_owned));
        return Ok(AttachmentSource::Remote(RemoteFile { url, name }));
    }
    if begins(HTTP) {
        return Err(AttachmentError::PlainHttp);
    }
    data_url(name, url).map(AttachmentSource::Content)
}

/// The content of a data URL. What it says of its type does not count.
fn data_url(name: Option<&str>, url: &str) -> Result<Content, AttachmentError> {
    let rest = url.strip_prefix(DATA).ok_or(AttachmentError::NoDataUrl)?;
    let (_claimed, data) = rest.split_once(BASE64).ok_or(AttachmentError::NoDataUrl)?;
    content(name, data)
}

// === impl AttachmentError ===

impl AttachmentError {
    /// The same about an attachment that a client knows by this name.
    pub(super) fn of(self, name: &str) -> ErrorBody {
        let code = match self {
            Self::Media(MediaError::TooLarge(_)) => ErrorCode::TooLarge,
            Self::PlainHttp => ErrorCode::Unsupported,
            Self::Media(_) | Self::Base64 | Self::NoDataUrl => ErrorCode::InvalidParams,
        };
        let body = ErrorBody::new(code, format!("{name} cannot be attached: {self}"));
        match self {
            Self::Media(MediaError::Empty | MediaError::Unknown(_)) => {
                body.hint(format!("its bytes decide; attach {}", MediaType::ACCEPTED))
            }
            Self::Media(MediaError::TooLarge(_)) => body.hint("attach a smaller one"),
            Self::Base64 | Self::NoDataUrl | Self::PlainHttp => body,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &str = "iVBORw0KGgo=";

    fn data(data: &str) -> Attachment {
        Attachment { file: None, data: Some(data.to_owned()), name: Some("x.png".to_owned()) }
    }

    #[test]
    fn what_is_attached_is_judged_by_its_bytes() {
        assert_eq!(read(vec![data(PNG)]).unwrap().len(), 1);
        let both = Attachment { file: Some("file_1".to_owned()), ..data(PNG) };
        let neither = Attachment { data: None, ..data("") };
        let bad_file = Attachment { data: None, ..both.clone() };
        for (attachment, says) in [
            (data("aGVsbG8="), "not a PNG"),
            (data("%%%"), "not base64"),
            (data(""), "empty"),
            (both, "or both"),
            (neither, "neither"),
            (bad_file, "file"),
        ] {
            let error = read(vec![data(PNG), attachment]).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidParams, "{says}");
            assert!(error.message.contains(says), "{}", error.message);
        }
        let many = read(vec![data(PNG); ATTACHMENTS + 1]).unwrap_err();
        assert!(many.message.contains("9 attachments, the limit is 8"), "{}", many.message);
    }

    #[test]
    fn a_data_url_is_read_whatever_type_it_claims() {
        let claimed = data_url(None, &format!("data:text/plain;base64,{PNG}")).unwrap();
        assert_eq!(claimed, data_url(None, &format!("data:;base64,{PNG}")).unwrap());
        for url in ["", "data:", "data:image/png,abc", "ftp://example.com/x.png", "https:é"] {
            assert_eq!(at_url(None, url), Err(AttachmentError::NoDataUrl), "{url}");
        }
        assert_eq!(at_url(None, "data:image/png;base64,?"), Err(AttachmentError::Base64));
    }

    #[test]
    fn a_url_is_left_to_the_node_if_it_is_encrypted_on_its_way() {
        for url in ["https://example.com/x.png", "HTTPS://example.com/x.png"] {
            let remote = RemoteFile { url: url.to_owned(), name: Some("x".to_owned()) };
            assert_eq!(at_url(Some("x"), url), Ok(AttachmentSource::Remote(remote)));
        }
        for url in ["http://example.com/x.png", "HtTp://example.com/x.png"] {
            assert_eq!(at_url(None, url), Err(AttachmentError::PlainHttp), "{url}");
        }
        assert_eq!(AttachmentError::PlainHttp.of("it").code, ErrorCode::Unsupported);
    }
}
