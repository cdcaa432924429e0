//! Certificates that are compared, without an authority.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};

/// The name in all certificates. Nothing looks at it.
pub(super) const NAME: &str = "shoal-node";

/// The certificate of an agent, and its key, which never leave the process.
pub(crate) struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    pub(crate) fn new() -> Result<Self, rcgen::Error> {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
        Ok(Self {
            certificate: made.cert.der().clone(),
            key: PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into()),
        })
    }

    #[cfg(test)]
    pub(super) fn certificate(&self) -> CertificateDer<'static> {
        self.certificate.clone()
    }

    /// The certificate as an annotation has it.
    pub(crate) fn shown(&self) -> String {
        STANDARD.encode(&self.certificate)
    }

    /// The settings of the server. It accepts every certificate whose key the client has: whose that is, the caller finds out.
    pub(crate) fn server(&self) -> Result<ServerConfig, Error> {
        let provider = Arc::new(ring::default_provider());
        let verifier = Arc::new(Compared {
            provider: Arc::clone(&provider),
            expected: None,
        });
        ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![self.certificate.clone()], self.key.clone_key())
    }

    /// The settings of a client of the server that has this certificate.
    pub(super) fn client(&self, expected: CertificateDer<'static>) -> Result<ClientConfig, Error> {
        let provider = Arc::new(ring::default_provider());
        let verifier = Arc::new(Compared {
            provider: Arc::clone(&provider),
            expected: Some(expected),
        });
        ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_auth_cert(vec![self.certificate.clone()], self.key.clone_key())
    }
}

/// Reads the certificate of an annotation.
pub(super) fn read(shown: &str) -> Option<CertificateDer<'static>> {
    STANDARD.decode(shown).ok().map(CertificateDer::from)
}

/// Accepts the expected certificate, or any one. The handshake proves that the other end has its key.
#[derive(Debug)]
struct Compared {
    provider: Arc<CryptoProvider>,
    expected: Option<CertificateDer<'static>>,
}

impl Compared {
    fn compare(&self, seen: &CertificateDer<'_>) -> Result<(), Error> {
        match &self.expected {
            Some(expected) if expected != seen => Err(Error::InvalidCertificate(
                CertificateError::ApplicationVerificationFailure,
            )),
            _ => Ok(()),
        }
    }
}

impl ServerCertVerifier for Compared {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.compare(end_entity)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let known = &self.provider.signature_verification_algorithms;
        known.supported_schemes()
    }
}

impl ClientCertVerifier for Compared {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.compare(end_entity)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        ServerCertVerifier::verify_tls12_signature(self, message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        ServerCertVerifier::verify_tls13_signature(self, message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ServerCertVerifier::supported_verify_schemes(self)
    }
}
