//! The credentials of this process for nodes and analyzers: keys, a certificate, its own secrets.

use std::fs::File;
use std::io::{self, Read};
use std::sync::{PoisonError, RwLock};

use fanpcap_cluster::control::Keys;

use crate::tls::Tls;

/// The cluster's keys and this machine's certificate as they are now. Threads share it; a SIGHUP
/// replaces what it holds.
#[derive(Debug, Default)]
pub struct Keyring {
    keys: RwLock<Option<Keys>>,
    tls: RwLock<Option<Tls>>,
}

impl Keyring {
    /// A ring with these keys; `None`: nothing is sealed.
    pub fn new(keys: Option<Keys>) -> Self {
        Self {
            keys: RwLock::new(keys),
            tls: RwLock::new(None),
        }
    }

    /// Replaces the keys.
    pub fn set(&self, keys: Option<Keys>) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    /// Replaces the certificates; `None`: connections are made without TLS.
    pub fn set_tls(&self, tls: Option<Tls>) {
        *self.tls.write().unwrap_or_else(PoisonError::into_inner) = tls;
    }

    /// What connections are made with.
    pub fn tls(&self) -> Option<Tls> {
        let tls = self.tls.read().unwrap_or_else(PoisonError::into_inner);
        tls.clone()
    }

    /// Whether there is a key.
    pub fn has_keys(&self) -> bool {
        self.with(|keys| keys.is_some())
    }

    /// What `work` makes of the keys.
    pub fn with<R>(&self, work: impl FnOnce(Option<&Keys>) -> R) -> R {
        work(
            self.keys
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .as_ref(),
        )
    }
}

/// Bytes that nobody can guess.
///
/// # Errors
///
/// The kernel's source of them can't be read.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
