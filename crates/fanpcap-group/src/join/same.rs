//! Checks whether a newcomer brings the steering program that its group has.

use super::{JoinError, ProgramError};
use crate::page::MemberId;
use crate::record::Running;
use crate::roster;
use fanpcap_config::steering::Steering;

/// Checks that no page of the group, except that of `own`, shows another steering program.
pub(super) fn ensure_none_differs(
    group: u16,
    ifindex: u32,
    own: MemberId,
    steering: &Steering,
) -> Result<(), JoinError> {
    let mut pages = roster::open_pages(ifindex, group);
    let differs = |running: &Running| running.digest != steering.digest();
    let other = pages.find_map(|(member, record)| {
        // A newcomer may replace a founder that has no members.
        let is_other = member != own && !record.is_founder;
        let running = record.steering.filter(|_| is_other);
        running.filter(differs)
    });
    match other {
        Some(other) => Err(other_program(group, steering, other.title)),
        None => Ok(()),
    }
}

/// The error of a group that runs another steering program.
pub(super) fn other_program(group: u16, steering: &Steering, runs: String) -> JoinError {
    let asked = steering.title().to_owned();
    ProgramError::Other { group, asked, runs }.into()
}
