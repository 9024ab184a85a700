//! Finds the mode of an existing group, for a newcomer that has no mode set.

use crate::found;
use crate::guard::GroupLock;
use crate::identity::Identity;
use crate::page::MemberId;
use crate::record::{Record, Running};
use crate::roster::{self, Roster};
use fanpcap_config::mode::{Mode, ModeKind};
use fanpcap_linux::packet;
use std::os::fd::BorrowedFd;

/// What a group runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Runs {
    /// Nothing, since the group has no member.
    Nothing,
    /// A mode of the kernel's. The mode's options are those that a member's page shows. Without
    /// such a page, this value has no options, even if the group has some.
    Kernel(Mode),
    /// A steering program. Has the mode with its options, and the steering program as a member's
    /// page shows it; `None` without such a page.
    Program(Mode, Option<Titled>),
}

/// A steering program as a member's page shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Titled {
    /// Identifies the steering program.
    pub digest: u64,
    /// Its name, or the beginning of its text.
    pub title: String,
}

/// The mode of a group on a device in the calling thread's network namespace. A mode that only
/// another library knows is returned as [`ModeKind::Hash`]. The group then refuses the newcomer,
/// and the error shows the group's real mode.
pub fn runs(ifindex: u32, group: u16) -> Runs {
    let Ok(roster) = Roster::look() else {
        return Runs::Nothing;
    };
    let mut members = roster.members(group);
    let Some(has) = members.find_map(|it| it.fanout.filter(|_| it.ifindex == ifindex)) else {
        return roster::founder(ifindex, group).map_or(Runs::Nothing, program);
    };
    let kernels = Mode::from_kernel(has.mode, 0).unwrap_or(ModeKind::Hash.into());
    // A page may belong to a newcomer that is not in the group yet.
    let is_member = |id: &MemberId| roster.ids(ifindex, group).any(|member| member == *id);
    let of_members = |(id, record): (MemberId, Record)| {
        let is_one = is_member(&id) || record.is_founder;
        let is_one = is_one && record.mode.kind == kernels.kind;
        is_one.then_some(record)
    };
    let page = roster::open_pages(ifindex, group).find_map(of_members);
    match page {
        Some(page) if page.mode.kind == ModeKind::Program => program(page),
        None if kernels.kind == ModeKind::Program => Runs::Program(kernels, None),
        page => Runs::Kernel(page.map_or(kernels, |page| page.mode)),
    }
}

/// What a steered group runs, by the page of a member or of the founder.
fn program(page: Record) -> Runs {
    let titled = |running: Running| Titled {
        digest: running.digest,
        title: running.title,
    };
    Runs::Program(page.mode, page.steering.map(titled))
}

/// The text of a steered group's steering program, as the group's members keep it. The group is on
/// the device to which the socket `fd` is bound. `None` if the text can't be found.
pub fn program_text(fd: BorrowedFd<'_>, group: u16) -> Option<String> {
    let ifindex = packet::address(fd).ok()?.ifindex;
    let own = MemberId::of_socket(packet::inode(fd).ok()?);
    let identity = Identity::new(group, ModeKind::Program.into(), ifindex, own);
    let _guard = GroupLock::open(&identity).ok()?.take().ok()?;
    found::find(&identity, ifindex).ok()??.program_text()
}
