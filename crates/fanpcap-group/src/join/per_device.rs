//! One group over several devices: the kernel has a group on each device. The groups on the further
//! devices follow the group on the first device. This file finds the numbers of these groups.

use super::{DevicesError, JoinError, Newcomer, ProgramError, device, free_number, wanted};
use crate::membership::Membership;
use crate::shared::{group_key, group_of};
use crate::table::{DEVICE_GROUPS_MAX, Table, at};
use fanpcap_config::settings::Group;
use std::io::ErrorKind;
use std::sync::Arc;

/// The role of a handle's device in its group.
#[derive(Clone, Copy, Debug)]
pub enum PerDevice<'a> {
    /// The handle's only device.
    Only,
    /// The first of several devices. Holds the interface indices of the other devices, in the
    /// handle's order.
    First(&'a [u32]),
    /// A further device. Holds the membership of the handle's socket on the first device.
    Behind(&'a Arc<Membership>),
}

/// How many numbers to try at most. A try fails if another group takes the number, which was free,
/// in the meantime.
const TRIES: usize = 8;

impl PerDevice<'_> {
    /// Writes into a new group's table the group that it follows, and the devices on which other
    /// groups follow it. `id` is the cookie of the group's first socket.
    pub(crate) fn begin(&self, table: Table<'_>, id: u64) {
        table.set(at::ID, id);
        table.set(at::FOLLOWS, self.follows());
        let keys: Vec<u64> = self.others().iter().map(|it| group_key(*it, 0)).collect();
        table.set_device_groups(&keys);
    }

    /// Checks, with a group's table, that the group has the same devices as the handle.
    pub(super) fn ensure_same(
        &self,
        table: Table<'_>,
        (group, ifindex): (u16, u32),
    ) -> Result<(), JoinError> {
        let device_groups = table.device_groups().into_iter().map(|key| group_of(key).0);
        let device_groups: Vec<u32> = device_groups.collect();
        let follows = table.get(at::FOLLOWS);
        if follows == self.follows() && device_groups == self.others() {
            return Ok(());
        }
        let has = match follows {
            0 => devices(ifindex, &device_groups),
            _ => format!("{} for a group on several devices", device(ifindex)),
        };
        let wants = devices(ifindex, self.others());
        Err(DevicesError::Other { group, has, wants }.into())
    }

    fn others(&self) -> &[u32] {
        match self {
            Self::First(others) => &others[..others.len().min(DEVICE_GROUPS_MAX)],
            Self::Only | Self::Behind(_) => &[],
        }
    }

    /// The id of the group that the newcomer's group follows; 0 if it follows no group.
    fn follows(&self) -> u64 {
        match self {
            Self::Behind(lead) => lead.shared().table().get(at::ID),
            Self::Only | Self::First(_) => 0,
        }
    }

    /// The number by which the application knows the group, if the kernel's group has another
    /// number.
    pub(super) fn number(&self) -> Option<u16> {
        match self {
            Self::Behind(lead) => Some(group_of(lead.shared().table().get(at::GROUP)).1),
            Self::Only | Self::First(_) => None,
        }
    }
}

fn devices(first: u32, others: &[u32]) -> String {
    let all = std::iter::once(&first).chain(others);
    let all: Vec<String> = all.map(|it| device(*it)).collect();
    all.join("^")
}

/// Joins the kernel's group that follows `lead` on the newcomer's device, by calling `join`.
pub(super) fn follow<T>(
    mut newcomer: Newcomer<'_>,
    lead: &Membership,
    join: &mut dyn FnMut(&Newcomer<'_>) -> Result<T, JoinError>,
) -> Result<T, JoinError> {
    let mut taken = 0;
    for tries in (0..TRIES).rev() {
        let number = number(&newcomer, lead, taken)?;
        newcomer.group = Group::Number(number);
        newcomer.fanout = wanted(newcomer.group, newcomer.choice.mode);
        match join(&newcomer) {
            Err(error) if tries > 0 && error.is_of_other() => taken = number,
            joined => return joined,
        }
    }
    Err(newcomer.failed("PACKET_FANOUT", ErrorKind::AddrInUse.into()))
}

/// The number (`PACKET_FANOUT` id) of the kernel's group that follows `lead` on the newcomer's
/// device. The first member that needs this group chooses the highest free number: people choose
/// low numbers. Replaces the number `taken`, which another group has taken.
fn number(newcomer: &Newcomer<'_>, lead: &Membership, taken: u16) -> Result<u16, JoinError> {
    let guard = lead.lock().take();
    let _guard = guard.map_err(|error| ProgramError::of(newcomer.fanout.id, error))?;
    let table = lead.shared().table();
    let mut device_groups = table.device_groups();
    let ifindex = newcomer.bound.ifindex;
    let at = device_groups
        .iter()
        .position(|key| group_of(*key).0 == ifindex);
    let at =
        at.ok_or_else(|| newcomer.failed("the group's devices", ErrorKind::NotFound.into()))?;
    let has = group_of(device_groups[at]).1;
    if has != taken {
        return Ok(has);
    }
    let mut others: Vec<u16> = device_groups.iter().map(|key| group_of(*key).1).collect();
    others.push(taken);
    let free = free_number(&others);
    let free = free.ok_or_else(|| newcomer.failed("PACKET_FANOUT", ErrorKind::AddrInUse.into()))?;
    device_groups[at] = group_key(ifindex, free);
    table.set_device_groups(&device_groups);
    Ok(free)
}
