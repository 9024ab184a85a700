//! Reads the policy file of `fanpcap poller`.

use super::place::Place;
use anyhow::{Context, Result, ensure};
use fanpcap_bpf::Classic;
use fanpcap_external::{User, group_of_users};
use fanpcap_linux::file::directory::{is_trusted, open_regular, read_at_most};
use fanpcap_pcap::{Handle, System};
use fanpcap_poller::access::file::{PolicyFile, Resolved};
use std::cell::OnceCell;
use std::env;
use std::path::{Path, PathBuf};

/// The most bytes of a policy file.
const LONGEST: u64 = 1 << 20;

/// As many bytes as a handle can keep of a packet (`MAXIMUM_SNAPLEN` of libpcap), so that no filter
/// cuts packets.
const SNAPLEN: i32 = 262_144;

/// Compiles filters by a handle on a device: without one, libpcap compiles filters for frames with
/// their tags, as savefiles have them. Such a filter as `not host 10.0.0.1` would let all packets
/// of VLANs pass.
struct Compiler<'a> {
    devices: &'a [Place],
    /// The handle, once there was a filter.
    handle: OnceCell<Result<Handle, String>>,
}

impl Compiler<'_> {
    fn compile(&self, expression: &str) -> Result<Vec<Classic>, String> {
        let handle = self.handle.get_or_init(|| self.open());
        let handle = handle.as_ref().map_err(String::clone)?;
        handle.compile(expression).map_err(|error| error.reason)
    }

    /// A handle on any device with Ethernet frames: `lo` is usually up.
    fn open(&self) -> Result<Handle, String> {
        let chosen = env::var_os("FANPCAP_LIBPCAP").map(PathBuf::from);
        let system = System::find(chosen.as_deref());
        let mut failed = String::new();
        let devices = self.devices.iter().map(|it| &*it.device);
        for device in std::iter::once("lo").chain(devices) {
            match on(&system, device) {
                Ok(handle) => return Ok(handle),
                Err(why) => failed = format!("no handle to compile it on {device}: {why}"),
            }
        }
        Err(failed)
    }
}

fn on(system: &System, device: &str) -> Result<Handle, String> {
    let mut created = system.create(device)?;
    let set = created.set_snaplen(SNAPLEN);
    let activated = set.and_then(|()| created.activate());
    let (handle, _) = activated.map_err(|error| error.reason)?;
    Ok(handle)
}

/// Reads a file, finds the numbers of its users and groups, and compiles its filters for `devices`.
///
/// # Errors
/// The file can't be read, or other users may write to it; its first mistake.
pub(super) fn read(path: &Path, devices: &[Place]) -> Result<Resolved> {
    let shown = path.display();
    let failed = || format!("the policy file {shown}");
    let file = open_regular(path).with_context(failed)?;
    ensure!(
        is_trusted(&file.metadata().with_context(failed)?),
        "the policy file {shown} is not trusted: make it root's ('chown root {shown}'), and let no \
         other user write to it ('chmod go-w {shown}')"
    );
    let bytes = read_at_most(file, LONGEST).with_context(failed)?;
    // Bytes that are not UTF-8 become U+FFFD, which is in no key and in no user's name.
    let text = String::from_utf8_lossy(&bytes);
    let file = PolicyFile::parse(&text, &shown.to_string())?;
    let compiler = Compiler {
        devices,
        handle: OnceCell::new(),
    };
    let compile = |expression: &str| compiler.compile(expression);
    Ok(file.resolve(user, group, &compile)?)
}

/// A number need not be in the system's database.
fn user(name: &str) -> Option<u32> {
    let found = || User::find(name).ok()?.id.parse().ok();
    name.parse().ok().or_else(found)
}

fn group(name: &str) -> Option<u32> {
    let found = || group_of_users(name).ok();
    name.parse().ok().or_else(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_read_if_no_other_user_can_write_to_it() {
        let name = format!("fanpcap-policy-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let set = |text: &str, mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            read(&path, &[]).map_err(|error| format!("{error:#}"))
        };
        let text = "[user root]\n[user 4294]\n[group root]";
        let read = set(text, 0o644);
        let trusted = set(text, 0o664).unwrap_err();
        let unknown = set("[user no-such-user]", 0o600).unwrap_err();
        let _ = fs::remove_file(&path);
        assert!(read.is_ok(), "{read:?}");
        assert!(trusted.contains("'chmod go-w"), "{trusted}");
        let expected = ":1:1: no user 'no-such-user'";
        assert!(unknown.contains(expected), "{unknown}");
    }
}
