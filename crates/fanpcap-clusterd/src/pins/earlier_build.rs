//! Objects that an agent of an earlier build left in `/run/fanpcap/cluster`, which containers may
//! share.
//!
//! Root of such a container may have made, renamed, linked or removed every name there, and may
//! have written to every map. So only objects that the kernel confirms are taken over: the link, if
//! it belongs to this device, and the array of the next BPF program, if the link's BPF program uses
//! it. The new agent loads a BPF program with new maps. The link changes from the old BPF program
//! to the new one between two packets.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use anyhow::Result;
use fanpcap_bpf::MapKind;
use fanpcap_engine::root;
use fanpcap_linux::bpf::{Attached, Hook, ObjectArray, ObjectId};
use fanpcap_linux::file::bpf_fs;
use fanpcap_linux::file::directory::Directory;
use fanpcap_xdp::selection::{self, BPF, CLUSTER, LINK, NEXT};

use super::{
    MOUNT, find_locked, forget_sets, open, read_state, remove_if_there, state_name, try_lock,
    unmount_if_empty,
};

/// The objects of an agent of an earlier build on a device.
#[derive(Debug)]
pub(super) struct EarlierBuild {
    ifindex: u32,
    netns: String,
    cluster: Directory,
    pins: Directory,
    /// The device's link.
    pub(super) link: Option<Attached>,
    /// The array of the next BPF program.
    pub(super) next: Option<OwnedFd>,
    /// Whether an agent has made the device promiscuous.
    pub(super) promiscuous: bool,
}

impl EarlierBuild {
    /// Looks for the objects of a device. An object that can't be opened counts as absent.
    pub(super) fn find(netns: &str, ifindex: u32) -> Option<Self> {
        let (cluster, _) = root::find_earlier_state(CLUSTER).ok()?;
        let mount = root::enter(&cluster, BPF).ok()?;
        if !bpf_fs::is_bpf(&mount.path_to(OsStr::new(".")).ok()?).ok()? {
            return None;
        }
        let pins = root::enter(&mount, &selection::pins(netns, ifindex)).ok()?;
        let link = link(&pins, ifindex);
        let next = link.as_ref().and_then(|link| next(&pins, link));
        let promiscuous = root::enter(&cluster, netns)
            .and_then(|directory| read_state(&directory, &state_name(ifindex)))
            .is_ok_and(|state| state.is_some_and(|state| state.promiscuous));
        Some(Self {
            ifindex,
            netns: netns.to_owned(),
            cluster,
            pins,
            link,
            next,
            promiscuous,
        })
    }

    /// Removes the files and pins of earlier builds. Best effort: when the link is pinned
    /// elsewhere, no agent reads them again.
    pub(super) fn remove(&self) {
        let _ = remove_if_there(&self.pins, LINK);
        let _ = forget_sets(&self.pins, None);
        let _ = remove_if_there(&self.pins, NEXT);
        if let Ok(mount) = root::enter(&self.cluster, BPF) {
            let name = selection::pins(&self.netns, self.ifindex);
            let _ = mount.remove_directory(OsStr::new(&name));
        }
        if let Ok(directory) = root::enter(&self.cluster, &self.netns) {
            for name in [state_name(self.ifindex), selection::lock(self.ifindex)] {
                let _ = remove_if_there(&directory, &name);
            }
        }
        let _ = self.cluster.remove_directory(OsStr::new(&self.netns));
        let _ = self.unmount();
    }

    /// Unmounts the BPF file system if no device is left, unless an agent of an earlier build is
    /// about to use it.
    fn unmount(&self) -> Result<()> {
        let mount = root::enter(&self.cluster, MOUNT)?;
        match try_lock(&mount, "lock")? {
            Some(_turn) => unmount_if_empty(&self.cluster),
            None => Ok(()),
        }
    }
}

/// The link of this device, if the kernel confirms it.
fn link(pins: &Directory, ifindex: u32) -> Option<Attached> {
    let link = Attached::open(open(pins, LINK).ok()?, Hook::Driver).ok()?;
    (link.ifindex().ok()? == ifindex).then_some(link)
}

/// The array of the next BPF program, if the BPF program of the link uses it.
fn next(pins: &Directory, link: &Attached) -> Option<OwnedFd> {
    let used = ObjectId::maps_of_program(link.program_id().ok()?).ok()?;
    let next = open(pins, NEXT).ok()?;
    ObjectArray::open(next.try_clone().ok()?, MapKind::ProgArray, 1).ok()?;
    let id = ObjectId::of_map(next.as_fd()).ok()?;
    used.contains(&id).then_some(next)
}

/// If an agent of an earlier build runs on a device: the file of its lock, and the path of the
/// agents' directory. A container that has the whole of `/run/fanpcap` can take the lock too. Other
/// processes can't know whether the process with the lock is an agent, and two agents on one device
/// would lose packets.
pub(super) fn lock_of_agent(netns: &str, ifindex: u32) -> Option<(PathBuf, File)> {
    let (cluster, path) = root::find_earlier_state(CLUSTER).ok()?;
    Some((path, find_locked(&cluster, netns, ifindex).ok()??))
}
