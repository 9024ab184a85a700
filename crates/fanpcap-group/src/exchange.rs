//! The exchange of a group's BPF program on the XDP engine for another, while packets come. Each
//! packet meets the one or the other; the maps, and so rings and counters, are the same.
//!
//! All that it needs is in the group's locker before it begins. The word [`at::EXCHANGE`] of the
//! table says how far it has come: 0, [`BEGUN`], or the digest of the next steering program. Who
//! dies within it leaves that to the next holder of the group's lock, who undoes an exchange that
//! has only begun, and completes one whose digest is there.

use crate::estate::Estate;
use crate::faults;
use crate::locker::Deposit;
use crate::on_xdp::NEXT;
use crate::record::{TITLE_WORDS, at as word, title_words};
use crate::shared::Shared;
use crate::table::at;
use crate::turn::AtDock;
use fanpcap_config::fanout::Script;
use fanpcap_linux::file::sealed;
use fanpcap_linux::wait::clock;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// What another member needs for an exchange.
#[derive(Debug)]
pub(crate) struct Next<'a> {
    /// The digest of the steering program.
    pub(crate) digest: u64,
    /// The BPF program for received packets.
    pub(crate) received: BorrowedFd<'a>,
    /// The one for sent packets, if the group has one.
    pub(crate) sent: Option<BorrowedFd<'a>>,
    /// Text and title of the steering program, in files.
    pub(crate) text: BorrowedFd<'a>,
    pub(crate) title: BorrowedFd<'a>,
}

/// A value of [`at::EXCHANGE`].
const BEGUN: u64 = 1;

/// Whether an exchange is under way.
pub(crate) fn is_under_way(shared: &Shared) -> bool {
    shared.table().get(at::EXCHANGE) != 0
}

/// Exchanges the group's BPF program. The caller has the group's turn and the dock's.
///
/// # Errors
/// What the engine and the lockers say. The group has its former BPF program then.
pub(crate) fn exchange(shared: &Shared, _: &AtDock<'_>, next: &Next<'_>) -> io::Result<()> {
    shared.locker.ensure_room()?;
    let mut all = vec![next.received, next.text, next.title];
    all.extend(next.sent);
    set(shared, BEGUN);
    let put = shared.locker.put(Deposit::Engine(NEXT), &all);
    let done = put.and_then(|()| {
        set(shared, next.digest);
        install(shared, next.digest)
    });
    // Best effort: the next holder of the lock clears it away.
    let _ = clear(shared);
    done
}

/// Completes or undoes the exchange that is under way. The caller is as that of [`exchange`].
///
/// # Errors
/// As [`exchange`]. What is left to do is the next holder's then.
pub(crate) fn finish(shared: &Shared, _: &AtDock<'_>) -> io::Result<()> {
    finish_by(shared, &|digest| install(shared, digest))
}

fn finish_by(shared: &Shared, install: &dyn Fn(u64) -> io::Result<()>) -> io::Result<()> {
    let digest = shared.table().get(at::EXCHANGE);
    if digest != BEGUN {
        // To undo it may be impossible: the device may have the next program already.
        if let Err(error) = install(digest) {
            // Where the device is gone, nothing is left to exchange.
            if error.kind() != io::ErrorKind::NotFound {
                return Err(error);
            }
        }
    }
    clear(shared)
}

fn set(shared: &Shared, value: u64) {
    faults::step();
    shared.table().set(at::EXCHANGE, value);
    faults::step();
}

/// Clears away an exchange that is done, or shall not be.
fn clear(shared: &Shared) -> io::Result<()> {
    set(shared, BEGUN);
    shared.locker.remove(Deposit::Engine(NEXT))?;
    faults::step();
    shared.table().set(at::EXCHANGE, 0);
    Ok(())
}

/// Makes the next BPF program the group's. It can be done again from its beginning.
fn install(shared: &Shared, digest: u64) -> io::Result<()> {
    let next = shared.locker.find(Deposit::Engine(NEXT))?;
    let (Some(on_xdp), Some(next)) = (&shared.on_xdp, next) else {
        return Ok(());
    };
    let mut next = next.into_iter();
    let (Some(received), Some(text), Some(title)) = (next.next(), next.next(), next.next()) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let berth = u8::try_from(shared.table().get(at::BERTH));
    let berth = berth.map_err(|_| io::ErrorKind::InvalidData)?;
    let dock = on_xdp.dock(shared.ifindex())?;
    let former = dock.exchange(berth, received.as_fd())?;
    faults::step();
    let replaced = next.next().map(|sent| on_xdp.program().replace_sent(sent));
    if let Some(Err(error)) = replaced {
        dock.exchange(berth, former.as_fd())?;
        return Err(error);
    }
    faults::step();
    // Best effort: without the text a newcomer must bring the steering program.
    let _ = shared.keep(&[received.as_fd(), text.as_fd()]);
    faults::step();
    // Best effort: errors would show another title.
    let title = sealed::read(title, TITLE_WORDS * 8).unwrap_or_default();
    let title = title.unwrap_or_default();
    let balance = Script::of_title(&title).options().balance;
    shared.table().set_balance(balance, clock::monotonic_ns());
    shared.table().set(at::DIGEST, digest);
    faults::step();
    let _ = write_pages(shared, digest, &title);
    Ok(())
}

/// Writes the title and the digest of the steering program to the pages of all members.
fn write_pages(shared: &Shared, digest: u64, title: &str) -> io::Result<()> {
    let title = title_words(title);
    shared.locker.visit(&mut |deposit, descriptors| {
        if let Deposit::Socket(cookie) = deposit {
            if let Some(estate) = Estate::from(cookie, descriptors) {
                let words = estate.words[word::TITLE..].iter();
                words.zip(title).for_each(|(word, value)| word.set(value));
                estate.words[word::DIGEST].set(digest);
            }
        }
        true
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a completer succeeds to whom an exchange is left that has come as far as `word`, and
    /// what it leaves: the table's word, and whether the deposit is there.
    fn left_after(word: u64, outcome: Option<io::ErrorKind>) -> (bool, u64, bool) {
        let shared = Shared::for_xdp(1).unwrap();
        let next = shared.lifelines.as_fd();
        shared.locker.put(Deposit::Engine(NEXT), &[next]).unwrap();
        shared.table().set(at::EXCHANGE, word);
        let done = finish_by(&shared, &|digest| {
            assert_eq!(digest, 77);
            outcome.map_or(Ok(()), |kind| Err(kind.into()))
        });
        let next = shared.locker.find(Deposit::Engine(NEXT)).unwrap();
        (
            done.is_ok(),
            shared.table().get(at::EXCHANGE),
            next.is_some(),
        )
    }

    #[test]
    #[ignore = "needs root: eBPF"]
    fn what_can_not_be_completed_is_left_to_the_next_holder_of_the_lock() {
        let refused = Some(io::ErrorKind::PermissionDenied);
        assert_eq!(left_after(77, refused), (false, 77, true));
        assert_eq!(left_after(77, None), (true, 0, false));
        let gone = Some(io::ErrorKind::NotFound);
        assert_eq!(left_after(77, gone), (true, 0, false));
        // One that has only begun is undone.
        assert_eq!(left_after(BEGUN, refused), (true, 0, false));
    }
}
