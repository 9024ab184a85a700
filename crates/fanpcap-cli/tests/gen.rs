//! `fanpcap gen` on real devices: what is sent arrives, byte for byte, by both ways and at every rate.
#![forbid(unsafe_code)]
#![expect(
    clippy::cast_possible_truncation,
    reason = "what is below 251 fits into a byte"
)]

use std::borrow::Cow;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_bpf::{Instruction, ProgramKind};
use fanpcap_linux::bpf::{Attached, Hook, Program as Bpf};
use fanpcap_linux::interface;
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::veth::{self, Veth, ip};
use fanpcap_testkit::{Scratch, member, netns};
use pcap_file::DataLink;
use pcap_file::pcap::{PcapPacket, PcapReader, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;

const NEAR: &str = "fpggnear";
const FAR: &str = "fpggfar";

/// XDP's verdicts (linux/bpf.h, enum xdp_action).
const DROP: i32 = 1;
const PASS: i32 = 2;

/// A pair, whose far end gives every frame the verdict.
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

/// Its result as JSON; it must succeed.
fn result(arguments: &str) -> Result<serde_json::Value> {
    let output = fanpcap_gen(&format!("-i {NEAR} --json {arguments}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{arguments}: {complaint}");
    serde_json::from_slice(&output.stdout).context("its JSON")
}

/// Its result when it must fail, as JSON, and what it says.
fn failed(arguments: &str) -> Result<(serde_json::Value, String)> {
    let output = fanpcap_gen(&format!("-i {NEAR} --json {arguments}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(1), "{arguments}: {complaint}");
    let result = serde_json::from_slice(&output.stdout).context("its JSON")?;
    Ok((result, complaint))
}

/// The frames that arrive at the far end while it sends, in order, and its result.
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

/// The packets of a file, as far as it has been written.
fn read(path: &Path) -> Result<Vec<Vec<u8>>> {
    let mut reader = PcapReader::new(File::open(path)?)?;
    let mut frames = Vec::new();
    while let Some(Ok(packet)) = reader.next_raw_packet() {
        frames.push(packet.data.into_owned());
    }
    Ok(frames)
}

const WAYS: [&str; 2] = ["--live", "--portable"];

#[test]
#[ignore = "needs root: namespaces, eBPF, packet sockets"]
fn the_same_seed_sends_the_same_packets_by_both_ways() {
    let description =
        "--count 3000 --flows 33 --imix -4 -6 --udp --tcp --both --fragments 5 --seed 7";
    netns::within_new(|| {
        let _attached = pair(PASS)?;
        let scratch = Scratch::new()?;
        for more in ["", "--vlan 5", "--vxlan 77 --no-stamp"] {
            let mut runs = Vec::new();
            for way in [WAYS[0], WAYS[1], WAYS[0]] {
                let arguments = format!("{description} {more} {way} --rate 50kpps");
                let (frames, result) = captured(&arguments, &scratch)?;
                assert_eq!(frames.len(), 3000, "{result}");
                runs.push(frames);
            }
            assert!(runs[0] == runs[1] && runs[0] == runs[2], "{more}");
        }
        let (other, _) = captured("--count 3000 --seed 8 --portable", &scratch)?;
        let (one, _) = captured("--count 3000 --seed 7 --portable", &scratch)?;
        assert_ne!(one, other);
        Ok(())
    })
    .unwrap();
}

/// Says where they differ: all bytes of all frames would be long to read.
fn assert_same(arrived: &[Vec<u8>], sent: &[Vec<u8>]) {
    assert_eq!(arrived.len(), sent.len());
    for (number, (arrived, sent)) in arrived.iter().zip(sent).enumerate() {
        assert_eq!(arrived, sent, "frame {number}");
    }
}

/// Every length from 60 to 1514, no two frames alike. All have one EtherType, a local experimental one: when
/// the kernel receives several frames at once, those for nobody but a tap reach it after others
/// (net/core/dev.c, `__netif_receive_skb_list_core`).
fn odd_frames() -> Vec<Vec<u8>> {
    (60..=1514_usize)
        .map(|len| {
            let mut frame: Vec<u8> = (0..len).map(|at| (at * len % 251) as u8).collect();
            frame[12..14].copy_from_slice(&[0x88, 0xb5]);
            frame
        })
        .collect()
}

fn write_pcap(path: &Path, frames: &[Vec<u8>]) -> Result<()> {
    let mut writer = PcapWriter::new(File::create(path)?)?;
    for (number, frame) in (0..).zip(frames) {
        let time = Duration::from_micros(200 * number);
        let len = u32::try_from(frame.len())?;
        writer.write_packet(&PcapPacket::new(time, len, frame))?;
    }
    Ok(())
}

fn write_pcapng(path: &Path, frames: &[Vec<u8>]) -> Result<()> {
    let mut writer = PcapNgWriter::new(File::create(path)?)?;
    let interface = InterfaceDescriptionBlock::new(DataLink::ETHERNET, 65_535);
    writer.write_pcapng_block(interface)?;
    for frame in frames {
        let packet = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::from_nanos(1),
            original_len: u32::try_from(frame.len())?,
            data: Cow::Borrowed(frame),
            options: vec![],
        };
        writer.write_pcapng_block(packet)?;
    }
    Ok(())
}

#[test]
#[ignore = "needs root: namespaces, eBPF, packet sockets"]
fn a_replay_sends_a_captures_packets_byte_for_byte() {
    netns::within_new(|| {
        let _attached = pair(PASS)?;
        let scratch = Scratch::new()?;
        let (pcap, pcapng) = (scratch.file("in.pcap"), scratch.file("in.pcapng"));
        let frames = odd_frames();
        let total: usize = frames.iter().map(Vec::len).sum();
        write_pcap(&pcap, &frames)?;
        write_pcapng(&pcapng, &frames)?;
        let files = [pcap.clone(), pcapng];
        for file in files {
            for way in WAYS {
                let arguments = format!("--replay {} --loops 2 --rate 20k {way}", file.display());
                let (arrived, result) = captured(&arguments, &scratch)?;
                assert_same(&arrived, &[frames.clone(), frames.clone()].concat());
                assert_eq!(result["bytes"], 2 * total, "{result}");
            }
        }
        let own = format!("--replay {} --speed 1.0", pcap.display());
        let (arrived, result) = captured(&own, &scratch)?;
        println!(
            "{} s at the file's times, which take 0.291 s",
            result["seconds"]
        );
        assert_same(&arrived, &frames);
        let moved = format!("--replay {} --loops 3 --flows-per-loop", pcap.display());
        let (arrived, _) = captured(&moved, &scratch)?;
        // None of these is IP, so all stay as they are; what moves is checked without a device.
        assert_eq!(arrived.len(), 3 * frames.len());
        assert_same(&arrived[..frames.len()], &frames);
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, eBPF"]
fn as_many_frames_arrive_as_a_rate_asks_for() {
    netns::within_new(|| {
        let _attached = pair(DROP)?;
        for rate in [10_000, 100_000, 1_000_000] {
            for more in ["--live", "--live --gaps poisson", "--portable"] {
                // What the machine can't reach it can't show.
                if rate == 1_000_000 && more == "--portable" {
                    continue;
                }
                let count = rate / 2;
                let result = result(&format!("--rate {rate} --count {count} {more}"))?;
                println!("{rate} {more}: {}", result["pps"]);
                assert_eq!(result["sent"], count, "{result}");
                assert_eq!(result["device_sent"], count, "{result}");
                assert_eq!(result["peer"]["received"], count, "{result}");
                assert_eq!(result["refused"], 0, "{result}");
            }
        }
        // A time bounds the number: 100 ms at 10 kpps are 1000 frames, if the machine keeps up.
        let result = result("--rate 10kpps --seconds 0.1 --live")?;
        assert_eq!(result["sent"], 1000, "{result}");
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, eBPF"]
fn frames_that_are_refused_are_noticed() {
    netns::within_new(|| {
        // Without a program at its far end a veth takes no live frames.
        drop(pair(PASS)?);
        veth::offloads_off(FAR)?;
        let auto = result("--count 1000")?;
        assert_eq!(auto["way"], "portable", "{auto}");
        let why = auto["instead"].as_str().unwrap();
        assert!(why.contains("refuses them"), "{auto}");
        assert_eq!(auto["peer"]["received"], 1000, "{auto}");
        let (live, _) = failed("--count 1000 --live")?;
        assert_eq!(live["way"], "live-frames", "{live}");
        assert_eq!(live["refused"], 1000, "{live}");
        assert_eq!(live["peer"]["received"], 0, "{live}");
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, eBPF"]
fn frames_for_a_peer_that_takes_them_go_live_and_all_arrive() {
    netns::within_new(|| {
        let attached = pair(DROP)?;
        let taken = result("--seconds 0.3")?;
        assert_eq!(taken["way"], "live-frames", "{taken}");
        assert_eq!(taken["instead"], serde_json::Value::Null);
        assert_eq!(taken["peer"]["received"], taken["sent"], "{taken}");
        drop(attached);
        let (alone, said) = failed("--seconds 20 --live")?;
        assert!(said.contains("did not leave"), "{said}");
        assert!(alone["seconds"].as_f64().unwrap() < 5.0, "{alone}");
        println!(
            "dropped by the peer: {}, refused: {}",
            taken["pps"], alone["pps"]
        );
        assert_eq!(alone["refused"], alone["sent"], "{alone}");
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, packet sockets"]
fn a_peer_in_a_namespace_with_a_name_is_found() {
    netns::within_new(|| {
        let _attached = pair(PASS)?;
        let name = format!("fpgg{}", std::process::id());
        ip(&format!("netns add {name}"))?;
        let done = || {
            ip(&format!("link set {FAR} netns {name}"))?;
            ip(&format!("-n {name} link set {FAR} up"))?;
            veth::await_up(NEAR)?;
            let result = result("--count 100 --portable")?;
            let place = format!("/run/netns/{name}");
            assert_eq!(result["peer"]["namespace"], place.as_str(), "{result}");
            assert_eq!(result["peer"]["received"], 100, "{result}");
            Ok(())
        };
        let done = done();
        ip(&format!("netns del {name}"))?;
        done
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, routes"]
fn devices_that_others_depend_on_are_refused() {
    netns::within_new(|| {
        let _attached = pair(PASS)?;
        let refused = |device: &str, why: &str| {
            let output = fanpcap_gen(&format!("-i {device} --count 1 --portable"))?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && said.contains(why), "{said}");
            let forced = fanpcap_gen(&format!("-i {device} --count 1 --portable --force"))?;
            let said = String::from_utf8_lossy(&forced.stderr).into_owned();
            assert!(forced.status.success(), "{said}");
            anyhow::Ok(())
        };
        refused("lo", "loopback")?;
        ip(&format!("address add 10.77.0.1/24 dev {NEAR}"))?;
        assert!(
            fanpcap_gen(&format!("-i {NEAR} --count 1 --portable"))?
                .status
                .success()
        );
        ip(&format!("route add default via 10.77.0.2 dev {NEAR}"))?;
        refused(NEAR, "default route")?;
        ip("route del default")?;
        fs::write(format!("/proc/sys/net/ipv6/conf/{FAR}/disable_ipv6"), "0")?;
        ip(&format!("-6 route add default dev {FAR}"))?;
        refused(FAR, "default route")?;
        ip("-6 route del default")?;
        // In another table, by the second next hop, by another name.
        ip(&format!(
            "route add default table 77 nexthop via 10.77.0.2 dev {NEAR}"
        ))?;
        refused(NEAR, "default route")?;
        ip(&format!("link property add dev {NEAR} altname fpggother"))?;
        refused("fpggother", "default route")?;
        ip("route del default table 77")?;
        // A device above the one that carries the route, or beside it, sends by the same one.
        ip(&format!("route add default via 10.77.0.2 dev {NEAR}"))?;
        for kind in ["macvlan mode bridge", "ipvlan", "vlan id 5", "macsec"] {
            if ip(&format!("link add link {NEAR} name fpggup up type {kind}")).is_ok() {
                refused("fpggup", "default route")?;
                ip("link del fpggup")?;
            }
        }
        ip("route del default")?;
        // Above it: a VLAN, where the kernel has them, and a bridge.
        if ip(&format!(
            "link add link {NEAR} name fpggvlan up type vlan id 5"
        ))
        .is_ok()
        {
            ip("address add 10.78.0.1/24 dev fpggvlan")?;
            ip("route add default via 10.78.0.2 dev fpggvlan")?;
            refused(NEAR, "below fpggvlan")?;
            ip("link del fpggvlan")?;
        }
        ip("link add fpggbr up type bridge")?;
        ip(&format!("link set {FAR} master fpggbr"))?;
        ip("route add default dev fpggbr")?;
        refused(FAR, "below fpggbr")?;
        let nothing = fanpcap_gen("-i nosuchdevice --count 1")?;
        let said = String::from_utf8_lossy(&nothing.stderr).into_owned();
        assert!(said.contains("no device nosuchdevice"), "{said}");
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, eBPF"]
fn an_interrupt_ends_it_with_the_result() {
    netns::within_new(|| {
        let _attached = pair(DROP)?;
        for more in ["--portable", "--live", "--live --rate 1000"] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_fanpcap"));
            let arguments = format!("gen -i {NEAR} --json {more}");
            let before = veth::counters(FAR)?.received;
            let child = command
                .args(arguments.split_whitespace())
                .stdout(std::process::Stdio::piped())
                .spawn()?;
            await_for("the first frames", LIMIT, || {
                Ok((veth::counters(FAR)?.received > before + 10).then_some(()))
            })?;
            thread::sleep(Duration::from_millis(30));
            member::signal(child.id(), "TERM")?;
            let output = child.wait_with_output()?;
            assert!(output.status.success());
            let result: serde_json::Value = serde_json::from_slice(&output.stdout)?;
            assert_eq!(result["peer"]["received"], result["sent"], "{result}");
        }
        Ok(())
    })
    .unwrap();
}

/// Other traffic on the near end while `done` runs: so many short frames a second.
fn among_others<T>(rate: u32, done: impl FnOnce() -> Result<T>) -> Result<T> {
    let arguments = format!("gen -i {NEAR} --portable --rate {rate} --len 60");
    let mut others = Command::new(env!("CARGO_BIN_EXE_fanpcap"))
        .args(arguments.split_whitespace())
        .stdout(std::process::Stdio::null())
        .spawn()?;
    let before = veth::counters(NEAR)?.sent;
    let result = await_for("other traffic", LIMIT, || {
        Ok((veth::counters(NEAR)?.sent > before + 10).then_some(()))
    })
    .and_then(|()| done());
    others.kill()?;
    others.wait()?;
    result
}

#[test]
#[ignore = "needs root: namespaces, eBPF"]
fn other_traffic_does_not_hide_that_frames_are_refused() {
    netns::within_new(|| {
        drop(pair(PASS)?);
        veth::offloads_off(FAR)?;
        for rate in [20, 300] {
            let auto = among_others(rate, || result("--count 5000 --len 200"))?;
            assert_eq!(auto["way"], "portable", "{rate}: {auto}");
            assert!(auto["peer"]["received"].as_u64() >= Some(5000), "{auto}");
        }
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, eBPF"]
fn frames_that_are_refused_from_some_time_on_go_the_other_way() {
    netns::within_new(|| {
        let attached = pair(DROP)?;
        let gone = thread::scope(|scope| {
            let run = scope.spawn(|| netns_result("--rate 100kpps --seconds 2"));
            thread::sleep(Duration::from_millis(700));
            drop(attached);
            run.join().unwrap()
        });
        let (status, result) = gone?;
        assert_eq!(result["way"], "portable", "{result}");
        assert!(result["refused"].as_u64() > Some(0) && !status, "{result}");
        assert!(
            result["peer"]["received"].as_u64() > Some(100_000),
            "{result}"
        );
        Ok(())
    })
    .unwrap();
}

/// Whether it succeeds, and its result.
fn netns_result(arguments: &str) -> Result<(bool, serde_json::Value)> {
    let output = fanpcap_gen(&format!("-i {NEAR} --json {arguments}"))?;
    let result = serde_json::from_slice(&output.stdout).context("its JSON")?;
    Ok((output.status.success(), result))
}

#[test]
#[ignore = "needs root: namespaces, packet sockets"]
fn a_time_is_kept_when_the_rate_is_not() {
    netns::within_new(|| {
        let _attached = pair(DROP)?;
        for way in WAYS {
            let result = result(&format!("--rate 400Gbit --len 1500 --seconds 0.5 {way}"))?;
            let seconds = result["seconds"].as_f64().unwrap();
            assert!(seconds < 0.7, "{result}");
            assert_eq!(result["kept"], false, "{result}");
            assert_eq!(result["asked"], "400Gbit/s", "{result}");
        }
        let slow = result("--rate 2000 --seconds 0.2")?;
        assert_eq!(slow["kept"], true, "{slow}");
        let text = fanpcap_gen(&format!("-i {NEAR} --rate 400Gbit --seconds 0.2"))?;
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        assert!(text.contains("asked 400Gbit/s, reached"), "{text}");
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, packet sockets"]
fn whichever_end_comes_first_is_the_end() {
    netns::within_new(|| {
        let _attached = pair(DROP)?;
        for way in WAYS {
            let sent = |more: &str| anyhow::Ok(result(&format!("{more} {way}"))?["sent"].clone());
            assert_eq!(sent("--flows 10 --loops 3 --count 1000")?, 30);
            assert_eq!(sent("--flows 10 --loops 3 --count 7")?, 7);
            assert_eq!(sent("--flows 10 --loops 3 --seconds 5")?, 30);
            assert_eq!(
                sent("--flows 10 --loops 3000 --seconds 0.1 --rate 1000")?,
                100
            );
        }
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, eBPF"]
fn a_device_that_goes_ends_it_with_what_was_sent_before() {
    netns::within_new(|| {
        for (change, why) in [
            (format!("link set {NEAR} down"), "set down"),
            (format!("link set {FAR} down"), "no carrier"),
            (format!("link del {NEAR}"), "removed"),
        ] {
            for way in WAYS {
                let _attached = pair(DROP)?;
                let (result, said) = thread::scope(|scope| {
                    let run = scope.spawn(|| failed(&format!("--rate 5000 --seconds 30 {way}")));
                    thread::sleep(Duration::from_millis(700));
                    let changed = ip(&change);
                    changed.and_then(|()| run.join().unwrap())
                })?;
                assert!(said.contains(why), "{way} {change}: {said}");
                assert!(result["sent"].as_u64() > Some(100), "{result}");
                if interface::index(NEAR).is_some() {
                    ip(&format!("link del {NEAR}"))?;
                }
            }
        }
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, packet sockets"]
fn devices_that_cannot_send_are_refused_with_the_reason() {
    netns::within_new(|| {
        let _attached = pair(PASS)?;
        let refused = |arguments: &str, why: &str| {
            let output = fanpcap_gen(&format!("{arguments} --count 1 --portable"))?;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && said.contains(why), "{said}");
            anyhow::Ok(())
        };
        let near = format!("-i {NEAR}");
        refused(&format!("{near} --len 1515"), "takes 1514 at most")?;
        refused(&format!("{near} --len 1519 --vlan 5"), "takes 1518 at most")?;
        refused(
            &format!("{near} --len 1515 --vlan 5 --vlan 6"),
            "takes 1514 at most",
        )?;
        for fits in [
            "--len 1514",
            "--len 1518 --vlan 5",
            "--len 1514 --vlan 5 --vlan 6",
        ] {
            result(&format!("{fits} --count 1 --portable"))?;
        }
        ip(&format!("link set {FAR} down"))?;
        refused(&near, "no carrier")?;
        ip(&format!("link set {NEAR} down"))?;
        refused(&near, "is down")?;
        ip("tuntap add fpggtun mode tun")?;
        ip("link set fpggtun up")?;
        refused("-i fpggtun", "no carrier")?;
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, packet sockets"]
fn a_result_that_nobody_reads_is_no_panic() {
    netns::within_new(|| {
        let _attached = pair(DROP)?;
        let run = |out: std::process::Stdio| {
            let arguments = format!("gen -i {NEAR} --count 100 --portable");
            let mut command = Command::new(env!("CARGO_BIN_EXE_fanpcap"));
            let command = command.args(arguments.split_whitespace()).stdout(out);
            anyhow::Ok(command.output()?)
        };
        let full = run(File::create("/dev/full")?.into())?;
        let said = String::from_utf8_lossy(&full.stderr).into_owned();
        assert_eq!(full.status.code(), Some(1), "{said}");
        assert!(said.contains("writing the result"), "{said}");
        let mut gone = Command::new("true")
            .stdin(std::process::Stdio::piped())
            .spawn()?;
        let pipe = gone.stdin.take().context("its pipe")?;
        gone.wait()?;
        let closed = run(pipe.into())?;
        assert_eq!(closed.status.code(), Some(0));
        assert!(closed.stderr.is_empty());
        Ok(())
    })
    .unwrap();
}
