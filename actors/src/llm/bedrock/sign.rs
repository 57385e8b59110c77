//! Amazon's signature of a request, version 4.

use clawnode_proto::{Timestamp, llm::FailureClass};

use crate::llm::{
    aws::AwsKeys,
    http::{AttemptFailure, Prepared},
};

/// The request with its signature. It covers the host, the path, the body and the time: it holds for minutes, and
/// for no other request or host.
#[cfg(feature = "bedrock")]
pub(super) fn sign(
    request: &Prepared,
    keys: &AwsKeys,
    region: &str,
    now: Timestamp,
) -> Result<Prepared, AttemptFailure> {
    signature(request, keys, region, now).map_err(|why| {
        AttemptFailure::last(FailureClass::Rejected, format!("not sent: no signature: {why}"))
    })
}

/// Keys are refused before (`OptionsError::NoSignatures`).
#[cfg(not(feature = "bedrock"))]
pub(super) fn sign(
    _: &Prepared,
    _: &AwsKeys,
    _: &str,
    _: Timestamp,
) -> Result<Prepared, AttemptFailure> {
    let why = "not sent: this build cannot sign requests: build it with `--features full`";
    Err(AttemptFailure::last(FailureClass::Rejected, why))
}

#[cfg(feature = "bedrock")]
fn signature(
    request: &Prepared,
    keys: &AwsKeys,
    region: &str,
    now: Timestamp,
) -> Result<Prepared, Box<dyn std::error::Error>> {
    use std::time::{Duration, UNIX_EPOCH};

    use aws_credential_types::Credentials;
    use aws_sigv4::{
        http_request::{SignableBody, SignableRequest, SigningSettings, sign},
        sign::v4::SigningParams,
    };
    use reqwest::header::HeaderValue;
    use secrecy::ExposeSecret;

    /// What the services of the API are called in signatures.
    const SERVICE: &str = "bedrock";

    let token = keys.session_token.as_ref().map(|token| token.expose_secret().to_owned());
    let id = keys.access_key_id.as_str();
    let keys = Credentials::new(id, keys.secret.expose_secret(), token, None, "clawnode");
    let identity = keys.into();
    let params = SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name(SERVICE)
        .time(UNIX_EPOCH + Duration::from_millis(now.0))
        .settings(SigningSettings::default())
        .build()?
        .into();
    let headers = [("content-type", "application/json")].into_iter();
    let body = SignableBody::Bytes(&request.body);
    let signable = SignableRequest::new("POST", request.url.as_str(), headers, body)?;
    let (instructions, _) = sign(signable, &params)?.into_parts();
    let mut signed = request.clone();
    for (name, value) in instructions.headers() {
        let mut value = HeaderValue::from_str(value)?;
        value.set_sensitive(name != "x-amz-date");
        signed.headers.insert(reqwest::header::HeaderName::from_bytes(name.as_bytes())?, value);
    }
    Ok(signed)
}

#[cfg(test)]
#[cfg(feature = "bedrock")]
mod tests {
    use bytes::Bytes;
    use reqwest::header::HeaderMap;

    use super::*;

    const HOST: &str = "https://bedrock-runtime.us-east-1.amazonaws.com/model/";

    #[test]
    fn signatures_are_those_that_amazons_own_library_makes() {
        // By `SigV4Auth` of botocore 1.43.11, for the same requests at the same time.
        for (model, token, expected) in [
            (
                "us.anthropic.claude-sonnet-4-5-20250929-v1%3A0",
                None,
                "AWS4-HMAC-SHA256 \
                 Credential=AKIDEXAMPLE/20260101/us-east-1/bedrock/aws4_request, \
                 SignedHeaders=content-type;host;x-amz-date, \
                 Signature=f32e32317ca4e67f3d257f5a3b105c99fa2ff169529f3061e10a3ea8475b691f",
            ),
            (
                "arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Ainference-profile%2F\
                 us.anthropic.claude-sonnet-4-5-20250929-v1%3A0",
                Some("token=="),
                "AWS4-HMAC-SHA256 \
                 Credential=AKIDEXAMPLE/20260101/us-east-1/bedrock/aws4_request, \
                 SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, \
                 Signature=64423bbeff76629f2d3f54674df21bc103f11037d09056477751b5319cb84b36",
            ),
        ] {
            let secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
            let keys = AwsKeys::for_tests("AKIDEXAMPLE", secret, token);
            let request = Prepared {
                url: format!("{HOST}{model}/converse-stream").parse().unwrap(),
                headers: HeaderMap::new(),
                body: Bytes::from_static(b"{}"),
                offers: false,
            };
            let now = Timestamp(1_767_225_600_000);
            let headers = sign(&request, &keys, "us-east-1", now).unwrap().headers;
            assert_eq!(headers["x-amz-date"], "20260101T000000Z");
            assert_eq!(headers["authorization"].to_str().unwrap(), expected);
            assert!(headers["authorization"].is_sensitive());
            let sent = headers.get("x-amz-security-token");
            assert_eq!(sent.map(|header| header.to_str().unwrap()), token);
            assert!(sent.is_none_or(reqwest::header::HeaderValue::is_sensitive));
        }
    }
}
