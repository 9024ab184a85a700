//! The keys and certificates that cluster.conf names, read at the start and after each SIGHUP.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use fanpcap_cluster::control::{Key, Keys};
use fanpcap_linux::wait::hangup::Hangups;
use fanpcap_terminal::streams;

use crate::conf::{Conf, Role};
use crate::keyring::Keyring;
use crate::tls::Tls;

/// The message at the start if the settings name neither a key nor certificates.
pub(crate) const OPEN: &str = "records and counts are sent without TLS: whoever reaches an \
    analyzer's port can forge them; name a key_file in cluster.conf, on all machines";

/// The keys that the settings name, if any. The first key seals messages; both keys open them.
///
/// # Errors
/// Fails if a file can't be read or is too short, or if other users can read it.
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

/// TLS with the certificates that the settings name, or with the keys if `role` needs no
/// certificates. `None` if the settings name neither certificates nor keys.
fn tls(conf: &Conf, role: Role) -> Result<Option<Tls>> {
    let Some(files) = conf.records(role) else {
        return keys(conf)?.map(|keys| Tls::of_keys(&keys)).transpose();
    };
    let files = [&files.ca, &files.certificate, &files.key];
    Ok(Some(Tls::load(files.map(|file| &*file.value))?))
}

/// A keyring with the credentials for `role`. A file that other users can read is refused.
pub(crate) fn keyring(conf: &Conf, role: Role) -> Result<Arc<Keyring>> {
    Ok(Arc::new(Keyring::new(tls(conf, role)?)))
}

/// Reads keys and certificates again after each SIGHUP.
#[derive(Debug)]
pub(crate) struct Reloader {
    path: PathBuf,
    role: Role,
    ring: Arc<Keyring>,
    hangups: Hangups,
    say: fn(&str),
}

impl Reloader {
    /// After each SIGHUP, the settings in `path` are read again, and the credentials for `role` are
    /// put into `ring`. `say` prints whether the reading succeeded.
    pub(crate) fn new(path: &Path, role: Role, ring: Arc<Keyring>, say: fn(&str)) -> Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            role,
            ring,
            hangups: Hangups::catch().context("catching SIGHUP")?,
            say,
        })
    }

    /// After a SIGHUP, reads the settings again. If they are correct, puts their keys into the
    /// keyring and returns the settings. Otherwise reports the mistake and keeps the previous keys.
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
                (self.say)(&format!("the old keys and certificates stay in use: {why}"));
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
            "the settings no longer have a 'key_file': restart to run without a key"
        );
        self.ring.set(tls);
        Ok(conf)
    }
}

#[cfg(test)]
mod tests;
