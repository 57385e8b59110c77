//! The servers' TLS: an authority of the cluster's own, and a certificate for each server.

use clawnode_cluster::{Clock, SystemClock};
use clawnode_nats::auth::BusServer;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};

use crate::start_error::StartError;

/// Years for which certificates hold; `cluster certify` makes a server another at any time.
const YEARS: i32 = 10;
/// Milliseconds of a year, nearly: only the year of the end is reckoned with them.
const YEAR_MILLIS: u64 = 31_556_952_000;

/// A certificate and its key, PEM.
pub(super) struct CertificatePair {
    pub(super) certificate: String,
    pub(super) key: String,
}

/// A new authority for the cluster of this name.
pub(super) fn authority(cluster: &str) -> Result<CertificatePair, StartError> {
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = authority_params(cluster)?.self_signed(&key).map_err(failed)?;
    Ok(CertificatePair { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// A certificate for `server`, signed by the authority with this key.
pub(super) fn server(
    cluster: &str,
    authority_key: &str,
    server: &BusServer,
) -> Result<CertificatePair, StartError> {
    let issuer_key = KeyPair::from_pem(authority_key).map_err(failed)?;
    let issuer = Issuer::new(authority_params(cluster)?, issuer_key);
    let mut names = vec![server.host.clone()];
    if server.is_loopback() {
        names.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
    }
    names.sort_unstable();
    names.dedup();
    let mut params = CertificateParams::new(names).map_err(failed)?;
    params.distinguished_name = named(&server.name);
    params.not_after = date_time_ymd(last_year(), 12, 31);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // Between servers each is the other's client.
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.signed_by(&key, &issuer).map_err(failed)?;
    Ok(CertificatePair { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn authority_params(cluster: &str) -> Result<CertificateParams, StartError> {
    let mut params = CertificateParams::new(Vec::new()).map_err(failed)?;
    params.distinguished_name = named(&format!("clawnode cluster {cluster}"));
    params.not_after = date_time_ymd(last_year(), 12, 31);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// The year in which certificates end.
fn last_year() -> i32 {
    let year = i32::try_from(SystemClock.now().0 / YEAR_MILLIS).unwrap_or(0) + 1970;
    year + YEARS
}

#[expect(clippy::needless_pass_by_value, reason = "given to `map_err`")]
fn failed(error: rcgen::Error) -> StartError {
    StartError::failed("internal", format!("a certificate cannot be made: {error}"))
}
