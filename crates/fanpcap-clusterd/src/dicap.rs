//! DiCAP's datagrams, instead of batches: a node's sender, an analyzer's receiver.

mod receiver;
mod sender;

pub(crate) use receiver::{Datagram, Receiver};
pub(crate) use sender::Sender;
