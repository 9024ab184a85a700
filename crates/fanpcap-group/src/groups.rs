//! Who captures what: every packet socket of the network namespace, with its group, and its page if it is a member
//! of ours.

use crate::page::Shelf;
use crate::record::Record;
use fanpcap_linux::interface;
use fanpcap_linux::netlink::diag::{self, PacketSocket};
use std::collections::BTreeMap;
use std::io;

/// A packet socket, as the kernel and its page tell of it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What the kernel tells of the socket.
    pub socket: PacketSocket,
    /// What its owner tells: only members of ours have a page.
    pub page: Option<Record>,
}

/// Every packet socket of the calling thread's network namespace.
///
/// # Errors
/// `ENOENT` where the kernel lacks packet diag (`CONFIG_PACKET_DIAG`), or what the socket calls said.
pub fn seen() -> io::Result<Vec<Seen>> {
    let sockets = diag::packet_sockets()?;
    let mut pages: BTreeMap<(u32, u16), BTreeMap<u64, Record>> = BTreeMap::new();
    let mut page = |socket: &PacketSocket| {
        let group = socket.fanout?.id;
        let of_group = pages.entry((socket.ifindex, group)).or_insert_with(|| {
            Shelf::of(socket.ifindex, group)
                .map(|shelf| shelf.pages().into_iter().collect())
                .unwrap_or_default()
        });
        of_group.remove(&u64::from(socket.inode))
    };
    Ok(sockets
        .into_iter()
        .map(|socket| Seen {
            page: page(&socket),
            socket,
        })
        .collect())
}

/// The name of the device that a group of the calling thread's network namespace is on, once it has a member.
pub fn device_of(group: u16) -> Option<String> {
    let sockets = diag::packet_sockets().ok()?;
    let is_member = |socket: &&PacketSocket| socket.fanout.is_some_and(|has| has.id == group);
    match sockets.iter().find(is_member)?.ifindex {
        0 => Some("any".to_owned()),
        index => interface::name(index),
    }
}
