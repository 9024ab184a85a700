//! Prints what happens to each packet while the capture is read, because captures may be larger
//! than the memory.

use std::mem;

use anyhow::{Context, Result};
use fanpcap_terminal::streams::{self, Reader};

use super::packets::Fate;

/// Bytes of text that are printed together.
const CHUNK: usize = 64 << 10;

/// Prints packets: a line for each, or the first field of a JSON object.
#[derive(Debug, Default)]
pub(super) struct EachPacket {
    is_json: bool,
    has_begun: bool,
    /// The text that is not printed yet.
    text: String,
}

impl EachPacket {
    pub(super) fn new(is_json: bool) -> Self {
        Self {
            is_json,
            ..Self::default()
        }
    }

    /// Adds the next packet.
    ///
    /// # Errors
    /// As for [`streams::print`].
    pub(super) fn add(&mut self, fate: &Fate) -> Result<Reader> {
        if self.is_json {
            let before = match self.has_begun {
                true => ",",
                false => r#"{"each_packet":["#,
            };
            self.text += before;
            self.text += &serde_json::to_string(fate).context("writing JSON")?;
        } else {
            self.text += &fate.to_string();
        }
        self.has_begun = true;
        match self.text.len() {
            ..CHUNK => Ok(Reader::Reads),
            CHUNK.. => streams::print(&mem::take(&mut self.text)),
        }
    }

    /// The rest of the text. `report` is the report's own text or JSON object.
    pub(super) fn end(self, report: &str) -> String {
        match report.strip_prefix('{').filter(|_| self.is_json) {
            Some(fields) => self.text + "]," + fields,
            None => self.text + report,
        }
    }
}
