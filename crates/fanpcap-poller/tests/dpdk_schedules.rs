//! Random schedules of a group's members once more, with packets that come by a device of DPDK.
//! Without DPDK they count as skipped.

#[path = "schedules.rs"]
mod schedules;
