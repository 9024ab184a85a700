//! The keys and certificates that cluster.conf names, read at the start and after each SIGHUP.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use fanpcap_cluster::control::{Key, Keys};
use fanpcap_linux::wait::hangup::Hangups;
use fanpcap_terminal::streams;

use crate::conf::{Conf, Role};
use crate::keyring::Keyring;
use crate::tls::{Tls, TlsFiles};

/// The message at the start if there is neither key nor certificate.
pub(crate) const OPEN: &str = "records and counts are sent without TLS: whoever reaches an \
    analyzer's port can forge them; name a key_file in cluster.conf, on all machines";

/// The keys that the settings name. The first one seals; both are accepted. `None`: the settings
/// name none.
///
/// # Errors
///
/// A file can't be read, is too short, or other users can read it.
pub fn keys(conf: &Conf) -> Result<Option<Keys>> {
    let secrets = conf.keys()?;
    let mut keys = secrets
        .iter()
        .map(|secret| Key::new(secret.bytes().to_vec()));
    Ok(keys.next().flatten().map(|current| Keys {
        current,
        other: keys.next().flatten(),
    }))
}

/// TLS by the certificates that the settings name, or by their keys where `role` needs no
/// certificates. `None`: they name neither.
fn tls(conf: &Conf, role: Role) -> Result<Option<Tls>> {
    let Some(files) = conf.records(role) else {
        return keys(conf)?.map(|keys| Tls::of_keys(&keys)).transpose();
    };
    let files = TlsFiles {
        ca: files.ca.value.clone(),
        certificate: files.certificate.value.clone(),
        key: files.key.value.clone(),
    };
    Ok(Some(Tls::load(&files)?))
}

/// A keyring with the credentials that the settings name and `role` needs.
///
/// # Errors
///
/// A file can't be read, is not valid, or other users can read it.
pub(crate) fn keyring(conf: &Conf, role: Role) -> Result<Arc<Keyring>> {
    Ok(Arc::new(Keyring::new(tls(conf, role)?)))
}

/// Reads keys again after each SIGHUP.
#[derive(Debug)]
pub(crate) struct Reloader {
    path: PathBuf,
    role: Role,
    ring: Arc<Keyring>,
    hangups: Hangups,
    say: fn(&str),
}

impl Reloader {
    /// Will read the settings in `path` again for `ring`, as `role` needs them. `say` gets the
    /// messages about it.
    ///
    /// # Errors
    ///
    /// SIGHUP can't be caught.
    pub(crate) fn new(path: &Path, role: Role, ring: Arc<Keyring>, say: fn(&str)) -> Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            role,
            ring,
            hangups: Hangups::catch().context("catching SIGHUP")?,
            say,
        })
    }

    /// The settings, if SIGHUP has come and they are correct; then the keyring has their keys. A
    /// mistake is reported, and the keys stay as they were.
    pub(crate) fn due(&mut self) -> Option<Conf> {
        if !self.hangups.is_new() {
            return None;
        }
        match self.read() {
            Ok(conf) => {
                (self.say)(
                    "keys and certificates were read again; other settings take effect after a restart",
                );
                Some(conf)
            }
            Err(error) => {
                let why = streams::words(&error);
                (self.say)(&format!("the old keys and certificates stay: {why}"));
                None
            }
        }
    }

    fn read(&self) -> Result<Conf> {
        let conf = Conf::load(&self.path)?;
        conf.check_files(self.role)?;
        let tls = tls(&conf, self.role)?;
        ensure!(
            tls.is_some() || self.ring.tls().is_none(),
            "no 'key_file' any more: restart it to run without a key"
        );
        self.ring.set(tls);
        Ok(conf)
    }
}

#[cfg(test)]
mod tests;
