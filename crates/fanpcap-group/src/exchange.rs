//! Exchanges the BPF program that an engine runs for a group, while packets arrive. Each packet is
//! processed by either the former or the next BPF program. Both BPF programs use the same maps, so
//! rings and counters stay.
//!
//! Before an exchange begins, all objects that it needs are in the group's descriptor store. The
//! table's word [`at::EXCHANGE`] shows the progress of the exchange: 0, [`BEGUN`], or the digest of
//! the next steering program. If a process dies during an exchange, the next holder of the group's
//! lock undoes the exchange if the word is [`BEGUN`], and completes it if the word is the digest.

use crate::guard::DeviceGuard;
use crate::member_descriptors::MemberDescriptors;
use crate::record::{TITLE_WORDS, at as word, title_words};
use crate::shared::Shared;
use crate::table::at;
use fanpcap_config::fanout::Script;
use fanpcap_engine::faults;
use fanpcap_engine::fd_store::{NEXT, StoredFd};
use fanpcap_linux::file::sealed;
use fanpcap_linux::wait::clock;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The objects that another member needs to complete an exchange.
#[derive(Debug)]
pub(crate) struct Next<'a> {
    /// The digest of the steering program.
    pub(crate) digest: u64,
    /// The engine's BPF programs. The first is for received packets.
    pub(crate) programs: &'a [OwnedFd],
    /// Text and title of the steering program, in files.
    pub(crate) text: BorrowedFd<'a>,
    pub(crate) title: BorrowedFd<'a>,
}

/// The value of [`at::EXCHANGE`] while the group still has its former BPF program, and again while
/// the entry is removed from the descriptor store.
const BEGUN: u64 = 1;

pub(crate) fn is_under_way(shared: &Shared) -> bool {
    shared.table().get(at::EXCHANGE) != 0
}

/// Exchanges the group's BPF program. The caller holds the group's guard and the device's guard.
///
/// # Errors
/// Errors of the engine and of the descriptor stores. After an error, the group has its former BPF
/// program.
pub(crate) fn exchange(shared: &Shared, _: &DeviceGuard<'_>, next: &Next<'_>) -> io::Result<()> {
    shared.fd_store.ensure_room()?;
    let (received, others) = next.programs.split_first().ok_or_else(invalid)?;
    let mut all = vec![received.as_fd(), next.text, next.title];
    all.extend(others.iter().map(AsFd::as_fd));
    set(shared, BEGUN);
    let put = shared.fd_store.put(NEXT, &all);
    let done = put.and_then(|()| {
        set(shared, next.digest);
        install(shared, next.digest)
    });
    // Best effort: the next holder of the lock removes an entry that is left in the store.
    let _ = clear(shared);
    done
}

/// Completes or undoes the exchange under way. The caller holds the guards of [`exchange`].
///
/// # Errors
/// As [`exchange`]. The next holder of the lock then tries again.
pub(crate) fn finish(shared: &Shared, _: &DeviceGuard<'_>) -> io::Result<()> {
    finish_by(shared, &|digest| install(shared, digest))
}

fn finish_by(shared: &Shared, install: &dyn Fn(u64) -> io::Result<()>) -> io::Result<()> {
    let digest = shared.table().get(at::EXCHANGE);
    if digest != BEGUN {
        // Complete the exchange: undoing it may be impossible, as the device may already have the
        // next BPF program.
        if let Err(error) = install(digest) {
            // If the device is gone, nothing is left to exchange.
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

/// Ends an exchange that is done or undone: removes its entry from the descriptor store.
fn clear(shared: &Shared) -> io::Result<()> {
    set(shared, BEGUN);
    shared.fd_store.remove(NEXT)?;
    faults::step();
    shared.table().set(at::EXCHANGE, 0);
    Ok(())
}

/// Gives the group its next BPF program. The call can be repeated.
fn install(shared: &Shared, digest: u64) -> io::Result<()> {
    let next = shared.fd_store.find(NEXT)?;
    let (Some(on_device), Some(mut programs)) = (&shared.on_device, next) else {
        return Ok(());
    };
    if programs.len() < PARTS {
        return Err(invalid());
    }
    let title = programs.remove(2);
    let text = programs.remove(1);
    let number = u8::try_from(shared.table().get(at::GROUP_SLOT)).map_err(|_| invalid())?;
    on_device.replace(number, &programs)?;
    faults::step();
    // An error is ignored: even if the descriptor store does not have the steering program's text,
    // a newcomer can join if its own settings give the same steering program.
    let _ = shared.keep(&[programs[0].as_fd(), text.as_fd()]);
    faults::step();
    // Best effort: if the title can't be read, error messages show another title.
    let title = sealed::read(title, TITLE_WORDS * 8).unwrap_or_default();
    let title = title.unwrap_or_default();
    let balance = Script::of_title(&title).options().balance;
    shared.table().set_balance(balance, clock::monotonic_ns());
    shared.table().set(at::DIGEST, digest);
    faults::step();
    let _ = write_pages(shared, digest, &title);
    Ok(())
}

/// How many descriptors [`NEXT`] has at least: BPF program, text, title.
const PARTS: usize = 3;

fn invalid() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// Writes the title and the digest of the steering program to the pages of all members.
fn write_pages(shared: &Shared, digest: u64, title: &str) -> io::Result<()> {
    let title = title_words(title);
    shared.fd_store.visit(&mut |deposit, descriptors| {
        if let StoredFd::Member(cookie) = deposit {
            if let Some(descriptors) = MemberDescriptors::from(cookie, descriptors) {
                let words = descriptors.words[word::TITLE..].iter();
                words.zip(title).for_each(|(word, value)| word.set(value));
                descriptors.words[word::DIGEST].set(digest);
            }
        }
        true
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finishes an exchange whose process died when the table's word was `word`. Returns whether
    /// [`finish_by`] succeeds, the table's word after it, and whether the store still has the
    /// entry.
    fn left_after(word: u64, outcome: Option<io::ErrorKind>) -> (bool, u64, bool) {
        let shared = Shared::with_classes(fanpcap_engines::ENGINES[0], 1).unwrap();
        let next = shared.lifelines.as_fd();
        shared.fd_store.put(NEXT, &[next]).unwrap();
        shared.table().set(at::EXCHANGE, word);
        let done = finish_by(&shared, &|digest| {
            assert_eq!(digest, 77);
            outcome.map_or(Ok(()), |kind| Err(kind.into()))
        });
        let next = shared.fd_store.find(NEXT).unwrap();
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
        // An exchange that has only begun is undone.
        assert_eq!(left_after(BEGUN, refused), (true, 0, false));
    }
}
