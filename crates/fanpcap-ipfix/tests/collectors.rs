//! Collectors of other projects count what was exported: nfacctd, nfcapd and `GoFlow2`.

use std::fs::{self, File};
use std::net::UdpSocket;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use fanpcap_ipfix::{Algorithm, Exporter, Form, Packet, Selector, Statistics, Totals, Transport};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::{Scratch, netns, traffic};
use serde_json::Value;

const PORT: u16 = 2055;
const PACKETS: u64 = 10_000;
/// The length of the Ethernet header, plus the DiCAP paper's header length of 52 bytes.
const SNAPLEN: usize = 66;
const GOFLOW2: &str = "github.com/netsampler/goflow2/v2/cmd/goflow2@v2.2.1";

#[test]
#[ignore = "needs root: a network namespace"]
fn nfacctd_counts_sections() {
    if skipped("nfacctd", "pmacct") {
        return;
    }
    netns::within_new(|| {
        let scratch = Scratch::new()?;
        let found = scratch.file("found");
        let config = format!(
            "daemonize: false\nnfacctd_ip: 127.0.0.1\nnfacctd_port: {PORT}\n\
             nfacctd_disable_checks: false\nplugins: print\nprint_refresh_time: 3600\n\
             print_output: json\nprint_output_file: {}\n\
             aggregate: src_host, dst_host, src_port, dst_port, proto\n",
            found.display()
        );
        let config = scratch.write("nfacctd.conf", &config)?;
        let mut command = Command::new("nfacctd");
        let mut collector = Collector::start(command.arg("-f").arg(config), &scratch)?;
        let sent = Sent::everything(Form::Sections, 0)?;
        let log = collector.stop("INT")?;
        // nfacctd logs each sequence number that it did not expect, and each message that it can't
        // read.
        ensure!(
            !log.contains("expecting flow") && !log.contains("malformed"),
            "{log}"
        );
        let (rows, packets, octets) = rows(&found)?;
        assert_eq!((packets, octets), (PACKETS, sent.ip_octets));
        assert!(rows > 1, "one row for all flows");
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: a network namespace"]
fn nfcapd_counts_flows() {
    if skipped("nfcapd", "nfdump") {
        return;
    }
    netns::within_new(|| {
        let (counted, sent) = nfcapd(0)?;
        let expected = format!(
            "Flows: {PACKETS}, Packets: {PACKETS}, Bytes: {}, Sequence Errors: 0, Bad Packets: 0",
            sent.ip_octets
        );
        ensure!(counted.contains(&expected), "{counted}");
        // nfcapd notices a message that was lost on the way.
        let (counted, _) = nfcapd(50)?;
        ensure!(
            counted.contains("Sequence Errors: 1,") && !counted.contains(&expected),
            "{counted}"
        );
        Ok(())
    })
    .unwrap();
}

/// What nfcapd printed at its end, and what was sent to it. Message number `lost` was not sent.
fn nfcapd(lost: u64) -> Result<(String, Sent)> {
    let scratch = Scratch::new()?;
    let dir = scratch.file("flows");
    fs::create_dir(&dir)?;
    let mut command = Command::new("nfcapd");
    command.args(["-b", "127.0.0.1", "-p", &PORT.to_string(), "-l"]);
    let mut collector = Collector::start(command.arg(dir), &scratch)?;
    let sent = Sent::everything(Form::Flows, lost)?;
    Ok((collector.stop("TERM")?, sent))
}

#[test]
#[ignore = "needs root: a network namespace; and the network, for a Go module"]
fn goflow2_decodes_sections() {
    let program = match goflow2() {
        Ok(program) => program,
        Err(error) => return skip(&format!("no GoFlow2 here: {error:#}")),
    };
    netns::within_new(|| {
        let scratch = Scratch::new()?;
        let found = scratch.file("found");
        let mut command = Command::new(program);
        command
            .args(["-listen", &format!("netflow://127.0.0.1:{PORT}")])
            .args(["-addr", "127.0.0.1:8080"])
            .args(["-transport", "file", "-format", "json", "-transport.file"])
            .arg(&found);
        let mut collector = Collector::start(&mut command, &scratch)?;
        let sent = Sent::everything(Form::Sections, 0)?;
        let wanted = usize::try_from(PACKETS)?;
        await_for("GoFlow2 to write all rows", LIMIT, || {
            let text = fs::read_to_string(&found)?;
            Ok((text.lines().count() >= wanted).then_some(()))
        })?;
        let log = collector.stop("INT")?;
        ensure!(!log.contains("level=ERROR"), "{log}");
        let (rows, packets, octets) = rows(&found)?;
        assert_eq!(
            (rows, packets, octets),
            (PACKETS, PACKETS, sent.frame_octets)
        );
        Ok(())
    })
    .unwrap();
}

/// Builds `GoFlow2` in a directory below the build directory, if it is not there.
fn goflow2() -> Result<PathBuf> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("goflow2");
    let program = dir.join("goflow2");
    if !program.exists() {
        let mut go = Command::new("go");
        go.args(["install", GOFLOW2]).env("GOBIN", &dir);
        let done = go.output().context("no go")?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(
            done.status.success(),
            "{}",
            said.lines().last().unwrap_or_default()
        );
    }
    Ok(program)
}

/// Counts what was exported to a collector.
struct Sent {
    frame_octets: u64,
    ip_octets: u64,
}

impl Sent {
    /// Exports packets of some flows, with reports between them, no faster than the collector
    /// reads. Message number `lost`, counted from 1, is not sent.
    fn everything(form: Form, lost: u64) -> Result<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(("127.0.0.1", PORT))?;
        let mut exporter = Exporter::new(7, form, Transport::Udp);
        let mut messages = 0;
        let mut send = |message: &[u8]| {
            messages += 1;
            if messages != lost {
                socket.send(message).expect("the collector listens");
            }
            await_queue(16 * 1024).expect("the collector reads");
        };
        exporter.describe(now(), &mut send);
        thread::sleep(Duration::from_millis(100));
        let frames = traffic::frames(1, &traffic::flows(1, 4), 0..PACKETS)?;
        for (number, frame) in (0..).zip(&frames) {
            if number % 100 == 0 {
                report(&mut exporter, number / 100, &mut send);
            }
            let packet = Packet {
                time: now(),
                wire_len: u32::try_from(frame.bytes.len())?,
                frame: &frame.bytes[..frame.bytes.len().min(SNAPLEN)],
                revision: 1,
                bucket: number / 100,
                digest: number.into(),
            };
            exporter.packet(now(), &packet, &mut send);
        }
        exporter.flush(now(), &mut send);
        let Totals {
            packets,
            left_out,
            cut,
            ..
        } = exporter.totals();
        assert_eq!([packets, left_out, cut], [PACKETS, 0, 0]);
        await_queue(0)?;
        let frame_octets = frames.iter().map(|frame| frame.bytes.len() as u64).sum();
        let ip_octets = frame_octets - 14 * PACKETS;
        Ok(Self {
            frame_octets,
            ip_octets,
        })
    }
}

/// Exports how a bucket is selected, and the bucket's counts.
fn report(exporter: &mut Exporter, bucket: u16, send: &mut impl FnMut(&[u8])) {
    let algorithm = Algorithm::Bob {
        modulus: 4096,
        payload_len: 16,
    };
    let selector = Selector {
        revision: 1,
        bucket,
        algorithm,
    };
    exporter.selector(now(), &selector, send);
    let statistics = Statistics {
        time: now(),
        revision: 1,
        bucket,
        observed: 200,
        selected: 100,
    };
    exporter.statistics(now(), &statistics, send);
}

/// Waits until at most `most` bytes wait for the collector in its socket.
fn await_queue(most: u64) -> Result<()> {
    await_for("the collector to read", LIMIT, || {
        let (queued, lost) = socket()?.context("the collector has no socket any more")?;
        ensure!(lost == 0, "the collector's socket was full");
        Ok((queued <= most).then_some(()))
    })
}

/// The bytes in the queue of the collector's socket, and the number of datagrams that it lost.
fn socket() -> Result<Option<(u64, u64)>> {
    let table = fs::read_to_string("/proc/thread-self/net/udp")?;
    let mut rows = table
        .lines()
        .map(|row| row.split_whitespace().collect::<Vec<_>>());
    let ours = format!("0100007F:{PORT:04X}");
    let Some(row) = rows.find(|row| row.get(1) == Some(&&*ours)) else {
        return Ok(None);
    };
    let (_, queued) = row[4].split_once(':').context("tx_queue:rx_queue")?;
    let lost = row.last().context("drops")?.parse()?;
    Ok(Some((u64::from_str_radix(queued, 16)?, lost)))
}

fn now() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("the clock is right")
}

/// For the rows of JSON in a file: their number, and the sums of their packets and bytes.
fn rows(file: &Path) -> Result<(u64, u64, u64)> {
    let text = fs::read_to_string(file)?;
    let (mut count, mut packets, mut octets) = (0, 0, 0);
    for line in text.lines() {
        let row: Value = serde_json::from_str(line)?;
        let number = |name: &str| row[name].as_u64().context(line.to_owned());
        count += 1;
        packets += number("packets")?;
        octets += number("bytes")?;
    }
    Ok((count, packets, octets))
}

/// A running collector, and the file with its output.
struct Collector {
    child: Child,
    log: PathBuf,
}

impl Collector {
    /// Starts the collector, and waits until it listens.
    fn start(command: &mut Command, scratch: &Scratch) -> Result<Self> {
        let log = scratch.file("log");
        let file = File::create(&log)?;
        command.stdout(file.try_clone()?).stderr(file);
        let child = command
            .spawn()
            .with_context(|| format!("starting {command:?}"))?;
        let mut collector = Self { child, log };
        await_for("the collector to listen", LIMIT, || {
            if let Some(status) = collector.child.try_wait()? {
                bail!("the collector ended ({status}): {}", collector.said()?);
            }
            Ok(socket()?.map(drop))
        })?;
        Ok(collector)
    }

    /// Ends the collector by a signal. Returns what it printed.
    fn stop(&mut self, signal: &str) -> Result<String> {
        // The collector's own processes may still be passing data to each other.
        thread::sleep(Duration::from_millis(300));
        let pid = self.child.id().to_string();
        let done = Command::new("kill").args(["-s", signal, &pid]).status()?;
        ensure!(done.success(), "kill -s {signal} {pid}");
        let status = await_for("the collector to end", LIMIT, || {
            Ok(self.child.try_wait()?)
        })?;
        let said = self.said()?;
        ensure!(
            status.success() || status.signal().is_some(),
            "{status}: {said}"
        );
        Ok(said)
    }

    fn said(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.log)?).into_owned())
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // This fails if the collector has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn skipped(program: &str, package: &str) -> bool {
    let missing = Command::new(program).arg("-V").output().is_err();
    if missing {
        skip(&format!("no {program} here ({package})"));
    }
    missing
}

#[allow(
    clippy::print_stdout,
    reason = "the test's output shows what was skipped"
)]
fn skip(reason: &str) {
    println!("SKIP: {reason}");
}
