//! A member of a direct group: joining without duplicates, counters, and why joining failed.

use crate::mode::Mode;
use crate::page::{Counters, Page, Shelf};
use crate::settings::Group;
use fanpcap_linux::diag::{self, PacketSocket};
use fanpcap_linux::packet::{self, Address, Fanout, Refusal};
use fanpcap_linux::{interface, process};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

/// A handle's place in a kernel fan-out group. It ends when the handle's socket is closed.
#[derive(Debug)]
pub struct Member {
    group: u16,
    mode: Mode,
    ifindex: u32,
    /// What the system's library has counted; its counters are 32 bits wide and wrap.
    told: Counters,
    /// What was read from the socket past that library.
    taken: Counters,
    page: Option<Page>,
}

/// What is known of a whole group; what is not, is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupStats {
    /// Sockets in the group, of all processes.
    pub members: Option<u64>,
    /// Sums over the members, when each of them publishes its counters.
    pub counters: Option<Counters>,
    /// Age of the oldest counters in the sums, in nanoseconds.
    pub age_ns: u64,
}

/// Why a handle can't join a group.
#[derive(Debug)]
pub enum JoinError {
    /// The handle has no packet socket: another kind of device, a savefile, a dead handle.
    NotPacket,
    /// The handle is in a group already.
    AlreadyIn(u16),
    /// The group runs another mode.
    OtherMode {
        /// The group's number.
        group: u16,
        /// The mode that was asked for.
        asked: Mode,
        /// What the group runs.
        runs: String,
    },
    /// The group's number is taken on another device.
    OtherDevice {
        /// The group's number.
        group: u16,
        /// The device that has it.
        has: String,
        /// The device that the handle is on.
        wants: String,
    },
    /// The group captures another protocol.
    OtherProtocol {
        /// The group's number.
        group: u16,
        /// Its protocol, `ETH_P_*`.
        has: u16,
        /// The handle's.
        wants: u16,
    },
    /// The group has as many members as the kernel allows.
    Full(u16),
    /// The kernel refused for a reason of its own.
    Kernel {
        /// The group's number.
        group: u16,
        /// The mode that was asked for.
        mode: Mode,
        /// The system call or option.
        call: &'static str,
        /// What it said.
        error: io::Error,
    },
}

impl Member {
    /// Joins a group with a socket. One that was activated silently (bound to
    /// [`packet::ETH_P_SILENT`]) is bound to `protocol` behind a filter that rejects all, so that nothing
    /// reaches it before it is in the group; without that, a newcomer has every packet twice
    /// until it has joined.
    ///
    /// # Errors
    /// Each says what the group is and what to do.
    pub fn join(
        fd: BorrowedFd<'_>,
        group: Group,
        mode: Mode,
        protocol: u16,
    ) -> Result<Self, JoinError> {
        if !packet::is_packet_socket(fd) {
            return Err(JoinError::NotPacket);
        }
        let fanout = wanted(group, mode);
        let failed = |call, error| explain(fanout, mode, call, error);
        let bound = packet::address(fd).map_err(|error| failed("getsockname", error))?;
        let address = Address {
            ifindex: bound.ifindex,
            protocol,
        };
        if bound.protocol == packet::ETH_P_SILENT {
            packet::reject_all(fd).map_err(|error| failed("SO_ATTACH_FILTER", error))?;
            packet::bind(fd, address).map_err(|error| failed("bind", error))?;
            enter(fd, fanout, mode, address)?;
            packet::detach_filter(fd).map_err(|error| failed("SO_DETACH_FILTER", error))?;
        } else {
            enter(fd, fanout, mode, bound)?;
        }
        let joined = packet::fanout(fd).map_err(|error| failed("PACKET_FANOUT", error))?;
        Ok(Self::new(joined.id, mode, bound.ifindex))
    }

    fn new(group: u16, mode: Mode, ifindex: u32) -> Self {
        let page = Shelf::of(ifindex, group).and_then(|shelf| Page::create(&shelf, mode));
        Self {
            group,
            mode,
            ifindex,
            told: Counters::default(),
            taken: Counters::default(),
            // Without a page the group's sums are unknown, and say so.
            page: page.ok(),
        }
    }

    /// The group's number.
    pub fn group(&self) -> u16 {
        self.group
    }

    /// What tells the group from others of the network namespace: interface index and number.
    pub fn place(&self) -> (u32, u16) {
        (self.ifindex, self.group)
    }

    /// The group's mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Another program in the group, by its page: name and process. Two different programs that share
    /// a stream are rarely meant to.
    pub fn stranger(&self) -> Option<(String, u32)> {
        let program = process::name();
        let records = Shelf::of(self.ifindex, self.group).ok()?.records();
        let other = records
            .into_iter()
            .find(|record| record.program != program)?;
        Some((other.program, other.pid))
    }

    /// Takes in the totals that the system's library tells, publishes, and returns the member's own.
    pub fn handle_stats(&mut self, received: u32, dropped: u32) -> Counters {
        self.told.received = unwrapped(self.told.received, received);
        self.told.dropped = unwrapped(self.told.dropped, dropped);
        self.publish()
    }

    /// Reads the socket's counters past the system's library, from any thread of the process, and
    /// publishes. The kernel clears them on read, so each packet is counted on one side only.
    pub fn refresh(&mut self, fd: BorrowedFd<'_>) {
        if let Ok(statistics) = packet::take_statistics(fd) {
            self.taken.received += u64::from(statistics.packets);
            self.taken.dropped += u64::from(statistics.drops);
        }
        self.publish();
    }

    /// The member's counters as last read.
    pub fn counters(&self) -> Counters {
        Counters {
            received: self.told.received + self.taken.received,
            dropped: self.told.dropped + self.taken.dropped,
        }
    }

    fn publish(&mut self) -> Counters {
        let counters = self.counters();
        if let Some(page) = &mut self.page {
            page.publish(counters);
        }
        counters
    }

    /// What the kernel and the members' pages tell of the group.
    pub fn group_stats(&self) -> GroupStats {
        let is_member = |socket: &PacketSocket| {
            socket.ifindex == self.ifindex
                && socket.fanout.is_some_and(|group| group.id == self.group)
        };
        let members = diag::packet_sockets()
            .map(|sockets| sockets.iter().filter(|socket| is_member(socket)).count() as u64)
            .ok();
        let records = Shelf::of(self.ifindex, self.group)
            .map(|shelf| shelf.records())
            .unwrap_or_default();
        let complete = members.is_some_and(|members| members == records.len() as u64);
        let now = process::monotonic_ns();
        let oldest = records
            .iter()
            .map(|record| record.read_ns)
            .min()
            .unwrap_or(now);
        GroupStats {
            members,
            counters: complete.then(|| Counters {
                received: records.iter().map(|record| record.counters.received).sum(),
                dropped: records.iter().map(|record| record.counters.dropped).sum(),
            }),
            age_ns: now.saturating_sub(oldest),
        }
    }
}

/// A 64-bit total after a 32-bit one, which it follows modulo 2^32, has moved on.
fn unwrapped(total: u64, now: u32) -> u64 {
    let low = total & u64::from(u32::MAX);
    total + ((u64::from(now) + (1 << 32) - low) & u64::from(u32::MAX))
}

fn wanted(group: Group, mode: Mode) -> Fanout {
    let (kind, flags) = (mode.kind.kernel_type(), mode.kernel_flags());
    match group {
        Group::Number(id) => Fanout {
            id,
            mode: kind,
            flags,
        },
        Group::New => Fanout {
            id: 0,
            mode: kind,
            flags: flags | packet::FANOUT_FLAG_UNIQUEID,
        },
    }
}

fn enter(
    fd: BorrowedFd<'_>,
    fanout: Fanout,
    mode: Mode,
    address: Address,
) -> Result<(), JoinError> {
    packet::join(fd, fanout).map_err(|refusal| match refusal {
        Refusal::Joined => JoinError::AlreadyIn(packet::fanout(fd).map_or(fanout.id, |own| own.id)),
        Refusal::Full => JoinError::Full(fanout.id),
        Refusal::Conflict(error) => conflict(fanout.id, mode, address)
            .unwrap_or_else(|| explain(fanout, mode, "PACKET_FANOUT", error)),
        Refusal::Other(error) => explain(fanout, mode, "PACKET_FANOUT", error),
    })
}

fn explain(fanout: Fanout, mode: Mode, call: &'static str, error: io::Error) -> JoinError {
    JoinError::Kernel {
        group: fanout.id,
        mode,
        call,
        error,
    }
}

/// What of the group, as packet diag and the members' pages tell it, differs from what was asked for.
fn conflict(group: u16, asked: Mode, own: Address) -> Option<JoinError> {
    let sockets = diag::packet_sockets().ok()?;
    let of_group = |socket: &PacketSocket| socket.fanout.filter(|has| has.id == group);
    let (other, has) = sockets
        .iter()
        .find_map(|socket| Some((socket, of_group(socket)?)))?;
    if other.ifindex != own.ifindex {
        let (has, wants) = (device(other.ifindex), device(own.ifindex));
        return Some(JoinError::OtherDevice { group, has, wants });
    }
    if other.protocol != own.protocol {
        let (has, wants) = (other.protocol, own.protocol);
        return Some(JoinError::OtherProtocol { group, has, wants });
    }
    let shelf = Shelf::of(other.ifindex, group).ok();
    let told = shelf.and_then(|shelf| {
        shelf
            .records()
            .first()
            .map(|record| record.mode.to_string())
    });
    let runs = told.unwrap_or_else(|| mode_name(has.mode, asked));
    Some(JoinError::OtherMode { group, asked, runs })
}

/// The name of a mode that packet diag tells by number, without its options.
fn mode_name(number: u8, asked: Mode) -> String {
    match Mode::from_kernel(number, 0) {
        Some(mode) if mode.kind == asked.kind => format!("{mode} with other options"),
        Some(mode) => mode.to_string(),
        None => format!("a mode of another program (number {number})"),
    }
}

fn device(ifindex: u32) -> String {
    match ifindex {
        0 => "any".to_owned(),
        index => interface::name(index).unwrap_or_else(|| format!("interface {index}")),
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPacket => f.write_str(
                "fan-out is for network devices; this handle has no packet socket: open it without a \
                 group (PCAP_GROUP_DEVICE gives one device a group, PCAP_GROUP all)",
            ),
            Self::AlreadyIn(group) => {
                write!(
                    f,
                    "the handle is in fan-out group {group} already; close it to leave"
                )
            }
            Self::OtherMode { group, asked, runs } => write!(
                f,
                "fan-out group {group} runs {runs}, not {asked}: use the group's mode or another \
                 group (all members of a group have one mode)",
            ),
            Self::OtherDevice { group, has, wants } => write!(
                f,
                "fan-out group {group} is on device {has}, not on {wants}: give {wants} another \
                 number, as PCAP_GROUP_{} or group_{wants} in pcap.conf",
                variable(wants),
            ),
            Self::OtherProtocol { group, has, wants } => write!(
                f,
                "fan-out group {group} captures protocol {has:#06x}, this handle {wants:#06x}: use \
                 the same pcap_set_protocol_linux() or another group",
            ),
            Self::Full(group) => write!(
                f,
                "fan-out group {group} is full (256 members, the kernel's limit): start fewer \
                 members or another group",
            ),
            Self::Kernel {
                group,
                mode,
                call,
                error,
            } => {
                write!(
                    f,
                    "can't join fan-out group {group} ({mode}): {call}: {error}"
                )
            }
        }
    }
}

/// A device's name as the end of an environment variable's name.
fn variable(device: &str) -> String {
    device.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
}

impl std::error::Error for JoinError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_go_on_when_32_bits_wrap() {
        assert_eq!(unwrapped(0, 5), 5);
        assert_eq!(unwrapped(5, 5), 5);
        assert_eq!(unwrapped(u64::from(u32::MAX), 4), (1 << 32) + 4);
        assert_eq!(unwrapped((7 << 32) + 10, 9), (8 << 32) + 9);
    }
}
