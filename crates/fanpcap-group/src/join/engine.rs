//! Joins on an engine: how packets come to a newcomer whose rings an engine fills.

use super::prepared::Prepared;
use super::{EngineError, JoinError, Newcomer, ProgramError, device, free_number, wanted};
use crate::shared::Shared;
use crate::table::at;
use fanpcap_config::settings::{Group, Steal};
use fanpcap_engine::{Ask, Refusal};
use std::io;

/// A handle's requirements for the engine that fills its rings. The handle's socket stays silent.
#[derive(Clone, Copy, Debug)]
pub struct EngineAsk<'a> {
    /// The handle's device and group, prepared.
    pub prepared: &'a Prepared,
    /// The rings that the handle asks for.
    pub ask: Ask,
    /// Whether the host loses the packets that the device receives.
    pub steal: Steal,
}

/// How many numbers to try at most. A try fails if another group takes the number, which was free,
/// in the meantime. On one device this happens fewer than 16 times, because a device has at most 16
/// groups on an engine (`GROUP_SLOTS` of fanpcap-xdp).
const TRIES: usize = 64;

/// Joins a new group with an unused high number. The kernel would choose a low number, which people
/// choose too.
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
        newcomer.fanout = wanted(newcomer.group, newcomer.choice.mode);
        match join(&newcomer) {
            Err(error) if taken.len() + 1 < TRIES && has_members(&error) => taken.push(number),
            joined => return joined,
        }
    }
}

/// Whether the number of the new group turned out to be that of a group with members. They may be
/// unreachable: a member's page is gone before the kernel has closed the member's socket.
pub(super) fn has_members(error: &JoinError) -> bool {
    let of_members = matches!(
        error,
        JoinError::Program(
            ProgramError::Unreachable { .. }
                | ProgramError::Other { .. }
                | ProgramError::Served { .. }
                | ProgramError::Founded { .. }
        )
    );
    of_members || error.is_of_other()
}

/// Gives the device's packets to the group. If the group `steals`, the host does not get these
/// packets as long as the group lasts. The caller holds the device's guard, as for [`check`].
pub(crate) fn attach_group(shared: &Shared, steals: bool) -> Result<(), Refusal> {
    if let Some(on_device) = &shared.on_device {
        let number = on_device.attach(&shared.fd_store, steals)?;
        shared.table().set(at::GROUP_SLOT, number.into());
    }
    Ok(())
}

/// Checks that the device's packets still come to the group's engine. If the newcomer `steals`, the
/// host does not get these packets from now on, as long as the group has members.
pub(super) fn check(newcomer: &Newcomer<'_>, shared: &Shared) -> Result<(), EngineError> {
    let (Some(engine), Some(on_device)) = (shared.engine, &shared.on_device) else {
        return Ok(());
    };
    let number = u8::try_from(shared.table().get(at::GROUP_SLOT)).ok();
    let number = number.filter(|_| newcomer.steals());
    if number.is_some() {
        // Before the change: this process may die within it.
        shared.table().set(at::STEALS, 1);
    }
    let checked = on_device.check(number.map(|number| (number, true)));
    checked.map_err(|error| match error.kind() == io::ErrorKind::NotFound {
        true => EngineError::Lost {
            group: newcomer.fanout.id,
            device: device(newcomer.bound.ifindex),
        },
        false => EngineError::of_store(engine)(error),
    })
}
