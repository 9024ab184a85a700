//! Captures of several copies, merged in the order of time into one.
//!
//! A copy writes its packets nearly in the order of their stamps. So each source is put in order within a
//! bounded window, and the sources' first packets within a heap: memory is bounded, whatever the files' size.

mod interface;
mod reader;
mod sink;
mod source;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

pub(crate) use reader::is_capture;
use sink::{Format, Sink};
use source::Source;

/// What became of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// Whole packets in it.
    pub(crate) packets: u64,
    /// Its last packet was cut short, as by a program that was killed.
    pub(crate) cut: bool,
}

/// What was merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Merged {
    /// The sources, in the order in which they were named.
    pub(crate) parts: Vec<Part>,
    /// Packets written.
    pub(crate) packets: u64,
    /// Of these, packets older than one written before: their source was less in order than the window.
    pub(crate) late: u64,
}

/// Merges captures into `to`, which appears when it is complete; `-` is standard output.
///
/// # Errors
/// When a source is no capture or damaged before its end, when link types differ in a format that has
/// one only, when `to` can't be written. The sources stay as they are.
pub(crate) fn merge(sources: &[PathBuf], to: &Path) -> Result<Merged> {
    let format = Format::of(to);
    if to == Path::new("-") {
        let mut writer = BufWriter::new(io::stdout().lock());
        let merged = write(sources, format, &mut writer)?;
        writer.flush().context("standard output")?;
        return Ok(merged);
    }
    let mut part = to.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let place = || format!("writing {}", part.display());
    let mut writer = BufWriter::with_capacity(1 << 20, File::create(&part).with_context(place)?);
    let merged = write(sources, format, &mut writer)
        .and_then(|merged| writer.flush().with_context(place).map(|()| merged))
        .inspect_err(|_| {
            // Half a capture is of no use to anybody.
            let _ = fs::remove_file(&part);
        })?;
    fs::rename(&part, to).with_context(|| format!("naming {}", to.display()))?;
    Ok(merged)
}

fn write(paths: &[PathBuf], format: Format, writer: &mut dyn Write) -> Result<Merged> {
    let mut merged = Merged {
        parts: vec![Part::default(); paths.len()],
        ..Merged::default()
    };
    let mut sources = Vec::new();
    for (index, path) in paths.iter().enumerate() {
        match Source::open(path, index)? {
            Some(source) => sources.push(source),
            None => merged.parts[index].cut = true,
        }
    }
    let mut sink = Sink::new(format, &sources, writer)?;
    drain(&mut sources, &mut sink, &mut merged)?;
    for source in &sources {
        merged.parts[source.number()].cut = source.is_cut();
    }
    Ok(merged)
}

/// One source's first packet: the earliest first, of equal ones the first source's.
type Head = Reverse<(u64, usize)>;

fn drain(sources: &mut [Source], sink: &mut Sink<'_>, merged: &mut Merged) -> Result<()> {
    let head = |at: usize, source: &Source| source.stamp().map(|stamp| Reverse((stamp, at)));
    let heads = sources.iter().enumerate();
    let mut heap: BinaryHeap<Head> = heads.filter_map(|(at, source)| head(at, source)).collect();
    let mut newest = 0;
    while let Some(Reverse((_, at))) = heap.pop() {
        let source = &mut sources[at];
        let Some(packet) = source.take()? else {
            continue;
        };
        if packet.stamp < newest {
            merged.late += 1;
        }
        newest = newest.max(packet.stamp);
        sink.write(source, packet)?;
        merged.packets += 1;
        merged.parts[source.number()].packets += 1;
        heap.extend(head(at, source));
    }
    Ok(())
}

/// Fails early where a merge is bound to fail: nothing can be made in the directory of `to`.
///
/// # Errors
/// Says which directory it is.
pub(crate) fn ensure_writable(to: &Path) -> Result<()> {
    if to == Path::new("-") {
        return Ok(());
    }
    if to.is_dir() {
        bail!("--merge {}: it is a directory", to.display());
    }
    let mut probe = to.as_os_str().to_owned();
    probe.push(".part");
    File::create(&probe).with_context(|| {
        format!(
            "--merge {}: making {}",
            to.display(),
            Path::new(&probe).display()
        )
    })?;
    fs::remove_file(&probe).with_context(|| format!("removing {}", Path::new(&probe).display()))
}

#[cfg(test)]
mod tests;
