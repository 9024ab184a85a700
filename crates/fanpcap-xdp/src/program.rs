//! A group's BPF programs on a device, and the maps that change when members join or leave.

use crate::layout::{BELLS_MAP, FILTERS_MAP, FIRST_BELL_LEN, FIRST_BELL_MAP};
use crate::layout::{LEDGER_MAP, POOLS_MAP, ROWS_MAP};
use crate::layout::{SENT_LONGEST, SETTINGS_MAP, SLOTS, STAMP_MAP, row};
use crate::load::{Compile, Given, Making, ProgramError};
use crate::pool::{MemberPool, PoolArray};
use crate::root::Tags;
use crate::rows::{Ledger, Rows, SlotCounts};
use crate::unavailable::Unavailable;
use fanpcap_bpf::{MapKind, ProgramKind};
use fanpcap_engine::faults;
use fanpcap_linux::bpf::{
    Attached, Hook, LoadError, Loaded, LoadedProgram, ObjectArray, RingBuffer,
};
use fanpcap_ring::pool::PoolShape;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A group's part of the XDP engine on one device. It has the maps that change when members join or
/// leave, and the BPF program for packets that the host sends. It does not have the BPF program for
/// received packets, because the group may replace that BPF program.
///
/// Loading a BPF program needs `CAP_BPF` and `CAP_NET_ADMIN`. Since Linux 5.19, the other
/// operations need no capability. On earlier kernels, changes of maps need `CAP_BPF` if
/// kernel.unprivileged_bpf_disabled is set.
pub struct GroupProgram {
    /// The members' pools, by slot.
    pools: ObjectArray,
    /// The ring buffers that wake the members' readers, by slot.
    bells: ObjectArray,
    /// The ring buffer that wakes the reader of slot 0.
    first_bell: RingBuffer,
    /// The shape of the pools of the group's members.
    pub(crate) shape: PoolShape,
    pub(crate) rows: Rows,
    ledger: Ledger,
    filters: ObjectArray,
    /// The group's part for packets that the host sends, or why there is none. `Err(None)` means
    /// that the kernel has no hook for such a BPF program.
    sent: Result<Sent, Option<String>>,
    /// The device's BPF link; `None` if the group was loaded without a device.
    link: Option<Attached>,
}

/// A group's part for packets that the host sends.
struct Sent {
    /// The attached BPF program.
    program: Attached,
    /// The members' filters.
    filters: ObjectArray,
}

/// An application's filter, as the BPF programs that run it. They return how many bytes of a packet
/// to keep.
pub struct SlotFilter {
    /// The XDP program for packets that the device receives.
    pub received: LoadedProgram,
    /// The BPF program for packets that the host sends; `None` if the kernel does not filter these
    /// packets.
    pub sent: Option<LoadedProgram>,
    /// The number that records of packets get which have passed the filter. It is not 0, and
    /// differs from the numbers of the slot's other filters.
    pub number: u32,
}

/// How many descriptors [`GroupProgram::descriptors`] returns.
pub(crate) const PROGRAM_DESCRIPTORS: usize = 9;

/// The objects of a device that a group's BPF program needs. All groups on the device share these
/// objects.
#[derive(Clone, Copy)]
pub struct DeviceMaps<'a> {
    /// The device's index; 0 if the device is gone.
    pub ifindex: u32,
    /// The registry's settings.
    pub settings: BorrowedFd<'a>,
    /// The map in which the device's root stores the stamp of a packet.
    pub stamp: BorrowedFd<'a>,
    /// The device's BPF link, if there is a device.
    pub link: Option<&'a Attached>,
}

impl GroupProgram {
    /// Loads the BPF program of a group without members, for a device with this registry. The
    /// group's members have pools of this shape. `given` are further maps for the BPF program. The
    /// [`Loaded`] in the result is the BPF program for received packets, with the steering
    /// program's own maps.
    ///
    /// # Errors
    /// [`ProgramError`].
    pub fn load(
        shape: PoolShape,
        registry: DeviceMaps<'_>,
        given: &Given<'_>,
        compile: Compile<'_>,
    ) -> Result<(Self, Loaded), ProgramError> {
        let group = Self::without_programs(shape);
        let mut group = group.map_err(|error| LoadError::of_map(ProgramKind::Xdp, error))?;
        // Looks up the number of the kernel's function that returns VLAN tags. The lookup takes a
        // while, so it is done here, and its result is kept: the later load of a root needs the
        // number, and the caller then holds a lock.
        let _ = Tags::of(registry.ifindex);
        let link = registry.link.map(Attached::try_clone).transpose();
        group.link = link.map_err(LoadError::Map)?;
        let making = group.making(registry, given, compile);
        let received = making.received()?;
        let filters = filters().map_err(|error| Some(error.to_string()));
        group.sent = filters.and_then(|filters| {
            let sent = making.sent(filters.as_fd(), &received);
            let sent = sent.map_err(|error| match error {
                ProgramError::Compile(error) => Some(error.to_string()),
                ProgramError::Load(error) => Some(error.to_string()),
            })?;
            let attached = sent.attach(registry.ifindex, Hook::Egress);
            // Kernels before Linux 6.6 have no hook for sent packets.
            let is_old = |error: &io::Error| error.raw_os_error() == Some(EINVAL);
            let program = attached.map_err(|error| (!is_old(&error)).then(|| error.to_string()))?;
            Ok(Sent { program, filters })
        });
        Ok((group, received))
    }

    /// Loads another BPF program for received packets, which uses the group's maps. It gets no
    /// packets before the device serves it. If the group has a BPF program for sent packets, also
    /// loads another BPF program for sent packets, which gets no packets before
    /// [`GroupProgram::replace_sent`].
    ///
    /// # Errors
    /// As [`GroupProgram::load`].
    pub fn load_next(
        &self,
        registry: DeviceMaps<'_>,
        given: &Given<'_>,
        compile: Compile<'_>,
    ) -> Result<(Loaded, Option<LoadedProgram>), ProgramError> {
        let making = self.making(registry, given, compile);
        let received = making.received()?;
        let sent = self.sent.as_ref().ok();
        let sent = sent.map(|it| making.sent(it.filters.as_fd(), &received));
        Ok((received, sent.transpose()?))
    }

    /// Replaces the BPF program for sent packets by `program`. Changes nothing if the group has no
    /// such BPF program, or if another process has detached it.
    ///
    /// # Errors
    /// `InvalidData` when `program` is not a BPF program for sent packets; errors of bpf(2).
    pub fn replace_sent(&self, program: OwnedFd) -> io::Result<()> {
        let program = LoadedProgram::open(program, ProgramKind::SchedCls)?;
        match self.sent.as_ref().map(|it| it.program.replace(&program)) {
            Ok(Err(error)) if error.raw_os_error() != Some(ENOLINK) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn without_programs(shape: PoolShape) -> io::Result<Self> {
        Ok(Self {
            pools: PoolArray::places(shape, SLOTS)?,
            bells: ObjectArray::create("fanpcap_xdp", MapKind::MapArray, SLOTS)?,
            first_bell: RingBuffer::create("fanpcap_xdp", FIRST_BELL_LEN)?,
            shape,
            rows: Rows::create(shape)?,
            ledger: Ledger::create(shape)?,
            filters: filters()?,
            sent: Err(None),
            link: None,
        })
    }

    /// Returns the parts of which the group's BPF programs are made.
    fn making<'a>(
        &'a self,
        registry: DeviceMaps<'a>,
        others: &Given<'a>,
        compile: Compile<'a>,
    ) -> Making<'a> {
        let own = [
            (POOLS_MAP, self.pools.as_fd()),
            (BELLS_MAP, self.bells.as_fd()),
            (FIRST_BELL_MAP, self.first_bell.as_fd()),
            (ROWS_MAP, self.rows.as_fd()),
            (LEDGER_MAP, self.ledger.as_fd()),
            (FILTERS_MAP, self.filters.as_fd()),
            (SETTINGS_MAP, registry.settings),
            (STAMP_MAP, registry.stamp),
        ];
        Making {
            shape: self.shape,
            given: [&own, others].concat(),
            compile,
        }
    }

    /// Opens the group from [`GroupProgram::descriptors`] of another process. Needs no capability.
    ///
    /// # Errors
    /// `InvalidData` when the descriptors are not those of a group.
    pub fn open(descriptors: [OwnedFd; PROGRAM_DESCRIPTORS]) -> io::Result<Self> {
        let [pools, bells, first_bell, rows, ledger, filters, rest @ ..] = descriptors;
        let [sent, sent_filters, link] = rest;
        let rows = Rows::open(rows)?;
        let ledger = Ledger::open(ledger, rows.lanes)?;
        let shape = ledger.shape().ok_or(io::ErrorKind::InvalidData)?;
        let array = |filters| ObjectArray::open(filters, MapKind::ProgArray, SLOTS);
        let members = |maps| ObjectArray::open(maps, MapKind::MapArray, SLOTS);
        let sent = Attached::open(sent, Hook::Egress).and_then(|program| {
            let filters = array(sent_filters)?;
            Ok(Sent { program, filters })
        });
        Ok(Self {
            pools: members(pools)?,
            bells: members(bells)?,
            first_bell: RingBuffer::open(first_bell)?,
            shape,
            ledger,
            filters: array(filters)?,
            // If the group has no BPF program for sent packets, only the group's first member has
            // the error with which the load or the attachment failed.
            sent: sent.map_err(|_| Some("the group began without them".to_owned())),
            link: Attached::open(link, Hook::Driver).ok(),
            rows,
        })
    }

    /// Returns all descriptors, for [`GroupProgram::open`] in another process. When no process has
    /// these descriptors open any more, the kernel drops the members' filters and detaches the BPF
    /// program for sent packets.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; PROGRAM_DESCRIPTORS] {
        // If there is no BPF program for sent packets, or no link, the descriptor of the pools
        // takes its place.
        let none = self.pools.as_fd();
        let sent = self.sent.as_ref();
        [
            self.pools.as_fd(),
            self.bells.as_fd(),
            self.first_bell.as_fd(),
            self.rows.as_fd(),
            self.ledger.as_fd(),
            self.filters.as_fd(),
            sent.map_or(none, |it| it.program.as_fd()),
            sent.map_or(none, |it| it.filters.as_fd()),
            self.link.as_ref().map_or(none, AsFd::as_fd),
        ]
    }

    /// Checks that the group's members can get packets that the host sends.
    ///
    /// # Errors
    /// [`Unavailable::Sent`].
    pub fn sees_sent(&self) -> Result<(), Unavailable> {
        let sent = self.sent.as_ref().map(drop);
        sent.map_err(|reason| Unavailable::Sent(reason.clone()))
    }

    /// Directs the slot's packets into `pool` from now on: at most `snaplen` bytes of each packet,
    /// and without a filter. `sent` says whether packets that the host sends are captured too. The
    /// first packet wakes the reader. When this function returns, no more packets come into the
    /// slot's former pool. As with packet sockets, the slot does not get packets that the host
    /// sends by the member's own `socket` (`SO_COOKIE`).
    ///
    /// # Errors
    /// The errors of bpf(2). After an error, the slot may get no packets.
    pub fn put(
        &self,
        slot: u8,
        pool: &MemberPool,
        snaplen: u32,
        socket: u64,
        sent: bool,
    ) -> io::Result<()> {
        // A BPF program looks the pool up twice. When the former pool is removed, no BPF program
        // uses it any more, and none finds two pools.
        self.set_snaplen(slot, 0);
        faults::step();
        self.pools.remove(slot.into(), 1)?;
        self.rows.of(slot).for_each(|row| {
            row.set(row::FILTER, 0);
            row.write(row::SOCKET, socket);
            row.set(row::SENT, sent.into());
            // The lane's next record wakes the reader, whatever the lane's position is.
            row.write(row::WAKE_AT, 0);
        });
        let [array, bell] = pool.descriptors();
        faults::step();
        // The kernel would wait for running BPF programs.
        if slot > 0 {
            self.bells.put(slot.into(), &[bell])?;
            faults::step();
        }
        self.pools.put(slot.into(), &[array])?;
        let _ = pool.before.set(self.slot_counts(slot));
        self.set_snaplen(slot, snaplen);
        if sent {
            self.ledger.want_sent();
        }
        Ok(())
    }

    /// Sets how many bytes of each packet the slot gets. With 0, the slot gets no packets, but
    /// packets that are in flight during this call may still arrive.
    pub fn set_snaplen(&self, slot: u8, snaplen: u32) {
        let snaplen = snaplen.min(SENT_LONGEST as u32);
        let rows = self.rows.of(slot);
        rows.for_each(|row| row.set(row::SNAPLEN, snaplen));
    }

    /// Removes the slot's pool and its filter. When this function returns, no more packets come
    /// into the pool. The bell, a few pages, stays until the slot's next member has joined, because
    /// the kernel would wait for running BPF programs a second time.
    ///
    /// # Errors
    /// The errors of bpf(2).
    pub fn take_away(&self, slot: u8) -> io::Result<()> {
        self.set_snaplen(slot, 0);
        faults::step();
        self.set_filter(slot, None)?;
        faults::step();
        self.pools.remove(slot.into(), 1)
    }

    /// Sets or removes the filter that the kernel runs for the slot. Records that are written
    /// during the change may have the number of the former filter, or 0.
    ///
    /// # Errors
    /// The errors of bpf(2). After an error, no filter runs.
    pub fn set_filter(&self, slot: u8, filter: Option<&SlotFilter>) -> io::Result<()> {
        // A record must not have the number of a filter that has not run. So a new filter's number
        // is stored after the filter, and is cleared before the filter is removed.
        let rows = || self.rows.of(slot);
        let set = |number| rows().for_each(|row| row.set(row::FILTER, number));
        if filter.is_none() {
            set(0);
        }
        let put = |array: &ObjectArray, program: Option<&LoadedProgram>| match program {
            Some(program) => array.put(slot.into(), &[program.as_fd()]),
            None => array.remove(slot.into(), 1),
        };
        let put = put(&self.filters, filter.map(|it| &it.received)).and_then(|()| {
            let sent = filter.and_then(|it| it.sent.as_ref());
            let filters = self.sent.as_ref().map(|it| &it.filters);
            filters.map_or(Ok(()), |it| put(it, sent))
        });
        let number = filter.filter(|_| put.is_ok()).map_or(0, |it| it.number);
        set(number);
        put
    }

    /// Returns the counts for the slot.
    pub fn slot_counts(&self, slot: u8) -> SlotCounts {
        self.rows.counts(slot)
    }

    /// Returns the counts for the group.
    pub fn group_counts(&self) -> fanpcap_engine::Ledger {
        self.ledger.counts(&self.rows)
    }

    /// Whether the device is gone, or another process has detached the engine's BPF program from
    /// the device.
    pub fn is_detached(&self) -> bool {
        let ifindex = self.link.as_ref().map(Attached::ifindex);
        ifindex.is_some_and(|it| it.is_ok_and(|ifindex| ifindex == 0))
    }

    /// The BPF link of the group's program for sent packets, if there is one.
    pub(crate) fn sent_link(&self) -> Option<BorrowedFd<'_>> {
        self.sent.as_ref().ok().map(|it| it.program.as_fd())
    }

    /// The ring buffer that wakes the slot's reader: that of its `pool`, or else the group's for
    /// slot 0.
    pub(crate) fn bell<'a>(&'a self, slot: u8, pool: &'a MemberPool) -> &'a RingBuffer {
        match slot {
            0 => &self.first_bell,
            _ => &pool.bell,
        }
    }
}

/// Creates an array of members' filters.
fn filters() -> io::Result<ObjectArray> {
    ObjectArray::create("fanpcap_xdp", MapKind::ProgArray, SLOTS)
}

// errno(3).
const EINVAL: i32 = 22;
const ENOLINK: i32 = 67;

#[cfg(test)]
mod tests;
