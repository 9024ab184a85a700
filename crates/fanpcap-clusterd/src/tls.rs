//! TLS between nodes and analyzers. Each side shows a certificate that the cluster's authority has
//! signed, or a public key that is derived from the cluster's key.

mod raw_keys;
mod words;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use fanpcap_cluster::control::Keys;
use fanpcap_linux::file::directory::{open_regular, read_at_most};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, Error, RootCertStore, ServerConfig};

pub use words::words;

/// Maximum size of a file of certificates, in bytes.
const FILE: u64 = 1 << 20;

/// How both sides authenticate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// Certificates.
    Certificate,
    /// The cluster's key.
    Key,
}

/// The TLS configurations, made once: later changes of the files do not change them.
#[derive(Clone, Debug)]
pub struct Tls {
    /// How both sides authenticate.
    pub proof: Proof,
    /// The configuration for connections that this side makes.
    pub client: Arc<ClientConfig>,
    /// The configuration for connections that this side accepts.
    pub server: Arc<ServerConfig>,
}

impl Tls {
    /// TLS without certificates: this side proves that it has the first key, and accepts both keys.
    ///
    /// # Errors
    /// Fails if the TLS library refuses the keys.
    pub fn of_keys(keys: &Keys) -> Result<Self> {
        let (client, server) = raw_keys::configs(keys).context("TLS by 'key_file'")?;
        Ok(Self {
            proof: Proof::Key,
            client: Arc::new(client),
            server: Arc::new(server),
        })
    }

    /// Reads these files, which are in PEM: the authority that signs the certificates of both
    /// sides, this side's certificate, and its private key.
    ///
    /// # Errors
    /// Fails if a file can't be read or is not valid, or if certificate and key do not fit.
    pub fn load([ca, certificate, key]: [&Path; 3]) -> Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let mut roots = RootCertStore::empty();
        for der in certificates(ca)? {
            let added = roots.add(der);
            added.map_err(|_| not_pem(ca, "CA certificate"))?;
        }
        let roots = Arc::new(roots);
        let chain = certificates(certificate)?;
        let [own, of_own] = [certificate, key].map(Path::display);
        let failed = |error: Error| anyhow!("{of_own} is not the key of {own}: {error}");
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_root_certificates(Arc::clone(&roots))
            .with_client_auth_cert(chain.clone(), private(key)?)
            .map_err(failed)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
        let verifier = verifier
            .build()
            .map_err(|error| anyhow!("{of_own} is not the key of {own}: {error}"))?;
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, private(key)?)
            .map_err(failed)?;
        Ok(Self {
            proof: Proof::Certificate,
            client: Arc::new(client),
            server: Arc::new(server),
        })
    }
}

fn private(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let pem = read(path)?;
    let key = PrivateKeyDer::from_pem_slice(&pem);
    key.map_err(|_| not_pem(path, "private key"))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let pem = read(path)?;
    let found = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    let found = found.ok().filter(|found| !found.is_empty());
    found.ok_or_else(|| not_pem(path, "certificate"))
}

fn not_pem(path: &Path, what: &str) -> anyhow::Error {
    let path = path.display();
    anyhow!("{path} has no {what} in PEM: name another file")
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let bytes = open_regular(path).and_then(|file| read_at_most(file, FILE));
    bytes.map_err(|error| anyhow!("cannot read {}: {error}", path.display()))
}
