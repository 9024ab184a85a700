//! The warnings for a member that works, but shares its group with another application, or has a
//! smaller ring than it asked for.

use crate::handle::{Handle, WARNING};
use fanpcap_group::identity::Stranger;
use std::ffi::c_int;

/// Returns 0, or `PCAP_WARNING` with the warning as the text of pcap_geterr(3PCAP).
pub(crate) fn warn<H: Handle>(p: H) -> c_int {
    let Some(text) = of_strangers(p).or_else(|| of_ring(p)) else {
        return 0;
    };
    p.fail(&text);
    WARNING
}

/// Warns if another application is in the group, which is rarely intended.
fn of_strangers<H: Handle>(p: H) -> Option<String> {
    let group = p.group()?.group;
    let Stranger {
        program,
        pid,
        no_flow,
    } = p.stranger()?;
    let mode = no_flow.map_or_else(String::new, |why| {
        format!(", in mode hash, because it {why}")
    });
    Some(format!(
        "fan-out group {group} is shared with another program, {program} (process {pid}){mode}: \
         each sees a part of the packets; give one of them another group to see all"
    ))
}

/// Warns if the engine makes no ring as large as the application or a setting has asked for.
fn of_ring<H: Handle>(p: H) -> Option<String> {
    let notes = p.notes();
    let asked = u64::try_from(notes.buffer_size?).ok()?;
    let made = p.ring_bytes().filter(|&made| made < asked)?;
    let engine = notes.on_engine?.engine;
    let [made, asked] = [made, asked].map(|bytes| bytes >> 20);
    Some(format!(
        "the ring has {made} MiB, not {asked} MiB: the engine {engine} makes no larger ring on this \
         machine"
    ))
}
