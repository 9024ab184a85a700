//! Joining a group without duplicates, and why it failed.

mod error;
mod program;
mod program_error;

use crate::member::{Member, Place};
use crate::mode::{Kind, Mode};
use crate::page::Shelf;
use crate::record::Counters;
use crate::settings::{Group, Membership};
pub use error::JoinError;
use fanpcap_linux::diag::{self, PacketSocket};
use fanpcap_linux::interface;
use fanpcap_linux::packet::{self, Address, ETH_P_SILENT, Fanout, Filter, Refusal};
pub use program::takes_programs;
pub use program_error::ProgramError;
use std::io;
use std::os::fd::BorrowedFd;

/// A handle that is to join a group.
#[derive(Clone, Copy, Debug)]
pub struct Entrant<'a> {
    /// Its socket.
    pub socket: BorrowedFd<'a>,
    /// The group.
    pub membership: &'a Membership,
    /// What it captures, where it was activated silently; `ETH_P_*`.
    pub protocol: u16,
    /// What its library has counted.
    pub before: Counters,
}

/// Joins a group. A socket that was activated silently (bound to [`ETH_P_SILENT`]) is bound to its protocol
/// behind a filter that rejects all, so that nothing reaches it before it is in the group; without that, a newcomer
/// has every packet twice until it has joined. When it can't join, it is silent again.
///
/// # Errors
/// Each says what the group is and what to do.
pub fn join(entrant: Entrant<'_>) -> Result<Member, JoinError> {
    let (fd, membership) = (entrant.socket, entrant.membership);
    let (group, mode) = (membership.group, membership.mode);
    let fanout = wanted(group, mode);
    let failed = |call, error| explain(fanout, mode, call, error);
    if !packet::is_packet_socket(fd).map_err(|error| failed("SO_DOMAIN", error))? {
        return Err(JoinError::NotPacket);
    }
    let inode = packet::inode(fd).map_err(|error| failed("fstat", error))?;
    packet::close_on_exec(fd).map_err(|error| failed("F_SETFD", error))?;
    let bound = packet::address(fd).map_err(|error| failed("getsockname", error))?;
    let seat = Seat {
        fd,
        group,
        fanout,
        mode,
        bound,
        protocol: entrant.protocol,
        inode,
    };
    if let Some(steering) = &membership.steering {
        return program::join(&seat, steering, entrant.before);
    }
    seat.take(|| Ok(false))?;
    Ok(Member::new(seat.place(seat.number()?), entrant.before))
}

/// Tells whether joining would be refused by what others have made of the group so far.
///
/// # Errors
/// What joining would say.
pub fn foresee(
    fd: BorrowedFd<'_>,
    membership: &Membership,
    protocol: u16,
) -> Result<(), JoinError> {
    let (mode, steering) = (membership.mode, membership.steering.as_deref());
    let (Group::Number(number), Ok(address)) = (membership.group, packet::address(fd)) else {
        return Ok(());
    };
    let own = Address {
        protocol,
        ..address
    };
    match conflict(number, mode, own) {
        // Only the kernel knows.
        Some(JoinError::OtherMode { runs, .. }) if runs == other_options(mode) => {}
        Some(error) => return Err(error),
        None => {}
    }
    steering.map_or(Ok(()), |steering| {
        program::foresee(fd, number, address.ifindex, steering)
    })
}

/// A handle's place in the group that it is to join.
struct Seat<'a> {
    fd: BorrowedFd<'a>,
    group: Group,
    fanout: Fanout,
    mode: Mode,
    bound: Address,
    protocol: u16,
    inode: u64,
}

impl Seat<'_> {
    fn failed(&self, call: &'static str, error: io::Error) -> JoinError {
        explain(self.fanout, self.mode, call, error)
    }

    /// The place in the group of this number.
    fn place(&self, number: u16) -> Place {
        Place::new(number, self.mode, self.bound.ifindex, self.inode)
    }

    /// The number of the group that was joined.
    fn number(&self) -> Result<u16, JoinError> {
        match (packet::fanout(self.fd), self.group) {
            (Ok(joined), _) => Ok(joined.id),
            (Err(_), Group::Number(number)) => Ok(number),
            (Err(error), Group::New) => Err(self.failed("PACKET_FANOUT", error)),
        }
    }

    /// Joins. In the group, `steer` is run before the first packet comes in; it tells whether the socket has
    /// got a filter by that.
    fn take(&self, steer: impl FnOnce() -> Result<bool, JoinError>) -> Result<(), JoinError> {
        if self.bound.protocol == ETH_P_SILENT {
            return self.take_from_silence(steer);
        }
        enter(self.fd, self.fanout, self.mode, self.bound)?;
        steer().map(drop)
    }

    fn take_from_silence(
        &self,
        steer: impl FnOnce() -> Result<bool, JoinError>,
    ) -> Result<(), JoinError> {
        let fd = self.fd;
        let address = Address {
            protocol: self.protocol,
            ..self.bound
        };
        // A program that tries again may have set one since.
        let mut filter = Filter::of(fd).map_err(|error| self.failed("SO_GET_FILTER", error))?;
        let mut reject = Filter::reject_all();
        reject
            .attach(fd)
            .map_err(|error| self.failed("SO_ATTACH_FILTER", error))?;
        let bound = packet::bind(fd, address).map_err(|error| self.failed("bind", error));
        let joined = bound.and_then(|()| enter(fd, self.fanout, self.mode, address));
        if joined.is_err() {
            // Best effort: the reason of the failure is what the caller must hear.
            let _ = packet::bind(fd, self.bound);
        }
        let has_filter = joined.and_then(|()| steer());
        if matches!(has_filter, Ok(true)) {
            return Ok(());
        }
        let mut restore = || match filter.as_mut() {
            Some(filter) => filter.attach(fd),
            None => packet::detach_filter(fd),
        };
        // A member that rejects everything would swallow its share: one failure must not do that.
        let restored = restore().or_else(|_| restore());
        has_filter.and(restored.map_err(|error| self.failed("SO_ATTACH_FILTER", error)))
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
        let records = shelf.records();
        records.first().map(|record| record.mode.to_string())
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
        Some(mode) if mode.kind == Kind::Program => "a program".to_owned(),
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
