//! A certificate authority for the servers of the lab.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};

use crate::files;

#[derive(Debug, Clone)]
pub struct Certified {
    /// The CA's certificate, for clients.
    pub ca: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Makes a new CA and a certificate for a server with this address, in `dir`.
pub fn certify(address: IpAddr, dir: &Path) -> Result<Certified> {
    let named = |name: &str| -> Result<CertificateParams> {
        let mut params = CertificateParams::new(Vec::new()).context("begin a certificate")?;
        params.distinguished_name.push(DnType::CommonName, name);
        Ok(params)
    };
    let mut authority = named("lab CA")?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().context("make the CA's key")?;
    let ca = authority
        .self_signed(&authority_key)
        .context("sign the CA's certificate")?;
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
