//! How a member finds the dock of its device: any member of any group there has it, in its own
//! process or another. The ways are those to what a group shares (`crate::found`).

use crate::door::Knock;
use crate::page::{GroupDir, MemberId};
use crate::record::{DESCRIPTORS, Record};
use fanpcap_config::report::harmless_text;
use fanpcap_linux::process::pidfd::{self, Process};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long members may take to answer at their doors. Meanwhile those that end are gone.
const FOR_MEMBERS: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(10);

/// Makes a dock of both ends of its locker.
type Open<'a, T> = &'a dyn Fn([OwnedFd; 2]) -> io::Result<T>;

/// The dock of a device, as `open` makes it; `None` when no member of another process has one. The
/// caller has the dock's turn. `own` has a page without a dock yet.
///
/// # Errors
/// Why it can't be had, in words.
pub(crate) fn search<T>(
    own: MemberId,
    ifindex: u32,
    open: Open<'_, T>,
) -> Result<Option<T>, String> {
    let groups = GroupDir::on_device(ifindex);
    let mut knocks: Vec<Knock<'_>> = groups.iter().map(|it| Knock::at(Some(it))).collect();
    let end = Instant::now() + FOR_MEMBERS;
    loop {
        let mut reason = None;
        for (group_dir, knock) in groups.iter().zip(&mut knocks) {
            let pages = group_dir.pages().into_iter();
            let moored: Vec<Record> = pages
                .filter(|(member, record)| *member != own && record.is_on_xdp())
                .map(|(_, record)| record)
                .collect();
            for record in &moored {
                match take_over(record).and_then(open) {
                    Ok(dock) => return Ok(Some(dock)),
                    // The engine has lost the device. The member has not noticed yet.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) if pidfd::has_let_go(&error) => {}
                    Err(error) => {
                        let (pid, name) = (record.pid, harmless_text(&record.program));
                        reason = Some(format!("process {pid} ({name}): pidfd_getfd: {error}"));
                    }
                }
            }
            let heard = knock.hear().filter(|_| !moored.is_empty());
            match heard.and_then(of_door).map(open) {
                Some(Ok(dock)) => return Ok(Some(dock)),
                Some(Err(error)) => knock.distrust(error),
                None => {}
            }
            let told = || knock.found_a_door().then(|| knock.to_string());
            reason = reason.map(|it| told().map_or(it.clone(), |told| format!("{it}; {told}")));
        }
        match reason {
            None => return Ok(None),
            Some(reason) if Instant::now() > end => return Err(reason),
            Some(_) => std::thread::sleep(STEP),
        }
    }
}

/// Duplicates of the ends that a member's page shows.
fn take_over(record: &Record) -> io::Result<[OwnedFd; 2]> {
    let process = Process::open(record.pid)?;
    let numbers = record.shared.iter().flatten().skip(DESCRIPTORS);
    let ends = numbers.map(|number| process.duplicate(*number));
    let ends: Vec<OwnedFd> = ends.collect::<io::Result<_>>()?;
    ends.try_into()
        .map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The ends among the descriptors that a member has handed out at its group's door.
fn of_door(descriptors: Vec<OwnedFd>) -> Option<[OwnedFd; 2]> {
    let ends: Vec<OwnedFd> = descriptors.into_iter().skip(DESCRIPTORS).collect();
    ends.try_into().ok()
}
