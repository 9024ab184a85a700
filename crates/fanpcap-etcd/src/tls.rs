//! Certificates and private keys, which are read from files, and read again when the files change.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use fanpcap_linux::file::directory::{open_regular, read_at_most};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig, TlsProvider};

use crate::error::SetupError;
use crate::settings::TlsFiles;

/// Maximum size of a file of certificates, in bytes.
const FILE: u64 = 1 << 20;

/// Values that change when a file changes: device, inode, size, and time of change in seconds and
/// nanoseconds; `None` if the file does not exist.
pub(crate) type Stamp = Option<([u64; 3], [i64; 2])>;

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

/// Reads and checks the files. The check is needed because ureq panics if a private key does not
/// belong to its certificate.
pub(crate) fn load(files: &TlsFiles) -> Result<TlsConfig, SetupError> {
    let provider = Arc::new(ring::default_provider());
    let mut roots = Vec::new();
    let mut store = RootCertStore::empty();
    for der in certificates(&files.ca)? {
        roots.push(Certificate::from_der(&der).to_owned());
        store
            .add(der)
            .map_err(|_| SetupError::Pem(files.ca.clone(), "CA certificate"))?;
    }
    let own = match &files.own {
        Some((certificate, key)) => Some(own(certificate, key, &provider, store)?),
        None => None,
    };
    Ok(TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(provider)
        .root_certs(RootCerts::new_with_certs(&roots))
        .client_cert(own)
        .build())
}

/// The client's certificate with its private key.
fn own(
    certificate: &Path,
    key: &Path,
    provider: &Arc<CryptoProvider>,
    roots: RootCertStore,
) -> Result<ClientCert, SetupError> {
    let chain = certificates(certificate)?;
    let pem = read(key)?;
    let bad = || SetupError::Pem(key.to_owned(), "private key");
    let der = PrivateKeyDer::from_pem_slice(&pem).map_err(|_| bad())?;
    let of_ureq = PrivateKey::from_pem(&pem).map_err(|_| bad())?;
    ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            let builder = builder.with_root_certificates(roots);
            builder.with_client_auth_cert(chain.clone(), der)
        })
        .map_err(|_| SetupError::Pair(certificate.to_owned(), key.to_owned()))?;
    let chain = chain
        .iter()
        .map(|der| Certificate::from_der(der).to_owned());
    let chain: Vec<_> = chain.collect();
    Ok(ClientCert::new_with_certs(&chain, of_ureq))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, SetupError> {
    let pem = read(path)?;
    let found = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    let found = found.ok().filter(|found| !found.is_empty());
    found.ok_or_else(|| SetupError::Pem(path.to_owned(), "certificate"))
}

fn read(path: &Path) -> Result<Vec<u8>, SetupError> {
    let bytes = open_regular(path).and_then(|file| read_at_most(file, FILE));
    bytes.map_err(|error| SetupError::File(path.to_owned(), error))
}

#[cfg(test)]
mod tests {
    use fanpcap_testkit::{Scratch, pipe};

    use super::*;

    #[test]
    fn a_pipe_is_no_file_of_certificates() {
        let scratch = Scratch::new().unwrap();
        let error = pipe::opened(&scratch.file("ca"), |ca| certificates(ca).unwrap_err());
        assert!(error.unwrap().to_string().contains("not a regular file"));
    }
}
