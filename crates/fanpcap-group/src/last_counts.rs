//! Adds the kernel's last counts of a member's socket to the member's page, from another process.

use crate::page::{GroupDir, MemberId};
use crate::record::{WORDS, at};
use fanpcap_linux::file::shared::Word;
use fanpcap_linux::packet;
use std::io;
use std::os::fd::BorrowedFd;

/// Reads the counts of a member's `socket` and adds them to the member's page. Afterwards the page
/// shows how many packets are in the ring: the caller has made sure that no more packets come. The
/// member's process, with the process id `pid`, may live.
///
/// # Errors
/// When the page can't be written; the error of getsockopt(2).
pub fn add(
    group_dir: &GroupDir,
    (pid, member): (u32, MemberId),
    socket: BorrowedFd<'_>,
) -> io::Result<()> {
    add_to(&group_dir.words(pid, member)?, socket)
}

/// Reads the counts of `socket`, which clears them in the kernel, and adds them to the page with
/// these words.
pub(crate) fn add_to(words: &[Word; WORDS], socket: BorrowedFd<'_>) -> io::Result<()> {
    words[at::READING].during(|| {
        let last = packet::take_statistics(socket)?;
        for (at, more) in at::BY_US.into_iter().zip([last.packets, last.drops]) {
            words[at].add(more.into());
        }
        Ok(())
    })
}
