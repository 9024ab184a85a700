//! Joining a group with a steering program: its members bring the same one, and the first of them gives it to the kernel.

use super::{JoinError, ProgramError, Seat};
use crate::member::Member;
use crate::mode::Kind;
use crate::page::Shelf;
use crate::record::{Counters, Running};
use crate::settings::Group;
use crate::steered::{SteerError, Steered};
use crate::steering::Steering;
use fanpcap_linux::diag;
use fanpcap_linux::packet::{self, Filter};
use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// What is known of a group, besides the handle that is to join it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runs {
    /// Nobody is in it.
    Nothing,
    /// Its members tell nothing of its program.
    Unknown,
    /// Its members bring this program; one of them is known to be in the group that has it.
    This { is_set: bool },
}

/// Joins. The page is there before it is looked for others', so that of two that come at once with different programs one at least
/// sees the other's.
pub(super) fn join(
    seat: &Seat<'_>,
    steering: &Arc<Steering>,
    before: Counters,
) -> Result<Member, JoinError> {
    let id = seat.fanout.id;
    ensure_ethernet(seat.fd, seat.bound.ifindex)?;
    let found = look(seat, steering)?;
    let failed = |error| JoinError::from(ProgramError::of(id, error));
    let own = Filter::of(seat.fd).map_err(|error| seat.failed("SO_GET_FILTER", error))?;
    let steered = Steered::load(steering, own).map_err(failed)?;
    let steered = Arc::new(steered);
    let spare = match found {
        Runs::Nothing => Some(
            steering
                .load_fanout()
                .map_err(SteerError::Load)
                .map_err(failed)?,
        ),
        Runs::Unknown | Runs::This { .. } => None,
    };
    let member = |number| Member::steered(seat.place(number), before, (steering, &steered));
    let early = match seat.group {
        Group::Number(number) => Some(member(number)),
        Group::New => None,
    };
    look(seat, steering)?;
    seat.take(|| {
        match (found, look(seat, steering)?, spare) {
            (_, Runs::This { is_set: true }, _) => steered.mark_as_set(),
            // Whoever came first has given it one, or is about to.
            (Runs::Unknown, ..) => {}
            (_, _, Some(spare)) => steered.set(spare, seat.fd).map_err(failed)?,
            (_, _, None) => {
                let loaded = steering.load_fanout().map_err(SteerError::Load);
                let set = loaded.and_then(|loaded| steered.set(loaded, seat.fd));
                set.map_err(failed)?;
            }
        }
        steered.attach(seat.fd).map_err(failed)
    })?;
    match early {
        Some(member) => Ok(member),
        None => Ok(member(seat.number()?)),
    }
}

/// Tells whether joining would be refused by what is known of the group.
pub(super) fn foresee(
    fd: BorrowedFd<'_>,
    group: u16,
    ifindex: u32,
    steering: &Steering,
) -> Result<(), JoinError> {
    ensure_ethernet(fd, ifindex)?;
    let own = packet::inode(fd).unwrap_or(0);
    runs(group, ifindex, own, steering).map(drop)
}

fn look(seat: &Seat<'_>, steering: &Steering) -> Result<Runs, JoinError> {
    match seat.group {
        Group::Number(number) => runs(number, seat.bound.ifindex, seat.inode, steering),
        Group::New => Ok(Runs::Nothing),
    }
}

/// What packet diag and the members' pages tell, but for the socket `own`.
fn runs(group: u16, ifindex: u32, own: u64, steering: &Steering) -> Result<Runs, JoinError> {
    let pages = Shelf::of(ifindex, group).map(|shelf| shelf.pages());
    let pages = pages.unwrap_or_default().into_iter();
    let told = pages.filter(|(inode, _)| *inode != own);
    let told = told.filter_map(|(inode, record)| Some((inode, record.steering?)));
    let told: Vec<(u64, Running)> = told.collect();
    if let Some((_, other)) = told.iter().find(|(_, it)| it.digest != steering.digest()) {
        let error = ProgramError::Other {
            group,
            asked: steering.title().to_owned(),
            runs: other.title.clone(),
        };
        return Err(error.into());
    }
    let members = members(group, own);
    if told.is_empty() {
        return Ok(match members.is_empty() {
            true => Runs::Nothing,
            false => Runs::Unknown,
        });
    }
    let is_set = |(inode, running): &(u64, Running)| running.is_set && members.contains(inode);
    Ok(Runs::This {
        is_set: told.iter().any(is_set),
    })
}

/// The sockets of a group that has a program, but for `own`; none where the kernel does not tell.
fn members(group: u16, own: u64) -> BTreeSet<u64> {
    let sockets = diag::packet_sockets().unwrap_or_default().into_iter();
    let program = Kind::Program.kernel_type();
    let members = sockets.filter(|socket| {
        let fanout = socket.fanout.filter(|fanout| fanout.id == group);
        fanout.is_some_and(|fanout| fanout.mode == program)
    });
    let inodes = members.map(|socket| u64::from(socket.inode));
    inodes.filter(|&inode| inode != own).collect()
}

fn ensure_ethernet(fd: BorrowedFd<'_>, ifindex: u32) -> Result<(), JoinError> {
    if takes_programs(fd, ifindex) {
        return Ok(());
    }
    let device = super::device(ifindex);
    Err(match ifindex {
        0 => ProgramError::AllDevices.into(),
        _ => ProgramError::NotEthernet { device }.into(),
    })
}

/// Whether a packet socket's frames are such as programs read: Ethernet's, with their headers. Those of all devices are not: among
/// them are tunnels', and a cooked socket's filter counts from behind the Ethernet header.
pub fn takes_programs(fd: BorrowedFd<'_>, ifindex: u32) -> bool {
    let kind = packet::hardware_type(fd).unwrap_or(ETHERNET);
    let is_cooked = packet::is_cooked(fd).unwrap_or(false);
    ifindex != 0 && !is_cooked && [ETHERNET, LOOPBACK].contains(&kind)
}

/// linux/if_arp.h, `ARPHRD_*`.
const ETHERNET: u16 = 1;
const LOOPBACK: u16 = 772;
