//! The roster: who is in which group of a network namespace, by packet diag and the member pages.
//! Whoever asks who is in a group asks the roster.

use crate::page::{GroupDir, MemberId};
use crate::record::Record;
use fanpcap_linux::interface;
use fanpcap_linux::netlink::diag::{self, PacketSocket};
use std::collections::BTreeMap;
use std::io;

/// A packet socket, as the kernel and its page describe it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What the kernel says of the socket.
    pub socket: PacketSocket,
    /// What its owner says: only our members have a page.
    pub page: Option<Record>,
}

impl Entry {
    /// What tells the member from others.
    pub fn id(&self) -> MemberId {
        id(&self.socket)
    }

    /// Whether the socket is in this group, whatever its device.
    pub fn is_in(&self, group: u16) -> bool {
        is_in(&self.socket, group)
    }
}

/// Every packet socket of a network namespace, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Roster {
    sockets: Vec<PacketSocket>,
}

impl Roster {
    /// The roster of the calling thread's network namespace. Reads no page.
    ///
    /// # Errors
    /// `ENOENT` where the kernel lacks packet diag (`CONFIG_PACKET_DIAG`), or what the socket calls
    /// said.
    pub fn look() -> io::Result<Self> {
        let sockets = diag::packet_sockets()?;
        Ok(Self { sockets })
    }

    /// The socket of a member.
    pub(crate) fn find(&self, member: MemberId) -> Option<&PacketSocket> {
        self.sockets.iter().find(|socket| id(socket) == member)
    }

    /// The sockets in a group, on all devices.
    pub fn members(&self, group: u16) -> impl Iterator<Item = &PacketSocket> {
        let sockets = self.sockets.iter();
        sockets.filter(move |socket| is_in(socket, group))
    }

    /// The members of a group on a device.
    pub fn ids(&self, ifindex: u32, group: u16) -> impl Iterator<Item = MemberId> {
        let members = self.members(group);
        members
            .filter(move |socket| socket.ifindex == ifindex)
            .map(id)
    }

    /// All sockets with their pages, which are read now.
    pub fn entries(&self) -> Vec<Entry> {
        with_pages(self.sockets.iter())
    }

    /// The members of a group with their pages, which are read now.
    pub fn members_with_pages(&self, group: u16) -> Vec<Entry> {
        with_pages(self.members(group))
    }
}

/// Every packet socket of the calling thread's network namespace, with its page.
///
/// # Errors
/// As [`Roster::look`].
pub fn entries() -> io::Result<Vec<Entry>> {
    Roster::look().map(|roster| roster.entries())
}

/// The name of the device that a group of the calling thread's network namespace is on, once it has
/// a member.
pub fn device_of(group: u16) -> Option<String> {
    let roster = Roster::look().ok()?;
    match roster.members(group).next()?.ifindex {
        0 => Some("any".to_owned()),
        index => interface::name(index),
    }
}

/// The pages of a group that have an open socket, and the roster, which is empty where the kernel
/// does not tell. Pages come first: a newcomer has its page before it is in the group.
pub(crate) fn pages_then_roster(
    ifindex: u32,
    group: u16,
) -> (impl Iterator<Item = (MemberId, Record)>, Roster) {
    let pages = GroupDir::of(ifindex, group).map(|directory| directory.pages());
    let roster = Roster::look();
    // The page of a process that dies is locked until its socket is released, which takes the
    // kernel some milliseconds more than to forget the socket (net/packet/af_packet.c,
    // packet_release()).
    let open: Option<Vec<MemberId>> = roster
        .as_ref()
        .map(|roster| roster.sockets.iter().map(id).collect())
        .ok();
    let is_open = move |member: &MemberId| open.as_ref().is_none_or(|open| open.contains(member));
    let pages = pages.unwrap_or_default().into_iter();
    let pages = pages.filter(move |(member, _)| is_open(member));
    (pages, roster.unwrap_or_default())
}

fn id(socket: &PacketSocket) -> MemberId {
    MemberId::of_socket(socket.inode.into())
}

fn is_in(socket: &PacketSocket, group: u16) -> bool {
    socket.fanout.is_some_and(|has| has.id == group)
}

/// These sockets with their pages. Each group directory is read once.
fn with_pages<'a>(sockets: impl Iterator<Item = &'a PacketSocket>) -> Vec<Entry> {
    let mut groups: BTreeMap<(u32, u16), BTreeMap<MemberId, Record>> = BTreeMap::new();
    let mut page = |socket: &PacketSocket| {
        let group = socket.fanout?.id;
        let pages = groups.entry((socket.ifindex, group)).or_insert_with(|| {
            GroupDir::of(socket.ifindex, group)
                .map(|directory| directory.pages().into_iter().collect())
                .unwrap_or_default()
        });
        pages.remove(&id(socket))
    };
    let entry = |socket: &PacketSocket| Entry {
        page: page(socket),
        socket: *socket,
    };
    sockets.map(entry).collect()
}
