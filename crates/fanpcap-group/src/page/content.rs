//! What the pages of others say, and what they are told on them.

use super::MemberId;
use crate::record::{MAGIC, Record, SET, WORDS, at, title_words};
use fanpcap_config::steering::Steering;
use fanpcap_linux::file::{
    directory::{self, Access, Directory},
    lock,
};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes of a page.
const LEN: usize = WORDS * 8;

/// How often a page is read at most, to find it the same twice.
const READINGS: usize = 4;

/// Opens what may be a page; none for what is no regular file, or what others than root and the
/// process's user may write: they could have written anything on it, and could lock it.
pub(super) fn open(
    directory: &Directory,
    name: &OsStr,
    access: Access,
) -> io::Result<Option<File>> {
    let Some(file) = directory.file(name, access)? else {
        return Ok(None);
    };
    let is_trusted = directory::is_trusted(&file.metadata()?);
    Ok(is_trusted.then_some(file))
}

/// Reads the page of a living member. A dead one's is removed.
pub(super) fn read(directory: &Directory, name: &OsStr) -> Option<Record> {
    let file = open(directory, name, Access::Read).ok()??;
    if lock::is_taken(&file).ok()? {
        return record(&file);
    }
    if is_page(&file) {
        // Best effort: the process may have no right to do it.
        let _ = directory.remove_file(name);
    }
    None
}

/// Removes the page of a dead member.
///
/// # Errors
/// Something else has the name, or a living member; and what the calls say.
pub(super) fn remove_dead(directory: &Directory, name: &OsStr) -> io::Result<()> {
    let file = open(directory, name, Access::Read)?;
    let is_dead = |file: &File| Ok(is_page(file) && !lock::is_taken(file)?);
    match file.as_ref().map_or(Ok(false), is_dead) {
        Ok(true) => directory.remove_file(name),
        Ok(false) => Err(io::Error::other("another file has the page's name")),
        Err(error) => Err(error),
    }
}

/// Whether a file is a page of this version: nothing else is ever removed.
fn is_page(file: &File) -> bool {
    let mut magic = [0; MAGIC.len()];
    file.read_exact_at(&mut magic, 0).is_ok() && magic == MAGIC
}

/// What a page says. Its words change one by one, so it is read until nothing but what was taken
/// has changed meanwhile. One that changes all the time may be told with the counters of two
/// readings, each whole.
pub(super) fn record(file: &File) -> Option<Record> {
    let mut words = words(file)?;
    for _ in 1..READINGS {
        let again = self::words(file)?;
        let same = |at: usize| words[at] == again[at] || at == crate::record::at::TAKEN;
        let is_steady = (0..WORDS).all(same);
        words = again;
        if is_steady {
            break;
        }
    }
    Record::decode(&words)
}

pub(super) fn words(file: &File) -> Option<[u64; WORDS]> {
    let mut bytes = [0; LEN];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().ok()?);
    }
    Some(words)
}

/// The page of a member that may die: held open, it can be read when others have removed it.
#[derive(Debug)]
pub struct HeldPage(pub(super) File);

impl HeldPage {
    /// What it says now, or said when the member died; none for what is no page.
    pub fn record(&self) -> Option<Record> {
        record(&self.0)
    }

    /// Its words.
    pub(crate) fn words(&self) -> Option<[u64; WORDS]> {
        words(&self.0)
    }

    /// Whether the member has died while the kernel's counters were read: that reading may be lost.
    /// Packets since [`Record::read_ns`] are in it.
    pub fn died_reading(&self) -> bool {
        self.words().is_some_and(|words| words[at::READING] != 0)
    }

    /// Whether anybody still has the member: its process, or a child that has it by fork(2). A
    /// program that was started by exec(2) may have its socket, but can't read it as a member.
    ///
    /// # Errors
    /// What fcntl(2) says.
    pub fn is_had(&self) -> io::Result<bool> {
        lock::is_taken(&self.0)
    }
}

/// Another member's page, open to be told which program the group has, and whose.
#[derive(Debug)]
pub(crate) struct OtherPage {
    pub(super) file: File,
    pub(crate) id: MemberId,
    /// Of the program that it told of when it was opened; 0 for none.
    pub(crate) digest: u64,
}

impl OtherPage {
    /// Tells a member that has set the program that another has done so since. Returns the late
    /// fragments that it knew of by then: they are the other's to tell.
    pub(crate) fn demote(&self) -> io::Result<u64> {
        let steering = record(&self.file).and_then(|record| record.steering);
        let Some(running) = steering.filter(|running| running.has_set) else {
            return Ok(0);
        };
        self.put(at::IS_SET, &[SET])?;
        Ok(running.late)
    }

    /// Writes the group's program.
    pub(crate) fn tell(&self, steering: &Steering) -> io::Result<()> {
        self.put(at::TITLE, &title_words(steering.title()))?;
        self.put(at::DIGEST, &[steering.digest()])
    }

    fn put(&self, at: usize, words: &[u64]) -> io::Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.file.write_all_at(&bytes, at as u64 * 8)
    }
}
