//! Servers whose certificate is their own authority, as `openssl req -x509` makes them.
//!
//! Go, and so tailscaled, takes such a certificate if it is in the file of those to trust; webpki
//! refuses it. A server that a node can join by must not be one that its daemon can't talk to.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

/// Judges as webpki does, but takes a certificate that is literally one of the trusted.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) webpki: Arc<WebPkiServerVerifier>,
    pub(super) trusted: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verdict = self
            .webpki
            .verify_server_cert(certificate, others, name, ocsp, now);
        let Err(Error::InvalidCertificate(fault)) = &verdict else {
            return verdict;
        };
        if !is_authority(fault) || !self.trusted.contains(certificate) {
            return verdict;
        }
        // Webpki looks at the times before it looks at who may be a server, and at the name after it.
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

/// Whether a certificate is refused because it is an authority's.
pub(super) fn is_authority(fault: &CertificateError) -> bool {
    // rustls has no name of its own for it, only webpki's in a box.
    matches!(fault, CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity"))
}
