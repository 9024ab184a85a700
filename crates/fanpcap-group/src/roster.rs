//! The roster: the members of each group in a network namespace. It comes from packet diag and from
//! the member pages.

use crate::page::{GroupDir, MemberId};
use crate::record::Record;
use fanpcap_config::device::ANY;
use fanpcap_linux::interface;
use fanpcap_linux::netlink::diag::{self, Diag, PacketSocket};
use fanpcap_linux::packet::ETH_P_SILENT;
use std::io;

/// A packet socket, and its member's page if the member has one.
#[derive(Clone, Debug)]
pub struct RosterEntry {
    /// The socket as packet diag shows it.
    pub socket: PacketSocket,
    /// The member's or the founder's page; `None` for sockets that are not ours.
    pub page: Option<Record>,
    /// The group of which this socket identifies the founder.
    pub founds: Option<u16>,
    /// Whether the socket is a placeholder: its member is gone, and the steered group keeps the
    /// socket in its slot.
    pub is_placeholder: bool,
}

impl RosterEntry {
    /// The member's id.
    pub fn id(&self) -> MemberId {
        id(&self.socket)
    }

    /// Whether an engine fills the rings of the socket's group. The group's sockets are then
    /// silent.
    pub fn is_on_engine(&self) -> bool {
        is_on_engine(&self.socket)
    }

    /// Whether the socket is in this group, on any device.
    pub fn is_in(&self, group: u16) -> bool {
        is_in(&self.socket, group)
    }
}

/// All packet sockets of a network namespace at one moment.
#[derive(Clone, Debug, Default)]
pub struct Roster {
    sockets: Vec<PacketSocket>,
}

impl Roster {
    /// Reads the roster of the calling thread's network namespace. Reads no page.
    ///
    /// # Errors
    /// `ENOENT` where the kernel lacks packet diag (`CONFIG_PACKET_DIAG`), or the error of a socket
    /// call.
    pub fn look() -> io::Result<Self> {
        let sockets = diag::packet_sockets()?;
        Ok(Self { sockets })
    }

    /// Reads the roster of the network namespace in which packet diag was opened.
    ///
    /// # Errors
    /// As [`Roster::look`].
    pub(crate) fn by(diag: &Diag) -> io::Result<Self> {
        let sockets = diag.packet_sockets()?;
        Ok(Self { sockets })
    }

    /// The socket of a member.
    pub(crate) fn find(&self, member: MemberId) -> Option<&PacketSocket> {
        self.sockets.iter().find(|socket| id(socket) == member)
    }

    /// All packet sockets, in any group or in no group.
    pub(crate) fn sockets(&self) -> &[PacketSocket] {
        &self.sockets
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
    /// Reads the pages of a group's members.
    pub fn members_with_pages(&self, group: u16) -> Vec<RosterEntry> {
        with_pages(self.members(group))
    }
}

/// All packet sockets of the calling thread's network namespace, with their pages.
///
/// # Errors
/// As [`Roster::look`].
pub fn entries() -> io::Result<Vec<RosterEntry>> {
    Roster::look().map(|roster| with_pages(roster.sockets.iter()))
}

/// The name of the device on which a group of the calling thread's network namespace is; `None`
/// while the group has no member.
pub fn device_of(group: u16) -> Option<String> {
    let roster = Roster::look().ok()?;
    match roster.members(group).next()?.ifindex {
        0 => Some(ANY.to_owned()),
        index => interface::name(index),
    }
}

/// The page of the founder of a steered group, if the group has a founder.
pub fn founder(ifindex: u32, group: u16) -> Option<Record> {
    let pages = GroupDir::of(ifindex, group).map(|directory| directory.records());
    pages
        .unwrap_or_default()
        .into_iter()
        .find(|it| it.is_founder)
}

/// The pages of a group's members whose sockets are open. Reads the pages before the sockets: a
/// newcomer opens its socket before it makes its page, so the socket of each page read is found
/// unless it has been closed.
pub(crate) fn open_pages(ifindex: u32, group: u16) -> impl Iterator<Item = (MemberId, Record)> {
    let pages = GroupDir::of(ifindex, group).map(|directory| directory.pages());
    let roster = Roster::look();
    // The page of a dying process stays locked until the kernel releases its socket. The kernel
    // removes the socket from packet diag some milliseconds earlier (net/packet/af_packet.c,
    // packet_release()).
    let open = roster.map(|roster| roster.sockets.iter().map(id).collect::<Vec<_>>());
    let is_open = move |member: &MemberId| open.as_ref().map_or(true, |open| open.contains(member));
    let pages = pages.unwrap_or_default().into_iter();
    pages.filter(move |(member, _)| is_open(member))
}

fn id(socket: &PacketSocket) -> MemberId {
    MemberId::of_socket(socket.inode.into())
}

/// See [`RosterEntry::is_on_engine`].
pub(crate) fn is_on_engine(socket: &PacketSocket) -> bool {
    socket.fanout.is_some() && socket.protocol == ETH_P_SILENT
}

fn is_in(socket: &PacketSocket, group: u16) -> bool {
    socket.fanout.is_some_and(|has| has.id == group)
}

type GroupKey = (u32, u16);

fn group(socket: &PacketSocket) -> Option<GroupKey> {
    Some((socket.ifindex, socket.fanout?.id))
}

/// Reads the pages of these sockets. Reads each group directory once.
fn with_pages<'a>(sockets: impl Iterator<Item = &'a PacketSocket>) -> Vec<RosterEntry> {
    let mut groups: Vec<(GroupKey, Vec<(MemberId, Record)>)> = Vec::new();
    let mut page = |socket: &PacketSocket| {
        let group = group(socket)?;
        if !groups.iter().any(|(known, _)| *known == group) {
            let directory = GroupDir::of(group.0, group.1);
            groups.push((group, directory.map(|it| it.pages()).unwrap_or_default()));
        }
        let (_, pages) = groups.iter_mut().find(|(known, _)| *known == group)?;
        let place = pages.iter().position(|(member, _)| *member == id(socket))?;
        Some(pages.swap_remove(place).1)
    };
    let entry = |socket: &PacketSocket| {
        let (founds, founder) = founded(socket).unzip();
        RosterEntry {
            page: founder.or_else(|| page(socket)),
            socket: *socket,
            founds,
            is_placeholder: false,
        }
    };
    let mut entries: Vec<RosterEntry> = sockets.map(entry).collect();
    let has_founder = |pages: &[(MemberId, Record)]| pages.iter().any(|(_, it)| it.is_founder);
    groups.retain(|(_, pages)| has_founder(pages));
    let founded = groups.into_iter().map(|(group, _)| group).collect();
    mark_placeholders(&mut entries, founded);
    entries
}

/// The group that a socket's process has founded, and the founder's page.
fn founded(socket: &PacketSocket) -> Option<(u16, Record)> {
    if socket.fanout.is_some() || socket.protocol != ETH_P_SILENT {
        return None;
    }
    let mut groups = GroupDir::on_device(socket.ifindex).into_iter();
    groups.find_map(|directory| {
        let mut pages = directory.pages().into_iter();
        let (_, page) = pages.find(|(member, page)| page.is_founder && *member == id(socket))?;
        Some((directory.group()?, page))
    })
}

/// Marks the sockets without a page in groups whose members share a table. Such a group admits no
/// member without a page, and keeps the sockets of dead members. So a socket without a page is a
/// placeholder. The groups in `founded` share a table even if they have no living member.
fn mark_placeholders(entries: &mut [RosterEntry], founded: Vec<GroupKey>) {
    let shares = |entry: &&RosterEntry| {
        let page = entry.page.as_ref();
        page.is_some_and(|page| page.shared.is_some())
    };
    let with_table = entries.iter().filter(shares);
    let with_table = with_table.filter_map(|it| group(&it.socket));
    let with_table: Vec<GroupKey> = with_table.chain(founded).collect();
    for entry in entries.iter_mut().filter(|entry| entry.page.is_none()) {
        entry.is_placeholder = group(&entry.socket).is_some_and(|it| with_table.contains(&it));
    }
}
