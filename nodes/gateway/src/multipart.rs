//! The form in which clients upload files: `multipart/form-data` of RFC 7578, read piece by piece.
//!
//! Sans I/O: the caller feeds bytes and takes pieces. Of a part's content no more is held than the bytes that
//! may begin the line after it.

use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};

/// What a multipart body is called.
const MEDIA_TYPE: &str = "multipart/form-data";
/// The longest text between parts. RFC 2046 says so.
const BOUNDARY_BYTES: usize = 70;
/// The headers of one part.
const HEAD_BYTES: usize = 8 << 10;
/// What ends the headers of a part.
const HEAD_END: &[u8] = b"\r\n\r\n";
/// Between a boundary, its headers and its content (RFC 2046, 5.1.1).
const LINE_END: &[u8] = b"\r\n";

/// Reads a form.
#[derive(Debug)]
pub(super) struct FormDecoder {
    /// The line before each part and after the last one, with the end of the line before it.
    delimiter: Vec<u8>,
    buffer: BytesMut,
    place: FormPlace,
}

/// What the decoder gives next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FormPiece {
    /// A part begins.
    Part(FormPart),
    /// Content of the part that was begun last.
    Content(Bytes),
    /// The form is complete.
    Over,
}

/// What is said of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FormPart {
    pub(super) name: String,
    pub(super) file_name: Option<String>,
}

/// Why a form cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FormError {
    #[error("the body is not `{MEDIA_TYPE}` with a `boundary`")]
    NoForm,
    #[error("a part of the form does not begin or end as its boundary says")]
    Boundary,
    #[error("the headers of a part of the form are larger than {HEAD_BYTES} bytes")]
    HeadTooLarge,
    #[error("a part of the form has no `Content-Disposition` with a `name`")]
    NoName,
}

#[derive(Clone, Copy, Debug)]
enum FormPlace {
    /// Before the first delimiter, where anything may be.
    Before,
    /// After a delimiter.
    Delimited,
    Head,
    Content,
    Over,
}

// === impl FormDecoder ===

impl FormDecoder {
    /// For a body with these headers.
    pub(super) fn new(headers: &HeaderMap) -> Result<Self, FormError> {
        let said = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let said = said.ok_or(FormError::NoForm)?;
        let name = said.split(';').next().unwrap_or_default().trim();
        let boundary = parameter(said, "boundary").ok_or(FormError::NoForm)?;
        if !name.eq_ignore_ascii_case(MEDIA_TYPE)
            || boundary.is_empty()
            || boundary.len() > BOUNDARY_BYTES
        {
            return Err(FormError::NoForm);
        }
        // The first delimiter may be the first line.
        let (buffer, place) = (BytesMut::from(LINE_END), FormPlace::Before);
        Ok(Self { delimiter: format!("\r\n--{boundary}").into_bytes(), buffer, place })
    }

    /// Takes more of the body.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next piece, or none before more of the body is fed.
    pub(super) fn next(&mut self) -> Result<Option<FormPiece>, FormError> {
        loop {
            match self.place {
                FormPlace::Before | FormPlace::Content => match self.content() {
                    Some(_) if matches!(self.place, FormPlace::Before) => {}
                    Some(content) => return Ok(Some(FormPiece::Content(content))),
                    None if self.buffer.starts_with(&self.delimiter) => {
                        let _delimiter = self.buffer.split_to(self.delimiter.len());
                        self.place = FormPlace::Delimited;
                    }
                    None => return Ok(None),
                },
                FormPlace::Delimited => match self.buffer.get(..2) {
                    Some(b"--") => self.place = FormPlace::Over,
                    // It stays: it also ends the headers of a part that has none.
                    Some(LINE_END) => self.place = FormPlace::Head,
                    Some(_) => return Err(FormError::Boundary),
                    None => return Ok(None),
                },
                FormPlace::Head => return self.head(),
                FormPlace::Over => return Ok(Some(FormPiece::Over)),
            }
        }
    }

    /// What is certain to be content at the beginning of the buffer.
    fn content(&mut self) -> Option<Bytes> {
        // A delimiter may have begun at the end.
        let certain = || (self.buffer.len() + 1).saturating_sub(self.delimiter.len());
        let length = find(&self.buffer, &self.delimiter).unwrap_or_else(certain);
        (length > 0).then(|| self.buffer.split_to(length).freeze())
    }

    fn head(&mut self) -> Result<Option<FormPiece>, FormError> {
        let Some(end) = find(&self.buffer, HEAD_END) else {
            let is_too_large = self.buffer.len() > HEAD_BYTES;
            return if is_too_large { Err(FormError::HeadTooLarge) } else { Ok(None) };
        };
        if end > HEAD_BYTES {
            return Err(FormError::HeadTooLarge);
        }
        let head = self.buffer.split_to(end + HEAD_END.len());
        self.place = FormPlace::Content;
        let part = FormPart::read(&String::from_utf8_lossy(&head)).ok_or(FormError::NoName)?;
        Ok(Some(FormPiece::Part(part)))
    }
}

// === impl FormPart ===

impl FormPart {
    fn read(head: &str) -> Option<Self> {
        let said = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
        })?;
        let name = parameter(said, "name")?;
        Some(Self { name, file_name: parameter(said, "filename") })
    }
}

/// Where `wanted` is, which begins with the end of a line.
fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let rest = bytes.get(from..)?;
        let at = from + rest.iter().position(|byte| *byte == b'\r')?;
        if bytes.get(at..)?.starts_with(wanted) {
            return Some(at);
        }
        from = at + 1;
    }
}

/// The value of a parameter of a header, such as `name` in `form-data; name="file"`.
fn parameter(header: &str, wanted: &str) -> Option<String> {
    let mut rest = header.split_once(';')?.1;
    loop {
        let (name, after) = rest.split_once('=')?;
        let (value, left) = value(after)?;
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = left.split_once(';')?.1;
    }
}

/// The value that a text begins with, and what follows it.
fn value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.trim_start().strip_prefix('"') else {
        let (value, rest) = text.split_at(text.find(';').unwrap_or(text.len()));
        return Some((value.trim().to_owned(), rest));
    };
    let (mut value, mut chars) = (String::new(), quoted.chars());
    loop {
        match chars.next()? {
            '"' => return Some((value, chars.as_str())),
            '\\' => value.push(chars.next()?),
            other => value.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FORM: &[u8] =
        b"ignored\r\n--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n\
        user_data\r\n--b\r\ncontent-type: image/png\r\ncontent-disposition: form-data; \
        filename=\"a; \\\"b\\\".png\"; name=file\r\n\r\n\x89\r\n--\r\n--c\r\n\r\n--b--\r\nafter";

    fn decoder(content_type: &str) -> Result<FormDecoder, FormError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, content_type.parse().unwrap());
        FormDecoder::new(&headers)
    }

    /// Name, file name and content of a part.
    type Read = (String, Option<String>, Vec<u8>);

    /// The parts of a form whose bytes come in pieces, and whether it is complete.
    fn read(pieces: &[&[u8]]) -> Result<(Vec<Read>, bool), FormError> {
        let mut decoder = decoder("Multipart/Form-Data; charset=x; boundary=\"b\"")?;
        let mut parts = Vec::new();
        for piece in pieces {
            decoder.feed(piece);
            while let Some(piece) = decoder.next()? {
                match piece {
                    FormPiece::Part(part) => parts.push((part.name, part.file_name, Vec::new())),
                    FormPiece::Content(bytes) => {
                        assert!(!bytes.is_empty());
                        parts.last_mut().unwrap().2.extend_from_slice(&bytes);
                    }
                    FormPiece::Over => return Ok((parts, true)),
                }
            }
            assert!(decoder.buffer.len() <= HEAD_BYTES, "only what may begin a line is held");
        }
        Ok((parts, false))
    }

    #[test]
    fn every_cut_of_a_form_reads_the_same() {
        let file =
            ("file".to_owned(), Some("a; \"b\".png".to_owned()), b"\x89\r\n--\r\n--c\r\n".into());
        let purpose = ("purpose".to_owned(), None, b"user_data".to_vec());
        let whole = (vec![purpose, file], true);
        for cut in 0..=FORM.len() {
            assert_eq!(read(&[&FORM[..cut], &FORM[cut..]]).unwrap(), whole, "at {cut}");
        }
        let bytes: Vec<&[u8]> = FORM.chunks(1).collect();
        assert_eq!(read(&bytes).unwrap(), whole);
        let end = FORM.len() - b"--\r\nafter".len();
        assert!(!read(&[&FORM[..end]]).unwrap().1, "a form that breaks off is not complete");
    }

    #[test]
    fn what_is_no_form_is_refused() {
        for said in [
            "application/json",
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "multipart/mixed; boundary=b",
        ] {
            assert_eq!(decoder(said).unwrap_err(), FormError::NoForm, "{said}");
        }
        let long = format!("multipart/form-data; boundary={}", "b".repeat(BOUNDARY_BYTES + 1));
        assert_eq!(decoder(&long).unwrap_err(), FormError::NoForm);
        let endless = [b"--b\r\nX: ".as_slice(), &vec![b'x'; HEAD_BYTES]].concat();
        for (form, error) in [
            (&b"--bc\r\n"[..], FormError::Boundary),
            (b"--b\r\n\r\n\r\n--b--", FormError::NoName),
            (b"--b\r\nContent-Disposition: form-data\r\n\r\n", FormError::NoName),
            (&endless, FormError::HeadTooLarge),
        ] {
            assert_eq!(read(&[form]).unwrap_err(), error, "{}", String::from_utf8_lossy(form));
        }
    }

    #[test]
    fn a_part_may_be_empty() {
        let form = b"--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n\r\n--b--";
        assert_eq!(read(&[form]).unwrap(), (vec![("file".to_owned(), None, Vec::new())], true));
    }

    proptest! {
        #[test]
        fn any_content_comes_out_as_it_went_in(
            content in proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'-'), any::<u8>()], 0..200),
            size in 1_usize..50,
        ) {
            let head = b"--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n".as_slice();
            prop_assume!(find(&content, b"\r\n--b").is_none());
            let form = [head, &content, b"\r\n--b--"].concat();
            let pieces: Vec<&[u8]> = form.chunks(size).collect();
            let (parts, is_over) = read(&pieces).unwrap();
            prop_assert!(is_over);
            prop_assert_eq!(&parts[0].2, &content);
        }
    }
}
