//! Templates: the information elements of a record, and the length of each in bytes.

use crate::message::{Message, OPTIONS_SET, TEMPLATE_SET};

/// An information element's number (IANA, IPFIX Information Elements) and its length in bytes.
pub(crate) type Field = (u16, u16);

/// The length of a field whose value begins with its own length.
pub(crate) const VARIABLE: u16 = u16::MAX;

/// The fields of a kind of record.
#[derive(Debug)]
pub(crate) struct Template {
    /// The id of the template, and of sets with its records.
    pub(crate) id: u16,
    /// How many of the fields are scope fields: 0 for data records.
    pub(crate) scope: u16,
    pub(crate) fields: &'static [Field],
}

impl Template {
    /// The length of a record without its variable fields.
    pub(crate) fn fixed_len(&self) -> usize {
        let fixed = self.fields.iter().filter(|field| field.1 != VARIABLE);
        fixed.map(|field| usize::from(field.1)).sum()
    }

    /// The id of the set for templates, or of the set for options templates.
    fn set(&self) -> u16 {
        if self.scope == 0 {
            TEMPLATE_SET
        } else {
            OPTIONS_SET
        }
    }

    /// Adds the template to a message, which must have room for it. Each template is in a set of
    /// its own, because nfacctd 1.7.7 loses its position after the first options template of a set.
    pub(crate) fn describe(&self, message: &mut Message) {
        message.close_set();
        let bytes = message.within(self.set());
        let count = u16::try_from(self.fields.len()).unwrap_or(u16::MAX);
        let head = [self.id, count, self.scope];
        // Only options templates have a count of scope fields.
        let head = if self.scope == 0 { &head[..2] } else { &head };
        let fields = self.fields.iter().flat_map(|field| [field.0, field.1]);
        for number in head.iter().copied().chain(fields) {
            bytes.extend(number.to_be_bytes());
        }
    }
}

/// The first set id that is free for templates.
pub(crate) const FIRST_ID: u16 = 256;
