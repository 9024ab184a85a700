//! Watches the member pages of a group, and reports each page that is made or removed. A handle may
//! be open for less time than passes between two reads of the roster, so these reads would miss it.

use crate::page::MemberId;
use fanpcap_engine::root;
use fanpcap_linux::file::directory::is_trusted;
use fanpcap_linux::file::inotify::{Change, Changes};
use fanpcap_linux::process::netns;
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Reports each page that a group's members make or remove, on any interface.
#[derive(Debug)]
pub struct Arrivals {
    changes: Changes,
    /// The directory of this network namespace's pages.
    netns: PathBuf,
    /// The end of a group directory's name: a dot and the group's number.
    suffix: String,
    /// Group directories in which no page has been seen.
    empty: BTreeSet<PathBuf>,
}

/// Changes since the last call of [`Arrivals::take`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Pages that were made. Some of them may have been removed since.
    pub came: BTreeSet<PathBuf>,
    /// Pages that were removed.
    pub gone: BTreeSet<PathBuf>,
    /// Whether pages were made and removed before their names could be read.
    pub unseen: bool,
    /// Whether the kernel dropped notifications, so that changes may be missing.
    pub lost: bool,
}

impl Arrivals {
    /// Watches a group in the calling thread's network namespace. Pages that exist already are not
    /// reported.
    ///
    /// # Errors
    /// When the root can't be made or watched.
    pub fn of(group: u16) -> io::Result<Self> {
        let netns = root::make_root()?.join(netns::inode()?.to_string());
        Self::within(netns, group)
    }

    fn within(netns: PathBuf, group: u16) -> io::Result<Self> {
        let mut arrivals = Self {
            changes: Changes::new()?,
            netns,
            suffix: format!(".{group}"),
            empty: BTreeSet::new(),
        };
        let root = arrivals.netns.parent().unwrap_or(Path::new("/"));
        // If this call makes the root, the root gets the same mode as from the first member.
        DirBuilder::new().recursive(true).mode(0o755).create(root)?;
        arrivals.changes.watch(root)?;
        if arrivals.netns.exists() {
            arrivals.look_into_netns(&mut News::default());
        }
        Ok(arrivals)
    }

    /// Returns the changes since the last call.
    pub fn take(&mut self) -> News {
        let mut news = News::default();
        let Ok(Some(changes)) = self.changes.take() else {
            news.lost = true;
            return news;
        };
        for change in changes {
            match change {
                Change::Came(path) if path == self.netns => self.look_into_netns(&mut news),
                Change::Came(path) if self.is_group_dir(&path) => self.look_into(path, &mut news),
                Change::Came(path) if self.is_page(&path) => self.note(path, &mut news),
                Change::Gone(path) if self.is_group_dir(&path) => {
                    news.unseen |= self.empty.remove(&path);
                }
                Change::Gone(path) if self.is_page(&path) => {
                    news.gone.insert(path);
                }
                Change::Came(_) | Change::Gone(_) => {}
            }
        }
        news
    }

    fn is_group_dir(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path.parent() == Some(&self.netns) && name.ends_with(&self.suffix)
    }

    fn is_page(&self, path: &Path) -> bool {
        path.parent()
            .is_some_and(|parent| self.is_group_dir(parent))
    }

    fn look_into_netns(&mut self, news: &mut News) {
        // A member makes this directory when it makes its page. If the directory is gone already,
        // the page was made and removed before it could be seen.
        news.unseen |= self.changes.watch(&self.netns).is_err();
        for group_dir in entries(&self.netns) {
            if self.is_group_dir(&group_dir) {
                self.look_into(group_dir, news);
            }
        }
    }

    /// Watches a group directory, then lists the pages that came before the watch. A directory that
    /// root has given to another user has no page of the caller's copies, and its user could make
    /// more names than the kernel notifies of.
    fn look_into(&mut self, group_dir: PathBuf, news: &mut News) {
        if fs::symlink_metadata(&group_dir).is_ok_and(|about| !is_trusted(&about)) {
            return;
        }
        if self.changes.watch(&group_dir).is_err() {
            news.unseen = true;
            return;
        }
        let pages: Vec<PathBuf> = entries(&group_dir).collect();
        if pages.is_empty() {
            self.empty.insert(group_dir);
        }
        for page in pages {
            self.note(page, news);
        }
    }

    fn note(&mut self, page: PathBuf, news: &mut News) {
        if let Some(group_dir) = page.parent() {
            self.empty.remove(group_dir);
        }
        news.came.insert(page);
    }
}

impl AsFd for Arrivals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.changes.as_fd()
    }
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

/// The member that owns a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The device of the member's group.
    pub ifindex: u32,
    /// The process id in the member's own pid namespace, which may differ from the caller's.
    pub pid: u32,
    /// The member.
    pub id: MemberId,
}

/// Parses the owner from the names of a page and of its group directory.
pub fn owner(page: &Path) -> Option<Owner> {
    let (pid, id) = page.file_name()?.to_str()?.split_once('.')?;
    let (ifindex, _) = page.parent()?.file_name()?.to_str()?.split_once('.')?;
    Some(Owner {
        ifindex: ifindex.parse().ok()?,
        pid: pid.parse().ok()?,
        id: id.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_testkit::Scratch;
    use std::os::unix::fs::chown;

    #[test]
    fn the_shortest_lives_are_told() {
        let scratch = Scratch::new().unwrap();
        let netns = scratch.file("root/4");
        let mut arrivals = Arrivals::within(netns.clone(), 7).unwrap();
        assert_eq!(arrivals.take(), News::default());
        let (group_dir, other) = (netns.join("2.7"), netns.join("2.17"));
        // The first page is found by listing the directory, the later ones by notifications.
        fs::create_dir_all(&group_dir).unwrap();
        fs::create_dir(&other).unwrap();
        fs::write(group_dir.join("5.1"), "").unwrap();
        fs::write(other.join("5.2"), "").unwrap();
        let news = arrivals.take();
        assert_eq!(news.came, BTreeSet::from([group_dir.join("5.1")]));
        fs::write(group_dir.join("5.3"), "").unwrap();
        fs::remove_file(group_dir.join("5.3")).unwrap();
        let news = arrivals.take();
        assert_eq!(news.came, BTreeSet::from([group_dir.join("5.3")]));
        assert_eq!((news.gone, news.unseen), (news.came, false));
        let (ifindex, pid, id) = (2, 5, MemberId::of_socket(3));
        let expected = Owner { ifindex, pid, id };
        assert_eq!(owner(&group_dir.join("5.3")), Some(expected));

        // The directory is gone before it can be watched.
        let short = netns.join("3.7");
        fs::create_dir(&short).unwrap();
        fs::write(short.join("5.4"), "").unwrap();
        fs::remove_dir_all(&short).unwrap();
        assert!(arrivals.take().unseen);
        // The pages of this directory were reported, so its removal leaves nothing unseen.
        fs::remove_dir_all(&netns).unwrap();
        assert!(!arrivals.take().unseen);
        fs::create_dir_all(&short).unwrap();
        fs::remove_dir_all(&netns).unwrap();
        assert!(arrivals.take().unseen);
    }

    #[test]
    #[ignore = "needs root: chown"]
    fn a_directory_of_another_user_tells_nothing() {
        let scratch = Scratch::new().unwrap();
        let netns = scratch.file("4");
        let (before, later) = (netns.join("2.7"), netns.join("3.7"));
        let aside = scratch.file("aside");
        for directory in [&before, &aside] {
            fs::create_dir_all(directory).unwrap();
            chown(directory, Some(65_534), None).unwrap();
        }
        let mut arrivals = Arrivals::within(netns, 7).unwrap();
        fs::rename(&aside, &later).unwrap();
        assert_eq!(arrivals.take(), News::default());
        for directory in [before, later] {
            fs::write(directory.join("5.1"), "").unwrap();
            fs::remove_dir_all(directory).unwrap();
        }
        assert_eq!(arrivals.take(), News::default());
    }

    #[test]
    fn what_is_there_before_is_no_news() {
        let scratch = Scratch::new().unwrap();
        let group_dir = scratch.file("4/2.7");
        fs::create_dir_all(&group_dir).unwrap();
        fs::write(group_dir.join("5.1"), "").unwrap();
        let mut arrivals = Arrivals::within(scratch.file("4"), 7).unwrap();
        assert_eq!(arrivals.take(), News::default());
        fs::remove_file(group_dir.join("5.1")).unwrap();
        assert_eq!(
            arrivals.take().gone,
            BTreeSet::from([group_dir.join("5.1")])
        );
    }
}
