//! TLS by the cluster's key alone, with raw public keys (RFC 7250) instead of certificates.
//!
//! Only processes with the cluster's key can compute the Ed25519 keys of both sides. Nodes have
//! other keys than analyzers, so that a node can't pretend to be an analyzer.

use std::sync::Arc;

use fanpcap_cluster::control::{Key, Keys};
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};

/// The labels with which the keys of nodes and of analyzers are derived from the cluster's key.
const NODE: &[u8] = b"fanpcap node's TLS key";
const ANALYZER: &[u8] = b"fanpcap analyzer's TLS key";

/// An Ed25519 private key in PKCS #8, without the key's 32 bytes at the end (RFC 8410, section 7).
const PKCS8: [u8; 16] = [
    0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20,
];

/// The TLS configurations. Each side proves `keys.current`, and also accepts `keys.other`.
pub(super) fn configs(keys: &Keys) -> Result<(ClientConfig, ServerConfig), Error> {
    let provider = Arc::new(ring::default_provider());
    let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(AcceptedKeys::new(keys, ANALYZER, &provider)?);
    let own = certified_key(&keys.current, NODE)?;
    let client =
        client.with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(own)));
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(AcceptedKeys::new(keys, NODE, &provider)?);
    let own = certified_key(&keys.current, ANALYZER)?;
    let server = server.with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own)));
    Ok((client, server))
}

/// The key pair of one side, derived from the cluster's key.
fn certified_key(key: &Key, side: &[u8]) -> Result<Arc<CertifiedKey>, Error> {
    let der = [&PKCS8[..], &key.derive(side)].concat();
    let pair = ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(der))?;
    let public = pair
        .public_key()
        .ok_or(Error::InconsistentKeys(rustls::InconsistentKeys::Unknown))?;
    let public = CertificateDer::from(public.to_vec());
    Ok(Arc::new(CertifiedKey::new(vec![public], pair)))
}

/// Accepts the other side if its public key is one of these keys.
#[derive(Debug)]
struct AcceptedKeys {
    keys: Vec<Vec<u8>>,
    provider: Arc<CryptoProvider>,
}

impl AcceptedKeys {
    fn new(keys: &Keys, side: &[u8], provider: &Arc<CryptoProvider>) -> Result<Arc<Self>, Error> {
        let all = [Some(&keys.current), keys.other.as_ref()];
        let public = |key: &Key| Ok(certified_key(key, side)?.end_entity_cert()?.to_vec());
        Ok(Arc::new(Self {
            keys: all
                .into_iter()
                .flatten()
                .map(public)
                .collect::<Result<_, Error>>()?,
            provider: Arc::clone(provider),
        }))
    }

    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        match self.keys.iter().any(|key| key[..] == **shown) {
            true => Ok(()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }
}

/// The checks that clients and servers have in common. rustls has one trait for each side.
macro_rules! signatures {
    () => {
        /// Raw public keys are used only with TLS 1.3, so this method is never called.
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::General("raw public keys need TLS 1.3".to_owned()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            shown: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let key = SubjectPublicKeyInfoDer::from(&shown[..]);
            let algorithms = &self.provider.signature_verification_algorithms;
            verify_tls13_signature_with_raw_key(message, &key, signed, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for AcceptedKeys {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(shown).map(|()| ServerCertVerified::assertion())
    }

    signatures!();
}

impl ClientCertVerifier for AcceptedKeys {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(shown).map(|()| ClientCertVerified::assertion())
    }

    signatures!();
}
