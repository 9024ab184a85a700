//! How packets come to a newcomer: the engine, and what it makes for a group on XDP.

use super::{JoinError, Newcomer, XdpError, device, free_number, wanted};
use crate::dock::Dock;
use crate::docks;
use crate::found;
use crate::on_xdp::OnXdp;
use crate::shared::Shared;
use crate::turn::AtDock;
use fanpcap_config::settings::Group;
use fanpcap_config::steering::Steering;
use fanpcap_steer::ebpf::TABLE_MAP;
use fanpcap_xdp::{Device, GroupProgram, Lanes};
use std::io;
use std::os::fd::AsFd;

/// What takes a handle's packets from the device.
#[derive(Clone, Copy, Debug)]
pub enum Engine {
    /// The handle's packet socket.
    Sockets,
    /// A BPF program in the device's driver. The handle's socket stays silent.
    Xdp(Xdp),
}

/// What a handle asks of the engine on XDP.
#[derive(Clone, Copy, Debug)]
pub struct Xdp {
    /// Bytes of each packet to keep.
    pub snaplen: u32,
    /// Bytes of all its rings, if the application asks for a size.
    pub bytes: Option<u32>,
    /// Whether packets that the host sends are captured too.
    pub outgoing: bool,
    /// Whether the host loses the packets that are captured.
    pub steals: bool,
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
        newcomer.fanout = wanted(newcomer.group, newcomer.membership.mode);
        match join(&newcomer) {
            Err(error) if taken.len() + 1 < TRIES && error.is_of_other() => taken.push(number),
            joined => return joined,
        }
    }
}

/// The parts of the engine for a new group, to which no packets come yet. The caller has the
/// dock's turn.
pub(super) fn new_parts(
    newcomer: &Newcomer<'_>,
    steering: &Steering,
    shared: &mut Shared,
    turn: &AtDock<'_>,
) -> Result<Dock<Device>, XdpError> {
    let ifindex = newcomer.bound.ifindex;
    let dock = dock(newcomer, ifindex, turn)?;
    let maps = dock.device().maps();
    let given = [(TABLE_MAP, shared.map())];
    let at_xdp = steering.at_xdp().ok_or_else(|| unsteered(newcomer))?;
    let compile = |capture: &fanpcap_xdp::Capture| at_xdp.object(capture);
    let lanes = Lanes::of_device(ifindex);
    let loaded = GroupProgram::load(lanes, maps, &given, &compile);
    let (program, _) = loaded.map_err(XdpError::Program)?;
    let kept = shared.keep_program(program.program().as_fd(), steering.text());
    let parts = kept.and_then(|()| OnXdp::new(program, &dock, &shared.locker));
    shared.on_xdp = Some(parts.map_err(XdpError::Locker)?);
    let watched = shared.lifelines.add(dock.lifelines(), true);
    watched.map_err(XdpError::Locker)?;
    Ok(dock)
}

/// The error of a mode that is not for the engine.
pub(super) fn unsteered(newcomer: &Newcomer<'_>) -> XdpError {
    XdpError::Unsteered {
        group: newcomer.fanout.id,
        mode: newcomer.membership.shown_mode(),
    }
}

/// The host loses the device's packets from now on, as long as a group is there, if a member asks
/// for that.
pub(super) fn steal(asked: &Xdp, dock: &Dock<Device>) {
    if asked.steals {
        dock.device().set_steals(true);
    }
}

/// Has the device's packets come to the group.
pub(super) fn moor(
    newcomer: &Newcomer<'_>,
    shared: &Shared,
    dock: &Dock<Device>,
) -> Result<(), XdpError> {
    let Some(on_xdp) = &shared.on_xdp else {
        return Ok(());
    };
    match on_xdp.moor(dock, &shared.locker) {
        Ok(true) => Ok(()),
        Ok(false) => Err(XdpError::Crowded {
            device: device(newcomer.bound.ifindex),
        }),
        Err(error) => Err(XdpError::Serve(error)),
    }
}

/// The device's dock: that which a member of any group there has, or else a new one.
fn dock(newcomer: &Newcomer<'_>, ifindex: u32, _: &AtDock<'_>) -> Result<Dock<Device>, XdpError> {
    if let Some(ends) = found::recall_dock(ifindex) {
        return Dock::of(ends, ifindex).map_err(XdpError::Locker);
    }
    let found = docks::search(newcomer.id, ifindex, &|ends| Dock::of(ends, ifindex));
    let found = found.map_err(|reasons| XdpError::Unreachable {
        device: device(ifindex),
        reasons,
    })?;
    if let Some(dock) = found {
        return Ok(dock);
    }
    let device = Device::take_over(ifindex).map_err(XdpError::Unavailable)?;
    Dock::new(device, ifindex).map_err(XdpError::Locker)
}
