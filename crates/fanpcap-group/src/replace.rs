//! Replaces the steering program of a group that has members.
//!
//! On packet sockets any member may attach the steering part to the group. The filtering part is in
//! each member's own filter, which only the member's process can change. The new steering program's
//! digest goes to the group's table, where newcomers compare it with their own. The title goes to
//! the pages of all members.

mod on_device;

use crate::guard::GroupGuard;
use crate::identity::Identity;
use crate::join::ProgramError;
use crate::member::OwnMember;
use crate::page::{MemberId, OtherPage};
use crate::steered::{Prepared, SteerError, load_fanout};
use fanpcap_config::steering::Steering;
use fanpcap_engine::fd_store::StoredFd;
use fanpcap_linux::wait::clock;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Duplicates the descriptor of a member's socket; `None` if the handle has been closed. A
/// duplicate keeps a closed socket in its group, where its share is lost. So [`replace`] duplicates
/// as late as possible.
pub type CopySocket<'a> = &'a dyn Fn(&Identity) -> io::Result<Option<OwnedFd>>;

/// Replaces a group's steering program, under the group's `guard`. `members` are all members that
/// the process has in the group, at least one. Changes nothing if a member can't be changed.
///
/// # Errors
/// [`ProgramError`], which says why.
pub fn replace(
    guard: &GroupGuard,
    members: &[OwnMember],
    steering: &Arc<Steering>,
    copy: CopySocket<'_>,
) -> Result<(), ProgramError> {
    let Some(first) = members.first() else {
        return Ok(());
    };
    let group = first.identity.group();
    if let Some((engine, device)) = first.shared.engine.zip(first.shared.on_device.as_ref()) {
        // Check that this thread sees the group's members: in another network namespace, another
        // device may have the same index.
        first
            .identity
            .members()
            .ok_or(ProgramError::Unseen { group })?;
        let replaced = on_device::replace(guard, members, (engine, &**device), steering);
        return replaced.map_err(|error| ProgramError::Engine { group, error });
    }
    let failed = |error| ProgramError::of(group, error);
    let runs = first.steered.steering().ok_or(SteerError::Busy);
    let change = Change {
        steering,
        identity: &first.identity,
        own: members.iter().map(|own| own.identity.id()).collect(),
        filters_alike: runs.map_err(failed)?.filters_as(steering),
    };
    // Check the other members before the loading, which takes long, and again after it: some of
    // them may have ended meanwhile.
    change.others()?;
    let loaded = load_fanout(steering, first.shared.map());
    let loaded = loaded.map_err(failed)?;
    let prepared = prepared(members, steering).map_err(failed)?;
    let pages = change.others()?;
    let switching = switching(prepared, copy).map_err(|error| failed(SteerError::Attach(error)))?;
    let Some(giver) = switching.first() else {
        return Ok(());
    };
    if !change.filters_alike {
        // The founder's filtering part is that of the former steering program.
        let removed = first.shared.fd_store.remove(StoredFd::Filter);
        removed.map_err(|error| failed(SteerError::Attach(error)))?;
    }
    let program = loaded.as_fd().try_clone_to_owned();
    let set = giver.own.steered.set(loaded, giver.socket.as_fd());
    set.map_err(failed)?;
    let table = first.shared.table();
    table.show_program(steering, clock::monotonic_ns());
    let kept =
        program.and_then(|program| first.shared.keep_program(program.as_fd(), steering.text()));
    // Best effort: without the kept BPF program, a member that takes over a ring waits longer for
    // packets in flight.
    let _ = kept;
    demote_others(&switching, &pages);
    // From here on, a failure for one member does not stop the change of the other members.
    let mut gone = Ok(());
    for one in switching {
        let steered = &one.own.steered;
        let fds = [one.socket.as_fd(), one.own.shared.map()];
        gone = gone.and(steered.switch_to(steering, one.prepared, fds));
    }
    let told = change.write_pages(&pages);
    gone.map_err(failed).and(told)
}

/// Passes on late fragments. The first member of `switching` has attached the group's new steering
/// program. This member adds to its own late fragments those of the member that had attached the
/// former steering program.
fn demote_others(switching: &[Switching<'_>], pages: &[OtherPage]) {
    let Some((giver, rest)) = switching.split_first() else {
        return;
    };
    let own = rest.iter().map(|one| one.own.steered.demote());
    // Best effort: if a page can't be written, it has been truncated and is no longer a page.
    let others = pages.iter().map(|page| page.demote().unwrap_or(0));
    let late = own.chain(others).fold(0, u64::saturating_add);
    giver.own.steered.take_over(late);
}

fn prepared<'a>(
    members: &'a [OwnMember],
    steering: &Steering,
) -> Result<Vec<(&'a OwnMember, Prepared)>, SteerError> {
    let prepared = members.iter().map(|own| {
        let prepared = own.steered.prepare(steering, own.shared.map())?;
        Ok((own, prepared))
    });
    prepared.collect()
}

/// A member of the calling process that changes to the new steering program.
struct Switching<'a> {
    own: &'a OwnMember,
    prepared: Prepared,
    socket: OwnedFd,
}

/// Duplicates the sockets of members whose handles are still open.
fn switching<'a>(
    prepared: Vec<(&'a OwnMember, Prepared)>,
    copy: CopySocket<'_>,
) -> io::Result<Vec<Switching<'a>>> {
    let switching = prepared.into_iter().filter_map(|(own, prepared)| {
        let socket = copy(&own.identity).transpose()?;
        Some(socket.map(|socket| Switching {
            own,
            prepared,
            socket,
        }))
    });
    switching.collect()
}

/// The change of a group to another steering program.
struct Change<'a> {
    steering: &'a Steering,
    /// The identity of one of the calling process's members.
    identity: &'a Identity,
    /// All members of the calling process.
    own: Vec<MemberId>,
    /// Whether the new steering program drops and counts as the old one does.
    filters_alike: bool,
}

impl Change<'_> {
    /// Opens the pages of other processes' members. Fails if one of these members has no page, or
    /// would need another filter.
    fn others(&self) -> Result<Vec<OtherPage>, ProgramError> {
        let group = self.identity.group();
        let others = self.members().ok_or(ProgramError::Unseen { group })?;
        if !others.is_empty() && !self.filters_alike {
            let members = others.len();
            return Err(ProgramError::OthersJudge { group, members });
        }
        let pages = self.pages();
        let pages = pages.map_err(|error| ProgramError::Untold { group, error })?;
        match lack_pages(&others, &pages) {
            true => Err(ProgramError::Pageless { group }),
            false => Ok(pages),
        }
    }

    /// Writes the new steering program to the pages of the other members.
    fn write_pages(&self, pages: &[OtherPage]) -> Result<(), ProgramError> {
        let group = self.identity.group();
        let write = |page: &OtherPage| page.write_steering(self.steering);
        let told = pages.iter().try_for_each(write);
        told.map_err(|error| ProgramError::Untold { group, error })
    }

    /// The group's members in other processes; `None` if the kernel does not show them.
    fn members(&self) -> Option<Vec<MemberId>> {
        let mut members = self.identity.members()?;
        members.retain(|member| !self.own.contains(member));
        Some(members)
    }

    fn pages(&self) -> io::Result<Vec<OtherPage>> {
        let group_dir = self.identity.group_dir();
        let pages = group_dir
            .map(|group_dir| group_dir.others(&self.own))
            .transpose()?;
        Ok(pages.unwrap_or_default())
    }
}

/// Whether one of these members has no page.
fn lack_pages(members: &[MemberId], pages: &[OtherPage]) -> bool {
    let has_page = |member| pages.iter().any(|page| page.id == member);
    !members.iter().all(|&member| has_page(member))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::steering;
    use crate::shared::Shared;
    use crate::steered::Steered;
    use fanpcap_config::mode::Mode;

    /// A member that packet diag does not list, because it is in no namespace.
    fn unseen() -> OwnMember {
        let steering = Arc::new(steering("main = tcp >-> steer_rrobin"));
        let mode = Mode::from(fanpcap_config::mode::ModeKind::Program);
        OwnMember {
            steered: Arc::new(Steered::unloaded(&steering)),
            identity: Arc::new(Identity::new(7, mode, 1, MemberId::of_socket(1))),
            shared: Arc::new(Shared::new(7).unwrap()),
        }
    }

    #[test]
    #[ignore = "needs root: eBPF"]
    fn where_the_members_are_not_known_nothing_is_replaced() {
        let members = [unseen()];
        let guard = GroupGuard::take(&members[0].identity).unwrap();
        let other = Arc::new(steering("main = udp >-> steer_rrobin"));
        let copy = |_: &Identity| Ok(None);
        let refused = replace(&guard, &members, &other, &copy);
        assert!(matches!(refused, Err(ProgramError::Unseen { group: 7 })));
    }
}
