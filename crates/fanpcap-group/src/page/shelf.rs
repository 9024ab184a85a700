//! The directory of a group's pages, and what dead members left in all of them.

use super::content;
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
const SHELVES_MAX: usize = 256;

/// The file that has a lock for each group: whose turn it is to replace its program. Only its owner may open it.
const TURNS: &str = "turns";

/// The place of a group's pages. Its directory is looked up each time, from the root on, and each level is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shelf {
    root: Root,
    netns: String,
    group: String,
}

/// The name of the page of the member that the process `pid` opened with the socket of this inode.
pub(super) fn page_name(pid: u32, inode: u64) -> String {
    format!("{pid}.{inode}")
}

impl Shelf {
    /// The shelf of a group on an interface of the calling thread's network namespace, to read pages.
    ///
    /// # Errors
    /// Where there are no pages: see [`crate::root::root`].
    pub fn of(ifindex: u32, group: u16) -> io::Result<Self> {
        Ok(Self::below(Root::find()?, netns::inode()?, ifindex, group))
    }

    /// The same for a member of the group: the root is made.
    pub(crate) fn for_member(ifindex: u32, group: u16) -> io::Result<Self> {
        let shelf = Self::of(ifindex, group)?;
        shelf.root.make().map(|_| shelf)
    }

    pub(super) fn below(root: Root, netns: u64, ifindex: u32, group: u16) -> Self {
        Self {
            root,
            netns: netns.to_string(),
            group: format!("{ifindex}.{group}"),
        }
    }

    /// Where the page is of the member that the process `pid` opened with the socket of this inode.
    pub fn page(&self, pid: u32, inode: u64) -> PathBuf {
        let directory = self.root.path().join(&self.netns).join(&self.group);
        directory.join(page_name(pid, inode))
    }

    /// The pages of the members that live. Stale ones are removed, if the process may.
    pub fn records(&self) -> Vec<Record> {
        self.pages().into_iter().map(|(_, record)| record).collect()
    }

    /// The same, each with its socket's inode.
    pub fn pages(&self) -> Vec<(u64, Record)> {
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

    /// Opens the file with the groups' locks, and tells which of them is this group's. Two groups may have the same: then they
    /// wait for each other.
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

    /// Removes what members left behind that died, or that had dropped the privilege to remove it: of all groups.
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

fn pages(directory: &Directory) -> Vec<(u64, Record)> {
    let read = directory.names().filter_map(|name| {
        let (_, inode) = name.to_str()?.split_once('.')?;
        Some((inode.parse().ok()?, content::read(directory, &name)?))
    });
    read.take(PAGES_MAX).collect()
}

/// The directories in another one that are trusted, with their names.
fn directories(parent: &Directory) -> impl Iterator<Item = (OsString, Directory)> + use<'_> {
    let found = parent.names().filter_map(|name| {
        let directory = root::enter(parent, name.to_str()?).ok()?;
        Some((name, directory))
    });
    found.take(SHELVES_MAX)
}
