//! Finds, for a newcomer, a device that its engine has taken. Every member of a group on the device
//! has the device's descriptors, in this process or another. The newcomer gets these descriptors in
//! the same ways as the objects of `crate::found`.

use crate::page::GroupDir;
use crate::record::{DESCRIPTORS, Record};
use crate::rendezvous::DescriptorRequest;
use crate::shared::split;
use fanpcap_config::report::harmless_text;
use fanpcap_engine::{Engine, TakenDevice};
use fanpcap_linux::process::pidfd::{self, Process};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long members may take to answer at their rendezvous. This is long enough for members that
/// are ending to disappear.
const FOR_MEMBERS: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(10);

/// Finds the device that the engine has taken; `None` when no member of another process has the
/// device. The caller holds the device's guard.
///
/// # Errors
/// Why the device can't be reached, in words.
pub(crate) fn search(
    engine: &dyn Engine,
    ifindex: u32,
) -> Result<Option<Box<dyn TakenDevice>>, String> {
    let open = |descriptors| engine.open_device(descriptors, ifindex);
    let groups = GroupDir::on_device(ifindex);
    let mut requests: Vec<DescriptorRequest<'_>> = groups
        .iter()
        .map(|it| DescriptorRequest::at(Some(it)))
        .collect();
    let end = Instant::now() + FOR_MEMBERS;
    loop {
        let mut reason = None;
        for (group_dir, request) in groups.iter().zip(&mut requests) {
            let pages = group_dir.pages().into_iter();
            let attached: Vec<Record> = pages
                .map(|(_, record)| record)
                .filter(Record::is_on_engine)
                .collect();
            for record in &attached {
                match take_over(record).and_then(open) {
                    Ok(device) => return Ok(Some(device)),
                    // The engine has lost the device, and the member has not noticed yet.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) if pidfd::has_let_go(&error) => {}
                    Err(error) => {
                        let (pid, name) = (record.pid, harmless_text(&record.program));
                        reason = Some(format!("process {pid} ({name}): pidfd_getfd: {error}"));
                    }
                }
            }
            let heard = request.poll().filter(|_| !attached.is_empty());
            let device = heard.and_then(|descriptors| split(descriptors).ok()?.1);
            match device.map(open) {
                Some(Ok(device)) => return Ok(Some(device)),
                Some(Err(error)) => request.reject_answer(error),
                None => {}
            }
            let told = || request.has_found_any().then(|| request.to_string());
            reason = reason.map(|it| told().map_or(it.clone(), |told| format!("{it}; {told}")));
        }
        match reason {
            None => return Ok(None),
            Some(reason) if Instant::now() > end => return Err(reason),
            Some(_) => std::thread::sleep(STEP),
        }
    }
}

/// Duplicates of the device's descriptors that a member's page shows.
fn take_over(record: &Record) -> io::Result<[OwnedFd; 2]> {
    let process = Process::open(record.pid)?;
    let numbers = record.shared.iter().flatten().skip(DESCRIPTORS);
    let device: Vec<OwnedFd> = numbers
        .map(|number| process.duplicate(*number))
        .collect::<io::Result<_>>()?;
    device
        .try_into()
        .map_err(|_| io::ErrorKind::InvalidData.into())
}
