//! Certificates and keys: read from files, and read again when the files change.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use ureq::tls::{
    Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, TlsProvider, parse_pem,
};

use crate::error::SetupError;
use crate::settings::TlsFiles;

/// Largest file of certificates, in bytes.
const FILE: u64 = 1 << 20;

/// What tells that a file has changed: device, inode, size, time of change in seconds and
/// nanoseconds; `None` for a file that is not there.
pub(crate) type Stamp = Option<([u64; 3], [i64; 2])>;

/// The stamps of all files.
pub(crate) fn stamps(files: &TlsFiles) -> Vec<Stamp> {
    let own = files.own.iter().flat_map(|(cert, key)| [cert, key]);
    [&files.ca]
        .into_iter()
        .chain(own)
        .map(|p| stamp(p))
        .collect()
}

fn stamp(path: &Path) -> Stamp {
    let data = fs::metadata(path).ok()?;
    Some((
        [data.dev(), data.ino(), data.size()],
        [data.ctime(), data.ctime_nsec()],
    ))
}

/// Reads the files.
pub(crate) fn load(files: &TlsFiles) -> Result<TlsConfig, SetupError> {
    let roots = RootCerts::new_with_certs(&certificates(&files.ca)?);
    let own = match &files.own {
        Some((cert, key)) => Some(ClientCert::new_with_certs(
            &certificates(cert)?,
            private_key(key)?,
        )),
        None => None,
    };
    Ok(TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .root_certs(roots)
        .client_cert(own)
        .build())
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, SetupError> {
    let mut found = Vec::new();
    for item in parse_pem(&read(path)?) {
        if let Ok(PemItem::Certificate(certificate)) = item {
            found.push(certificate);
        }
    }
    if found.is_empty() {
        return Err(SetupError::Pem(path.to_owned(), "certificate"));
    }
    Ok(found)
}

fn private_key(path: &Path) -> Result<PrivateKey<'static>, SetupError> {
    PrivateKey::from_pem(&read(path)?).map_err(|_| SetupError::Pem(path.to_owned(), "private key"))
}

fn read(path: &Path) -> Result<Vec<u8>, SetupError> {
    let error = |error| SetupError::File(path.to_owned(), error);
    if fs::metadata(path).map_err(error)?.len() > FILE {
        return Err(error(std::io::ErrorKind::FileTooLarge.into()));
    }
    fs::read(path).map_err(error)
}
