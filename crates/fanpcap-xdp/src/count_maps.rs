//! The map with a steering program's counters, and the map with its number of late fragments: later
//! fragments that came before the first fragment of their datagram. Each group has these maps, even
//! if its steering program counts nothing: a steering program that replaces it may count.

use fanpcap_bpf::{MapKind, MapSpec};
use fanpcap_engine::Counts;
use fanpcap_linux::bpf::{Loaded, Map};
use fanpcap_steer::ebpf::{COUNTERS_MAP, LATE_MAP, TABLE_MAP};
use fanpcap_steer::ir::COUNTERS;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Both maps of a group.
pub(crate) struct CountMaps([Map; 2]);

impl CountMaps {
    /// Creates the maps of a new group.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`, and other errors of bpf(2).
    pub(crate) fn new() -> io::Result<Self> {
        let [counters, late] = COUNTS.map(|(name, len)| Map::create(name, &spec(name, len)));
        Ok(Self([counters?, late?]))
    }

    /// Opens the maps from [`CountMaps::descriptors`] of another process.
    ///
    /// # Errors
    /// `InvalidData` when the descriptors are not those of such maps.
    pub(crate) fn open(descriptors: &[OwnedFd]) -> io::Result<Self> {
        let maps = descriptors.iter().zip(COUNTS);
        let maps = maps.map(|(fd, (name, len))| Map::given(fd.as_fd(), &spec(name, len)));
        let maps: Vec<Map> = maps.collect::<io::Result<_>>()?;
        let maps = maps.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(Self(maps))
    }

    /// The descriptors, for [`CountMaps::open`] in another process.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        self.0.each_ref().map(AsFd::as_fd)
    }

    /// Returns these maps and the group's table, each with its name. A BPF program of the group is
    /// loaded with them.
    pub(crate) fn given<'a>(&'a self, table: BorrowedFd<'a>) -> [(&'a str, BorrowedFd<'a>); 3] {
        let [counters, late] = &self.0;
        [
            (TABLE_MAP, table),
            (COUNTERS_MAP, counters.as_fd()),
            (LATE_MAP, late.as_fd()),
        ]
    }

    /// Reads the counters, and the number of late fragments.
    ///
    /// # Errors
    /// As [`Map::read_numbers`].
    pub(crate) fn read(&self) -> io::Result<(Counts, u64)> {
        let (mut counts, mut late) = ([0; COUNTERS], [0]);
        self.0[0].read_numbers(&mut counts)?;
        self.0[1].read_numbers(&mut late)?;
        Ok((counts, late[0]))
    }
}

/// Whether a group's BPF program uses any of the maps of [`CountMaps`].
pub(crate) fn counts_by_them(loaded: &Loaded) -> bool {
    COUNTS.iter().any(|(name, _)| loaded.map(name).is_some())
}

/// The maps' names, and how many numbers each map has.
const COUNTS: [(&str, usize); 2] = [(COUNTERS_MAP, COUNTERS), (LATE_MAP, 1)];

fn spec(name: &'static str, len: usize) -> MapSpec {
    let bytes = u32::try_from(8 * len).unwrap_or(u32::MAX);
    MapSpec::new(name, MapKind::Array, 4, bytes, 1)
}
