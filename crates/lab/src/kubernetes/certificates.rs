//! The authority of one control plane: whom it certifies, the API server knows.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::CertificateDer;
use tempfile::Builder;

use crate::files;

/// Who is signed by it is trusted.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    file: PathBuf,
}

/// A certificate and its key, in files and in memory.
pub(super) struct Certified {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    pub(super) der: CertificateDer<'static>,
    pub(super) key_der: Vec<u8>,
}

/// The keys by which tokens of `ServiceAccounts` are signed and checked.
#[derive(Debug)]
pub(super) struct TokenKeys {
    pub(super) private: PathBuf,
    pub(super) public: PathBuf,
}

impl TokenKeys {
    /// Makes them, in `dir`.
    pub(super) fn new(dir: &Path) -> Result<Self> {
        let key = KeyPair::generate().context("make a key for tokens")?;
        Ok(Self {
            private: write(dir, "tokens.key", key.serialize_pem())?,
            public: write(dir, "tokens.pub", key.public_key_pem())?,
        })
    }
}

impl Authority {
    /// Makes one, with its certificate in `dir`. Its key stays in memory.
    pub(super) fn new(dir: &Path) -> Result<Self> {
        let mut params = named("the lab's Kubernetes")?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().context("make the authority's key")?;
        let signed = params
            .self_signed(&key)
            .context("sign the authority's certificate")?;
        Ok(Self {
            file: write(dir, "ca.pem", signed.pem())?,
            certificate: signed.der().clone(),
            issuer: Issuer::new(params, key),
        })
    }

    /// Its certificate.
    pub(super) fn der(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The file with its certificate.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// A new directory beside that file, for what one user has. The name is free of colons, which
    /// separate files where `KUBECONFIG` names them.
    pub(super) fn dir_for_one(&self) -> Result<PathBuf> {
        let beside = self.file.with_file_name("");
        let made = Builder::new().prefix("user-").tempdir_in(&beside);
        let made = made.with_context(|| format!("make a directory in {}", beside.display()))?;
        // It goes with the one that it is in.
        Ok(made.keep())
    }

    /// Certifies the API server, by whatever address clients call it.
    pub(super) fn serve(&self, dir: &Path, addresses: &[IpAddr]) -> Result<Certified> {
        let mut params = named("kube-apiserver")?;
        let addresses = addresses.iter().copied();
        params.subject_alt_names = addresses.map(SanType::IpAddress).collect();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params, dir, "server")
    }

    /// Certifies a user. Kubernetes takes the organisation for the group, and of those a name has one.
    pub(super) fn user(&self, dir: &Path, name: &str, group: Option<&str>) -> Result<Certified> {
        let mut params = named(name)?;
        if let Some(group) = group {
            let subject = &mut params.distinguished_name;
            subject.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params, dir, "user")
    }

    fn sign(&self, params: &CertificateParams, dir: &Path, name: &str) -> Result<Certified> {
        let key = KeyPair::generate().context("make a key")?;
        let signed = params
            .signed_by(&key, &self.issuer)
            .context("sign a certificate")?;
        Ok(Certified {
            certificate: write(dir, &format!("{name}.pem"), signed.pem())?,
            key: write(dir, &format!("{name}.key"), key.serialize_pem())?,
            der: signed.der().clone(),
            key_der: key.serialize_der(),
        })
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Authority").field(&self.file).finish()
    }
}

impl fmt::Debug for Certified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Certified").field(&self.certificate).finish()
    }
}

fn named(name: &str) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new()).context("begin a certificate")?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

fn write(dir: &Path, name: &str, text: String) -> Result<PathBuf> {
    let path = dir.join(name);
    files::put(&path, text).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}
