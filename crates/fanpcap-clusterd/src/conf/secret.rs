//! Files that only root and this program's user may read: keys, passwords.

use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use fanpcap_linux::file::directory::{is_roots_or_own, open_regular, read_at_most};

/// A secret's bytes, which are never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// The bytes of the secret.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Maximum length of a secret, in bytes.
const MOST: u64 = 4096;
/// The bits of a mode that let the group or other users read, write or execute.
const OTHERS: u32 = 0o077;

/// Reads a secret of at least `least` bytes, without a newline at the end. Errors say what to do.
pub(crate) fn read(path: &Path, least: usize) -> Result<Secret, String> {
    let shown = path.display();
    let failed = |error: std::io::Error| format!("cannot read {shown}: {error}");
    let file = open_regular(path).map_err(failed)?;
    check(path, &file.metadata().map_err(failed)?)?;
    let mut bytes = read_at_most(file, MOST).map_err(failed)?;
    while bytes.last().is_some_and(|byte| b"\r\n".contains(byte)) {
        bytes.pop();
    }
    if bytes.len() < least {
        let (len, make) = (
            bytes.len(),
            "write a longer secret with 'openssl rand -hex 32'",
        );
        return Err(format!(
            "{shown} has {len} bytes, fewer than {least}; {make}"
        ));
    }
    Ok(Secret(bytes))
}

/// Checks that only root and the calling user can read a file.
fn check(path: &Path, about: &Metadata) -> Result<(), String> {
    let shown = path.display();
    if !is_roots_or_own(about) {
        let owner = about.uid();
        return Err(format!(
            "{shown} belongs to user {owner}; 'chown root {shown}'"
        ));
    }
    if about.mode() & OTHERS != 0 {
        let mode = about.mode() & 0o7777;
        return Err(format!(
            "{shown} is open to other users (mode {mode:04o}); 'chmod 600 {shown}'"
        ));
    }
    Ok(())
}

/// Checks that `path` is a regular file with a certificate in PEM. If `private` is set, the file
/// must have a private key instead, and other users must not be able to read the file.
pub(crate) fn check_file(path: &Path, private: bool) -> Result<(), String> {
    let shown = path.display();
    let failed = |error: std::io::Error| format!("cannot read {shown}: {error}");
    let file = open_regular(path).map_err(failed)?;
    let (label, what) = match private {
        true => ("PRIVATE KEY-----", "private key"),
        false => ("-----BEGIN CERTIFICATE-----", "certificate"),
    };
    if private {
        check(path, &file.metadata().map_err(failed)?)?;
    }
    let bytes = read_at_most(file, PEM_MOST).map_err(failed)?;
    match String::from_utf8_lossy(&bytes).contains(label) {
        true => Ok(()),
        false => Err(format!(
            "{shown} has no {what} in PEM; name a file that has one"
        )),
    }
}

/// Maximum length of a file of certificates or keys, in bytes.
const PEM_MOST: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use fanpcap_testkit::{Scratch, pipe};

    use super::super::Conf;
    use super::*;
    use crate::tls::Tls;

    #[test]
    fn a_secret_that_others_may_read_is_refused() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.file("key");
        fs::write(&path, "0123456789abcdef\r\n").unwrap();
        let with = |mode| {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            read(&path, 16)
        };
        assert_eq!(with(0o600).unwrap().bytes(), b"0123456789abcdef");
        assert_eq!(with(0o400).unwrap().bytes().len(), 16);
        for mode in [0o640, 0o604, 0o620, 0o602] {
            let said = with(mode).unwrap_err();
            assert!(said.contains("chmod 600"), "{said}");
        }
        with(0o600).unwrap();
        assert!(read(&path, 17).unwrap_err().contains("has 16 bytes"));
        fs::write(&path, vec![b'x'; 4097]).unwrap();
        assert!(read(&path, 16).unwrap_err().contains("longer"));
        assert!(
            read(Path::new("/dev/zero"), 1)
                .unwrap_err()
                .contains("regular")
        );
        assert_eq!(format!("{:?}", Secret(b"hidden".to_vec())), "Secret");
    }

    #[test]
    fn a_file_without_a_certificate_or_a_key_is_refused() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.file("pem");
        fs::write(&path, "-----BEGIN CERTIFICATE-----\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        check_file(&path, false).unwrap();
        let said = check_file(&path, true).unwrap_err();
        assert!(said.contains("has no private key in PEM"), "{said}");
        fs::write(&path, "-----BEGIN EC PRIVATE KEY-----\n").unwrap();
        check_file(&path, true).unwrap();
        let said = check_file(&path, false).unwrap_err();
        assert!(said.contains("has no certificate in PEM"), "{said}");
    }

    #[test]
    fn a_pipe_is_no_file_and_nobody_waits_for_its_writer() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.file("pipe");
        let refused = |open: fn(&Path) -> Result<(), String>| {
            let error = pipe::opened(&path, open).unwrap().unwrap_err();
            assert!(error.contains("not a regular file"), "{error}");
        };
        refused(|path| read(path, 16).map(drop));
        refused(|path| check_file(path, true));
        refused(|path| check_file(path, false));
        refused(|path| {
            Conf::load(path)
                .map(drop)
                .map_err(|report| report.to_string())
        });
        refused(|path| {
            let [ca, certificate, key] = [(); 3].map(|()| path.to_owned());
            Tls::load([&ca, &certificate, &key])
                .map(drop)
                .map_err(|error| error.to_string())
        });
    }
}
