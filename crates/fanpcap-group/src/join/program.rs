//! Joins a group with a steering program: all members bring the same steering program.

use super::entry::Entry;
use super::ready::{self, new_shared};
use super::same::ensure_none_differs;
use super::{Attach, JoinError, Newcomer, PerDevice, ProgramError};
use crate::counter_publisher::CounterPublisher;
use crate::member::Member;
use crate::page::MemberId;
use crate::record::MemberCounters;
use crate::roster;
use crate::shared::Shared;
use crate::steered::{Steered, load_fanout};
use fanpcap_bpf::ProgramKind;
use fanpcap_config::settings::Group;
use fanpcap_config::steering::Steering;
use fanpcap_engine::fd_store::StoredFd;
use fanpcap_linux::bpf::LoadedProgram;
use fanpcap_linux::netlink::link;
use fanpcap_linux::packet;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Joins the group. Every step that may fail is done before the socket enters the group, because a
/// socket leaves its group only when it is closed.
pub(super) fn join(
    newcomer: &Newcomer<'_>,
    steering: &Arc<Steering>,
    before: MemberCounters,
) -> Result<Member, JoinError> {
    let joined = join_or_begin(newcomer, steering, before);
    joined.map_err(|error| {
        let is_of_privilege = matches!(error, JoinError::Program(ProgramError::NotPermitted(_)));
        let founded = is_of_privilege.then(|| other_than_founded(newcomer, steering));
        founded.flatten().unwrap_or(error)
    })
}

/// The error of a newcomer that lacks the privilege to begin the group otherwise than its founder
/// did; `None` if the group has no founder, or if the newcomer asks for what the founder has
/// founded.
fn other_than_founded(newcomer: &Newcomer<'_>, steering: &Steering) -> Option<JoinError> {
    let Group::Number(group) = newcomer.group else {
        return None;
    };
    let founded = roster::founder(newcomer.bound.ifindex, group)?.steering?;
    let is_same = founded.digest == steering.digest();
    let is_same = is_same && matches!(newcomer.per_device, PerDevice::Only);
    let runs = founded.title;
    (!is_same).then(|| ProgramError::Founded { group, runs }.into())
}

fn join_or_begin(
    newcomer: &Newcomer<'_>,
    steering: &Arc<Steering>,
    before: MemberCounters,
) -> Result<Member, JoinError> {
    let id = newcomer.fanout.id;
    ensure_ethernet(newcomer.fd, newcomer.bound.ifindex)?;
    let failed = |error| JoinError::from(ProgramError::of(id, error));
    ensure_same(newcomer, steering)?;
    let mut ready = ready::make(newcomer, steering);
    let filters = steering.has_filter() && newcomer.engine.is_none();
    let seems_of = || ready::seems_of(newcomer, &mut ready, steering).map_err(failed);
    let counts_in = filters.then(seems_of).transpose()?;
    let steered = match &counts_in {
        Some(shared) => load(newcomer, steering, shared)?,
        None => Steered::unloaded(steering),
    };
    let steered = Arc::new(steered);
    let program = Some((&**steering, &steered));
    let member = |number| {
        let identity = newcomer.identity(number);
        Member::new(identity, newcomer.class(), before, program)
    };
    let early = newcomer.early(member);
    ensure_not_served(newcomer)?;
    let attach: Attach<'_> = &|| steered.attach(newcomer.fd).map_err(failed);
    let attach = filters.then_some(attach);
    let parts = (&*steered, ready, counts_in);
    let mut entry = Entry::new(newcomer, steering, parts, early.as_ref());
    newcomer.take(early.as_ref(), attach, &mut |address| entry.enter(address))?;
    let membership = entry.into_membership();
    let mut joined = newcomer.joined(early, member)?;
    if let Some(membership) = membership {
        if newcomer.engine.is_some() {
            let counter_publisher =
                CounterPublisher::new(Arc::clone(membership.shared()), membership.cookie());
            steered.tell_of(Box::new(counter_publisher));
        }
        if newcomer.group == Group::New {
            joined.show_shared(membership.shared(), newcomer.takes_from_host());
            joined.open_rendezvous(membership.shared());
        }
        joined.hold(membership);
    }
    Ok(joined)
}

/// Loads the newcomer's filters. A process that may not load BPF programs takes the filtering part
/// that the group's founder has loaded.
fn load(
    newcomer: &Newcomer<'_>,
    steering: &Arc<Steering>,
    counts_in: &Shared,
) -> Result<Steered, JoinError> {
    let own = newcomer.filter()?;
    let has_own = own.is_some();
    Steered::load(steering, own, counts_in.map()).or_else(|error| {
        let kept =
            || kept_filter(newcomer, counts_in).filter(|_| !has_own && error.is_of_privilege());
        match kept() {
            Some(filter) => Ok(Steered::with_kept(steering, filter)),
            None => Err(ProgramError::of(newcomer.fanout.id, error).into()),
        }
    })
}

/// The filtering part that the founder of a group has loaded; it counts in this group's table.
fn kept_filter(newcomer: &Newcomer<'_>, shared: &Shared) -> Option<LoadedProgram> {
    let _guard = ready::lock(newcomer)?;
    let kept = shared.fd_store.find(StoredFd::Filter).ok()??;
    LoadedProgram::open(kept.into_iter().next()?, ProgramKind::SocketFilter).ok()
}

/// Checks, by the members' pages, whether the group would refuse the newcomer.
pub(super) fn foresee(
    fd: BorrowedFd<'_>,
    group: u16,
    ifindex: u32,
    steering: &Steering,
) -> Result<(), JoinError> {
    ensure_ethernet(fd, ifindex)?;
    let own = MemberId::of_socket(packet::inode(fd).unwrap_or(0));
    ensure_none_differs(group, ifindex, own, steering)
}

/// Checks on the members' pages that the group has the same steering program. The digest in the
/// table is compared later, when the newcomer enters the group. But only the pages have the title
/// of another steering program, which the error message needs.
fn ensure_same(newcomer: &Newcomer<'_>, steering: &Steering) -> Result<(), JoinError> {
    match newcomer.group {
        Group::Number(number) => {
            ensure_none_differs(number, newcomer.bound.ifindex, newcomer.id, steering)
        }
        Group::New => Ok(()),
    }
}

/// Checks that root has not given the group to another user, whose members have their own table and
/// locks. The caller has tried to make its page: this takes back a directory that nobody uses.
fn ensure_not_served(newcomer: &Newcomer<'_>) -> Result<(), JoinError> {
    let Group::Number(group) = newcomer.group else {
        return Ok(());
    };
    let device = super::device(newcomer.bound.ifindex);
    match newcomer.identity(group).served_for() {
        Some(user) => Err(ProgramError::Served {
            group,
            device,
            user,
        }
        .into()),
        None => Ok(()),
    }
}

pub(crate) fn ensure_ethernet(fd: BorrowedFd<'_>, ifindex: u32) -> Result<(), JoinError> {
    if takes_programs(fd, ifindex) {
        return Ok(());
    }
    Err(not_ethernet(ifindex))
}

fn not_ethernet(ifindex: u32) -> JoinError {
    let device = super::device(ifindex);
    match ifindex {
        0 => ProgramError::AllDevices.into(),
        _ => ProgramError::NotEthernet { device }.into(),
    }
}

/// Checks whether the first member of a group could have a steering program. Loads the steering
/// program for this check, and attaches it to no group. Without a device, assumes a device with
/// Ethernet frames.
///
/// # Errors
/// Why the steering program can't be loaded, without a group's number.
pub fn try_to_load(ifindex: Option<u32>, steering: &Steering) -> Result<(), JoinError> {
    if let Some(ifindex) = ifindex {
        let hardware = link::get(ifindex).map_or(ETHERNET, |link| link.hardware);
        if ifindex == 0 || !is_ethernet(hardware) {
            return Err(not_ethernet(ifindex));
        }
    }
    let shared = new_shared(0, steering);
    let loaded = shared.and_then(|shared| load_fanout(steering, shared.map()).map(drop));
    loaded.map_err(|error| ProgramError::of(0, error).into())
}

/// Whether a steering program can read this socket's packets: Ethernet frames with their headers.
/// The device `any` also has other frames. On a cooked socket, a filter's offsets begin after the
/// Ethernet header.
pub fn takes_programs(fd: BorrowedFd<'_>, ifindex: u32) -> bool {
    let kind = packet::hardware_type(fd).unwrap_or(ETHERNET);
    let is_cooked = packet::is_cooked(fd).unwrap_or(false);
    ifindex != 0 && !is_cooked && is_ethernet(kind)
}

fn is_ethernet(hardware: u16) -> bool {
    [ETHERNET, LOOPBACK].contains(&hardware)
}

/// linux/if_arp.h, `ARPHRD_*`.
const ETHERNET: u16 = 1;
const LOOPBACK: u16 = 772;
