//! Where the selection of a cluster's node is found, for the XDP engine behind it.
//!
//! `fanpcap node` leaves its selection in a BPF file system, below a directory that only root can
//! enter.

use crate::root::find_private;
use fanpcap_bpf::MapKind;
use fanpcap_linux::bpf::{Attached, Hook, ObjectArray, open_pinned};
use fanpcap_linux::process::netns;
use fanpcap_xdp::Selection;
pub use fanpcap_xdp::TURN;
use std::fs::File;
use std::io;

/// The directory of all that nodes leave, beside the root of the groups' directories.
pub const CLUSTER: &str = "cluster";
/// The directory with the BPF file system, in that one.
pub const BPF: &str = "bpf";
/// The pin of a device's link.
pub const LINK: &str = "link";
/// The pin of the array with the BPF program that gets the packets.
pub const NEXT: &str = "next";

/// The directory of a device's pins, of the network namespace with this inode number.
pub fn pins(netns: &str, ifindex: u32) -> String {
    format!("{netns}-{ifindex}")
}

/// The file whose first byte the node has locked, and another one the engine, in the directory of
/// the network namespace.
pub fn lock(ifindex: u32) -> String {
    format!("{ifindex}.lock")
}

/// The selection of a device of the calling thread's network namespace.
///
/// # Errors
/// `ENOENT` when there is none, `EACCES` for another user than root.
pub(crate) fn find(ifindex: u32) -> io::Result<Selection> {
    let path = find_private(CLUSTER)?;
    let netns = netns::inode()?.to_string();
    let pins = path.join(BPF).join(pins(&netns, ifindex));
    let link = open_pinned(&pins.join(LINK))?;
    let next = open_pinned(&pins.join(NEXT))?;
    let turn = path.join(netns).join(lock(ifindex));
    Ok(Selection {
        link: Attached::open(link, Hook::Driver)?,
        next: ObjectArray::open(next, MapKind::ProgArray, 1)?,
        turn: File::options().write(true).open(turn)?,
    })
}
