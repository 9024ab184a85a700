//! A program of its own for the kernel: what it says in the language, how large it is, what it costs.

use std::fmt::Write;

use anyhow::Result;
use fanpcap_steer::ebpf::Object;

use super::cost;
use super::frames::Frames;

/// One of those that a steering program comes to.
pub(super) struct Part {
    what: &'static str,
    /// In the language; none where it is the whole program.
    lines: Vec<String>,
    object: Object,
}

impl Part {
    /// A slice.
    pub(super) fn of(what: &'static str, lines: Vec<String>, object: Object) -> Self {
        Self {
            what,
            lines,
            object,
        }
    }

    /// The whole program.
    pub(super) fn whole(what: &'static str, object: Object) -> Self {
        Self::of(what, Vec::new(), object)
    }

    /// For people.
    pub(super) fn write(&self, text: &mut String, frames: &Frames, bytecode: bool) -> Result<()> {
        writeln!(text, "  {}:", self.what)?;
        for line in &self.lines {
            writeln!(text, "      {line}")?;
        }
        let cost = cost::of(&self.object, frames);
        writeln!(
            text,
            "    {} instructions{}",
            self.object.instructions(),
            cost.verified()
        )?;
        for map in self.object.maps() {
            writeln!(text, "    map: {map}")?;
        }
        writeln!(text, "    {cost}")?;
        if bytecode {
            for line in self.object.listing().lines() {
                writeln!(text, "      {line}")?;
            }
        }
        Ok(())
    }
}
