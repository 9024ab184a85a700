//! The group directory: the pages of a group's members, and what dead members left there.

use super::MemberId;
use super::content::{self, HeldPage, OtherPage};
use crate::record::Record;
use crate::root::{self, Root};
use fanpcap_linux::file::directory::{Access, Directory};
use fanpcap_linux::process::netns;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::PathBuf;

/// The most pages that are read of one group: the kernel's limit of members.
const PAGES_MAX: usize = 256;

/// The most directories that are looked through, on each level, for pages left behind.
const DIRECTORIES_MAX: usize = 256;

/// The file that has a lock for each group: whose turn it is to replace its program. Only its owner
/// may open it.
const TURNS: &str = "turns";

/// The directory of a group's pages. It is looked up each time, from the root on, and each level is
/// checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDir {
    root: Root,
    netns: String,
    group: String,
}

/// The name of a member's page.
pub(super) fn page_name(pid: u32, member: MemberId) -> String {
    format!("{pid}.{member}")
}

impl GroupDir {
    /// The directory of a group on an interface of the calling thread's network namespace, to read
    /// pages.
    ///
    /// # Errors
    /// Where there are no pages: see [`crate::root::root`].
    pub fn of(ifindex: u32, group: u16) -> io::Result<Self> {
        Ok(Self::below(Root::find()?, netns::inode()?, ifindex, group))
    }

    /// The same for a member of the group: the root is made.
    pub(crate) fn for_member(ifindex: u32, group: u16) -> io::Result<Self> {
        let directory = Self::of(ifindex, group)?;
        directory.root.make().map(|_| directory)
    }

    pub(super) fn below(root: Root, netns: u64, ifindex: u32, group: u16) -> Self {
        Self {
            root,
            netns: netns.to_string(),
            group: format!("{ifindex}.{group}"),
        }
    }

    /// The path of the page of this member of the process `pid`.
    pub fn page(&self, pid: u32, member: MemberId) -> PathBuf {
        let directory = self.root.path().join(&self.netns).join(&self.group);
        directory.join(page_name(pid, member))
    }

    /// The pages of the members that live. Stale ones are removed, if the process may.
    pub fn records(&self) -> Vec<Record> {
        self.pages().into_iter().map(|(_, record)| record).collect()
    }

    /// The same, each with its member.
    pub fn pages(&self) -> Vec<(MemberId, Record)> {
        self.open()
            .map(|directory| pages(&directory))
            .unwrap_or_default()
    }

    pub(super) fn open(&self) -> io::Result<Directory> {
        let netns = root::enter(&self.root.open()?, &self.netns)?;
        root::enter(&netns, &self.group)
    }

    pub(super) fn make(&self) -> io::Result<Directory> {
        let netns = root::enter_or_make(&self.root.make()?, &self.netns)?;
        root::enter_or_make(&netns, &self.group)
    }

    /// Holds the page of the member of this member of the process `pid`.
    ///
    /// # Errors
    /// `ENOENT` when there is none that is trusted, or what openat(2) says.
    pub fn hold(&self, pid: u32, member: MemberId) -> io::Result<HeldPage> {
        let name = page_name(pid, member);
        let file = content::open(&self.open()?, OsStr::new(&name), Access::Read)?;
        file.map(HeldPage)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Opens the pages of the members that live, but for these and those that leave meanwhile.
    ///
    /// # Errors
    /// `EACCES` where a page is another user's.
    pub(crate) fn others(&self, own: &[MemberId]) -> io::Result<Vec<OtherPage>> {
        let pages = self.pages();
        let others = pages.into_iter().filter(|(id, _)| !own.contains(id));
        let open = |(id, record): (MemberId, Record)| {
            let name = page_name(record.pid, id);
            let open = |directory| content::open(&directory, OsStr::new(&name), Access::Write);
            let file = match self.open().and_then(open) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                opened => opened.transpose(),
            };
            let digest = record.steering.map_or(0, |running| running.digest);
            let told = |file| OtherPage { file, id, digest };
            file.map(|file| file.map(told))
        };
        others.filter_map(open).collect()
    }

    /// Opens the file with the groups' locks, and tells which of them is this group's. Two groups
    /// may have the same: then they wait for each other.
    ///
    /// # Errors
    /// `ENOENT` where there are no pages; `EACCES` where the file is another user's.
    pub(crate) fn turns(&self) -> io::Result<(File, u32)> {
        let file = content::open(&self.root.open()?, OsStr::new(TURNS), Access::Make)?;
        let bytes = self.netns.bytes().chain([b'/']).chain(self.group.bytes());
        // FNV-1a.
        let hash = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        let number = bytes.fold(0x811c_9dc5, hash);
        let file = file.ok_or(io::ErrorKind::PermissionDenied)?;
        Ok((file, number))
    }

    /// Removes its directory, and that of the network namespace, with their last page.
    pub(super) fn remove_if_empty(&self) {
        // Best effort: rmdir refuses those that have others.
        let _ = self.root.open().and_then(|root| {
            let netns = root::enter(&root, &self.netns)?;
            netns.remove_directory(OsStr::new(&self.group))?;
            root.remove_directory(OsStr::new(&self.netns))
        });
    }

    /// Removes what members left behind that died, or that had dropped the privilege to remove it:
    /// of all groups.
    pub(super) fn sweep(&self) {
        let Ok(root) = self.root.open() else {
            return;
        };
        for (name, netns) in directories(&root) {
            for (name, group) in directories(&netns) {
                if pages(&group).is_empty() {
                    let _ = netns.remove_directory(&name);
                }
            }
            let _ = root.remove_directory(&name);
        }
    }
}

fn pages(directory: &Directory) -> Vec<(MemberId, Record)> {
    let read = directory.names().filter_map(|name| {
        let (_, member) = name.to_str()?.split_once('.')?;
        Some((member.parse().ok()?, content::read(directory, &name)?))
    });
    read.take(PAGES_MAX).collect()
}

/// The directories in another one that are trusted, with their names.
fn directories(parent: &Directory) -> impl Iterator<Item = (OsString, Directory)> + use<'_> {
    let found = parent.names().filter_map(|name| {
        let directory = root::enter(parent, name.to_str()?).ok()?;
        Some((name, directory))
    });
    found.take(DIRECTORIES_MAX)
}
