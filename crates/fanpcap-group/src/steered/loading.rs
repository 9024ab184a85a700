//! Loads the parts of a steering program, and reads their counters.

use super::SteerError;
use fanpcap_bpf::Object;
use fanpcap_config::steering::{Counts, Steering};
use fanpcap_linux::bpf::{Loaded, Map};
use fanpcap_linux::packet::Filter;
use fanpcap_linux::packet::optmem::{self, NoRoom};
use fanpcap_steer::Compiled;
use fanpcap_steer::ebpf::{COUNTERS_MAP, LATE_MAP, TABLE_MAP};
use fanpcap_steer::ir::COUNTERS;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Loads the steering part, which looks up its results in the group's table.
pub(crate) fn load_fanout(
    steering: &Steering,
    table: BorrowedFd<'_>,
) -> Result<Loaded, SteerError> {
    let compiled = steering.compiled();
    // Only a steering program for an engine has no compiled parts.
    let compiled = compiled.ok_or_else(|| SteerError::Attach(io::ErrorKind::Unsupported.into()))?;
    let given = [(TABLE_MAP, table)];
    Loaded::load_with(compiled.fanout(), "fanpcap_steer", &given).map_err(SteerError::Load)
}

/// Loads the filtering part, if there is one, and checks that a socket has room for it. The filter
/// counts in the group's table the packets that it drops.
pub(super) fn load_filter(
    steering: &Steering,
    table: BorrowedFd<'_>,
) -> Result<Option<Loaded>, SteerError> {
    let filter = steering.compiled().and_then(Compiled::filter);
    let load = |filter| load_with_room(filter, &[(TABLE_MAP, table)]);
    filter.map(load).transpose()
}

/// Loads the filtering part together with a handle's own filter; `None` if that fails. `bare` is
/// the filtering part alone, which has the group's table.
pub(super) fn load_filter_with(steering: &Steering, own: &Filter, bare: &Loaded) -> Option<Loaded> {
    let filter = steering.compiled()?.filter_with(own.instructions());
    let table = bare.map(TABLE_MAP).map(|table| (TABLE_MAP, table.as_fd()));
    load_with_room(&filter.ok()??, table.as_slice()).ok()
}

/// Loads a filter, and checks that a socket has room for it. If the room is unknown, loads it
/// anyway: attaching the filter then reports the lack of room.
fn load_with_room(filter: &Object, given: &[(&str, BorrowedFd<'_>)]) -> Result<Loaded, SteerError> {
    let loaded = Loaded::load_with(filter, "fanpcap_filter", given).map_err(SteerError::Load)?;
    match optmem::has_room(loaded.as_fd()) {
        Ok(false) => Err(SteerError::NoRoom(NoRoom::new(loaded.charged()))),
        Ok(true) | Err(_) => Ok(loaded),
    }
}

/// Adds the counters of a filter to `counts`. A counter may decrease, by `dec`. Allocates nothing,
/// because signal handlers call this.
pub(super) fn add_counters(filter: &Loaded, counts: &mut Counts) -> io::Result<()> {
    let Some(map) = filter.map(COUNTERS_MAP) else {
        return Ok(());
    };
    let mut own = [0; COUNTERS];
    map.read_numbers(&mut own)?;
    for (count, more) in counts.iter_mut().zip(own) {
        *count = count.wrapping_add(more);
    }
    Ok(())
}

/// Fragments that came before the first fragment of their datagram, and so may have gone to another
/// member than the other packets of their flow. Allocates nothing.
pub(super) fn late(fanout: &Loaded) -> io::Result<u64> {
    let mut late = [0];
    let map = fanout.map(LATE_MAP);
    map.map_or(Ok(()), |map| Map::read_numbers(map, &mut late))?;
    Ok(late[0])
}

/// Whether the steering part counts fragments that came before the first fragment.
pub(super) fn counts_late(fanout: &Loaded) -> bool {
    fanout.map(LATE_MAP).is_some()
}
