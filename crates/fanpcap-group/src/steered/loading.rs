//! Loads the parts of a steering program, and reads what they have counted.

use super::SteerError;
use fanpcap_bpf::Object;
use fanpcap_config::steering::{Counts, Steering};
use fanpcap_linux::bpf::{Loaded, Map};
use fanpcap_linux::packet::Filter;
use fanpcap_linux::packet::optmem::{self, NoRoom};
use fanpcap_steer::ebpf::{COUNTERS_MAP, LATE_MAP};
use fanpcap_steer::ir::COUNTERS;
use std::io;
use std::os::fd::AsFd;

/// Loads the steering part, which is the group's.
pub(crate) fn load_fanout(steering: &Steering) -> Result<Loaded, SteerError> {
    let fanout = steering.compiled().fanout();
    Loaded::load(fanout, "fanpcap_steer").map_err(SteerError::Load)
}

/// Loads the filtering part, if there is one. A socket has room for it then.
pub(super) fn load_filter(steering: &Steering) -> Result<Option<Loaded>, SteerError> {
    let filter = steering.compiled().filter();
    filter.map(load_with_room).transpose()
}

/// Loads the filtering part together with a handle's own filter; `None` where that can't be.
pub(super) fn load_filter_with(steering: &Steering, own: &Filter) -> Option<Loaded> {
    let filter = steering.compiled().filter_with(own.instructions());
    load_with_room(&filter.ok()??).ok()
}

/// Where it can't be told whether there is room, attaching the filter will tell.
fn load_with_room(filter: &Object) -> Result<Loaded, SteerError> {
    let loaded = Loaded::load(filter, "fanpcap_filter").map_err(SteerError::Load)?;
    match optmem::has_room(loaded.as_fd()) {
        Ok(false) => Err(SteerError::NoRoom(NoRoom::new(loaded.charged()))),
        Ok(true) | Err(_) => Ok(loaded),
    }
}

/// Adds the counters of a filter to `counts`; they can go down, by `dec`. It allocates nothing, so
/// that signal handlers may.
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

/// How many later fragments came before their first, and may have left their flow by that. It
/// allocates nothing.
pub(super) fn late(fanout: &Loaded) -> io::Result<u64> {
    let mut late = [0];
    let map = fanout.map(LATE_MAP);
    map.map_or(Ok(()), |map| Map::read_numbers(map, &mut late))?;
    Ok(late[0])
}

/// Whether it counts those.
pub(super) fn counts_late(fanout: &Loaded) -> bool {
    fanout.map(LATE_MAP).is_some()
}
