//! `fanpcap cluster merge`: one capture of the nodes' captures, without doubles.
//!
//! In distribution mode two nodes have a packet where a bucket moved, or where a node was cut off
//! from the others. Equal packets have the same bucket, and so the same owner. So equal packets of
//! two files are doubles, and equal packets of one file are true repeats.

use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use fanpcap_cli::{merging, streams};
use fanpcap_cluster::analyzer::Twins;

/// Merges the nodes' captures into one that has each packet once
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The captures, one of each node: pcap or pcapng
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The merged capture; '-': standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Milliseconds by which the stamps of a double may differ
    #[arg(long, value_name = "MS", default_value_t = 250)]
    window: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let seed = RandomState::new().hash_one("twins");
    let mut twins = Twins::new(arguments.window.saturating_mul(1_000_000), seed);
    let mut keep = |file: usize, stamp: u64, wire_length: u32, captured: &[u8]| {
        let file = u16::try_from(file).unwrap_or(u16::MAX);
        !twins.is_double(stamp, file, (wire_length, captured))
    };
    let merged = merging::merge(&arguments.files, &arguments.output, &mut keep)?;
    for (path, packets) in arguments.files.iter().zip(&merged.read) {
        let cut = if merged.cut.contains(path) {
            ", cut off at its end"
        } else {
            ""
        };
        streams::note(&format!("{}: {packets} packets{cut}\n", path.display()));
    }
    let (written, doubles) = (merged.written, merged.left_out);
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

    #[test]
    fn doubles_of_two_files_go_and_true_repeats_stay() {
        let scratch = Scratch::new().unwrap();
        let [one, two, output] = ["1.pcap", "2.pcap", "all.pcap"].map(|name| scratch.file(name));
        write(&one, &[(1, b"a"), (2, b"b"), (3, b"b"), (900, b"c")]);
        write(&two, &[(4, b"b"), (5, b"b"), (6, b"d"), (2000, b"c")]);
        let files = vec![one, two];
        let arguments = Arguments {
            files,
            output: output.clone(),
            window: 250,
        };
        run(&arguments).unwrap();
        let mut reader = PcapReader::new(File::open(output).unwrap()).unwrap();
        let mut packets = Vec::new();
        while let Some(packet) = reader.next_packet() {
            packets.extend(packet.unwrap().data.into_owned());
        }
        assert_eq!(packets, b"abbdcc");
    }
}
