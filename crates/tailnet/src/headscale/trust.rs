//! Who is trusted to say that a server is the server.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::settings::SetupError;

/// TLS with those authorities; they are read now, and blocks for it.
pub(super) fn config(ca_file: Option<&Path>) -> Result<ClientConfig, SetupError> {
    let roots = match ca_file {
        Some(path) => of_file(path)?,
        None => of_system()?,
    };
    // Named here, not as the process's default: that belongs to no library.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(SetupError::Tls)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

fn of_file(path: &Path) -> Result<RootCertStore, SetupError> {
    let bytes = fs::read(path).map_err(|source| SetupError::CaFile {
        path: path.to_owned(),
        source,
    })?;
    let content = |what: String| SetupError::CaContent {
        path: path.to_owned(),
        what,
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&bytes) {
        let certificate = certificate.map_err(|error| content(format!("damaged PEM ({error})")))?;
        roots
            .add(certificate)
            .map_err(|error| content(format!("a certificate that can't be used ({error})")))?;
    }
    if roots.is_empty() {
        return Err(content("no certificate".to_owned()));
    }
    Ok(roots)
}

fn of_system() -> Result<RootCertStore, SetupError> {
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
    Ok(roots)
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
