//! The certificate authority of one control plane.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use tempfile::Builder;

use crate::files;

pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    file: PathBuf,
}

/// The files of a certificate and its key.
#[derive(Debug)]
pub(super) struct KeyAndCertificate {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// The keys that sign and verify tokens of ServiceAccounts.
#[derive(Debug)]
pub(super) struct TokenKeys {
    pub(super) private: PathBuf,
    pub(super) public: PathBuf,
}

impl TokenKeys {
    pub(super) fn new(dir: &Path) -> Result<Self> {
        let key = KeyPair::generate().context("make a key for tokens")?;
        Ok(Self {
            private: write(dir, "tokens.key", key.serialize_pem())?,
            public: write(dir, "tokens.pub", key.public_key_pem())?,
        })
    }
}

impl Authority {
    /// Its certificate is written to `dir`, its key stays in memory.
    pub(super) fn new(dir: &Path) -> Result<Self> {
        let mut params = named("lab Kubernetes CA")?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().context("make the CA's key")?;
        let signed = params
            .self_signed(&key)
            .context("sign the CA's certificate")?;
        Ok(Self {
            file: write(dir, "ca.pem", signed.pem())?,
            issuer: Issuer::new(params, key),
        })
    }

    /// The file with its certificate.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// A new directory beside that file for the files of one user. `KUBECONFIG` separates paths by
    /// colons, so the name has none.
    pub(super) fn user_dir(&self) -> Result<PathBuf> {
        let parent = self.file.with_file_name("");
        let made = Builder::new().prefix("user-").tempdir_in(&parent);
        let made = made.with_context(|| format!("make a directory in {}", parent.display()))?;
        // It is removed with its parent.
        Ok(made.keep())
    }

    pub(super) fn certify_server(
        &self,
        dir: &Path,
        addresses: &[IpAddr],
    ) -> Result<KeyAndCertificate> {
        let mut params = named("kube-apiserver")?;
        let addresses = addresses.iter().copied();
        params.subject_alt_names = addresses.map(SanType::IpAddress).collect();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params, dir, "server")
    }

    /// Kubernetes takes the organisation for the group.
    pub(super) fn certify_user(
        &self,
        dir: &Path,
        name: &str,
        group: Option<&str>,
    ) -> Result<KeyAndCertificate> {
        let mut params = named(name)?;
        if let Some(group) = group {
            let subject = &mut params.distinguished_name;
            subject.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params, dir, "user")
    }

    fn sign(
        &self,
        params: &CertificateParams,
        dir: &Path,
        name: &str,
    ) -> Result<KeyAndCertificate> {
        let key = KeyPair::generate().context("make a key")?;
        let signed = params
            .signed_by(&key, &self.issuer)
            .context("sign a certificate")?;
        Ok(KeyAndCertificate {
            certificate: write(dir, &format!("{name}.pem"), signed.pem())?,
            key: write(dir, &format!("{name}.key"), key.serialize_pem())?,
        })
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Authority").field(&self.file).finish()
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
