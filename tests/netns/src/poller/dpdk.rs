//! The engine dpdk of a poller: a virtual device of DPDK on an interface.

use std::path::PathBuf;

use anyhow::Result;
use fanpcap_testkit::{Program, Scratch, dpdk};

use crate::DEVICE;

const ENGINE: &str = "dpdk";

/// The virtual device.
const VIRTUAL: &str = "net_af_packet0";

/// The device's ring has room for the frames of 0.4 s at 40,000 packets a second.
const ARGUMENTS: &str = "framecnt=16384";

/// The variable that names a plugin.
const PLUGIN: &str = "FANPCAP_DPDK_PLUGIN";

/// The device that members of an engine open, for the packets of an interface.
pub fn device(engine: &str, interface: &'static str) -> &'static str {
    match engine {
        ENGINE => VIRTUAL,
        _ => interface,
    }
}

/// The engine and the device of a poller on [`DEVICE`], as members name them.
pub fn place(engine: &str) -> String {
    format!("{engine}:{}", device(engine, DEVICE))
}

/// The engine and the device, as the poller's command line names them.
pub(super) fn served(engine: &str, interface: &'static str) -> String {
    let device = device(engine, interface);
    match engine {
        ENGINE => format!("{engine}:{device},iface={interface},{ARGUMENTS}"),
        _ => format!("{engine}:{device}"),
    }
}

/// The place without the arguments of DPDK's device.
pub(super) fn of_members(place: String) -> String {
    match place.split_once(',') {
        Some((before, _)) => before.to_owned(),
        None => place,
    }
}

/// Adds what a poller of DPDK needs.
pub(super) fn prepared(program: Program, place: &str, scratch: &Scratch) -> Result<Program> {
    if !place.starts_with("dpdk:") {
        return Ok(program);
    }
    let program = program.arg("--no-huge");
    Ok(program.set(PLUGIN, plugin(scratch)?))
}

/// The plugin, which a test builds once.
fn plugin(scratch: &Scratch) -> Result<PathBuf> {
    let built = scratch.file("fanpcap-dpdk.so");
    match built.exists() {
        true => Ok(built),
        false => dpdk::plugin(scratch),
    }
}
