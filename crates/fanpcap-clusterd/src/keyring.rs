//! The credentials of connections between nodes and analyzers, and random numbers.

use std::fs::File;
use std::io::{self, Read};
use std::sync::{Arc, PoisonError, RwLock};

use crate::tls::Tls;

/// This process's credentials. All threads share the keyring. A SIGHUP replaces the credentials.
#[derive(Debug, Default)]
pub struct Keyring(RwLock<Option<Arc<Tls>>>);

impl Keyring {
    /// A keyring with these credentials. With `None`, connections are made without TLS.
    pub fn new(tls: Option<Tls>) -> Self {
        Self(RwLock::new(tls.map(Arc::new)))
    }

    /// Replaces the credentials.
    pub fn set(&self, tls: Option<Tls>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = tls.map(Arc::new);
    }

    /// The credentials for connections.
    pub fn tls(&self) -> Option<Arc<Tls>> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Unguessable bytes.
///
/// # Errors
/// Fails if the kernel's source of random bytes can't be read.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
