//! Reads capture files and merges them by time.
//!
//! An application writes its packets nearly in the order of their timestamps. So each source is
//! sorted within a bounded window, and a heap holds the first packet of each source. Memory is
//! bounded for files of any size.

#![forbid(unsafe_code)]

mod interface;
mod place;
mod reader;
mod source;
mod sink;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use place::Place;
pub use place::{Part as PartFile, make_spool, resolve, spool};
pub use reader::is_capture;
use reader::{Next, Reader};
use sink::{Format, Sink};
use source::Source;

/// What was read from one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Complete packets in the source.
    pub packets: u64,
    /// Whether the source's last packet is incomplete, for example because its application was
    /// killed.
    pub cut: bool,
}

/// The result of a merge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// The sources, in the given order.
    pub parts: Vec<Part>,
    /// Packets written.
    pub packets: u64,
    /// The number of written packets whose timestamp is earlier than that of a packet written
    /// before. Their sources were out of order by more than the window.
    pub late: u64,
    /// Packets that [`Keep`] left out.
    pub left_out: u64,
}

/// Returns whether to write a packet. The arguments are the number of the packet's source, its
/// timestamp in nanoseconds since 1970, its length on the wire, and its captured bytes.
pub type Keep<'a> = dyn FnMut(usize, u64, u32, &[u8]) -> bool + 'a;

/// Merges captures into `to`. A regular file appears only when it is complete. A device or FIFO is
/// written directly. `-` is standard output.
///
/// # Errors
/// Fails in these cases; the sources are never changed:
/// - A source is not a capture, is damaged before its end, or is `to` itself.
/// - The sources have different link types, and the format of `to` allows only one.
/// - `to` can't be written.
pub fn merge(sources: &[PathBuf], to: &Path) -> Result<Merged> {
    merge_kept(sources, to, &mut |_, _, _, _| true)
}

/// Merges those packets of captures for which `keep` returns true.
///
/// # Errors
/// As [`merge`].
pub fn merge_kept(sources: &[PathBuf], to: &Path, keep: &mut Keep<'_>) -> Result<Merged> {
    let format = Format::of(to);
    let place = Place::of(to).with_context(|| to.display().to_string())?;
    let name = match &place {
        Place::Stdout => "standard output".to_owned(),
        Place::File(path) | Place::Stream(path) => path.display().to_string(),
    };
    let (part, file): (_, Box<dyn Write>) = match &place {
        Place::Stdout => (None, Box::new(io::stdout().lock())),
        Place::File(path) => {
            place::ensure_apart(sources, path)?;
            let (part, file) = PartFile::begin(path)?;
            (Some(part), Box::new(file))
        }
        Place::Stream(path) => {
            place::ensure_apart(sources, path)?;
            let opened = OpenOptions::new().write(true).open(path);
            (
                None,
                Box::new(opened.with_context(|| format!("opening {name}"))?),
            )
        }
    };
    let mut writer = BufWriter::with_capacity(1 << 20, file);
    let merged = write(sources, format, (&name, &mut writer), keep)?;
    writer.flush().with_context(|| format!("writing {name}"))?;
    part.map_or(Ok(()), PartFile::finish)?;
    Ok(merged)
}

fn write(
    paths: &[PathBuf],
    format: Format,
    (name, writer): (&str, &mut dyn Write),
    keep: &mut Keep<'_>,
) -> Result<Merged> {
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
    let mut sink = Sink::new(format, &sources, (name, writer))?;
    drain(&mut sources, &mut sink, &mut merged, keep)?;
    for source in &sources {
        merged.parts[source.number()].cut = source.is_cut();
    }
    Ok(merged)
}

/// The timestamp of a source's first packet, and the source's number. If two timestamps are equal,
/// the source with the lower number comes first.
type Head = Reverse<(u64, usize)>;

fn drain(
    sources: &mut [Source],
    sink: &mut Sink<'_>,
    merged: &mut Merged,
    keep: &mut Keep<'_>,
) -> Result<()> {
    let head = |at: usize, source: &Source| source.stamp().map(|stamp| Reverse((stamp, at)));
    let heads = sources.iter().enumerate();
    let mut heap: BinaryHeap<Head> = heads.filter_map(|(at, source)| head(at, source)).collect();
    let mut newest = 0;
    while let Some(Reverse((_, at))) = heap.pop() {
        let source = &mut sources[at];
        let Some(packet) = source.take()? else {
            continue;
        };
        merged.parts[source.number()].packets += 1;
        let (stamp, wire_length) = (packet.stamp, packet.original_len);
        if !keep(source.number(), stamp, wire_length, &packet.data) {
            merged.left_out += 1;
            heap.extend(head(at, source));
            continue;
        }
        if packet.stamp < newest {
            merged.late += 1;
        }
        newest = newest.max(packet.stamp);
        sink.write(source, packet)?;
        merged.packets += 1;
        heap.extend(head(at, source));
    }
    Ok(())
}

/// A packet that [`read`] has found.
#[derive(Clone, Copy, Debug)]
pub struct Captured<'a> {
    /// Nanoseconds since 1970.
    pub stamp: u64,
    /// Bytes on the wire.
    pub original_len: u32,
    /// The captured bytes.
    pub data: &'a [u8],
    /// pcapng's `if_name` of the packet's interface.
    pub interface: Option<&'a str>,
    /// pcapng's `if_description` of the packet's interface.
    pub description: Option<&'a str>,
    /// pcapng's `epb_queue` of the packet.
    pub queue: Option<u32>,
}

/// Calls `each` for the packets of a capture, in the file's order.
///
/// # Errors
/// The file can't be read, is not a capture, or is damaged before its end; or an error of `each`.
pub fn read(path: &Path, each: &mut dyn FnMut(&Captured<'_>) -> Result<()>) -> Result<Part> {
    let mut part = Part::default();
    let Some(mut reader) = Reader::open(path)? else {
        part.cut = true;
        return Ok(part);
    };
    loop {
        let packet = match reader.next()? {
            Next::Packet(packet) => packet,
            Next::End => return Ok(part),
            Next::Cut => {
                part.cut = true;
                return Ok(part);
            }
        };
        let interface = &reader.interfaces()[packet.interface];
        each(&Captured {
            stamp: packet.stamp,
            original_len: packet.original_len,
            data: &packet.data,
            interface: interface.name(),
            description: interface.description(),
            queue: packet.queue,
        })?;
        part.packets += 1;
    }
}

/// Checks early that the directory of `to` is writable.
///
/// # Errors
/// The merge would fail; the message says why.
pub fn ensure_writable(to: &Path) -> Result<()> {
    let probe = || match Place::of(to)? {
        // Dropping this value removes only the new temporary file.
        Place::File(path) => PartFile::begin(&path).map(drop),
        // These are not checked: opening a FIFO would wait for its reader.
        Place::Stdout | Place::Stream(_) => Ok(()),
    };
    probe().with_context(|| to.display().to_string())
}

#[cfg(test)]
mod tests;
