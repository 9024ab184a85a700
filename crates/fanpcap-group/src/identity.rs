//! Identifies a handle as a member of a group.

use crate::group_stats::{Departed, GroupStats};
use crate::namespace::Namespace;
use crate::page::{GroupDir, MemberId};
use crate::record::{NoFlow, Record};
use fanpcap_config::mode::{Mode, ModeKind};
use fanpcap_linux::process;

/// Identifies a member and its group. Stays valid when the process or the thread moves to another
/// network namespace.
#[derive(Clone, Debug)]
pub struct Identity {
    group: u16,
    known_as: u16,
    mode: Mode,
    ifindex: u32,
    id: MemberId,
    /// The group directory; `None` where there are no pages.
    group_dir: Option<GroupDir>,
    /// The network namespace of the group's device.
    namespace: Namespace,
}

/// Another application in a group, as its member's page shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// Name of the application, safe to print.
    pub program: String,
    /// Its process.
    pub pid: u32,
    /// See [`Record::no_flow`].
    pub no_flow: Option<NoFlow>,
}

impl Identity {
    pub(crate) fn new(group: u16, mode: Mode, ifindex: u32, id: MemberId) -> Self {
        let group_dir = GroupDir::for_member(ifindex, group).ok();
        Self {
            group,
            known_as: group,
            mode,
            ifindex,
            id,
            group_dir,
            namespace: Namespace::here(),
        }
    }

    /// The identity of a process that is not a member of the group. Makes no directory.
    pub fn outside(group: u16, ifindex: u32) -> Self {
        Self {
            group,
            known_as: group,
            mode: Mode::from(ModeKind::Program),
            ifindex,
            id: MemberId::of_socket(0),
            group_dir: GroupDir::of(ifindex, group).ok(),
            namespace: Namespace::here(),
        }
    }

    /// Sets the number by which the application knows the group, if this kernel group is the
    /// group's part on a further device.
    pub(crate) fn known_as(self, whole: Option<u16>) -> Self {
        let known_as = whole.unwrap_or(self.known_as);
        Self { known_as, ..self }
    }

    /// The number of the kernel's group.
    pub fn group(&self) -> u16 {
        self.group
    }

    /// The number by which the application knows the group. A group on several devices has a kernel
    /// group on each device. The application knows the group by the number of the first kernel
    /// group.
    pub fn known_group(&self) -> u16 {
        self.known_as
    }

    /// The member's id in its network namespace.
    pub fn id(&self) -> MemberId {
        self.id
    }

    /// The group directory; `None` where there are no pages.
    pub(crate) fn group_dir(&self) -> Option<&GroupDir> {
        self.group_dir.as_ref()
    }

    /// The group's mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether two members are in the same group.
    pub fn is_beside(&self, other: &Self) -> bool {
        (self.group, self.ifindex) == (other.group, other.ifindex)
            && self.group_dir == other.group_dir
    }

    /// Returns a member that runs another executable, as the member's page shows it. The caller
    /// warns of such a member, because two applications rarely share a group on purpose. Compares
    /// the executables and not the process ids: in another container, a process may have the same
    /// id as this one.
    pub fn stranger(&self) -> Option<Stranger> {
        let own = process::executable();
        let differs = |record: &Record| !record.is_founder && record.executable != own;
        let other = self.records().into_iter().find(differs)?;
        Some(Stranger {
            program: other.program,
            pid: other.pid,
            no_flow: other.no_flow.filter(|_| self.mode.kind == ModeKind::Hash),
        })
    }

    /// Sums up what the kernel and the pages show of the group.
    pub fn group_stats(&self, departed: &Departed) -> GroupStats {
        let members = self.members();
        let pages = self.group_dir.as_ref().map(GroupDir::pages);
        GroupStats::of(members, pages.unwrap_or_default(), departed)
    }

    /// The members of the group; `None` if they can't be listed.
    pub(crate) fn members(&self) -> Option<Vec<MemberId>> {
        let roster = self.namespace.roster().ok()?;
        roster.find(self.id)?;
        Some(roster.ids(self.ifindex, self.group).collect())
    }

    /// The pages of the group's living members.
    pub(crate) fn pages(&self) -> Vec<(MemberId, Record)> {
        let group_dir = self.group_dir.as_ref();
        group_dir.map(GroupDir::pages).unwrap_or_default()
    }

    /// See [`GroupDir::served_for`].
    pub(crate) fn served_for(&self) -> Option<u32> {
        self.group_dir.as_ref()?.served_for()
    }

    pub(crate) fn ifindex(&self) -> u32 {
        self.ifindex
    }

    fn records(&self) -> Vec<Record> {
        self.group_dir
            .as_ref()
            .map(GroupDir::records)
            .unwrap_or_default()
    }
}
