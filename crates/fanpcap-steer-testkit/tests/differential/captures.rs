//! Compares the decisions for the frames of capture files. The files are in the directory that
//! FANPCAP_PROOF_CAPTURES names, or the test makes them.

use std::borrow::Cow;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fanpcap_gen::Description;
use fanpcap_steer::modes;
use fanpcap_steer::table::{self, Engines};
use fanpcap_steer_testkit::{Draw, packets, tape};
use pcap_file::pcap::{PcapPacket, PcapWriter};

use super::case::Case;
use super::generated;
use super::side::HOOKS;
use super::traffic::{Shot, captured, files};
use super::workers::all_agree;
use super::written;

/// Number of frames that one loaded program gets.
const FRAMES: usize = 4000;
/// In the captures that this test makes, the number of frames of flows, and the number of drawn
/// frames. These numbers may be small, because other tests also run drawn frames through the same
/// programs.
const MADE: u32 = 600;
/// Number of drawn programs, in addition to the modes and the table's examples.
const DRAWN: u64 = 50;

/// A directory of captures. Dropping the value removes the directory.
struct Made(PathBuf);

impl Made {
    fn new() -> Self {
        let directory = std::env::temp_dir().join(format!("fanpcap-proof-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let pool = Description {
            flows: MADE,
            ..Description::default()
        };
        let pool = pool.pool().unwrap();
        let flows = (0..u64::from(MADE)).map(|number| pool.frame(number));
        let stacks =
            (0..u64::from(MADE)).map(|seed| packets::frame(&mut Draw::new(&tape(seed, 400))));
        write(&directory.join("flows.pcap"), flows);
        write(&directory.join("stacks.pcap"), stacks);
        Self(directory)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn write(path: &Path, frames: impl Iterator<Item = Vec<u8>>) {
    let mut writer = PcapWriter::new(File::create(path).unwrap()).unwrap();
    for frame in frames {
        let packet = PcapPacket {
            timestamp: Duration::ZERO,
            orig_len: u32::try_from(frame.len()).unwrap(),
            data: Cow::Owned(frame),
        };
        writer.write_packet(&packet).unwrap();
    }
}

/// The frames of all capture files that can be read. For each other file, prints why it can't be
/// read.
fn frames(directory: &Path) -> Vec<Shot> {
    let mut shots = Vec::new();
    let (mut read, mut unread) = (0, Vec::new());
    for path in files(directory) {
        match captured(&path) {
            Ok(frames) => {
                shots.extend(frames);
                read += 1;
            }
            Err(error) => unread.push(error),
        }
    }
    println!(
        "{read} files, {} frames; {} files not read",
        shots.len(),
        unread.len()
    );
    unread
        .iter()
        .take(20)
        .for_each(|error| println!("  {error}"));
    shots
}

#[test]
#[ignore = "needs root: eBPF"]
fn programs_agree_on_captures() {
    let given = std::env::var_os("FANPCAP_PROOF_CAPTURES").map(PathBuf::from);
    let made = given.is_none().then(Made::new);
    let directory = given.unwrap_or_else(|| made.as_ref().unwrap().0.clone());
    let shots = frames(&directory);
    assert!(!shots.is_empty(), "no frame in {}", directory.display());
    let mut sources: Vec<String> = modes::MODES.iter().map(|mode| mode.1.to_owned()).collect();
    let runs = table::entries().filter(|entry| entry.engines == Engines::All);
    sources.extend(runs.filter_map(|entry| written::examples(entry).into_iter().next()));
    let parts: Vec<&[Shot]> = shots.chunks(FRAMES).collect();
    let programs = sources.len() as u64 + DRAWN;
    let outcome = all_agree(programs * parts.len() as u64, |number| {
        let part = parts[usize::try_from(number / programs).unwrap()];
        let program = number % programs;
        match sources.get(usize::try_from(program).unwrap()) {
            Some(source) => written::case(source, part),
            None => Case {
                shots: part.to_vec(),
                hooks: &HOOKS,
                ..generated::case(program)
            },
        }
    });
    println!("{programs} programs: {outcome:#?}");
}
