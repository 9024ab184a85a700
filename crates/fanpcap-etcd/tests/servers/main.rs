//! Tests of the client and of the coordination, with etcd servers of Debian's etcd-server.

mod calls;
mod certificates;
mod cluster;
mod coordination;
mod faults;
mod outages;
mod users;
mod watches;
