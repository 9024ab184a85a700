//! `fanpcap cluster merge`: merges the nodes' captures into one capture without doubles.
//!
//! In distribution mode, two nodes have the same packet while its bucket moves, or while a node is
//! cut off from the others. With most values of `select`, equal packets have the same bucket and
//! the same owner. So equal packets in two files are doubles (one packet, captured twice). Equal
//! packets in one file are repeats (two packets that are equal).
//!
//! With `round_robin`, each packet gets the next bucket, so a packet and its repeat may be captured
//! by two nodes. Equal packets in two files are doubles only if they came while buckets moved.

use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use clap::Args;
use clap::builder::PossibleValuesParser;
use fanpcap_cluster::analyzer::Deduplicator;
use fanpcap_select::Key;
use fanpcap_terminal::streams;

use crate::conf::{Conf, PATH, SELECTIONS};

/// Merges the nodes' captures into one capture that has each packet once
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The captures, one for each node: pcap or pcapng
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The merged capture; '-' for standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Milliseconds by which the time stamps of duplicates may differ
    #[arg(long, value_name = "MS", default_value_t = 250)]
    window: u64,
    /// The settings of the cluster, which say how packets are selected. The file may be missing
    #[arg(long, value_name = "FILE", default_value = PATH)]
    config: PathBuf,
    /// How packets were selected. Default: the value in the settings; without settings, 'packet'
    #[arg(long, value_name = "WORD", value_parser = PossibleValuesParser::new(SELECTIONS))]
    select: Option<String>,
    /// When buckets moved, in seconds since 1970. May be given several times. If packets were
    /// selected by round_robin or sequence, only packets of these times can be duplicates
    #[arg(long, value_name = "FROM..UNTIL")]
    moved: Vec<MoveTime>,
}

/// A time in which buckets moved, in nanoseconds since 1970.
#[derive(Clone, PartialEq, Eq, Debug)]
struct MoveTime(RangeInclusive<u64>);

impl FromStr for MoveTime {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (from, until) = text.split_once("..").context("write FROM..UNTIL")?;
        let time = |text: &str| -> Result<u64> {
            let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
            ensure!(part.len() <= 9, "{text:?} has more than nine decimals");
            let mut digits = whole.bytes().chain(part.bytes());
            let is_number = !whole.is_empty() && digits.all(|digit| digit.is_ascii_digit());
            ensure!(is_number, "{text:?} is no time in seconds since 1970");
            let time: Option<u64> = format!("{whole}{part:0<9}").parse().ok();
            time.with_context(|| format!("{text:?} is no time in seconds since 1970"))
        };
        let (from, until) = (time(from)?, time(until)?);
        ensure!(from <= until, "the end is before the beginning");
        Ok(Self(from..=until))
    }
}

/// The packets that are compared with packets of other files.
struct ComparedPackets {
    /// If set, only packets with a time stamp in one of these ranges are compared.
    only: Option<Vec<RangeInclusive<u64>>>,
}

impl ComparedPackets {
    /// The packets that may be doubles with this selection key. Stamps may differ by `window` ns.
    fn of(key: Key, moved: &[MoveTime], window: u64) -> Self {
        let wider = |MoveTime(times): &MoveTime| {
            times.start().saturating_sub(window)..=times.end().saturating_add(window)
        };
        Self {
            only: (key == Key::RoundRobin).then(|| moved.iter().map(wider).collect()),
        }
    }

    fn has(&self, stamp: u64) -> bool {
        let only = self.only.as_ref();
        only.is_none_or(|times| times.iter().any(|times| times.contains(&stamp)))
    }
}

/// The key by which the cluster's packets were selected.
fn key(arguments: &Arguments) -> Result<Key> {
    match &arguments.select {
        Some(word) => Ok(Key::named(word).unwrap_or_default()),
        None if arguments.config.exists() => Ok(Conf::load(&arguments.config)?.selection.key),
        None => Ok(Key::default()),
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let seed = RandomState::new().hash_one("duplicates");
    let window = arguments.window.saturating_mul(1_000_000);
    let compared = ComparedPackets::of(key(arguments)?, &arguments.moved, window);
    if compared.only.as_ref().is_some_and(Vec::is_empty) {
        streams::note(
            "no packet is removed: under round_robin and sequence there are doubles only while \
             buckets move: name these times by --moved\n",
        );
    }
    let mut deduplicator = Deduplicator::new(window, seed, 0, 0);
    let mut keep = |file: usize, stamp: u64, wire_length: u32, captured: &[u8]| {
        let file = u16::try_from(file).unwrap_or(u16::MAX);
        // A capture file names no buckets, so all packets are compared as if they were in bucket 0.
        !compared.has(stamp) || !deduplicator.is_double(stamp, file, (0, wire_length, captured))
    };
    let merged = fanpcap_merge::merge_kept(&arguments.files, &arguments.output, &mut keep)?;
    for (path, part) in arguments.files.iter().zip(&merged.parts) {
        let cut = if part.cut { ", cut off at its end" } else { "" };
        let (path, packets) = (path.display(), part.packets);
        streams::note(&format!("{path}: {packets} packets{cut}\n"));
    }
    let (written, doubles) = (merged.packets, merged.left_out);
    streams::note(&format!(
        "{written} packets written, {doubles} doubles removed\n"
    ));
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use fanpcap_testkit::Scratch;
    use pcap_file::pcap::{PcapPacket, PcapReader, PcapWriter};
    use std::time::Duration;

    use super::*;

    fn write(path: &PathBuf, packets: &[(u64, &[u8])]) {
        let mut writer = PcapWriter::new(File::create(path).unwrap()).unwrap();
        for &(ms, data) in packets {
            let length = u32::try_from(data.len()).unwrap();
            let packet = PcapPacket::new(Duration::from_millis(ms), length, data);
            writer.write_packet(&packet).unwrap();
        }
    }

    /// The packets that remain after two files are merged, under the key with this name.
    fn merged(select: &str, moved: &[&str], one: &[(u64, &[u8])], two: &[(u64, &[u8])]) -> Vec<u8> {
        let scratch = Scratch::new().unwrap();
        let paths = ["1.pcap", "2.pcap", "all.pcap"].map(|name| scratch.file(name));
        let [first, second, output] = paths;
        write(&first, one);
        write(&second, two);
        let arguments = Arguments {
            files: vec![first, second],
            output: output.clone(),
            window: 250,
            config: scratch.file("absent"),
            select: Some(select.to_owned()),
            moved: moved.iter().map(|times| times.parse().unwrap()).collect(),
        };
        run(&arguments).unwrap();
        let mut reader = PcapReader::new(File::open(output).unwrap()).unwrap();
        let mut packets = Vec::new();
        while let Some(packet) = reader.next_packet() {
            packets.extend(packet.unwrap().data.into_owned());
        }
        packets
    }

    #[test]
    fn doubles_of_two_files_go_and_true_repeats_stay() {
        let one: [(u64, &[u8]); 4] = [(1, b"a"), (2, b"b"), (3, b"b"), (900, b"c")];
        let two: [(u64, &[u8]); 4] = [(4, b"b"), (5, b"b"), (6, b"d"), (2000, b"c")];
        for select in ["packet", "flow", "identification"] {
            assert_eq!(merged(select, &[], &one, &two), b"abbdcc");
        }
    }

    #[test]
    fn where_packets_have_turns_repeats_stay_but_while_buckets_move() {
        let one: [(u64, &[u8]); 3] = [(1000, b"a"), (4000, b"b"), (9000, b"c")];
        let two: [(u64, &[u8]); 3] = [(1001, b"a"), (4001, b"b"), (9001, b"c")];
        let select = "round_robin";
        assert_eq!(merged(select, &[], &one, &two), b"aabbcc");
        // The packets came 100 ms before this time, but are still compared, because `window` widens
        // the time.
        assert_eq!(merged(select, &["4.1..5"], &one, &two), b"aabcc");
        let twice = ["0.999..1.5", "9..9"];
        assert_eq!(merged(select, &twice, &one, &two), b"abbc");
        let repeats: [(u64, &[u8]); 2] = [(4000, b"b"), (4001, b"b")];
        assert_eq!(merged(select, &["3..5"], &repeats, &[]), b"bb");
    }

    #[test]
    fn times_are_seconds_with_a_part() {
        let moved = |text: &str| text.parse::<MoveTime>().map(|moved| moved.0).ok();
        let second = 1_000_000_000;
        assert_eq!(moved("7..8"), Some(7 * second..=8 * second));
        assert_eq!(moved("7.5..7.000000001"), None);
        assert_eq!(moved("0.000000001..0.5"), Some(1..=second / 2));
        for wrong in [
            "",
            "7",
            "7..",
            "x..8",
            "-1..8",
            "7..8.0000000001",
            "7..8.x",
            "7..+8",
        ] {
            assert_eq!(moved(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_settings_say_what_packets_are_selected_by() {
        let scratch = Scratch::new().unwrap();
        let text = "cluster = a\nengine = fixed\nnodes = a1\nselect = round_robin\n";
        scratch.write("cluster.conf", text).unwrap();
        let mut arguments = Arguments {
            files: Vec::new(),
            output: PathBuf::new(),
            window: 0,
            config: scratch.file("cluster.conf"),
            select: None,
            moved: Vec::new(),
        };
        assert_eq!(key(&arguments).unwrap(), Key::RoundRobin);
        arguments.select = Some("flow".to_owned());
        assert_eq!(key(&arguments).unwrap(), Key::Flow);
        arguments.select = None;
        arguments.config = scratch.file("absent");
        assert_eq!(key(&arguments).unwrap(), Key::Packet);
    }
}
