//! Who is trusted to say that a server is the server.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::selfsigned::Verifier;
use super::settings::SetupError;

/// TLS with those authorities. They are read now, which blocks.
pub(super) fn config(ca_file: Option<&Path>) -> Result<ClientConfig, SetupError> {
    let trusted = match ca_file {
        Some(path) => of_file(path)?,
        None => of_system()?,
    };
    // Named here, not as the process's default: that belongs to no library.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = Arc::new(trusted.roots);
    let webpki = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
        .build()
        .map_err(|error| SetupError::Tls(rustls::Error::General(error.to_string())))?;
    let verifier = Verifier {
        webpki,
        trusted: trusted.certificates,
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(SetupError::Tls)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    Ok(config)
}

/// Who is trusted.
struct Trusted {
    /// Their names and keys.
    roots: RootCertStore,
    /// Those that a person has named, as they are: one may be the server's own.
    certificates: Vec<CertificateDer<'static>>,
}

fn of_file(path: &Path) -> Result<Trusted, SetupError> {
    let bytes = fs::read(path).map_err(|source| SetupError::CaFile {
        path: path.to_owned(),
        source,
    })?;
    let content = |what: String| SetupError::CaContent {
        path: path.to_owned(),
        what,
    };
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let certificates = certificates.map_err(|error| content(format!("damaged PEM ({error})")))?;
    if certificates.is_empty() {
        return Err(content("no certificate".to_owned()));
    }
    let mut roots = RootCertStore::empty();
    for certificate in &certificates {
        roots
            .add(certificate.clone())
            .map_err(|error| content(format!("a certificate that can't be used ({error})")))?;
    }
    Ok(Trusted {
        roots,
        certificates,
    })
}

fn of_system() -> Result<Trusted, SetupError> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::debug!(%error, "a certificate of the system was not read");
    }
    let mut roots = RootCertStore::empty();
    // Systems have some that nobody can use; the others are enough.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(SetupError::NoAuthorities);
    }
    Ok(Trusted {
        roots,
        certificates: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rstest::rstest;
    use tempfile::NamedTempFile;

    use super::*;

    fn file(text: &str) -> NamedTempFile {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[rstest]
    #[case("", "has no certificate: put")]
    #[case("no PEM at all", "has no certificate: put")]
    #[case(
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "has a certificate that can't be used"
    )]
    #[case("-----BEGIN CERTIFICATE-----\nAAAA\n", "has damaged PEM")]
    fn a_file_without_authorities_is_named(#[case] text: &str, #[case] words: &str) {
        let file = file(text);
        let error = config(Some(file.path())).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert!(error.contains(&file.path().display().to_string()));
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = config(Some(Path::new("/nonexistent/ca.pem"))).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("read headscale.caFile /nonexistent/ca.pem")
        );
    }
}
