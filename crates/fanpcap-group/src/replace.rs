//! Replacing the program of a group that lives.
//!
//! The kernel takes a group's program from any member. What drops and counts is in each member's
//! own filter, though, which only its own process can change; and the others are told on their
//! pages, so that whoever joins later compares with what runs.

use crate::join::ProgramError;
use crate::member::Identity;
use crate::page::{MemberId, OtherPage};
use crate::steered::{Prepared, SteerError, Steered, load_fanout};
use crate::turn::Turn;
use fanpcap_config::steering::Steering;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// A member of the calling process.
#[derive(Debug)]
pub struct Own {
    /// Its part in the program.
    pub steered: Arc<Steered>,
    /// Which member of which group it is.
    pub identity: Arc<Identity>,
}

/// Copies the descriptor of a member's socket; none where the handle has been closed. A copy keeps
/// a closed socket in its group, where it swallows its share: so it is asked for as late as can be.
pub type CopySocket<'a> = &'a dyn Fn(&Identity) -> io::Result<Option<OwnedFd>>;

/// Gives a group another program, in the caller's turn. `members` are all that the process has in
/// it, one at least. Nothing is done where it can't be done for all members.
///
/// # Errors
/// Each says why.
pub fn replace(
    _turn: &Turn,
    members: &[Own],
    steering: &Arc<Steering>,
    copy: CopySocket<'_>,
) -> Result<(), ProgramError> {
    let Some(first) = members.first() else {
        return Ok(());
    };
    let group = first.identity.group();
    let failed = |error| ProgramError::of(group, error);
    let runs = first.steered.steering().ok_or(SteerError::Busy);
    let change = Change {
        steering,
        identity: &first.identity,
        own: members.iter().map(|own| own.identity.id()).collect(),
        judges_alike: runs.map_err(failed)?.filters_as(steering),
    };
    // Before anything is loaded in vain, and again thereafter, as that takes long.
    change.others()?;
    let loaded = load_fanout(steering);
    let loaded = loaded.map_err(failed)?;
    let prepared = prepared(members, steering).map_err(failed)?;
    let pages = change.others()?;
    let switching = switching(prepared, copy).map_err(|error| failed(SteerError::Attach(error)))?;
    let Some(giver) = switching.first() else {
        return Ok(());
    };
    let set = giver.own.steered.set(loaded, giver.socket.as_fd());
    set.map_err(failed)?;
    demote_others(&switching, &pages);
    // From here on, what fails for one is done for the others all the same.
    let mut gone = Ok(());
    for one in switching {
        let steered = &one.own.steered;
        gone = gone.and(steered.go_over(steering, one.prepared, one.socket.as_fd()));
    }
    let told = change.tell(&pages);
    gone.map_err(failed).and(told)
}

/// The first one has given the group its program: whoever did before tells no longer of late
/// fragments.
fn demote_others(switching: &[Switching<'_>], pages: &[OtherPage]) {
    let Some((giver, rest)) = switching.split_first() else {
        return;
    };
    let own = rest.iter().map(|one| one.own.steered.demote());
    // Best effort: a page that can't be written has been made smaller, and is none any more.
    let others = pages.iter().map(|page| page.demote().unwrap_or(0));
    let late = own.chain(others).fold(0, u64::saturating_add);
    giver.own.steered.inherit(late);
}

/// What each member has of the program that is to come.
fn prepared<'a>(
    members: &'a [Own],
    steering: &Steering,
) -> Result<Vec<(&'a Own, Prepared)>, SteerError> {
    let prepared = members.iter().map(|own| {
        let prepared = own.steered.prepare(steering)?;
        Ok((own, prepared))
    });
    prepared.collect()
}

/// A member of the calling process that goes over to another program.
struct Switching<'a> {
    own: &'a Own,
    prepared: Prepared,
    socket: OwnedFd,
}

/// The members whose handles are still open.
fn switching<'a>(
    prepared: Vec<(&'a Own, Prepared)>,
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

/// Another program for a group.
struct Change<'a> {
    steering: &'a Steering,
    /// One of the calling process's members.
    identity: &'a Identity,
    /// All of them.
    own: Vec<MemberId>,
    /// Whether it drops and counts as the one before.
    judges_alike: bool,
}

impl Change<'_> {
    /// The pages of other processes' members, who can be left with what they have.
    fn others(&self) -> Result<Vec<OtherPage>, ProgramError> {
        let group = self.identity.group();
        let others = self.members().ok_or(ProgramError::Unseen { group })?;
        if !others.is_empty() && !self.judges_alike {
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

    /// Tells the others, those that were there and those that came meanwhile. A newcomer looks once
    /// more when it has its filter: so either it finds what the calling process's pages say by now,
    /// or its own page is found here.
    fn tell(&self, pages: &[OtherPage]) -> Result<(), ProgramError> {
        let group = self.identity.group();
        let tell = |pages: &[OtherPage]| pages.iter().try_for_each(|page| page.tell(self.steering));
        let told = tell(pages).map_err(|error| ProgramError::Untold { group, error });
        let came = || ProgramError::CameBetween { group };
        let mut late = self.pages().map_err(|_| came())?;
        late.retain(|page| page.digest != self.steering.digest());
        let newcomers = match self.judges_alike {
            true => tell(&late).map_err(|_| came()),
            false => self.ensure_outside(&late),
        };
        told.and(newcomers)
    }

    /// Checks that none of these is in the group: what it says it would drop and count by.
    fn ensure_outside(&self, pages: &[OtherPage]) -> Result<(), ProgramError> {
        let members = self.members();
        let is_inside = |page: &OtherPage| {
            let members = members.as_ref();
            members.is_none_or(|members| members.contains(&page.id))
        };
        match pages.iter().any(is_inside) {
            true => Err(ProgramError::CameBetween {
                group: self.identity.group(),
            }),
            false => Ok(()),
        }
    }

    /// The other members, if the kernel tells.
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

/// Whether one of these members has none of these pages.
fn lack_pages(members: &[MemberId], pages: &[OtherPage]) -> bool {
    let has_page = |member| pages.iter().any(|page| page.id == member);
    !members.iter().all(|&member| has_page(member))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::steering;
    use fanpcap_config::mode::Mode;

    /// A member that packet diag does not list, as it is in no namespace.
    fn unseen() -> Own {
        let steering = Arc::new(steering("main = tcp >-> steer_rrobin"));
        let mode = Mode::from(fanpcap_config::mode::Kind::Program);
        Own {
            steered: Arc::new(Steered::unloaded(&steering)),
            identity: Arc::new(Identity::new(7, mode, 1, MemberId::of_socket(1))),
        }
    }

    #[test]
    fn where_the_members_are_not_known_nothing_is_replaced() {
        let members = [unseen()];
        let turn = Turn::take(&members[0].identity).unwrap();
        let other = Arc::new(steering("main = udp >-> steer_rrobin"));
        let copy = |_: &Identity| Ok(None);
        let refused = replace(&turn, &members, &other, &copy);
        assert!(matches!(refused, Err(ProgramError::Unseen { group: 7 })));
    }
}
