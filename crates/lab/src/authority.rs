//! A certificate authority of the lab's own: nobody else trusts it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};

use crate::files;

/// Where a server's certificate, its key and the authority's certificate lie.
#[derive(Debug, Clone)]
pub struct Certified {
    /// The authority's certificate, for clients.
    pub ca: PathBuf,
    /// The server's certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Writes a new authority's certificate, and one of a server with this address, into `dir`.
pub fn certify(address: IpAddr, dir: &Path) -> Result<Certified> {
    let named = |name: &str| -> Result<CertificateParams> {
        let mut params = CertificateParams::new(Vec::new()).context("begin a certificate")?;
        params.distinguished_name.push(DnType::CommonName, name);
        Ok(params)
    };
    let mut authority = named("the lab's authority")?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().context("make the authority's key")?;
    let ca = authority
        .self_signed(&authority_key)
        .context("sign the authority's certificate")?;
    let issuer = Issuer::new(authority, authority_key);

    let mut server = named("headscale")?;
    server.subject_alt_names = vec![SanType::IpAddress(address)];
    let server_key = KeyPair::generate().context("make the server's key")?;
    let signed = server
        .signed_by(&server_key, &issuer)
        .context("sign the server's certificate")?;

    let write = |name: &str, text: String| -> Result<PathBuf> {
        let path = dir.join(name);
        files::put(&path, text).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    };
    Ok(Certified {
        ca: write("ca.pem", ca.pem())?,
        certificate: write("server.pem", signed.pem())?,
        key: write("server.key", server_key.serialize_pem())?,
    })
}
