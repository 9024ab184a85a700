//! The warning for a member that works, but shares its group with another application.

use crate::handle::{Handle, WARNING};
use std::ffi::c_int;

/// Returns 0, or `PCAP_WARNING` with the warning as the text of pcap_geterr(3PCAP).
pub(crate) fn warn<H: Handle>(p: H) -> c_int {
    let Some(text) = of_strangers(p) else {
        return 0;
    };
    p.fail(&text);
    WARNING
}

/// Warns if another application is in the group, which is rarely intended.
fn of_strangers<H: Handle>(p: H) -> Option<String> {
    let group = p.group()?.group;
    let (program, pid) = p.stranger()?;
    Some(format!(
        "fan-out group {group} is shared with another program, {program} (process {pid}): each \
         sees a part of the packets; give one of them another group to see all"
    ))
}
