//! The group directory: the pages of a group's members, and files that dead members left behind.

use super::MemberId;
use super::content::{self, HeldPage, OtherPage};
use super::given::{self, DIRECTORIES_MAX};
use crate::record::{Record, WORDS};
use fanpcap_engine::root::{self, Root};
use fanpcap_linux::file::directory::{Access, Directory, is_roots_or_own, is_trusted};
use fanpcap_linux::file::shared::{self, Word};
use fanpcap_linux::file::trusted::is_untrusted;
use fanpcap_linux::process::netns;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

/// The largest number of pages of one group that are read: the kernel's limit of members
/// (`PACKET_FANOUT_MAX`).
const PAGES_MAX: usize = 256;

/// The largest number of rendezvous sockets of one group to which a newcomer sends a request.
const RENDEZVOUS_MAX: usize = 16;

/// The file with the locks of all groups and device registries. Only the file's owner may open it.
const TURNS: &str = "turns";

/// The directory of a group's pages. Each operation opens the directory anew, level by level from
/// the root, and checks each level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDir {
    pub(super) root: Root,
    netns: String,
    group: String,
}

pub(super) fn page_name(pid: u32, member: MemberId) -> String {
    format!("{pid}.{member}")
}

/// Continues an FNV-1a hash with further bytes.
pub(crate) fn hash(hash: u32, bytes: &[u8]) -> u32 {
    let next = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(hash, next)
}

/// The end of a rendezvous's name.
const RENDEZVOUS: &str = ".door";

/// The name of a rendezvous, made from the name of its opener's page.
pub(super) fn rendezvous_name(page: &str) -> String {
    format!("{page}{RENDEZVOUS}")
}

/// The names of sockets that may be rendezvous sockets, and that were made by root or by the
/// process's own user.
pub(super) fn rendezvous_sockets(
    directory: &Directory,
) -> impl Iterator<Item = OsString> + use<'_> {
    directory.names().filter(|name| {
        let about = || directory.about(name).ok();
        let is_trusted = |it: Metadata| it.file_type().is_socket() && is_trusted(&it);
        is_rendezvous(name) && about().is_some_and(is_trusted)
    })
}

/// Removes the rendezvous sockets of a group without pages.
fn remove_rendezvous(directory: &Directory) {
    // List the rendezvous sockets before the pages. A member makes its page before its rendezvous,
    // so the second listing shows the page if it still exists.
    let rendezvous_sockets: Vec<OsString> = rendezvous_sockets(directory).collect();
    if !rendezvous_sockets.is_empty() && directory.names().all(|name| is_rendezvous(&name)) {
        for rendezvous in rendezvous_sockets {
            // Best effort: the process may lack the right to remove the socket.
            let _ = directory.remove_file(&rendezvous);
        }
    }
}

fn is_rendezvous(name: &OsStr) -> bool {
    name.as_bytes().ends_with(RENDEZVOUS.as_bytes())
}

impl GroupDir {
    /// The group directory on an interface of the calling thread's network namespace, to read
    /// pages.
    ///
    /// # Errors
    /// As [`fanpcap_engine::root::root`], if there are no pages.
    pub fn of(ifindex: u32, group: u16) -> io::Result<Self> {
        Ok(Self::below(Root::find()?, netns::inode()?, ifindex, group))
    }

    /// The group directory for a member of the group. Makes the root.
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

    /// The number of the group.
    pub(crate) fn group(&self) -> Option<u16> {
        self.group.split_once('.')?.1.parse().ok()
    }

    /// The path of a member's page. `pid` is the id of the member's process.
    pub fn page(&self, pid: u32, member: MemberId) -> PathBuf {
        let directory = self.root.path().join(&self.netns).join(&self.group);
        directory.join(page_name(pid, member))
    }

    /// Reads the pages of living members. Removes the pages of dead members, if the process has the
    /// right to.
    pub fn records(&self) -> Vec<Record> {
        self.pages().into_iter().map(|(_, record)| record).collect()
    }

    /// Reads the pages of living members as [`GroupDir::records`] does, and returns each page with
    /// the id of its member.
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
        let made = root::enter_or_make(&netns, &self.group);
        made.or_else(|error| {
            let is_foreign = is_untrusted(&error);
            match is_foreign && given::take_back(&netns, OsStr::new(&self.group)) {
                true => root::enter_or_make(&netns, &self.group),
                false => Err(error),
            }
        })
    }

    /// Gives the directory to a user, so that only this user's processes can make the group's
    /// pages. The caller is root. Root's processes take the directory back when no page in it lives
    /// and no process has the result open.
    ///
    /// # Errors
    /// `EEXIST` if the group has a living member or founder; the errors of mkdirat(2) and chown(2).
    /// The message has the directory's path.
    pub fn give(&self, to: (u32, u32)) -> io::Result<File> {
        let attempt = || {
            let netns = root::enter_or_make(&self.root.make()?, &self.netns)?;
            given::give(&netns, OsStr::new(&self.group), to)
        };
        let is_passing = |kind| kind == io::ErrorKind::NotFound;
        super::retry(attempt, is_passing).map_err(|error| {
            let path = self.root.path().join(&self.netns).join(&self.group);
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })
    }

    /// The user to whom root has given the directory; `None` if the directory does not exist, or if
    /// it is root's or the calling process's user's.
    pub(crate) fn served_for(&self) -> Option<u32> {
        let netns = root::enter(&self.root.open().ok()?, &self.netns).ok()?;
        let about = netns.about(OsStr::new(&self.group)).ok()?;
        (!is_roots_or_own(&about)).then(|| about.uid())
    }

    /// Opens the page of a member of the process `pid`.
    ///
    /// # Errors
    /// `ENOENT` when there is no trusted page, or the error of openat(2).
    pub fn hold(&self, pid: u32, member: MemberId) -> io::Result<HeldPage> {
        let name = page_name(pid, member);
        let file = content::open(&self.open()?, OsStr::new(&name), Access::Read)?;
        file.map(HeldPage)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Maps the page of a member of the process `pid`, to change its counters.
    ///
    /// # Errors
    /// As [`GroupDir::hold`]; `EACCES` where the page is another user's.
    pub(crate) fn words(&self, pid: u32, member: MemberId) -> io::Result<[Word; WORDS]> {
        let name = page_name(pid, member);
        let file = content::open(&self.open()?, OsStr::new(&name), Access::Write)?;
        shared::join(&file.ok_or(io::ErrorKind::NotFound)?)
    }

    /// Opens the pages of living members, except `own`. Skips members that leave during the call.
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
            file.map(|file| file.map(|file| OtherPage { file, id }))
        };
        others.filter_map(open).collect()
    }

    /// The group's directory, and the names of the rendezvous sockets in it: the socket of the
    /// group, and those that former groups with the same number have left.
    ///
    /// # Errors
    /// `ENOENT` when the group has no pages; other errors of openat(2).
    pub(crate) fn rendezvous_sockets(&self) -> io::Result<(Directory, Vec<OsString>)> {
        let directory = self.open()?;
        let rendezvous_sockets = rendezvous_sockets(&directory)
            .take(RENDEZVOUS_MAX)
            .collect();
        Ok((directory, rendezvous_sockets))
    }

    /// Opens the file with the locks of all groups and registries. Returns the numbers of three
    /// locks: the lock of this group, the lock of its device's registry, and the lock that
    /// newcomers to the registry share. The locks of two groups may have the same number; then the
    /// groups wait for each other.
    ///
    /// # Errors
    /// `ENOENT` where there are no pages; `EACCES` where the file is another user's.
    pub(crate) fn locks(&self) -> io::Result<(File, [u32; 3])> {
        let of_all = content::open(&self.root.open()?, OsStr::new(TURNS), Access::Make);
        let is_denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        // In a directory that root has given to this process's user, that user has the locks.
        let file = match of_all {
            Err(error) if is_denied(&error) => {
                content::open(&self.open()?, OsStr::new(TURNS), Access::Make)?
            }
            opened => opened?,
        };
        let device = self.group.split('.').next().unwrap_or_default();
        let file = file.ok_or(io::ErrorKind::PermissionDenied)?;
        let newcomers = format!("{device}+");
        let names = [&self.group, device, &newcomers];
        Ok((file, names.map(|name| self.number(name))))
    }

    /// The number of the lock `name` in the network namespace: a hash.
    fn number(&self, name: &str) -> u32 {
        let of_netns = hash(0x811c_9dc5, self.netns.as_bytes());
        hash(hash(of_netns, b"/"), name.as_bytes())
    }

    /// The directories of all groups on an interface of the calling thread's network namespace.
    pub(crate) fn on_device(ifindex: u32) -> Vec<Self> {
        let of_device = format!("{ifindex}.");
        Self::all_of(|name| name.starts_with(&of_device))
    }

    /// The directories of a group in the calling thread's network namespace, except that on an
    /// interface.
    pub(crate) fn on_other_devices(group: u16, ifindex: u32) -> Vec<Self> {
        let own = format!("{ifindex}.{group}");
        let of_group = format!(".{group}");
        Self::all_of(|name| name.ends_with(&of_group) && name != own)
    }

    /// The directories of the calling thread's network namespace whose names `are_asked` for.
    fn all_of(are_asked: impl Fn(&str) -> bool) -> Vec<Self> {
        let Ok(any) = Self::of(0, 0) else {
            return Vec::new();
        };
        let netns = any
            .root
            .open()
            .and_then(|root| root::enter(&root, &any.netns));
        let Ok(netns) = netns else {
            return Vec::new();
        };
        let groups = netns.names().filter_map(|name| {
            let group = name.to_str().filter(|it| are_asked(it))?.to_owned();
            Some(Self {
                group,
                ..any.clone()
            })
        });
        groups.take(DIRECTORIES_MAX).collect()
    }

    /// Removes the group directory, and the directory of the network namespace, if they are empty.
    pub(super) fn remove_if_empty(&self) {
        // Best effort: rmdir(2) refuses directories that are not empty.
        let _ = self.root.open().and_then(|root| {
            let netns = root::enter(&root, &self.netns)?;
            remove_rendezvous(&root::enter(&netns, &self.group)?);
            netns.remove_directory(OsStr::new(&self.group))?;
            root.remove_directory(OsStr::new(&self.netns))
        });
    }

    /// Removes the files that members of any group left behind because they died, or had dropped
    /// the privilege to remove them. Removes what the calling process has the right to.
    pub fn sweep_all() {
        // Without a directory for pages, there are no pages.
        if let Ok(root) = Root::find() {
            Self::sweep(&root);
        }
    }

    pub(super) fn sweep(root: &Root) {
        let Ok(root) = root.open() else {
            return;
        };
        for (name, netns) in directories(&root) {
            for (name, group) in directories(&netns) {
                if pages(&group).is_empty() {
                    remove_rendezvous(&group);
                    let _ = netns.remove_directory(&name);
                }
            }
            given::sweep(&netns);
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

/// The trusted directories in `parent`, with their names.
fn directories(parent: &Directory) -> impl Iterator<Item = (OsString, Directory)> + use<'_> {
    let found = parent.names().filter_map(|name| {
        let directory = root::enter(parent, name.to_str()?).ok()?;
        Some((name, directory))
    });
    found.take(DIRECTORIES_MAX)
}
