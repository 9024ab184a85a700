//! A message under construction: its header, and its sets of records or templates.

/// The id of a set with templates of data records.
pub(crate) const TEMPLATE_SET: u16 = 2;
/// The id of a set with templates of options records.
pub(crate) const OPTIONS_SET: u16 = 3;

const VERSION: u16 = 10;
/// The length of a header: version, length, export time, sequence number, observation domain.
const HEADER_LEN: usize = 16;
/// The length of a set's header: the set's id and length.
const SET_LEN: usize = 4;

/// Maximum length of a message in bytes: over UDP, it fits into an Ethernet frame.
const MESSAGE_MAX: usize = 1400;

/// Maximum length of a record in bytes: the length of a record that is alone in its message.
pub(crate) const RECORD_MAX: usize = MESSAGE_MAX - HEADER_LEN - SET_LEN;

/// The fields of a message's header, except for version and length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) export_seconds: u32,
    /// How many data records the domain sent before this message, modulo 2^32.
    pub(crate) sequence: u32,
    pub(crate) domain: u32,
}

/// A message under construction.
#[derive(Debug)]
pub(crate) struct Message {
    bytes: Vec<u8>,
    /// The id of the last set, and the offset at which it begins.
    set: Option<(u16, usize)>,
}

impl Message {
    pub(crate) fn new() -> Self {
        let mut bytes = Vec::with_capacity(MESSAGE_MAX);
        bytes.resize(HEADER_LEN, 0);
        Self { bytes, set: None }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.set.is_none()
    }

    /// Whether a record of `len` bytes still fits into the message, in the set with this id.
    pub(crate) fn has_room(&self, set: u16, len: usize) -> bool {
        let is_open = self.set.is_some_and(|(id, _)| id == set);
        let needed = if is_open { len } else { len + SET_LEN };
        self.bytes.len() + needed <= MESSAGE_MAX
    }

    /// The buffer to which the next record or template of the set with this id is appended.
    pub(crate) fn within(&mut self, set: u16) -> &mut Vec<u8> {
        if self.set.is_none_or(|(id, _)| id != set) {
            self.close_set();
            self.set = Some((set, self.bytes.len()));
            self.bytes.extend(set.to_be_bytes());
            self.bytes.extend([0; 2]);
        }
        &mut self.bytes
    }

    /// Ends the last set. The next record or template begins another set.
    pub(crate) fn close_set(&mut self) {
        if let Some((_, at)) = self.set.take() {
            let len = short(self.bytes.len() - at);
            self.bytes[at + 2..at + 4].copy_from_slice(&len);
        }
    }

    /// Completes the message and passes it to `send`. Then the message is empty.
    pub(crate) fn finish(&mut self, header: Header, send: &mut impl FnMut(&[u8])) {
        self.close_set();
        let len = short(self.bytes.len());
        self.bytes[..2].copy_from_slice(&VERSION.to_be_bytes());
        self.bytes[2..4].copy_from_slice(&len);
        let numbers = [header.export_seconds, header.sequence, header.domain];
        for (field, number) in self.bytes[4..].chunks_exact_mut(4).zip(numbers) {
            field.copy_from_slice(&number.to_be_bytes());
        }
        send(&self.bytes);
        self.bytes.truncate(HEADER_LEN);
    }
}

/// Encodes a length, which is at most the maximum length of a message.
fn short(len: usize) -> [u8; 2] {
    u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes()
}
