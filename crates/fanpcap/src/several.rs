//! A handle on several devices. The application holds the handle on the first device. The library
//! holds the handles on the other devices.

use crate::handle::{Handle, PartState};
use crate::plan::ERROR_LENGTH;
use std::ffi::c_int;
use std::iter;

/// The handle that has failed, and the status to return.
pub(crate) type Failed<H> = (H, c_int);

/// Milliseconds within which each device must deliver its packets. The merge of the devices waits
/// this long for a device.
pub const LATEST: c_int = 20;

/// The time-out to set on a handle whose application asks for `timeout`. The merge of several
/// devices needs each device's packets within [`LATEST`], so a longer time-out is shortened.
pub fn timeout<H: Handle>(p: H, timeout: c_int) -> c_int {
    match timeout {
        0 if is_several(p) => LATEST,
        1.. if is_several(p) => timeout.min(LATEST),
        _ => timeout,
    }
}

/// Whether `p` has several devices.
pub fn is_several<H: Handle>(p: H) -> bool {
    p.others().is_some()
}

/// The handles on all devices of the handle `p`. `p` is the first of them.
pub fn all<H: Handle>(p: H) -> Vec<H> {
    let others = p.others();
    let others = others.iter().flat_map(|others| others.iter());
    iter::once(p).chain(others.copied()).collect()
}

/// Applies `apply` to the handle of every device and stops at the first error. If there is no
/// error, the first warning is the result. Copies the text of that error or warning to `p`, and
/// returns its status.
pub fn each<H: Handle>(p: H, mut apply: impl FnMut(H) -> c_int) -> c_int {
    let mut first = apply(p);
    if first < 0 {
        return first;
    }
    // Allocate no list here: a signal handler may call pcap_stats(), which calls this function.
    let others = p.others();
    for &other in others.iter().flat_map(|others| others.iter()) {
        let status = apply(other);
        if status < 0 || (status > 0 && first == 0) {
            blame(p, other);
            first = status;
        }
        if status < 0 {
            break;
        }
    }
    first
}

/// Copies the error text of `other` to `p`, behind the device's name if both fit.
pub(crate) fn blame<H: Handle>(p: H, other: H) {
    let request = other.request();
    let name = request.as_ref().map_or("", |request| request.system_name());
    let error = other.error();
    let named = format!("{name}: {error}");
    p.fail(match named.len() <= ERROR_LENGTH {
        true => &named,
        false => &error,
    });
}

/// Installs our reader for the handles on all devices, unless it is installed already.
pub(crate) fn take_over<H: Handle>(p: H, all: &[H]) -> Result<(), Failed<H>> {
    if p.is_read_by_us() {
        return Ok(());
    }
    H::take_over(all).map_err(|text| (p, p.fail(&text)))
}

/// Notes that the handles on all devices receive packets now.
pub(crate) fn note_live<H: Handle>(p: H, all: &[H]) {
    for part in all {
        if all.len() > 1 {
            part.truncate(p);
        }
        part.note(|notes| notes.part = PartState::Live);
    }
    if all.len() > 1 {
        p.publish_counters();
    }
}
