//! Divides a list of AVPs that is too long for a message into parts, and puts the parts together.

use super::avp::{Avp, code};
use super::fields::Fields;
use super::message::{Kind, Message};

/// A part of a list has at most this many of the list's AVPs. Each part also has `PART` and
/// `TRANSFER`.
const SHARE: usize = 250;

/// The maximum number of parts of a list. The longest list is the state of a full cluster.
const PARTS: usize = 96;

/// The message that carries a list, or the messages that carry its parts. The sender's other lists
/// of the same type have other values of `transfer`.
pub fn divide(kind: Kind, list: &[Avp], transfer: u32) -> Vec<Message> {
    if list.len() <= SHARE {
        let avps = list.to_vec();
        return vec![Message { kind, avps }];
    }
    let shares = list.chunks(SHARE);
    let count = shares.len();
    let part = |(number, share): (usize, &[Avp])| {
        let value = u32::try_from((number << 16) | count).unwrap_or(u32::MAX);
        let code = code::PART;
        let mut avps = vec![Avp { code, value }];
        let (code, value) = (code::TRANSFER, transfer);
        avps.push(Avp { code, value });
        avps.extend_from_slice(share);
        Message { kind, avps }
    };
    shares.enumerate().map(part).collect()
}

/// The parts of a list that have come from one sender.
#[derive(Clone, Debug, Default)]
pub struct Assembly {
    transfer: u32,
    parts: Vec<Option<Vec<Avp>>>,
}

impl Assembly {
    /// Takes a message. If it completes a list, returns the list without `PART` and `TRANSFER`.
    ///
    /// A part of a newer list replaces the older list. A sender repeats one list until it has
    /// arrived, or until there is a newer list. Late parts of an older list are dropped.
    pub fn take(&mut self, message: Message) -> Option<Vec<Avp>> {
        let fields = Fields(&message.avps);
        let (Ok(part), Ok(transfer)) = (fields.one(code::PART), fields.one(code::TRANSFER)) else {
            return Some(message.avps);
        };
        let [number, count] = [part >> 16, part & 0xffff].map(|half| half as usize);
        if number >= count || count > PARTS {
            return None;
        }
        if transfer < self.transfer {
            return None;
        }
        if self.transfer != transfer || self.parts.len() != count {
            self.transfer = transfer;
            self.parts = vec![None; count];
        }
        let said = |avp: &Avp| ![code::PART, code::TRANSFER].contains(&avp.code);
        self.parts[number] = Some(message.avps.into_iter().filter(said).collect());
        if self.parts.iter().any(Option::is_none) {
            return None;
        }
        let parts = std::mem::take(&mut self.parts);
        Some(parts.into_iter().flatten().flatten().collect())
    }
}
