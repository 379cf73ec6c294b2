//! Which servers are trusted: the CA certificates of `headscale.caFile`, or else the system's.
//!
//! Go, and so tailscaled, accepts a self-signed CA certificate as the server's own (the result of
//! `openssl req -x509`) if it is in the CA file; webpki rejects it as `CaUsedAsEndEntity`. The daemon
//! must be able to talk to any server that tailscaled can join, so [`CaFileVerifier`] accepts it too.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use crate::options::ClientSetupError;

/// Reads the certificates, so it blocks.
pub(crate) fn client_config(ca_file: Option<&Path>) -> Result<ClientConfig, ClientSetupError> {
    // Not the process's default provider: a library must not install one.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match ca_file {
        Some(path) => Arc::new(CaFileVerifier::load(path, Arc::clone(&provider))?),
        None => Arc::new(
            rustls_platform_verifier::Verifier::new(Arc::clone(&provider))
                .map_err(ClientSetupError::SystemCa)?,
        ),
    };
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(ClientSetupError::Tls)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth())
}

/// webpki's rules, except that a certificate of the CA file may be the server's own.
#[derive(Debug)]
struct CaFileVerifier {
    webpki: Arc<WebPkiServerVerifier>,
    trusted: Vec<CertificateDer<'static>>,
}

impl CaFileVerifier {
    fn load(path: &Path, provider: Arc<CryptoProvider>) -> Result<Self, ClientSetupError> {
        let pem = fs::read(path).map_err(|source| ClientSetupError::CaFile {
            path: path.to_owned(),
            source,
        })?;
        let invalid = |what: String| ClientSetupError::CaContent {
            path: path.to_owned(),
            what,
        };
        let trusted = CertificateDer::pem_slice_iter(&pem)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| invalid(format!("invalid PEM ({error})")))?;
        if trusted.is_empty() {
            return Err(invalid("no certificate".to_owned()));
        }
        let mut roots = RootCertStore::empty();
        for certificate in &trusted {
            roots
                .add(certificate.clone())
                .map_err(|error| invalid(format!("an unusable certificate ({error})")))?;
        }
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| ClientSetupError::Tls(Error::General(error.to_string())))?;
        Ok(Self { webpki, trusted })
    }
}

impl ServerCertVerifier for CaFileVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let result = self
            .webpki
            .verify_server_cert(certificate, intermediates, name, ocsp, now);
        match &result {
            // webpki checks the validity period before it reports this, and the name after it.
            Err(Error::InvalidCertificate(error))
                if is_ca_as_end_entity(error) && self.trusted.contains(certificate) =>
            {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            _ => result,
        }
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

/// rustls has no variant for this: webpki's error is boxed inside `Other`.
pub(crate) fn is_ca_as_end_entity(error: &CertificateError) -> bool {
    matches!(error, CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rstest::rstest;
    use tempfile::NamedTempFile;

    use super::*;

    #[rstest]
    #[case("", "has no certificate: put")]
    #[case("no PEM at all", "has no certificate: put")]
    #[case(
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "has an unusable certificate"
    )]
    #[case("-----BEGIN CERTIFICATE-----\nAAAA\n", "has invalid PEM")]
    fn a_ca_file_without_certificates_is_named(#[case] pem: &str, #[case] expected: &str) {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(pem.as_bytes()).unwrap();
        let error = client_config(Some(file.path())).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(error.contains(&file.path().display().to_string()));
    }

    #[test]
    fn a_missing_ca_file_is_named() {
        let error = client_config(Some(Path::new("/nonexistent/ca.pem"))).unwrap_err();
        let error = error.to_string();
        assert!(
            error.starts_with("failed to read headscale.caFile /nonexistent/ca.pem"),
            "{error}"
        );
    }
}
