//! The hooks of BPF programs.

use fanpcap_bpf::ProgramKind;

/// The hook of a BPF program. r6 always holds the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The group's BPF program, `BPF_PROG_TYPE_SOCKET_FILTER`.
    Fanout,
    /// A member's filter, `BPF_PROG_TYPE_SOCKET_FILTER`.
    Filter,
    /// Packets that the host sends, at a device's traffic control (tcx, since Linux 6.6).
    Sent,
    /// Packets that a device receives.
    Xdp,
}

impl Target {
    pub(super) fn kind(self) -> ProgramKind {
        match self {
            Self::Fanout | Self::Filter => ProgramKind::SocketFilter,
            Self::Sent => ProgramKind::SchedCls,
            Self::Xdp => ProgramKind::Xdp,
        }
    }

    /// Whether the code reads the first bytes of a frame in place, not from a copy on the stack.
    pub(super) fn reads_in_place(self) -> bool {
        self == Self::Xdp
    }

    /// Whether bytes of the frame can be loaded directly. The load must be aligned, because some
    /// processors demand it. On these processors, frames begin two bytes beyond a multiple of four
    /// (`NET_IP_ALIGN`).
    pub(super) fn is_near(self, offset: u16, len: u8) -> bool {
        self == Self::Xdp && offset < NEAR && (offset + 2) % u16::from(len) == 0
    }
}

/// Limit of the offsets that may be loaded directly. A page of 4 KiB, in which the directly
/// readable bytes of a frame are, is smaller.
const NEAR: u16 = 16_384;
