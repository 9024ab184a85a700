//! The kernel and the descriptor store, as used by the changes of a group's slots.

use crate::member_descriptors::MemberDescriptors;
use crate::page::MemberId;
use crate::shared::{Shared, group_of};
use crate::slots::KernelOps;
use crate::table::at;
use fanpcap_buckets::Slot;
use fanpcap_engine::faults;
use fanpcap_engine::fd_store::StoredFd;
use fanpcap_linux::bpf;
use fanpcap_linux::packet::{self, Filter};
use fanpcap_linux::wait::{self, clock, pipe};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

/// The kernel does not let the socket into the group. `Entering::enter` keeps the reason, so that
/// the code for slots is compiled only once for newcomers and members.
#[derive(Debug)]
pub(crate) struct Refused;

/// A handle's socket that is about to enter its group.
pub(crate) struct Entering<'a> {
    pub(crate) cookie: u64,
    pub(crate) socket: BorrowedFd<'a>,
    /// The member's page, opened again: the first file description has the page's lock.
    pub(crate) page: Option<BorrowedFd<'a>>,
    /// The end of the lifeline that the descriptor store gets.
    pub(crate) lifeline: BorrowedFd<'a>,
    /// The member's rings; empty on packet sockets.
    pub(crate) rings: &'a [BorrowedFd<'a>],
    /// Enters the kernel's group, and directs the slot's packets into the rings.
    pub(crate) enter: &'a mut dyn FnMut(Slot) -> Result<(), Refused>,
}

/// The kernel's part of a group, and the group's descriptor store.
pub(crate) struct Kernel<'a> {
    shared: &'a Shared,
    entering: Option<Entering<'a>>,
}

/// How long an ending process may take to close its socket after its lifeline has hung up.
const RELEASED_WITHIN: Duration = Duration::from_secs(1);

/// How long to sleep until packets in flight are in the rings, if no system call waits for these
/// packets.
const IN_FLIGHT: Duration = Duration::from_millis(50);

impl<'a> Kernel<'a> {
    /// Makes the value for a change by a member: no socket enters the group.
    pub(crate) fn of(shared: &'a Shared) -> Self {
        Self {
            shared,
            entering: None,
        }
    }

    /// Makes the value for the join of the newcomer `entering`.
    pub(crate) fn with(shared: &'a Shared, entering: Entering<'a>) -> Self {
        Self {
            shared,
            entering: Some(entering),
        }
    }

    fn entering(&mut self) -> io::Result<&mut Entering<'a>> {
        self.entering
            .as_mut()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn socket(&self, cookie: u64) -> io::Result<Option<OwnedFd>> {
        let found = self.shared.fd_store.find(StoredFd::Member(cookie))?;
        Ok(found.and_then(|descriptors| descriptors.into_iter().next()))
    }

    /// Whether a socket gets packets of its group. It gets none if its device was removed.
    fn is_in_a_group(&self, member: u64) -> io::Result<bool> {
        let roster = self.shared.namespace.roster()?;
        let socket = roster.find(MemberId::of_socket(member));
        Ok(socket.is_some_and(|it| it.fanout.is_some() && !it.has_lost_device()))
    }

    /// Attaches the group's BPF program again. The kernel then waits until the former BPF program
    /// has handled its packets (af_packet.c, `__fanout_set_data_bpf()`).
    fn set_program_again(&self) -> io::Result<()> {
        let mut socket = None;
        let mut program = None;
        self.shared.fd_store.visit(&mut |deposit, descriptors| {
            let first = descriptors.into_iter().next();
            match deposit {
                StoredFd::Program => program = first,
                StoredFd::Member(_) => socket = first,
                StoredFd::Lifelines
                | StoredFd::Lifeline(_)
                | StoredFd::Engine(_)
                | StoredFd::GroupLifeline
                | StoredFd::Filter
                | StoredFd::Spare(_) => {}
            }
            socket.is_none() || program.is_none()
        })?;
        match (socket, program) {
            (Some(socket), Some(program)) => {
                packet::set_fanout_program(socket.as_fd(), program.as_fd())
            }
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl KernelOps for Kernel<'_> {
    type Refused = Refused;

    fn step(&mut self) {
        faults::step();
    }

    fn now_ns(&self) -> u64 {
        clock::monotonic_ns()
    }

    fn deposit(&mut self) -> io::Result<()> {
        let shared = self.shared;
        let it = self.entering()?;
        shared.fd_store.ensure_room()?;
        shared.lifelines.add(it.lifeline, false)?;
        faults::step();
        shared
            .fd_store
            .put(StoredFd::Lifeline(it.cookie), &[it.lifeline])?;
        let socket = [Some(it.socket), it.page];
        let mut socket: Vec<BorrowedFd<'_>> = socket.into_iter().flatten().collect();
        // Without a page no other member could read the rings.
        socket.extend(it.rings.iter().filter(|_| it.page.is_some()));
        faults::step();
        shared.fd_store.put(StoredFd::Member(it.cookie), &socket)
    }

    fn enter(&mut self, slot: Slot) -> Result<(), Refused> {
        self.entering.as_mut().map_or(Ok(()), |it| (it.enter)(slot))
    }

    fn leave(&mut self, slot: Slot) -> io::Result<()> {
        let on_device = self.shared.on_device.as_ref();
        on_device.map_or(Ok(()), |it| it.dismiss(slot.0))
    }

    fn has_entered(&mut self, cookie: u64) -> io::Result<Option<bool>> {
        let socket = self.socket(cookie)?;
        let is_in = |socket: OwnedFd| packet::fanout(socket.as_fd());
        // For a socket outside of a group the kernel returns zeros, and a steered group's mode is
        // not 0.
        socket
            .map(|it| is_in(it).map(|has| has.mode != 0))
            .transpose()
    }

    fn withdraw(&mut self, cookie: u64, member: u64) -> io::Result<()> {
        self.shared.fd_store.remove(StoredFd::Member(cookie))?;
        let end = Instant::now() + RELEASED_WITHIN;
        while self.is_in_a_group(member)? {
            if Instant::now() > end {
                return Err(io::ErrorKind::TimedOut.into());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn cut(&mut self, cookie: u64) -> io::Result<()> {
        self.shared.fd_store.remove(StoredFd::Lifeline(cookie))
    }

    fn living(&mut self) -> io::Result<Vec<u64>> {
        let mut living = Vec::new();
        self.shared.fd_store.visit(&mut |deposit, descriptors| {
            if let (StoredFd::Lifeline(cookie), Some(end)) = (deposit, descriptors.first()) {
                // If a lifeline can't be polled, assume that its member lives.
                if !pipe::has_hung_up(end.as_fd()).unwrap_or(false) {
                    living.push(cookie);
                }
            }
            true
        })?;
        Ok(living)
    }

    fn settle(&mut self) -> io::Result<()> {
        let settled = bpf::try_to_wait_for_programs().or_else(|_| self.set_program_again());
        if settled.is_err() {
            thread::sleep(IN_FLIGHT);
        }
        Ok(())
    }

    fn told(&mut self) -> io::Result<Vec<u64>> {
        let mut told = Vec::new();
        // If a socket can't be polled, assume that it has no error.
        let has_news = |socket: BorrowedFd<'_>| wait::has_error(socket).unwrap_or(false);
        self.shared.fd_store.visit(&mut |deposit, descriptors| {
            if let (StoredFd::Member(cookie), Some(socket)) = (deposit, descriptors.first()) {
                if has_news(socket.as_fd()) {
                    told.push(cookie);
                }
            }
            true
        })?;
        let entering = self.entering.as_ref().filter(|it| has_news(it.socket));
        told.extend(entering.map(|it| it.cookie));
        Ok(told)
    }

    fn order(&mut self) -> io::Result<Option<Vec<u64>>> {
        if self.shared.on_device.is_some() {
            return Ok(None);
        }
        // Packet diag lists the sockets in the order in which the kernel links them.
        let table = self.shared.table();
        let (ifindex, group) = group_of(table.get(at::GROUP));
        let roster = self.shared.namespace.roster()?;
        let cookie = |id: MemberId| {
            let mut rows = table.rows();
            let row = rows.find(|(_, row)| row.member == id.socket());
            row.map_or(0, |(_, row)| row.cookie)
        };
        Ok(Some(roster.ids(ifindex, group).map(cookie).collect()))
    }

    fn refuse(&mut self, cookie: u64) -> io::Result<()> {
        // Best effort: even without this filter, the group's BPF program gives the socket no more
        // packets.
        if let Some(socket) = self.socket(cookie)? {
            let _ = Filter::reject_all().attach(socket.as_fd());
        }
        Ok(())
    }

    fn is_half_full(&mut self, cookie: u64) -> bool {
        let descriptors = MemberDescriptors::of(self.shared, cookie);
        let remains = descriptors.and_then(|it| it.remains(self.shared));
        // If the ring can't be read, return true: to wait for a successor would be useless.
        remains.is_none_or(|remains| remains.is_half_full())
    }

    fn borrow(&mut self, cookie: u64) -> io::Result<bool> {
        let descriptors = MemberDescriptors::of(self.shared, cookie);
        Ok(descriptors.and_then(|it| it.borrow()).is_some())
    }

    fn unread(&mut self) -> io::Result<Vec<(u64, u64)>> {
        let mut unread = Vec::new();
        self.shared.fd_store.visit(&mut |deposit, descriptors| {
            if let StoredFd::Member(cookie) = deposit {
                let descriptors = MemberDescriptors::from(cookie, descriptors);
                if let Some(position) = descriptors.and_then(|it| it.unread(self.shared)) {
                    let mark = position.mark.word().rotate_left(32);
                    unread.push((cookie, position.taken ^ mark));
                }
            }
            true
        })?;
        Ok(unread)
    }
}
