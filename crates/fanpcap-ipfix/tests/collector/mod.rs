//! A collector for tests. It reads messages by the templates that they contain, and finds errors in
//! the messages.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};

/// A record: the id of its template, and its fields by the numbers of the information elements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub(crate) template: u16,
    pub(crate) scope: u16,
    pub(crate) fields: Vec<(u16, Vec<u8>)>,
}

impl Record {
    /// The value of an element as a number.
    pub(crate) fn number(&self, element: u16) -> Option<u64> {
        let bytes = self.bytes(element)?;
        let number = bytes
            .iter()
            .fold(0, |sum, byte| (sum << 8) | u64::from(*byte));
        (bytes.len() <= 8).then_some(number)
    }

    /// The value of an element.
    pub(crate) fn bytes(&self, element: u16) -> Option<&[u8]> {
        let field = self.fields.iter().find(|field| field.0 == element)?;
        Some(&field.1)
    }
}

/// The state of a collector for one observation domain.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    templates: HashMap<u16, (u16, Vec<(u16, u16)>)>,
    pub(crate) records: Vec<Record>,
    pub(crate) export_seconds: u32,
    pub(crate) domain: u32,
}

impl Collector {
    /// Reads a message.
    ///
    /// # Errors
    /// Fails if the message breaks a rule of RFC 7011, or if its sequence number differs from the
    /// number of earlier records.
    pub(crate) fn read(&mut self, message: &[u8]) -> Result<()> {
        let mut rest = message;
        ensure!(short(&mut rest)? == 10, "version");
        ensure!(usize::from(short(&mut rest)?) == message.len(), "length");
        self.export_seconds = word(&mut rest)?;
        let sequence = word(&mut rest)?;
        ensure!(sequence as usize == self.records.len(), "sequence");
        self.domain = word(&mut rest)?;
        ensure!(!rest.is_empty(), "a message without sets");
        while !rest.is_empty() {
            let (id, len) = (short(&mut rest)?, short(&mut rest)?);
            let set = usize::from(len).checked_sub(4).context("a set's length")?;
            let mut set = take(&mut rest, set)?;
            ensure!(!set.is_empty(), "an empty set");
            while !set.is_empty() {
                match id {
                    2 => self.template(&mut set, false)?,
                    3 => self.template(&mut set, true)?,
                    _ => self.record(id, &mut set)?,
                }
            }
        }
        Ok(())
    }

    fn template(&mut self, set: &mut &[u8], is_options: bool) -> Result<()> {
        let (id, count) = (short(set)?, short(set)?);
        ensure!(id >= 256, "a template's id");
        let scope = if is_options { short(set)? } else { 0 };
        ensure!(!is_options || (1..=count).contains(&scope), "a scope");
        let fields = (0..count).map(|_| Ok((short(set)?, short(set)?)));
        let described = (scope, fields.collect::<Result<_>>()?);
        if let Some(known) = self.templates.insert(id, described) {
            ensure!(known == self.templates[&id], "a template has changed");
        }
        Ok(())
    }

    fn record(&mut self, id: u16, set: &mut &[u8]) -> Result<()> {
        let (scope, fields) = self.templates.get(&id).context("no template")?;
        let mut record = Record {
            template: id,
            scope: *scope,
            fields: Vec::new(),
        };
        for (element, len) in fields {
            let len = match *len {
                u16::MAX => variable(set)?,
                len => usize::from(len),
            };
            record.fields.push((*element, take(set, len)?.to_vec()));
        }
        self.records.push(record);
        Ok(())
    }
}

fn variable(set: &mut &[u8]) -> Result<usize> {
    match take(set, 1)?[0] {
        255 => Ok(short(set)?.into()),
        len => Ok(len.into()),
    }
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8]> {
    let (taken, more) = rest.split_at_checked(len).context("cut off")?;
    *rest = more;
    Ok(taken)
}

fn short(rest: &mut &[u8]) -> Result<u16> {
    Ok(u16::from_be_bytes(take(rest, 2)?.try_into()?))
}

fn word(rest: &mut &[u8]) -> Result<u32> {
    Ok(u32::from_be_bytes(take(rest, 4)?.try_into()?))
}
