//! The client and the coordination against members of Debian's etcd-server.

mod calls;
mod cluster;
mod coordination;
mod faults;
mod watches;
