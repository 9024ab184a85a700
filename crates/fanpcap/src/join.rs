//! Joining a group without duplicates, and why it failed.

use crate::member::{Member, Place};
use crate::mode::Mode;
use crate::page::Shelf;
use crate::record::Counters;
use crate::settings::{Group, shell_name};
use fanpcap_linux::diag::{self, PacketSocket};
use fanpcap_linux::interface;
use fanpcap_linux::packet::{self, Address, ETH_P_SILENT, Fanout, Filter, Refusal};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

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

/// Joins a group with a socket whose library has counted `before`. A socket that was activated silently
/// (bound to [`ETH_P_SILENT`]) is bound to `protocol` behind a filter that rejects all, so that nothing
/// reaches it before it is in the group; without that, a newcomer has every packet twice until it has
/// joined. When it can't join, it is silent again.
///
/// # Errors
/// Each says what the group is and what to do.
pub fn join(
    fd: BorrowedFd<'_>,
    group: Group,
    mode: Mode,
    protocol: u16,
    before: Counters,
) -> Result<Member, JoinError> {
    let fanout = wanted(group, mode);
    let failed = |call, error| explain(fanout, mode, call, error);
    if !packet::is_packet_socket(fd).map_err(|error| failed("SO_DOMAIN", error))? {
        return Err(JoinError::NotPacket);
    }
    let inode = packet::inode(fd).map_err(|error| failed("fstat", error))?;
    packet::close_on_exec(fd).map_err(|error| failed("F_SETFD", error))?;
    let bound = packet::address(fd).map_err(|error| failed("getsockname", error))?;
    if bound.protocol == ETH_P_SILENT {
        join_from_silence(fd, fanout, mode, Address { protocol, ..bound })?;
    } else {
        enter(fd, fanout, mode, bound)?;
    }
    let joined = match (packet::fanout(fd), group) {
        (Ok(joined), _) => joined.id,
        (Err(_), Group::Number(number)) => number,
        (Err(error), Group::New) => return Err(failed("PACKET_FANOUT", error)),
    };
    let place = Place::new(joined, mode, bound.ifindex, inode);
    Ok(Member::new(place, before))
}

/// Tells whether joining would be refused by what others have made of the group so far.
///
/// # Errors
/// What joining would say.
pub fn foresee(
    fd: BorrowedFd<'_>,
    group: Group,
    mode: Mode,
    protocol: u16,
) -> Result<(), JoinError> {
    let Group::Number(number) = group else {
        return Ok(());
    };
    let Ok(address) = packet::address(fd) else {
        return Ok(());
    };
    match conflict(
        number,
        mode,
        Address {
            protocol,
            ..address
        },
    ) {
        // Only the kernel knows.
        Some(JoinError::OtherMode { runs, .. }) if runs == other_options(mode) => Ok(()),
        Some(error) => Err(error),
        None => Ok(()),
    }
}

fn join_from_silence(
    fd: BorrowedFd<'_>,
    fanout: Fanout,
    mode: Mode,
    address: Address,
) -> Result<(), JoinError> {
    let failed = |call, error| explain(fanout, mode, call, error);
    // A program that tries again may have set one since.
    let mut filter = Filter::of(fd).map_err(|error| failed("SO_GET_FILTER", error))?;
    let mut reject = Filter::reject_all();
    reject
        .attach(fd)
        .map_err(|error| failed("SO_ATTACH_FILTER", error))?;
    let bound = packet::bind(fd, address).map_err(|error| failed("bind", error));
    let joined = bound.and_then(|()| enter(fd, fanout, mode, address));
    if joined.is_err() {
        let silence = Address {
            protocol: ETH_P_SILENT,
            ..address
        };
        // Best effort: the reason of the failure is what the caller must hear.
        let _ = packet::bind(fd, silence);
    }
    let mut restore = || match filter.as_mut() {
        Some(filter) => filter.attach(fd),
        None => packet::detach_filter(fd),
    };
    // A member that rejects everything would swallow its share: one failure must not do that.
    let restored = restore().or_else(|_| restore());
    joined.and(restored.map_err(|error| failed("SO_ATTACH_FILTER", error)))
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
    if told.as_ref() == Some(&asked.to_string()) {
        return None;
    }
    let runs = told.unwrap_or_else(|| mode_name(has.mode, asked));
    Some(JoinError::OtherMode { group, asked, runs })
}

/// A mode of which only the kernel knows the options.
fn other_options(mode: Mode) -> String {
    format!("{} with other options", Mode::from(mode.kind))
}

/// The name of a mode that packet diag tells by number, without its options.
fn mode_name(number: u8, asked: Mode) -> String {
    match Mode::from_kernel(number, 0) {
        Some(mode) if mode.kind == asked.kind => other_options(mode),
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
                shell_name(wants),
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

impl std::error::Error for JoinError {}
