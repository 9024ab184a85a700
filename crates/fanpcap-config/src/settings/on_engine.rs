//! The plans of handles on an engine other than packet sockets. The modes of their groups are
//! steering programs.

use crate::driver::Driver;
use crate::fanout::{Fanout, Script};
use crate::mode::{Mode, ModeKind};
use crate::report::{Fault, quote};
use crate::source::Source;

/// Whether the host loses the packets that the device receives (`steal@DEVICE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Steal {
    /// The host gets the packets.
    No,
    /// The host does not get the packets. Handles are refused if the host or a container may need
    /// the packets.
    Yes,
    /// The host does not get the packets. Handles are not refused, even if the host or a container
    /// may need the packets.
    Force,
}

impl Steal {
    /// The setting's value.
    pub fn name(self) -> &'static str {
        match self {
            Steal::No => "no",
            Steal::Yes => "yes",
            Steal::Force => "force",
        }
    }
}

/// The plan of a handle whose packets come from a poller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Polled {
    /// The engine.
    pub engine: Driver,
    /// Whether packets that the host sends are captured too.
    pub outgoing: bool,
    /// The setting that asks for the engine: `PCAP_DRIVER=packet`, `/etc/pcap.conf:3`,
    /// `packet:eth0`.
    pub origin: String,
}

/// The plan of a handle on an engine that attaches to devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnEngine {
    /// The engine.
    pub engine: Driver,
    /// Whether the host loses the packets that the device receives.
    pub steal: Steal,
    /// Whether packets that the host sends are captured too.
    pub outgoing: bool,
    /// The setting that asks for the engine: `PCAP_DRIVER=xdp`, `/etc/pcap.conf:3`, `xdp:eth0`.
    pub origin: String,
}

/// The steering program that shares packets as the kernel's mode `mode` does.
///
/// # Errors
/// The reason why there is no such steering program.
pub(super) fn program_of(mode: Mode, engine: Driver) -> Result<Script, Fault> {
    let refuse = |why: &str| {
        let message = format!("mode {} {why}", quote(&mode.to_string()));
        Fault::new("mode-not-on-xdp", message).hint("write flow, or take driver tpacket")
    };
    let lacks = |does: &str| refuse(&format!("{does}, but the engine {engine} can't do that"));
    let text = match mode.kind {
        _ if mode.defrag => return Err(lacks("reassembles datagrams")),
        _ if mode.rollover => {
            return Err(lacks("looks for room in other rings"));
        }
        ModeKind::Hash => return Ok(Script::default_mode()),
        ModeKind::Lb => "main = steer_rrobin",
        ModeKind::Rnd => "main = steer_rnd",
        ModeKind::Cpu => "main = steer_cpu",
        ModeKind::Rollover => {
            return Err(lacks("fills rings in turn"));
        }
        ModeKind::Qm => return Err(refuse("uses the NIC's queue, which no function can read")),
        ModeKind::Program => return Err(refuse("has no program")),
    };
    Ok(Script::of_text(Source::new(mode.kind.name(), text)))
}

/// The steering program for an engine that shares packets in the same way as `fanout`.
///
/// # Errors
/// As [`program_of`].
pub(super) fn steered(fanout: Fanout, engine: Driver) -> Result<Fanout, Fault> {
    match fanout {
        Fanout::Mode(mode) => program_of(mode, engine).map(Fanout::Program),
        Fanout::Program(script) if script.mode().defrag => {
            let message = format!(
                "option '+defrag' reassembles datagrams, but the engine {engine} can't do that"
            );
            Err(Fault::new("mode-not-on-xdp", message)
                .hint("leave it out: flow keeps fragments together"))
        }
        program @ Fanout::Program(_) => Ok(program),
    }
}
