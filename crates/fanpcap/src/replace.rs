//! Replacing the program of a group that lives.
//!
//! The kernel takes a group's program from any member. What drops and counts is in each member's own filter, though, which only
//! its own process can change; and the others are told on their pages, so that whoever joins later compares with what runs.

use crate::join::ProgramError;
use crate::member::Place;
use crate::page::Shelf;
use crate::steered::{SteerError, Steered};
use crate::steering::Steering;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// A member of the calling process, and a descriptor of its socket.
#[derive(Debug)]
pub struct Own {
    /// Its part in the program.
    pub steered: Arc<Steered>,
    /// Where it sits.
    pub place: Place,
    /// Its socket.
    pub socket: OwnedFd,
}

/// Gives a group another program. `members` are all that the process has in it, one at least. Nothing is done where it
/// can't be done for all members.
///
/// # Errors
/// Each says why.
pub fn replace(members: &[Own], steering: &Arc<Steering>) -> Result<(), ProgramError> {
    let Some(first) = members.first() else {
        return Ok(());
    };
    let group = first.place.group();
    let failed = |error| ProgramError::of(group, error);
    let own: Vec<u64> = members.iter().map(|own| own.place.inode()).collect();
    let all = first.place.members().unwrap_or_default();
    let others = all.iter().filter(|inode| !own.contains(inode)).count();
    let runs = first.steered.steering().ok_or(SteerError::Busy);
    if others > 0 && !runs.map_err(failed)?.judges_as(steering) {
        let members = others;
        return Err(ProgramError::OthersJudge { group, members });
    }
    let pages = first.place.shelf().map(|shelf: &Shelf| shelf.others(&own));
    let untold = |error: io::Error| ProgramError::Untold { group, error };
    let pages = pages.transpose().map_err(untold)?.unwrap_or_default();
    if pages.len() < others {
        return Err(ProgramError::Pageless { group });
    }
    let loaded = steering.load_fanout().map_err(SteerError::Load);
    let loaded = loaded.map_err(failed)?;
    let prepare = |own: &Own| own.steered.prepare(steering).map_err(failed);
    let prepared = members.iter().map(prepare).collect::<Result<Vec<_>, _>>()?;
    let set = first.steered.set(loaded, first.socket.as_fd());
    set.map_err(failed)?;
    for (own, prepared) in members.iter().zip(prepared) {
        let done = own.steered.go_over(steering, prepared, own.socket.as_fd());
        done.map_err(failed)?;
    }
    pages
        .iter()
        .try_for_each(|page| page.tell(steering))
        .map_err(untold)
}
