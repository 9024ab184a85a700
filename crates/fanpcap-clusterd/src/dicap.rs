//! DiCAP's datagrams, which replace batches: a sender for nodes, and a receiver for analyzers.

mod receiver;
mod sender;

pub(crate) use receiver::{Datagram, Receiver};
pub(crate) use sender::Sender;
