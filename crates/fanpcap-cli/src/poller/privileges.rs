//! Drops the capabilities that the poller no longer needs, so that a member that found a fault in
//! the poller gets few.

use anyhow::{Context, Result};
use fanpcap_linux::process::capabilities::{
    self, BPF, CHOWN, Capability, IPC_LOCK, NET_ADMIN, NET_RAW, SYS_ADMIN,
};
use std::io;

use super::options::Options;
use super::place::Place;

/// Keeps in the calling thread, and in those that it starts from now on, what they need to open
/// these devices again and to make pools. A device of DPDK is not opened again, and DPDK's own
/// thread needs no capability.
pub(super) fn keep_for(places: &[Place], options: &Options) -> Result<()> {
    if let Some(dpdk) = &options.dpdk {
        dpdk.drop_capabilities().context("the thread of DPDK")?;
    }
    let mut kept = vec![bpf(), NET_RAW];
    if places.iter().any(|it| it.kind.steals()) {
        kept.extend([NET_ADMIN, IPC_LOCK]);
    }
    if options.group.is_some() {
        kept.push(CHOWN);
    }
    Ok(capabilities::keep_only(&kept)?)
}

/// Keeps in the calling thread what the thread of a receive queue needs: before Linux 5.19, to ask
/// for a link's device takes a capability where `kernel.unprivileged_bpf_disabled` is set.
pub(super) fn keep_for_queue() -> io::Result<()> {
    capabilities::keep_only(&[bpf()])
}

/// Containers may have only the older capability.
fn bpf() -> Capability {
    match capabilities::has(BPF) {
        true => BPF,
        false => SYS_ADMIN,
    }
}
