//! Tests of the client and of the coordination, with servers from Debian's package etcd-server.

mod calls;
mod certificates;
mod cluster;
mod coordination;
mod faults;
mod outages;
mod users;
mod watches;
