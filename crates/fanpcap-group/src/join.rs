//! Joining a group without duplicates, and why it failed.

mod error;
mod program;
mod program_error;

use crate::member::{Identity, Member};
use crate::page::MemberId;
use crate::record::Counters;
use crate::rejecting::Rejections;
use crate::roster::Roster;
pub use error::JoinError;
use fanpcap_config::mode::{Kind, Mode, described};
use fanpcap_config::report::harmless_text;
use fanpcap_config::settings::{Group, Membership};
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

/// Joins a group. A socket that was activated silently (bound to [`ETH_P_SILENT`]) is bound to its
/// protocol behind a filter that rejects all, so that nothing reaches it before it is in the group;
/// without that, a newcomer has every packet twice until it has joined. When it can't join, it is
/// silent again.
///
/// # Errors
/// Each says what the group is and what to do.
pub fn join(entrant: Entrant<'_>) -> Result<Member, JoinError> {
    let (fd, membership) = (entrant.socket, entrant.membership);
    let (group, mode) = (membership.group, membership.mode);
    let fanout = wanted(group, mode);
    let failed = |call, error| explain(fanout, membership, call, error);
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
        membership,
        bound,
        protocol: entrant.protocol,
        id: MemberId::of_socket(inode),
    };
    if let Some(steering) = &membership.steering {
        return program::join(&newcomer, steering, entrant.before);
    }
    let member = |number| Member::new(newcomer.identity(number), entrant.before, None);
    // The page is there first: who watches the group's pages can hold the newcomer before the group
    // gives it anything.
    let early = newcomer.early(member);
    newcomer.take(early.as_ref(), None, || Ok(()))?;
    newcomer.joined(early, member)
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
    let steering = membership.steering.as_deref();
    let (Group::Number(number), Ok(address)) = (membership.group, packet::address(fd)) else {
        return Ok(());
    };
    let own = Address {
        protocol,
        ..address
    };
    if let Some(error) = conflict(number, membership, own, Doubt::ForIt) {
        return Err(error);
    }
    steering.map_or(Ok(()), |steering| {
        program::foresee(fd, number, address.ifindex, steering)
    })
}

/// A socket that is to join a group.
struct Newcomer<'a> {
    fd: BorrowedFd<'a>,
    group: Group,
    fanout: Fanout,
    membership: &'a Membership,
    bound: Address,
    protocol: u16,
    id: MemberId,
}

impl Newcomer<'_> {
    fn failed(&self, call: &'static str, error: io::Error) -> JoinError {
        explain(self.fanout, self.membership, call, error)
    }

    /// The member in the group of this number.
    fn identity(&self, number: u16) -> Identity {
        Identity::new(number, self.membership.mode, self.bound.ifindex, self.id)
    }

    /// The member before it joins, where its group has a number by then.
    fn early(&self, member: impl Fn(u16) -> Member) -> Option<Member> {
        match self.group {
            Group::Number(number) => Some(member(number)),
            Group::New => None,
        }
    }

    /// The member when it has joined.
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

    /// The number of the group that was joined.
    fn number(&self) -> Result<u16, JoinError> {
        match (packet::fanout(self.fd), self.group) {
            (Ok(joined), _) => Ok(joined.id),
            (Err(_), Group::Number(number)) => Ok(number),
            (Err(error), Group::New) => Err(self.failed("PACKET_FANOUT", error)),
        }
    }

    /// Joins. `attach` puts the program's part that drops and counts into the filter's place, where
    /// there is such a thing; `steer` gives the group its program. Both are there before the first
    /// packet of the group's comes in, where the socket was silent. The page of `early` tells when
    /// it began, and how long the socket has rejected what came.
    fn take(
        &self,
        early: Option<&Member>,
        attach: Option<Attach<'_>>,
        steer: impl FnOnce() -> Result<(), JoinError>,
    ) -> Result<(), JoinError> {
        if self.bound.protocol == ETH_P_SILENT {
            return self.take_from_silence(early, attach, steer);
        }
        let rejections = early.map(Member::rejections);
        if let Some(rejections) = &rejections {
            rejections.join(false);
        }
        let entered = match attach {
            Some(attach) => self.enter_with(attach),
            None => self.enter(self.bound),
        };
        if let (Err(_), Some(rejections)) = (&entered, rejections) {
            rejections.withdraw();
        }
        entered?;
        steer().map_err(|error| self.stranded(error))
    }

    fn take_from_silence(
        &self,
        early: Option<&Member>,
        attach: Option<Attach<'_>>,
        steer: impl FnOnce() -> Result<(), JoinError>,
    ) -> Result<(), JoinError> {
        // A program that tries again may have set one since.
        let before = self.filter()?;
        Filter::reject_all()
            .attach(self.fd)
            .map_err(|error| self.failed("SO_ATTACH_FILTER", error))?;
        let rejections = early.map(Member::rejections);
        let entered = self.enter_bound(rejections.as_ref());
        let is_in = entered.is_ok();
        let done = entered.and_then(|()| steer());
        let done = done.and_then(|()| attach.map_or(Ok(()), |attach| attach()));
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

    /// Binds the silent socket to its protocol and enters the group; one that can't is silent
    /// again.
    fn enter_bound(&self, rejections: Option<&Rejections>) -> Result<(), JoinError> {
        let address = Address {
            protocol: self.protocol,
            ..self.bound
        };
        let bound = packet::bind(self.fd, address).map_err(|error| self.failed("bind", error));
        // Not earlier: binding takes as long as the kernel waits for packets on their way.
        let begun = bound.inspect(|()| _ = rejections.map(|it| it.join(true)));
        let entered = begun.and_then(|()| self.enter(address));
        if entered.is_err() {
            // Best effort: the reason of the failure is what the caller must hear.
            let _ = packet::bind(self.fd, self.bound);
        }
        entered
    }

    /// Enters the group, bound to `address`.
    fn enter(&self, address: Address) -> Result<(), JoinError> {
        let id = self.fanout.id;
        packet::join(self.fd, self.fanout).map_err(|refusal| match refusal {
            Refusal::Joined => {
                let own = packet::fanout(self.fd);
                JoinError::AlreadyIn(own.map_or(id, |own| own.id))
            }
            Refusal::Full => JoinError::Full(id),
            Refusal::Conflict(error) => conflict(id, self.membership, address, Doubt::AgainstIt)
                .unwrap_or_else(|| self.failed("PACKET_FANOUT", error)),
            Refusal::Other(error) => self.failed("PACKET_FANOUT", error),
        })
    }

    /// Enters the group with what the program drops dropped already: in the group it would be too
    /// late to find that it can't be.
    fn enter_with(&self, attach: Attach<'_>) -> Result<(), JoinError> {
        let before = self.filter()?;
        let entered = attach().and_then(|()| self.enter(self.bound));
        if entered.is_err() {
            // Best effort, as above.
            let _ = self.restore(before);
        }
        entered
    }

    /// The filter that the socket has.
    fn filter(&self) -> Result<Option<Filter>, JoinError> {
        let program = Kind::Program.kernel_type();
        Filter::of(self.fd).map_err(|error| match packet::fanout(self.fd) {
            // One that has failed in its group has the program's there, which can't be read.
            Ok(has) if has.mode == program => JoinError::AlreadyIn(has.id),
            _ => self.failed("SO_GET_FILTER", error),
        })
    }

    /// Gives the socket the filter that it had.
    fn restore(&self, mut filter: Option<Filter>) -> Result<(), JoinError> {
        let mut restore = || match filter.as_mut() {
            Some(filter) => filter.attach(self.fd),
            None => packet::detach_filter(self.fd),
        };
        // A member that rejects everything would swallow its share: one failure must not do that.
        let restored = restore().or_else(|_| restore());
        restored.map_err(|error| self.failed("SO_ATTACH_FILTER", error))
    }

    /// What has failed in the group.
    fn stranded(&self, error: JoinError) -> JoinError {
        let (group, error) = (self.number().unwrap_or(self.fanout.id), Box::new(error));
        JoinError::Stranded { group, error }
    }
}

/// Puts what a program drops and counts into the filter's place.
type Attach<'a> = &'a dyn Fn() -> Result<(), JoinError>;

fn explain(fanout: Fanout, asked: &Membership, call: &'static str, error: io::Error) -> JoinError {
    JoinError::Kernel {
        group: fanout.id,
        mode: asked.shown_mode(),
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

/// What to assume of a mode's options where no member's page tells them: packet diag does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// They are those that were asked for.
    ForIt,
    /// They are others, as the kernel has refused to join.
    AgainstIt,
}

/// Finds what of the group, as packet diag and its members' pages tell it, differs from what was
/// asked for.
fn conflict(group: u16, asked: &Membership, own: Address, doubt: Doubt) -> Option<JoinError> {
    let roster = Roster::look().ok()?;
    let other = roster.members(group).next()?;
    let has = other.fanout?;
    if other.ifindex != own.ifindex {
        let (has, wants) = (device(other.ifindex), device(own.ifindex));
        return Some(JoinError::OtherDevice { group, has, wants });
    }
    if other.protocol != own.protocol {
        let (has, wants) = (other.protocol, own.protocol);
        return Some(JoinError::OtherProtocol { group, has, wants });
    }
    // A page alone proves nothing: it may be a newcomer's, such as this one's own.
    let mut members = roster.members_with_pages(group).into_iter();
    let runs = match members.find_map(|member| member.page) {
        Some(record) if record.mode == asked.mode => return None,
        Some(record) => described(record.mode, record.title()),
        None if has.mode != asked.mode.kind.kernel_type() => kernel_mode(has.mode),
        None if doubt == Doubt::ForIt => return None,
        None => format!("{} with other options", kernel_mode(has.mode)),
    };
    let asked = asked.shown_mode();
    Some(JoinError::OtherMode { group, asked, runs })
}

/// The name of a mode that packet diag tells by number, without its options.
fn kernel_mode(number: u8) -> String {
    match Mode::from_kernel(number, 0) {
        Some(mode) if mode.kind == Kind::Program => "a steering program".to_owned(),
        Some(mode) => mode.to_string(),
        None => format!("a mode of another library (number {number})"),
    }
}

fn device(ifindex: u32) -> String {
    match ifindex {
        0 => "any".to_owned(),
        index => interface::name(index)
            .map_or_else(|| format!("interface {index}"), |name| harmless_text(&name)),
    }
}
