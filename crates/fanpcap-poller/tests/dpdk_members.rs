//! The tests of a poller's members once more, with packets that come by devices of DPDK. Without
//! DPDK they count as skipped.
#![allow(clippy::duplicate_mod, reason = "each test has its own scene")]

#[path = "dpdk_members/chains.rs"]
mod chains;
#[path = "beside.rs"]
mod beside;
#[path = "hanging.rs"]
mod hanging;
#[path = "hostile.rs"]
mod hostile;
#[path = "limits.rs"]
mod limits;
#[path = "returns.rs"]
mod returns;
#[path = "served.rs"]
mod served;
#[path = "together.rs"]
mod together;
#[path = "watching.rs"]
mod watching;
