//! The fields of messages.

use super::{Malformed, NAME_MAX};

/// Writes fields.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn u8(&mut self, number: u8) {
        self.0.push(number);
    }

    pub(super) fn u16(&mut self, number: u16) {
        self.0.extend(number.to_le_bytes());
    }

    pub(super) fn u32(&mut self, number: u32) {
        self.0.extend(number.to_le_bytes());
    }

    pub(super) fn u64(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    /// A flag, and the number if there is one.
    pub(super) fn option(&mut self, number: Option<u32>) {
        self.u8(number.is_some().into());
        number.into_iter().for_each(|number| self.u32(number));
    }

    pub(super) fn text(
        &mut self,
        field: &'static str,
        text: &str,
        most: usize,
    ) -> Result<(), Malformed> {
        let len = u16::try_from(text.len()).ok();
        let len = len.filter(|_| text.len() <= most);
        self.u16(len.ok_or(Malformed::Field(field))?);
        self.0.extend(text.bytes());
        Ok(())
    }

    pub(super) fn name(&mut self, field: &'static str, name: &str) -> Result<(), Malformed> {
        match is_name(name) {
            true => self.text(field, name, NAME_MAX),
            false => Err(Malformed::Field(field)),
        }
    }

    /// A name. An empty text stands for none.
    pub(super) fn name_or_none(
        &mut self,
        field: &'static str,
        name: Option<&str>,
    ) -> Result<(), Malformed> {
        match name {
            Some(name) => self.name(field, name),
            None => self.text(field, "", NAME_MAX),
        }
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn done(self) -> Vec<u8> {
        self.0
    }
}

/// Whether a text can be a name. Names come into messages for users, so they have no control
/// characters.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= NAME_MAX && !text.chars().any(char::is_control)
}

/// Reads fields.
#[derive(Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(fields: &'a [u8]) -> Self {
        Self(fields)
    }

    fn take<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed::Field(field))?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8, Malformed> {
        self.take(field).map(|[number]| number)
    }

    pub(super) fn u16(&mut self, field: &'static str) -> Result<u16, Malformed> {
        self.take(field).map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, Malformed> {
        self.take(field).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64, Malformed> {
        self.take(field).map(u64::from_le_bytes)
    }

    pub(super) fn flag(&mut self, field: &'static str) -> Result<bool, Malformed> {
        match self.u8(field)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Field(field)),
        }
    }

    pub(super) fn option(&mut self, field: &'static str) -> Result<Option<u32>, Malformed> {
        match self.flag(field)? {
            true => self.u32(field).map(Some),
            false => Ok(None),
        }
    }

    /// The number of a group.
    pub(super) fn group(&mut self) -> Result<Option<u16>, Malformed> {
        let number = self.option("group")?.map(u16::try_from);
        number.transpose().map_err(|_| Malformed::Field("group"))
    }

    pub(super) fn text(&mut self, field: &'static str, most: usize) -> Result<String, Malformed> {
        let len = usize::from(self.u16(field)?);
        let wrong = Malformed::Field(field);
        let (bytes, rest) = self
            .0
            .split_at_checked(len)
            .filter(|_| len <= most)
            .ok_or(wrong)?;
        let text = std::str::from_utf8(bytes).map_err(|_| wrong)?;
        self.0 = rest;
        Ok(text.to_owned())
    }

    pub(super) fn name(&mut self, field: &'static str) -> Result<String, Malformed> {
        let name = self.text(field, NAME_MAX)?;
        match is_name(&name) {
            true => Ok(name),
            false => Err(Malformed::Field(field)),
        }
    }

    pub(super) fn name_or_none(
        &mut self,
        field: &'static str,
    ) -> Result<Option<String>, Malformed> {
        let name = self.text(field, NAME_MAX)?;
        match name.is_empty() || is_name(&name) {
            true => Ok(Some(name).filter(|name| !name.is_empty())),
            false => Err(Malformed::Field(field)),
        }
    }

    /// All further bytes, at least one.
    pub(super) fn rest(&mut self, field: &'static str) -> Result<Vec<u8>, Malformed> {
        match std::mem::take(&mut self.0) {
            [] => Err(Malformed::Field(field)),
            rest => Ok(rest.to_vec()),
        }
    }

    /// Checks that no bytes are left.
    pub(super) fn end(self) -> Result<(), Malformed> {
        match self.0 {
            [] => Ok(()),
            _ => Err(Malformed::Field("end")),
        }
    }
}
