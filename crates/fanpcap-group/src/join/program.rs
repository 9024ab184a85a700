//! Joins a group that has a steering program. All members bring the same one, and the first member
//! attaches it to the group.

use super::{Attach, JoinError, Newcomer, ProgramError};
use crate::member::Member;
use crate::page::MemberId;
use crate::record::{MemberCounters, Running};
use crate::roster::{self, Roster};
use crate::steered::{Steered, load_fanout};
use crate::turn::Turn;
use fanpcap_config::mode::ModeKind;
use fanpcap_config::settings::Group;
use fanpcap_config::steering::Steering;
use fanpcap_linux::packet;
use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The state of a group before a newcomer joins it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runs {
    /// The group has no member.
    Nothing,
    /// No member's page says that the group has its steering program, and one member has no page.
    Unknown,
    /// All pages name this steering program. `is_set`: at least one member's page says that the
    /// group has it.
    This { is_set: bool },
}

impl Runs {
    /// Whether the newcomer must attach the steering program to the group.
    fn lacks_program(self) -> bool {
        matches!(self, Self::Nothing | Self::This { is_set: false })
    }
}

/// Joins with a steering program.
///
/// The newcomer creates its page before it looks for others'. So of two newcomers with different
/// programs, at least one finds the other's page. Every step that may fail runs before the socket
/// enters the group: a socket leaves its group only when it is closed.
pub(super) fn join(
    newcomer: &Newcomer<'_>,
    steering: &Arc<Steering>,
    before: MemberCounters,
) -> Result<Member, JoinError> {
    let id = newcomer.fanout.id;
    ensure_ethernet(newcomer.fd, newcomer.bound.ifindex)?;
    let failed = |error| JoinError::from(ProgramError::of(id, error));
    let load = || load_fanout(steering);
    let load = || load().map_err(failed);
    let found = look(newcomer, steering)?;
    let steered = Steered::load(steering, newcomer.filter()?).map_err(failed)?;
    let steered = Arc::new(steered);
    let mut spare = found.lacks_program().then(load).transpose()?;
    let program = Some((&**steering, &steered));
    let member = |number| Member::new(newcomer.identity(number), before, program);
    let early = newcomer.early(member);
    let found = look(newcomer, steering)?;
    if spare.is_none() && found.lacks_program() {
        spare = Some(load()?);
    }
    let attach: Attach<'_> = &|| steered.attach(newcomer.fd).map_err(failed);
    let attach = steering.has_filter().then_some(attach);
    newcomer.take(early.as_ref(), attach, || {
        // Of two first members with equal programs, one attaches and the other finds the program
        // attached. So only one counts late fragments. Without a turn both attach equal programs,
        // which changes nothing else. A newcomer to a group that has its program skips the turn:
        // its socket is in the group already and rejects all packets.
        let identity = early.as_ref().map(Member::identity);
        let identity = identity.filter(|_| found.lacks_program());
        let _turn = identity.and_then(|identity| Turn::take(identity).ok());
        match (found, look(newcomer, steering)?) {
            (_, Runs::This { is_set: true }) => steered.mark_as_set(),
            // The first member has attached a program, or is about to.
            (Runs::Unknown | Runs::This { is_set: true }, Runs::Unknown) => {}
            _ => {
                let loaded = spare.map_or_else(load, Ok)?;
                steered.set(loaded, newcomer.fd).map_err(failed)?;
                // Another newcomer may have attached its own program meanwhile.
                look(newcomer, steering)?;
            }
        }
        // A member that replaces the steering program looks for pages once more after the
        // replacement. This page existed before the look above. So either that member finds this
        // page, or this look has found the new program.
        Ok(())
    })?;
    newcomer.joined(early, member)
}

/// Checks whether the present state of the group would make [`join`] fail.
pub(super) fn foresee(
    fd: BorrowedFd<'_>,
    group: u16,
    ifindex: u32,
    steering: &Steering,
) -> Result<(), JoinError> {
    ensure_ethernet(fd, ifindex)?;
    let own = MemberId::of_socket(packet::inode(fd).unwrap_or(0));
    runs(group, ifindex, own, steering).map(drop)
}

fn look(newcomer: &Newcomer<'_>, steering: &Steering) -> Result<Runs, JoinError> {
    match newcomer.group {
        Group::Number(number) => runs(number, newcomer.bound.ifindex, newcomer.id, steering),
        Group::New => Ok(Runs::Nothing),
    }
}

/// Reads the state of a group from its pages and the roster, without the member `own`.
fn runs(group: u16, ifindex: u32, own: MemberId, steering: &Steering) -> Result<Runs, JoinError> {
    let (pages, roster) = roster::pages_then_roster(ifindex, group);
    let told = pages.filter(|(member, _)| *member != own);
    let told = told.filter_map(|(member, record)| Some((member, record.steering?)));
    let told: Vec<(MemberId, Running)> = told.collect();
    if let Some((_, other)) = told.iter().find(|(_, it)| it.digest != steering.digest()) {
        let error = ProgramError::Other {
            group,
            asked: steering.title().to_owned(),
            runs: other.title.clone(),
        };
        return Err(error.into());
    }
    Ok(known(&told, &members(&roster, group, own)))
}

/// The state of a group in which all pages name the same steering program.
fn known(told: &[(MemberId, Running)], members: &BTreeSet<MemberId>) -> Runs {
    let is_set =
        |(member, running): &(MemberId, Running)| running.is_set && members.contains(member);
    let has_page = |member: &MemberId| told.iter().any(|(told, _)| told == member);
    match (told.iter().any(is_set), members.iter().all(has_page)) {
        (true, _) => Runs::This { is_set: true },
        // The member without a page may have attached another steering program first.
        (false, false) => Runs::Unknown,
        (false, true) if told.is_empty() => Runs::Nothing,
        (false, true) => Runs::This { is_set: false },
    }
}

/// The members of a group that has a steering program, without `own`.
fn members(roster: &Roster, group: u16, own: MemberId) -> BTreeSet<MemberId> {
    let program = ModeKind::Program.kernel_type();
    let members = roster.members(group);
    let steered = members.filter(|it| it.fanout.is_some_and(|has| has.mode == program));
    let ids = steered.map(|it| MemberId::of_socket(it.inode.into()));
    ids.filter(|&member| member != own).collect()
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

/// Whether a steering program can read the packets of this socket: Ethernet frames with their
/// headers. The device `any` also has frames of tunnels. On a cooked socket, offsets of a filter
/// begin after the Ethernet header.
pub fn takes_programs(fd: BorrowedFd<'_>, ifindex: u32) -> bool {
    let kind = packet::hardware_type(fd).unwrap_or(ETHERNET);
    let is_cooked = packet::is_cooked(fd).unwrap_or(false);
    ifindex != 0 && !is_cooked && [ETHERNET, LOOPBACK].contains(&kind)
}

/// linux/if_arp.h, `ARPHRD_*`.
const ETHERNET: u16 = 1;
const LOOPBACK: u16 = 772;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::steering;

    /// The pages of sockets, each with whether it says that the group has its steering program.
    fn told(pages: &[(u64, bool)]) -> Vec<(MemberId, Running)> {
        let steering = steering("main = steer_rnd");
        let page = |&(inode, is_set): &(u64, bool)| {
            let running = Running::new(&steering);
            (MemberId::of_socket(inode), Running { is_set, ..running })
        };
        pages.iter().map(page).collect()
    }

    fn runs(pages: &[(u64, bool)], members: &[u64]) -> Runs {
        let members = members.iter().copied().map(MemberId::of_socket);
        known(&told(pages), &members.collect())
    }

    #[test]
    fn a_group_with_a_member_that_tells_nothing_is_unknown_also_to_the_third() {
        assert_eq!(runs(&[], &[1]), Runs::Unknown);
        assert_eq!(runs(&[(2, false)], &[1, 2]), Runs::Unknown);
        assert_eq!(runs(&[(2, false)], &[1]), Runs::Unknown);
    }

    #[test]
    fn a_member_in_the_group_that_knows_its_program_speaks_for_all() {
        assert_eq!(runs(&[(2, true)], &[1, 2]), Runs::This { is_set: true });
        assert_eq!(runs(&[(2, true)], &[1]), Runs::Unknown);
        assert_eq!(runs(&[(2, true)], &[]), Runs::This { is_set: false });
    }

    #[test]
    fn those_who_have_just_come_give_the_group_its_program() {
        assert_eq!(runs(&[], &[]), Runs::Nothing);
        assert_eq!(runs(&[(1, false)], &[]), Runs::This { is_set: false });
        assert_eq!(runs(&[(1, false)], &[1]), Runs::This { is_set: false });
    }
}
