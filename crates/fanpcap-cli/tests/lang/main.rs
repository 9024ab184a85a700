//! `fanpcap lang`: its reports on steering programs, and the results of steering programs on
//! generated capture files.
#![forbid(unsafe_code)]

mod checked;
mod explained;
mod live;
mod tried;

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use fanpcap_gen::{Description, Pool};
use fanpcap_testkit::Scratch;
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapWriter, RawPcapPacket};
use serde_json::Value;

/// Runs `fanpcap lang` with these arguments.
fn lang(arguments: &[&str]) -> Result<Output> {
    let command = env!("CARGO_BIN_EXE_fanpcap");
    let output = Command::new(command).arg("lang").args(arguments).output();
    output.context("running fanpcap lang")
}

/// The output of a command that must succeed.
fn said(arguments: &[&str]) -> Result<String> {
    let output = lang(arguments)?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments:?}: {complaint}");
    Ok(String::from_utf8(output.stdout)?)
}

/// The error message of a command that must fail.
fn complaint(arguments: &[&str]) -> Result<String> {
    let output = lang(arguments)?;
    ensure!(!output.status.success(), "{arguments:?} did not fail");
    Ok(String::from_utf8(output.stderr)?)
}

/// A capture file of frames, each cut to `snaplen` bytes.
struct Capture {
    /// The file exists as long as this value lives.
    _scratch: Scratch,
    path: PathBuf,
    frames: u64,
    bytes: u64,
}

impl Capture {
    /// A capture of these frames.
    fn of<'f>(frames: impl IntoIterator<Item = &'f [u8]>, snaplen: usize) -> Result<Self> {
        let scratch = Scratch::new()?;
        let path = scratch.file("capture.pcap");
        let header = PcapHeader {
            datalink: DataLink::ETHERNET,
            ..PcapHeader::default()
        };
        let mut writer = PcapWriter::with_header(File::create(&path)?, header)?;
        let (mut number, mut bytes) = (0_u32, 0);
        for frame in frames {
            let part = &frame[..frame.len().min(snaplen)];
            writer.write_raw_packet(&RawPcapPacket {
                ts_sec: 1_700_000_000 + number / 1000,
                ts_frac: number % 1000 * 1000,
                incl_len: u32::try_from(part.len())?,
                orig_len: u32::try_from(frame.len())?,
                data: part.into(),
            })?;
            number += 1;
            bytes += u64::try_from(frame.len())?;
        }
        Ok(Self {
            _scratch: scratch,
            path,
            frames: number.into(),
            bytes,
        })
    }

    /// A capture that has each frame of a description once.
    fn described(description: &Description) -> Result<Self> {
        let frames = frames(&description.pool()?);
        Self::of(frames.iter().map(Vec::as_slice), usize::MAX)
    }

    fn path(&self) -> &str {
        self.path.to_str().unwrap_or_default()
    }

    /// The result of `try` on this capture, as JSON. Checks that the packets of the members and the
    /// dropped packets add up to the capture's packets.
    fn tried(&self, program: &str, members: u16) -> Result<Value> {
        self.tried_as(&["-e", program], members)
    }

    fn tried_as(&self, program: &[&str], members: u16) -> Result<Value> {
        let members = members.to_string();
        let arguments = [&["try"], program, &[self.path(), "--json", "-n", &members]].concat();
        let told: Value = serde_json::from_str(&said(&arguments)?)?;
        for (figure, read) in [("packets", self.frames), ("bytes", self.bytes)] {
            ensure!(told[figure] == read, "{read} {figure}: {told}");
            let copied = told["copied"][figure].as_u64().context("copied")?;
            let given: u64 = per_member(&told, figure).iter().sum();
            let dropped = told["dropped"][figure].as_u64().context("dropped")?;
            ensure!(copied > 0 || given + dropped == read, "{figure}: {told}");
        }
        Ok(told)
    }
}

/// The number with the name `figure` for each member.
fn per_member(told: &Value, figure: &str) -> Vec<u64> {
    let members = told["members"].as_array();
    let figures = members
        .into_iter()
        .flatten()
        .map(|member| member[figure].as_u64());
    figures.map(Option::unwrap_or_default).collect()
}

fn frames(pool: &Pool) -> Vec<Vec<u8>> {
    (0..pool.len() as u64)
        .map(|number| pool.frame(number))
        .collect()
}
