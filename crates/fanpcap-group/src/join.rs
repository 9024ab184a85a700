//! Joins a group without duplicate packets, and explains why joining failed.

mod program_error;
mod error;
mod conflict;
mod prepared;
mod engine;
mod same;
mod runs;
mod per_device;
mod ready;
mod entry;
mod program;

pub use crate::engine_error::EngineError;
use crate::identity::Identity;
use crate::member::Member;
use crate::membership::Membership;
use crate::page::MemberId;
use crate::record::MemberCounters;
use crate::rejecting::Rejections;
use crate::roster::Roster;
use conflict::{Doubt, conflict, device};
pub use engine::EngineAsk;
pub(crate) use engine::attach_group;
pub use error::{DevicesError, JoinError};
use fanpcap_config::mode::{Mode, ModeKind};
use fanpcap_config::settings::{Group, GroupChoice, Steal};
// The slugs of errors after which a later attempt to enter a group of a poller may succeed.
pub use fanpcap_engine::{NO_POLLER, SILENT_POLLER};
use fanpcap_linux::interface;
use fanpcap_linux::packet::{self, Address, ETH_P_SILENT, Filter, PacketFanout, Refusal};
pub use per_device::PerDevice;
pub use prepared::{Prepared, prepare};
pub(crate) use program::ensure_ethernet;
pub use program::{takes_programs, try_to_load};
pub use program_error::ProgramError;
pub(crate) use ready::new_shared;
pub use runs::{Runs, Titled, program_text, runs};
use std::io;
use std::os::fd::BorrowedFd;

/// The handle that a caller brings to a group.
#[derive(Clone, Copy, Debug)]
pub struct JoinRequest<'a> {
    /// The handle's socket.
    pub socket: BorrowedFd<'a>,
    /// The group.
    pub choice: &'a GroupChoice,
    /// The protocol that the handle captures, `ETH_P_*`; not the one to which a silent handle is
    /// bound.
    pub protocol: u16,
    /// The counters of the system's library for the socket before the join.
    pub before: MemberCounters,
    /// The role of the handle's device in the group.
    pub per_device: PerDevice<'a>,
    /// The handle's requirements for the engine that fills its rings; `choice` must then have a
    /// steering program. `None`: the handle's packet socket has the ring.
    pub engine: Option<EngineAsk<'a>>,
}

/// Joins a group.
///
/// A silent handle (bound to [`ETH_P_SILENT`]) first gets a filter that rejects all packets, and is
/// then bound to its protocol. So the handle receives nothing before it is in the group. A newcomer
/// that is not silent receives a copy of every packet until it joins. If joining fails, a silent
/// handle is bound to [`ETH_P_SILENT`] again.
///
/// # Errors
/// The message of each error says what the group's state is and what to do.
pub fn join(request: JoinRequest<'_>) -> Result<Member, JoinError> {
    let _arriving = request.engine.and_then(|it| it.prepared.arriving());
    let (fd, choice) = (request.socket, request.choice);
    let (group, mode) = (choice.group, choice.mode);
    let fanout = wanted(group, mode);
    let failed = |call, error| explain(fanout, choice, call, error);
    if !packet::is_packet_socket(fd).map_err(|error| failed("SO_DOMAIN", error))? {
        return Err(JoinError::NotPacket);
    }
    let inode = packet::inode(fd).map_err(|error| failed("fstat", error))?;
    packet::close_on_exec(fd).map_err(|error| failed("F_SETFD", error))?;
    let bound = packet::address(fd).map_err(|error| failed("getsockname", error))?;
    let newcomer = Newcomer {
        fd,
        group,
        fanout,
        choice,
        bound,
        protocol: request.protocol,
        id: MemberId::of_socket(inode),
        per_device: request.per_device,
        engine: request.engine,
        is_first: false,
    };
    if let Some(steering) = &choice.steering {
        let mut join = |it: &Newcomer<'_>| program::join(it, steering, request.before);
        return match (request.per_device, request.engine, group) {
            (PerDevice::Behind(lead), _, _) => per_device::follow(newcomer, lead, &mut join),
            (_, Some(_), Group::New) => engine::in_new_group(newcomer, &mut join),
            (PerDevice::Only | PerDevice::First(_), _, _) => join(&newcomer),
        };
    }
    if let Some(asked) = request.engine {
        let (engine, group, mode) = (
            asked.prepared.engine().name(),
            fanout.id,
            choice.shown_mode(),
        );
        return Err(EngineError::Unsteered {
            engine,
            group,
            mode,
        }
        .into());
    }
    let member = |number| Member::new(newcomer.identity(number), 0, request.before, None);
    // Create the page first. An observer of the group's pages can then open the newcomer's page
    // before the newcomer gets its first packet.
    let early = newcomer.early(member);
    newcomer.take(early.as_ref(), None, &mut |address| newcomer.enter(address))?;
    newcomer.joined(early, member)
}

/// Checks whether the present state of the group would make [`join`] fail.
///
/// # Errors
/// The error that [`join`] would return.
pub fn foresee(fd: BorrowedFd<'_>, choice: &GroupChoice, protocol: u16) -> Result<(), JoinError> {
    let steering = choice.steering.as_deref();
    let (Group::Number(number), Ok(address)) = (choice.group, packet::address(fd)) else {
        return Ok(());
    };
    let own = Address {
        protocol,
        ..address
    };
    if let Some(error) = conflict(number, choice, own, Doubt::ForIt) {
        return Err(error);
    }
    steering.map_or(Ok(()), |steering| {
        program::foresee(fd, number, address.ifindex, steering)
    })
}

/// A socket that joins a group, with the group and the mode that were asked for.
struct Newcomer<'a> {
    fd: BorrowedFd<'a>,
    group: Group,
    fanout: PacketFanout,
    choice: &'a GroupChoice,
    bound: Address,
    protocol: u16,
    id: MemberId,
    per_device: PerDevice<'a>,
    engine: Option<EngineAsk<'a>>,
    /// Whether the newcomer may join only if the group has no member yet.
    is_first: bool,
}

impl Newcomer<'_> {
    fn failed(&self, call: &'static str, error: io::Error) -> JoinError {
        explain(self.fanout, self.choice, call, error)
    }

    /// The identity of this newcomer in the group with this number.
    fn identity(&self, number: u16) -> Identity {
        let identity = Identity::new(number, self.choice.mode, self.bound.ifindex, self.id);
        identity.known_as(self.per_device.number())
    }

    /// The newcomer's class. A handle on several devices has a member on each. All these members
    /// have the same class: both directions of a flow go to one handle, even if they arrive on two
    /// devices.
    fn class(&self) -> u8 {
        self.lead().map_or(self.choice.class, Membership::class)
    }

    /// The membership of the handle's member on the first device, if this newcomer is on a further
    /// device.
    fn lead(&self) -> Option<&Membership> {
        match self.per_device {
            PerDevice::Behind(lead) => Some(lead),
            PerDevice::Only | PerDevice::First(_) => None,
        }
    }

    /// Makes the member before it joins, if the group's number is known already.
    fn early(&self, member: impl Fn(u16) -> Member) -> Option<Member> {
        match self.group {
            Group::Number(number) => Some(member(number)),
            Group::New => None,
        }
    }

    /// Returns the member after it has joined. Makes the member now if `early` is `None`.
    fn joined(
        &self,
        early: Option<Member>,
        member: impl Fn(u16) -> Member,
    ) -> Result<Member, JoinError> {
        early.map_or_else(
            || {
                let late = member(self.number()?);
                late.rejections().are_unknown();
                Ok(late)
            },
            Ok,
        )
    }

    /// Whether the engine keeps the device's packets from the host.
    fn steals(&self) -> bool {
        self.engine.is_some_and(|it| it.steal != Steal::No)
    }

    /// Whether the engine keeps the device's packets from the host only on condition that neither
    /// the host nor a container uses the device (`steal = yes`).
    fn takes_from_host(&self) -> bool {
        self.engine.is_some_and(|it| it.steal == Steal::Yes)
    }

    /// The number of the group that the socket has joined.
    fn number(&self) -> Result<u16, JoinError> {
        match (packet::fanout(self.fd), self.group) {
            (Ok(joined), _) => Ok(joined.id),
            (Err(_), Group::Number(number)) => Ok(number),
            (Err(error), Group::New) => Err(self.failed("PACKET_FANOUT", error)),
        }
    }

    /// Joins the group. `attach` attaches the filtering part of the steering program, if there is
    /// one. `enter` enters the group, with a socket that is already bound to the address in its
    /// argument. The page of `early` records when the newcomer began to join, and how many packets
    /// the device counted while the newcomer rejected packets of its share.
    fn take(
        &self,
        early: Option<&Member>,
        attach: Option<Attach<'_>>,
        enter: Enter<'_>,
    ) -> Result<(), JoinError> {
        let is_on_sockets = self.engine.is_none();
        if is_on_sockets && (self.is_silent() || attach.is_some()) {
            return self.take_rejecting(early, attach, enter);
        }
        // On an engine the socket rejects no packets, because it gets none. There the page shows
        // the join only after the join.
        let rejections = early.map(Member::rejections).filter(|_| is_on_sockets);
        if let Some(rejections) = &rejections {
            rejections.join(false);
        }
        let entered = enter(self.bound);
        if let (Err(_), Some(rejections)) = (&entered, rejections) {
            rejections.withdraw();
        }
        entered
    }

    /// Joins with a socket that rejects all packets from its join until the filtering part is
    /// attached. A socket that is not silent rejects them from the last step before its join on:
    /// see [`Newcomer::reject_all`].
    fn take_rejecting(
        &self,
        early: Option<&Member>,
        attach: Option<Attach<'_>>,
        enter: Enter<'_>,
    ) -> Result<(), JoinError> {
        // The application may have set a filter after an earlier attempt to join.
        let before = self.filter()?;
        let rejections = early.map(Member::rejections);
        let entered = match self.is_silent() {
            true => {
                self.reject_all()?;
                self.enter_bound(rejections.as_ref(), enter)
            }
            false => enter(self.bound),
        };
        let is_in = entered.is_ok();
        let done = entered.and_then(|()| attach.map_or(Ok(()), |attach| attach()));
        let done = match attach {
            Some(_) if done.is_ok() => done,
            _ => done.and(self.restore(before)),
        };
        match rejections {
            Some(rejections) if is_in => rejections.end(),
            Some(rejections) => rejections.withdraw(),
            None => {}
        }
        done.map_err(|error| match is_in {
            true => self.stranded(error),
            false => error,
        })
    }

    fn is_silent(&self) -> bool {
        self.bound.protocol == ETH_P_SILENT
    }

    /// Attaches a filter that rejects all packets. The filtering part counts in the group's table,
    /// so it must not run for packets that the socket gets as no member.
    fn reject_all(&self) -> Result<(), JoinError> {
        let attached = Filter::reject_all().attach(self.fd);
        attached.map_err(|error| self.failed("SO_ATTACH_FILTER", error))
    }

    /// Binds the silent socket to its protocol and enters the group. If one of the two fails, binds
    /// the socket to [`ETH_P_SILENT`] again.
    fn enter_bound(
        &self,
        rejections: Option<&Rejections>,
        enter: Enter<'_>,
    ) -> Result<(), JoinError> {
        let address = Address {
            protocol: self.protocol,
            ..self.bound
        };
        let bound = packet::bind(self.fd, address).map_err(|error| self.failed("bind", error));
        // Record the join on the page only after bind(2), which waits for packets in flight.
        let begun = bound.inspect(|()| _ = rejections.map(|it| it.join(true)));
        let entered = begun.and_then(|()| enter(address));
        if entered.is_err() {
            // Best effort: the caller needs the reason of the first failure.
            let _ = packet::bind(self.fd, self.bound);
        }
        entered
    }

    /// Enters the group. The socket is bound to `address` already.
    fn enter(&self, address: Address) -> Result<(), JoinError> {
        let id = self.fanout.id;
        self.join_kernels(address).map_err(|refusal| match refusal {
            Refusal::Joined => {
                let own = packet::fanout(self.fd);
                JoinError::AlreadyIn(own.map_or(id, |own| own.id))
            }
            Refusal::Full => JoinError::Full(id),
            Refusal::Conflict(error) => conflict(id, self.choice, address, Doubt::AgainstIt)
                .unwrap_or_else(|| self.failed("PACKET_FANOUT", error)),
            Refusal::Other(error) => self.failed("PACKET_FANOUT", error),
        })
    }

    /// Enters the kernel's group.
    ///
    /// On the loopback device a packet comes twice, and the reader drops the outgoing copy. Under
    /// `lb` the kernel must drop outgoing copies before it deals packets out in turn. Else some
    /// members would get fewer incoming packets than others. The flag
    /// `PACKET_FANOUT_FLAG_IGNORE_OUTGOING` makes the kernel do this, since Linux 5.11. If the
    /// group began without the flag, the newcomer joins without the flag too.
    fn join_kernels(&self, address: Address) -> Result<(), Refusal> {
        let deals_out = self.fanout.mode == ModeKind::Lb.kernel_type();
        if deals_out && interface::index("lo") == Some(address.ifindex) {
            let flags = self.fanout.flags | packet::FANOUT_FLAG_IGNORE_OUTGOING;
            let without = PacketFanout {
                flags,
                ..self.fanout
            };
            match packet::join(self.fd, without) {
                Err(Refusal::Conflict(_)) => {}
                joined => return joined,
            }
        }
        packet::join(self.fd, self.fanout)
    }

    fn filter(&self) -> Result<Option<Filter>, JoinError> {
        let program = ModeKind::Program.kernel_type();
        Filter::of(self.fd).map_err(|error| match packet::fanout(self.fd) {
            // A member whose join failed halfway may have the filtering part as its filter. The
            // kernel does not return that filter.
            Ok(has) if has.mode == program => JoinError::AlreadyIn(has.id),
            _ => self.failed("SO_GET_FILTER", error),
        })
    }

    /// Attaches the socket's former filter again.
    fn restore(&self, mut filter: Option<Filter>) -> Result<(), JoinError> {
        let mut restore = || match filter.as_mut() {
            Some(filter) => filter.attach(self.fd),
            None => packet::detach_filter(self.fd),
        };
        // Try twice: a member that still rejects all packets loses its share of the group.
        let restored = restore().or_else(|_| restore());
        restored.map_err(|error| self.failed("SO_ATTACH_FILTER", error))
    }

    /// The error of a step that failed after the socket had entered the group.
    fn stranded(&self, error: JoinError) -> JoinError {
        let (group, error) = (self.number().unwrap_or(self.fanout.id), Box::new(error));
        JoinError::Stranded { group, error }
    }
}

/// Attaches the filtering part in place of the socket's filter.
type Attach<'a> = &'a dyn Fn() -> Result<(), JoinError>;

/// Enters the group. The socket is bound to this address already.
type Enter<'a> = &'a mut dyn FnMut(Address) -> Result<(), JoinError>;

fn explain(
    fanout: PacketFanout,
    asked: &GroupChoice,
    call: &'static str,
    error: io::Error,
) -> JoinError {
    JoinError::Kernel {
        group: fanout.id,
        mode: asked.shown_mode(),
        call,
        error,
    }
}

fn wanted(group: Group, mode: Mode) -> PacketFanout {
    let (kind, flags) = (mode.kind.kernel_type(), mode.kernel_flags());
    match group {
        Group::Number(id) => PacketFanout {
            id,
            mode: kind,
            flags,
        },
        Group::New => PacketFanout {
            id: 0,
            mode: kind,
            flags: flags | packet::FANOUT_FLAG_UNIQUEID,
        },
    }
}

/// The highest number that no packet socket's group has and that is not in `others`. The highest,
/// because people choose low numbers. Without packet diag the function can't see which numbers are
/// used; then only the join shows whether the number is free.
fn free_number(others: &[u16]) -> Option<u16> {
    let roster = Roster::look().unwrap_or_default();
    let is_used = |number| roster.members(number).next().is_some();
    let mut free = (1..=u16::MAX).rev();
    free.find(|number| !others.contains(number) && !is_used(*number))
}

#[cfg(test)]
mod tests;
