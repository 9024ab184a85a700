//! Fanout modes, as text such as `hash+defrag`, and as the numbers of PACKET_FANOUT.

pub(crate) mod options;

pub use options::WEIGHT_MAX;

use crate::report::{Fault, offset_in, quote};
use fanpcap_linux::packet::{FANOUT_FLAG_DEFRAG, FANOUT_FLAG_ROLLOVER};
use fanpcap_steer::modes;
use fanpcap_steer::nearest::nearest;
use options::Options;
use std::fmt;

/// The way in which the kernel chooses the member for a packet (linux/if_packet.h,
/// PACKET_FANOUT_*).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ModeKind {
    /// By flow hash: both directions of a flow go to one member.
    Hash = 0,
    /// Each member in turn.
    Lb = 1,
    /// At random.
    Rnd = 4,
    /// By the CPU on which the packet arrived.
    Cpu = 2,
    /// To one member until its ring is full, then to the next member.
    Rollover = 3,
    /// By the NIC's queue.
    Qm = 5,
    /// By a steering program (`PACKET_FANOUT_EBPF`).
    Program = 7,
}

impl ModeKind {
    /// All kernel modes, in the order in which messages list them.
    pub const ALL: [ModeKind; 6] = [
        ModeKind::Hash,
        ModeKind::Lb,
        ModeKind::Rnd,
        ModeKind::Cpu,
        ModeKind::Rollover,
        ModeKind::Qm,
    ];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            ModeKind::Hash => "hash",
            ModeKind::Lb => "lb",
            ModeKind::Rnd => "rnd",
            ModeKind::Cpu => "cpu",
            ModeKind::Rollover => "rollover",
            ModeKind::Qm => "qm",
            ModeKind::Program => "program",
        }
    }

    /// PACKET_FANOUT's type number.
    pub fn kernel_type(self) -> u8 {
        self as u8
    }

    /// Whether a word is the name or alias of a kernel mode.
    pub(crate) fn is_name(word: &str) -> bool {
        ModeKind::named(&word.to_ascii_lowercase()).is_some()
    }

    /// The kind with this name or alias, in lower case.
    fn named(name: &str) -> Option<ModeKind> {
        let name = if ALIASES_OF_LB.contains(&name) {
            ModeKind::Lb.name()
        } else {
            name
        };
        ModeKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Reads the text before the first `+`.
    fn parse(text: &str) -> Result<ModeKind, Fault> {
        let written = text.trim();
        let lower = written.to_ascii_lowercase();
        ModeKind::named(&lower)
            .ok_or_else(|| refuse_name(written, &lower).shift(offset_in(text, text.trim_start())))
    }
}

/// A fanout mode: a kind and its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mode {
    /// The way in which the member is chosen.
    pub kind: ModeKind,
    /// Whether the kernel reassembles fragments before it steers the packet (`+defrag`).
    pub defrag: bool,
    /// Whether the next member gets the packet if the chosen member's ring is full (`+rollover`).
    pub rollover: bool,
}

impl Mode {
    /// Parses a mode, for example `hash` or `LB + rollover`. The fault gives the byte of the wrong
    /// word.
    pub fn parse(text: &str) -> Result<Mode, Fault> {
        let name = text.split('+').next().unwrap_or_default();
        let options = Options::parse(ModeKind::parse(name)?, text)?;
        Ok(options.mode)
    }

    /// The flags of PACKET_FANOUT.
    pub fn kernel_flags(self) -> u16 {
        let defrag = if self.defrag { FANOUT_FLAG_DEFRAG } else { 0 };
        let rollover = if self.rollover {
            FANOUT_FLAG_ROLLOVER
        } else {
            0
        };
        defrag | rollover
    }

    /// The mode with these numbers; `None` if fanpcap does not know these numbers.
    pub fn from_kernel(kernel_type: u8, flags: u16) -> Option<Mode> {
        let mut kinds = ModeKind::ALL.into_iter().chain([ModeKind::Program]);
        let kind = kinds.find(|kind| kind.kernel_type() == kernel_type)?;
        let (defrag, rollover) = (
            flags & FANOUT_FLAG_DEFRAG != 0,
            flags & FANOUT_FLAG_ROLLOVER != 0,
        );
        let known = flags & !(FANOUT_FLAG_DEFRAG | FANOUT_FLAG_ROLLOVER) == 0;
        known.then_some(Mode {
            kind,
            defrag,
            rollover,
        })
    }
}

impl From<ModeKind> for Mode {
    fn from(kind: ModeKind) -> Mode {
        Mode {
            kind,
            defrag: false,
            rollover: false,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        f.write_str(if self.defrag { "+defrag" } else { "" })?;
        f.write_str(if self.rollover { "+rollover" } else { "" })
    }
}

/// Formats a mode for messages. A steering program is shown by its `title`: its name, or the
/// beginning of its text.
pub fn described(mode: Mode, title: Option<&str>) -> String {
    let shown = mode.to_string();
    let Some((options, title)) = shown.strip_prefix(ModeKind::Program.name()).zip(title) else {
        return shown;
    };
    let (name, sticky) = title.split_at(title.find('+').unwrap_or(title.len()));
    match (program_named(name), options) {
        (Some(name), _) => format!("{name}{sticky}{options}"),
        (None, "") => format!("the steering program {}", quote(title)),
        (None, _) => format!("the steering program {} with {options}", quote(title)),
    }
}

/// The fault of a name that is not a mode of this version.
fn refuse_name(written: &str, lower: &str) -> Fault {
    if written.is_empty() {
        return Fault::new("mode-empty", "no fan-out mode given").hint(one_of());
    }
    if written.contains('/') || lower.ends_with(".pfq") {
        let fault = Fault::new("mode-unknown", format!("unknown mode {}", quote(written)));
        return fault.hint(format!("the program in a file is 'file:{written}'"));
    }
    let mut words = written.split_whitespace();
    let word = words.next().unwrap_or_default();
    let known = ModeKind::named(&word.to_ascii_lowercase()).map(ModeKind::name);
    let known = known.or_else(|| program_named(word));
    if let (Some(mode), Some(option)) = (known, words.next()) {
        let message = format!("unexpected {} after mode '{mode}'", quote(option));
        return Fault::new("option-without-plus", message)
            .hint("options start with '+', as in 'hash+defrag'")
            .shift(offset_in(written, option));
    }
    let names = ModeKind::ALL
        .map(ModeKind::name)
        .into_iter()
        .chain(ALIASES_OF_LB);
    let names = names.chain(programs());
    let near = named_elsewhere(lower).or_else(|| nearest(lower, names));
    let fault = Fault::new("mode-unknown", format!("unknown mode {}", quote(written)));
    match near {
        // Offer a second mode too: mode `flow` is a steering program, so it needs CAP_BPF.
        Some("flow") => fault.hint("did you mean 'flow', or 'hash' (without CAP_BPF)?"),
        near => fault.nearest(near.map(str::to_owned), one_of()),
    }
}

/// The mode for a lower-case name of PF_RING (`cluster_flow`) or the kernel (`PACKET_FANOUT_HASH`).
fn named_elsewhere(lower: &str) -> Option<&'static str> {
    let name = PREFIXES.iter().find_map(|it| lower.strip_prefix(it))?;
    let kind = ModeKind::named(name).map(ModeKind::name);
    kind.or_else(|| program_named(name))
}

/// The names of the modes that are steering programs.
pub fn programs() -> impl Iterator<Item = &'static str> {
    modes::MODES.iter().map(|(name, _)| *name)
}

/// The name, in lower case, of the mode `name`, if that mode is a steering program.
pub(crate) fn program_named(name: &str) -> Option<&'static str> {
    programs().find(|mode| mode.eq_ignore_ascii_case(name))
}

fn one_of() -> String {
    let kernels = ModeKind::ALL.map(ModeKind::name).join(", ");
    format!("write one of {kernels}, flow, or a steering program")
}

const PREFIXES: [&str; 3] = ["cluster_per_", "cluster_", "packet_fanout_"];
const ALIASES_OF_LB: [&str; 2] = ["round_robin", "rr"];

#[cfg(test)]
mod tests;
