//! One BPF program of a steering program: its text in the language, its size, its cost.

use std::fmt::Write;

use anyhow::Result;
use fanpcap_bpf::{MapSpec, Object};
use fanpcap_steer::ebpf::{COUNTERS_MAP, FRAGMENTS_MAP, LATE_MAP, SETS_MAP, TABLE_MAP, TURNS_MAP};
use fanpcap_steer::ir::COUNTERS;

use super::cost;
use super::frames::Frames;

/// One of the BPF programs that a steering program compiles to.
pub(super) struct Part {
    pub(super) what: &'static str,
    /// Text in the language; empty if the part is the whole steering program.
    pub(super) lines: Vec<String>,
    pub(super) object: Object,
}

impl Part {
    pub(super) fn write(&self, text: &mut String, frames: &Frames, bytecode: bool) -> Result<()> {
        writeln!(text, "  {}:", self.what)?;
        for line in &self.lines {
            writeln!(text, "      {line}")?;
        }
        let cost = cost::of(&self.object, frames);
        writeln!(
            text,
            "    {} instructions{}",
            self.object.instructions.len(),
            cost.verified()
        )?;
        for map in &self.object.maps {
            writeln!(text, "    map: {}", in_words(map))?;
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

fn in_words(map: &MapSpec) -> String {
    match map.name {
        COUNTERS_MAP => format!("counters, array of {COUNTERS} numbers"),
        LATE_MAP => "late fragments, one number".to_owned(),
        TURNS_MAP => "turns and samples, array on each CPU".to_owned(),
        FRAGMENTS_MAP => format!("fragments, LRU hash of {} datagrams", map.entries),
        TABLE_MAP => "the group's table of slots, an array that the members share".to_owned(),
        SETS_MAP => format!("sets, hash of {} numbers", map.values.len()),
        name => name.to_owned(),
    }
}
