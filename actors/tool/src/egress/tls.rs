//! TLS for every HTTP client of the product.

use std::sync::Arc;

/// rustls on ring. Without `roots` no certificate is trusted, which plain HTTP does not need.
pub fn tls(roots: bool) -> Result<rustls::ClientConfig, rustls::Error> {
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(ring.clone())
        .with_safe_default_protocol_versions()?;
    let mut config = if roots {
        let verifier = Arc::new(rustls_platform_verifier::Verifier::new(ring)?);
        config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
    } else {
        config.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_client_can_be_made() {
        assert_eq!(tls(false).unwrap().alpn_protocols.len(), 2);
        // A machine without certificates gets an error that says so, not a panic.
        match tls(true) {
            Ok(tls) => assert_eq!(tls.alpn_protocols.len(), 2),
            Err(error) => assert!(error.to_string().contains("certificates"), "{error}"),
        }
    }
}
