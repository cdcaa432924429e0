//! Certificates: configured or self-signed.
//!
//! Self-signed means an authority, and a certificate for the domain and all names under it. Clients
//! trust the authority, which stays when the certificate is renewed.

use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::ServerConfig;
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ParsedCertificate;
use shoal_core::session::preview::PreviewDomain;
use tokio_rustls::TlsAcceptor;

use crate::config::Tls;

/// The lifetime of a self-signed certificate. Clients refuse longer ones.
const GOOD_FOR: Duration = Duration::from_secs(397 * 24 * 3600);
/// The lifetime of the authority.
const AUTHORITY_GOOD_FOR: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// A start renews certificates that are older.
const OLDEST: Duration = Duration::from_secs(300 * 24 * 3600);

/// The listener's certificates, and the authority for clients.
pub(crate) struct Certificates {
    pub(crate) acceptor: TlsAcceptor,
    /// The self-signed authority, if there is one.
    pub(crate) authority: Option<PathBuf>,
}

/// Loads the certificates; generates self-signed ones.
///
/// # Errors
/// When a file cannot be read or written, or has no certificate.
pub(crate) fn load(tls: &Tls, domain: &str, data: &Path) -> anyhow::Result<Certificates> {
    let (certificate, key, authority) = match tls {
        Tls::Files { certificate, key } => (certificate.clone(), key.clone(), None),
        Tls::SelfSigned => {
            let directory = data.join("tls");
            let made = make(&directory, domain).context("cannot generate a certificate")?;
            (made.0, made.1, Some(directory.join("ca.pem")))
        }
    };
    let read = |path: &Path| format!("cannot read the certificate {}", path.display());
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&certificate)
        .and_then(Iterator::collect)
        .with_context(|| read(&certificate))?;
    let key = PrivateKeyDer::from_pem_file(&key).with_context(|| read(&key))?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Certificates {
        acceptor: TlsAcceptor::from(Arc::new(config)),
        authority,
    })
}

/// The paths of the certificate and its key.
fn make(directory: &Path, domain: &str) -> anyhow::Result<(PathBuf, PathBuf)> {
    fs::create_dir_all(directory)?;
    let certificate = directory.join(format!("{domain}.pem"));
    let key = directory.join(format!("{domain}.key"));
    let age = fs::metadata(&certificate).and_then(|m| m.modified()).ok();
    let fresh = age
        .and_then(|at| at.elapsed().ok())
        .is_some_and(|age| age < OLDEST);
    let previews = PreviewDomain::of(Some(domain));
    if fresh && key.exists() && covers(&certificate, &format!("any.{previews}")) {
        return Ok((certificate, key));
    }
    let issuer = authority(directory)?;
    let own_key = KeyPair::generate()?;
    let names = [
        domain.to_owned(),
        format!("*.{domain}"),
        format!("*.{previews}"),
        "localhost".to_owned(),
    ];
    let mut params = CertificateParams::new(names)?;
    for address in [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ] {
        params.subject_alt_names.push(SanType::IpAddress(address));
    }
    params.distinguished_name.push(DnType::CommonName, domain);
    params
        .extended_key_usages
        .push(ExtendedKeyUsagePurpose::ServerAuth);
    set_validity(&mut params, GOOD_FOR);
    let signed = params.signed_by(&own_key, &issuer)?;
    write(&key, &own_key.serialize_pem(), 0o600)?;
    write(&certificate, &signed.pem(), 0o644)?;
    Ok((certificate, key))
}

/// Whether a certificate is for this name. A former version made some without the names of previews.
fn covers(certificate: &Path, name: &str) -> bool {
    let Ok(der) = CertificateDer::from_pem_file(certificate) else {
        return false;
    };
    let (parsed, name) = (
        ParsedCertificate::try_from(&der),
        ServerName::try_from(name),
    );
    match (parsed, name) {
        (Ok(parsed), Ok(name)) => verify_server_name(&parsed, &name).is_ok(),
        _ => false,
    }
}

/// The authority of this installation, generated if it is missing.
fn authority(directory: &Path) -> anyhow::Result<Issuer<'static, KeyPair>> {
    let (certificate, key) = (directory.join("ca.pem"), directory.join("ca.key"));
    if certificate.exists() && key.exists() {
        let key = KeyPair::from_pem(&fs::read_to_string(key)?)?;
        return Ok(Issuer::from_ca_cert_pem(
            &fs::read_to_string(certificate)?,
            key,
        )?);
    }
    let own_key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
        .distinguished_name
        .push(DnType::CommonName, "Shoal, this installation");
    set_validity(&mut params, AUTHORITY_GOOD_FOR);
    let own = params.self_signed(&own_key)?;
    write(&key, &own_key.serialize_pem(), 0o600)?;
    write(&certificate, &own.pem(), 0o644)?;
    Ok(Issuer::new(params, own_key))
}

fn set_validity(params: &mut CertificateParams, good_for: Duration) {
    // Valid since yesterday, for clients with a slow clock.
    let now = SystemTime::now() - Duration::from_secs(24 * 3600);
    params.not_before = now.into();
    params.not_after = (now + good_for).into();
}

fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_certificate_is_made_once_and_its_keys_are_nobody_elses() {
        // Another test may have installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let data = tempfile::tempdir().unwrap();
        let load = || load(&Tls::SelfSigned, "e2b.localhost", data.path()).unwrap();
        let authority = load().authority.unwrap();
        let first = fs::read(&authority).unwrap();
        load();
        assert_eq!(fs::read(&authority).unwrap(), first);
        let certificate = data.path().join("tls/e2b.localhost.pem");
        for name in [
            "e2b.localhost",
            "8000-ia.e2b.localhost",
            "h.preview.e2b.localhost",
        ] {
            assert!(covers(&certificate, name), "{name}");
        }
        assert!(!covers(&certificate, "a.b.e2b.localhost"));
        // One without the names of previews is replaced.
        let own_key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["*.e2b.localhost".to_owned()]).unwrap();
        let former = params.self_signed(&own_key).unwrap().pem();
        fs::write(&certificate, &former).unwrap();
        load();
        assert!(covers(&certificate, "h.preview.e2b.localhost"));
        fs::remove_file(&certificate).unwrap();
        load();
        assert_eq!(
            fs::read(&authority).unwrap(),
            first,
            "clients keep trusting it"
        );
        for key in ["ca.key", "e2b.localhost.key"] {
            let mode = fs::metadata(data.path().join("tls").join(key))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }
}
