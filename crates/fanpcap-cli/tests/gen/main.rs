//! `fanpcap gen` on real devices. Frames must arrive byte for byte as they were sent: with live
//! frames, with sendmmsg(2), and at every rate.
#![forbid(unsafe_code)]
#![expect(
    clippy::cast_possible_truncation,
    reason = "what is below 251 fits into a byte"
)]

mod bytes;
mod devices;
mod ends;
mod ways;

use std::fs;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::process::Output;

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use fanpcap_bpf::Instruction;
use fanpcap_bpf::ProgramKind;
use fanpcap_linux::bpf::Attached;
use fanpcap_linux::bpf::Hook;
use fanpcap_linux::bpf::LoadedProgram as Bpf;
use fanpcap_linux::interface;
use fanpcap_testkit::Scratch;
use fanpcap_testkit::await_for::LIMIT;
use fanpcap_testkit::await_for::await_for;
use fanpcap_testkit::veth::Veth;
use pcap_file::pcap::PcapReader;

const NEAR: &str = "fpggnear";

const FAR: &str = "fpggfar";

/// XDP's verdicts (linux/bpf.h, enum xdp_action).
const DROP: i32 = 1;

const PASS: i32 = 2;

/// Creates a veth pair. An XDP program at its far end returns this verdict for every frame.
fn pair(verdict: i32) -> Result<Attached> {
    Veth::new(NEAR, FAR, 1)?;
    let code = [Instruction::set(0, verdict), Instruction::exit()];
    let index = interface::index(FAR).context("the far end")?;
    Ok(Bpf::load(ProgramKind::Xdp, "verdict", &code)?.attach(index, Hook::Driver)?)
}

fn fanpcap_gen(arguments: &str) -> Result<Output> {
    Command::new(env!("CARGO_BIN_EXE_fanpcap"))
        .arg("gen")
        .args(arguments.split_whitespace())
        .output()
        .context("running fanpcap gen")
}

/// The command's result as JSON. The command must succeed.
fn result(arguments: &str) -> Result<serde_json::Value> {
    let output = fanpcap_gen(&format!("-i {NEAR} --json {arguments}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments}: {complaint}");
    serde_json::from_slice(&output.stdout).context("its JSON")
}

/// The command's result as JSON, and its error message. The command must fail.
fn failed(arguments: &str) -> Result<(serde_json::Value, String)> {
    let output = fanpcap_gen(&format!("-i {NEAR} --json {arguments}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(1), "{arguments}: {complaint}");
    let result = serde_json::from_slice(&output.stdout).context("its JSON")?;
    Ok((result, complaint))
}

/// Runs the command. Returns the frames that arrive at the far end meanwhile, in order, and the
/// command's result.
fn captured(arguments: &str, scratch: &Scratch) -> Result<(Vec<Vec<u8>>, serde_json::Value)> {
    let file = scratch.new_file("arrived.pcap");
    let mut tcpdump = Command::new("tcpdump")
        .args(["-Z", "root", "-B", "65536", "-U", "-n", "-i", FAR, "-w"])
        .arg(&file)
        .stderr(File::create(scratch.file("said"))?)
        .spawn()
        .context("running tcpdump")?;
    await_for("tcpdump to listen", LIMIT, || {
        let said = fs::read_to_string(scratch.file("said"))?;
        Ok(said.contains("listening on").then_some(()))
    })?;
    let result = result(arguments);
    let arrived = result.and_then(|result| {
        let sent = result["sent"].as_u64().context("no count")?;
        await_for("all frames to arrive", LIMIT, || {
            let frames = read(&file).unwrap_or_default();
            Ok((frames.len() as u64 >= sent).then_some(frames))
        })
        .map(|frames| (frames, result))
    });
    tcpdump.kill()?;
    tcpdump.wait()?;
    arrived
}

/// The packets that have been written to a file so far.
fn read(path: &Path) -> Result<Vec<Vec<u8>>> {
    let mut reader = PcapReader::new(File::open(path)?)?;
    let mut frames = Vec::new();
    while let Some(Ok(packet)) = reader.next_raw_packet() {
        frames.push(packet.data.into_owned());
    }
    Ok(frames)
}

const WAYS: [&str; 2] = ["--live", "--portable"];

/// Whether the command succeeds, and its result.
fn outcome(arguments: &str) -> Result<(bool, serde_json::Value)> {
    let output = fanpcap_gen(&format!("-i {NEAR} --json {arguments}"))?;
    let result = serde_json::from_slice(&output.stdout).context("its JSON")?;
    Ok((output.status.success(), result))
}
