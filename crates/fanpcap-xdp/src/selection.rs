//! Finds the selection of a cluster's node, so that the engine can work behind it.
//!
//! `fanpcap node` pins its selection in a BPF file system. This file system is mounted below a
//! directory that only root can enter.

use crate::behind::Selection;
use fanpcap_bpf::MapKind;
use fanpcap_engine::root::{enter, find_state};
use fanpcap_linux::bpf::{Attached, Hook, ObjectArray, open_pinned};
use fanpcap_linux::file::directory::Access;
use fanpcap_linux::process::netns;
use std::ffi::OsStr;
use std::io;

/// The directory of the state of all nodes, in the administrator's state directory.
pub const CLUSTER: &str = "cluster";
/// The directory on which the BPF file system is mounted, in [`CLUSTER`].
pub const BPF: &str = "bpf";
/// The name of the pin of a device's link.
pub const LINK: &str = "link";
/// The name of the pin of the array with the BPF program that gets the packets.
pub const NEXT: &str = "next";

/// Returns the name of a device's directory of pins. `netns` is the inode number of the device's
/// network namespace.
pub fn pins(netns: &str, ifindex: u32) -> String {
    format!("{netns}-{ifindex}")
}

/// Returns the name of the lock file in the network namespace's directory. The node locks the
/// file's first byte, and the engine the second byte.
pub fn lock(ifindex: u32) -> String {
    format!("{ifindex}.lock")
}

/// Opens the selection on a device of the calling thread's network namespace.
///
/// # Errors
/// `ENOENT` when the device has no selection, `EACCES` for users other than root.
pub(crate) fn find(ifindex: u32) -> io::Result<Selection> {
    let cluster = find_state(CLUSTER)?;
    let netns = netns::inode()?.to_string();
    let pins = enter(&enter(&cluster, BPF)?, &pins(&netns, ifindex))?;
    let link = open_pinned(&pins.path_to(OsStr::new(LINK))?)?;
    let next = open_pinned(&pins.path_to(OsStr::new(NEXT))?)?;
    let turn = enter(&cluster, &netns)?.file(OsStr::new(&lock(ifindex)), Access::Write)?;
    Ok(Selection {
        link: Attached::open(link, Hook::Driver)?,
        next: ObjectArray::open(next, MapKind::ProgArray, 1)?,
        turn: turn.ok_or(io::ErrorKind::NotFound)?,
    })
}
