//! How packets come to a newcomer: by its packet socket, or by the XDP engine.

use super::prepared::Prepared;
use super::{JoinError, Newcomer, XdpError, device, free_number, wanted};
use crate::dock::Dock;
use crate::shared::Shared;
use crate::table::at;
use crate::turn::Claim;
use fanpcap_config::settings::{Group, Steal};
use fanpcap_linux::process;
use fanpcap_xdp::{Device, Lanes, MemberRings};
use std::io;
use std::path::Path;

/// What takes a handle's packets from the device.
#[derive(Clone, Copy, Debug)]
pub enum Engine<'a> {
    /// The handle's packet socket.
    Sockets,
    /// A BPF program in the device's driver. The handle's socket stays silent.
    Xdp(Xdp<'a>),
}

impl Engine<'_> {
    /// Others wait for the newcomer's page as long as the result is kept.
    pub(super) fn arriving(&self) -> Option<Claim> {
        match self {
            Self::Xdp(asked) => asked.prepared.arriving(),
            Self::Sockets => None,
        }
    }
}

/// What a handle asks of the XDP engine.
#[derive(Clone, Copy, Debug)]
pub struct Xdp<'a> {
    /// The handle's device and group, prepared.
    pub prepared: &'a Prepared,
    /// Bytes of each packet to keep.
    pub snaplen: u32,
    /// Bytes of all its rings, if the application asks for a size.
    pub bytes: Option<u32>,
    /// Whether packets that the host sends are captured too.
    pub outgoing: bool,
    /// Whether the host loses the packets that the device receives.
    pub steal: Steal,
}

/// How often another group may take the number that was free.
const TRIES: usize = 8;

/// Joins an unused group. The kernel would give it a low number, which people take.
pub(super) fn in_new_group<T>(
    mut newcomer: Newcomer<'_>,
    join: &mut dyn FnMut(&Newcomer<'_>) -> Result<T, JoinError>,
) -> Result<T, JoinError> {
    let mut taken = Vec::new();
    loop {
        let number = free_number(&taken)
            .ok_or_else(|| newcomer.failed("PACKET_FANOUT", io::ErrorKind::AddrInUse.into()))?;
        newcomer.group = Group::Number(number);
        newcomer.is_first = true;
        newcomer.fanout = wanted(newcomer.group, newcomer.membership.mode);
        match join(&newcomer) {
            Err(error) if taken.len() + 1 < TRIES && error.is_of_other() => taken.push(number),
            joined => return joined,
        }
    }
}

/// The error of a mode that is not for the engine.
pub(super) fn unsteered(newcomer: &Newcomer<'_>) -> XdpError {
    XdpError::Unsteered {
        group: newcomer.fanout.id,
        mode: newcomer.membership.shown_mode(),
    }
}

/// The host loses the device's packets from now on, as long as the group is there, if a member asks
/// for that. The caller has the dock's turn, as below.
pub(super) fn steal(asked: &Xdp<'_>, shared: &Shared, dock: &Dock<Device>) -> Result<(), XdpError> {
    let berth = u8::try_from(shared.table().get(at::BERTH));
    match berth.ok().filter(|_| asked.steal != Steal::No) {
        Some(berth) => dock.steal_for(berth).map_err(XdpError::Locker),
        None => Ok(()),
    }
}

/// Gives the device's packets to the group.
pub(super) fn moor(
    newcomer: &Newcomer<'_>,
    shared: &Shared,
    dock: &Dock<Device>,
) -> Result<(), XdpError> {
    let Some(on_xdp) = &shared.on_xdp else {
        return Ok(());
    };
    match on_xdp.moor(dock, &shared.locker, shared.table()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(XdpError::Crowded {
            device: device(newcomer.bound.ifindex),
        }),
        Err(error) => Err(XdpError::Serve(error)),
    }
}

/// Creates a newcomer's rings. A process that may hardly have so much memory does not try: the
/// kernel could kill it for its next page.
pub(super) fn create_rings(asked: &Xdp<'_>, lanes: Lanes) -> Result<MemberRings, XdpError> {
    let Xdp {
        snaplen,
        bytes,
        outgoing,
        ..
    } = *asked;
    let needed = MemberRings::bytes(snaplen, bytes, lanes, outgoing);
    let memory = |limit| XdpError::Memory {
        needed,
        snaplen,
        limit,
    };
    let limits = process::memory::limits(Path::new("/"));
    let limit = limits.into_iter().min_by_key(|limit| limit.left());
    if limit.is_some_and(|limit| needed + needed.min(limit.bytes / 8) > limit.left()) {
        return Err(memory(limit));
    }
    let rings = MemberRings::create(snaplen, bytes, lanes, outgoing);
    rings.map_err(|error| match error.raw_os_error() {
        Some(ENOMEM) => memory(limit),
        _ => XdpError::Rings(error),
    })
}

/// errno(3).
const ENOMEM: i32 = 12;
