//! Sends and receives DiCAP's datagrams, in which nodes can ship headers instead of records.

mod receiver;
mod sender;

pub(crate) use receiver::{Datagram, Receiver};
pub(crate) use sender::Sender;
