//! The client and the coordination against members of Debian's etcd-server.

mod calls;
mod certificates;
mod cluster;
mod coordination;
mod faults;
mod outages;
mod users;
mod watches;
