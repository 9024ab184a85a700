//! A filter of the policy file, as an administrator writes it: on both sources, with VLAN tags, and
//! with another filter of the application.

use anyhow::{Result, ensure};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::capture;
use fanpcap_testkit::traffic::{self, Frame};
use fanpcap_testkit::{Injector, Program, Scratch, Transport, Veth};
use serde_json::Value;

use crate::running::{Member, Poller, refused, within};
use crate::watched::{printed, samples};
use crate::{FAR, NEAR};

const COUNT: u64 = 1500;

/// The frame as it is sent: two of three frames are in a VLAN.
fn on_wire(frame: &Frame) -> Vec<u8> {
    let id = match frame.sequence % 3 {
        0 => return frame.bytes.clone(),
        1 => 8,
        _ => 9,
    };
    let (addresses, rest) = frame.bytes.split_at(12);
    [addresses, &[0x81, 0, 0, id], rest].concat()
}

/// Whether `udp and not vlan 9` lets the frame through.
fn is_allowed(frame: &Frame) -> bool {
    frame.flow.transport == Transport::Udp && frame.sequence % 3 != 2
}

fn numbers(frames: &[Frame], is_it: impl Fn(&Frame) -> bool) -> Vec<u64> {
    let found = frames.iter().filter(|it| is_it(it));
    found.map(|it| it.sequence).collect()
}

fn check(engine: &str) -> Result<()> {
    Veth::new(NEAR, FAR, 1)?;
    let (scratch, device) = (Scratch::new()?, format!("{engine}:{FAR}"));
    let text = "[user root]\nfilter = udp and not vlan 9\n";
    let file = scratch.write("poller.conf", text)?;
    let poller = Poller::start(&format!("{device} --policy {}", file.display()), 1)?;
    let mut member = Member::enter(engine)?;
    let own = Program::tcpdump(&device, scratch.file("own.pcap"))?;
    let own = own.arg("ip").start(&scratch)?;
    let frames = traffic::frames(7, &traffic::flows(7, 50), 0..COUNT)?;
    let injector = Injector::open(NEAR)?;
    let send = |it: &Frame| injector.send(&on_wire(it));
    frames.iter().try_for_each(send)?;

    let expected = numbers(&frames, is_allowed);
    let of_own = |it: &Frame| is_allowed(it) && it.flow.client.is_ipv4();
    let of_own = numbers(&frames, of_own);
    let ledger = || -> Result<Value> {
        let told = printed(&format!("group {device} 5 --json"))?;
        Ok(serde_json::from_str::<Value>(&told)?["ledger"].clone())
    };
    await_for("all packets", LIMIT, || {
        member.read()?;
        let is_there = ledger()?["offered_packets_total"] == COUNT;
        let are_there = member.got.len() >= expected.len() && own.captured() >= of_own.len();
        Ok((is_there && are_there).then_some(()))
    })?;
    ensure!(member.got == expected, "{:?}", member.got);
    let captured = capture::sequences(&[own.stop()?.capture()?]);
    let captured: Vec<u64> = captured.into_keys().collect();
    ensure!(captured == of_own, "{captured:?}, not {of_own:?}");

    let left_out = COUNT - expected.len() as u64;
    let ledger = ledger()?;
    let by_fate = [
        ("in_rings_packets_total", expected.len() as u64),
        ("not_allowed_packets_total", left_out),
    ];
    for (fate, packets) in by_fate {
        ensure!(ledger[fate] == packets, "{ledger:#}");
    }
    let metrics = printed("metrics")?;
    let fates = samples(&metrics, "fanpcap_group_offered_packets_by_fate_total{");
    let is_it = |it: &&(String, u64)| it.0.contains("not_allowed") && it.0.contains("group=\"5\"");
    let of_group: Vec<u64> = fates.iter().filter(is_it).map(|it| it.1).collect();
    ensure!(of_group == [left_out], "{fates:?}");
    let summary = poller.end()?;
    let said = format!(" + left out by filters of the policy {}", 2 * left_out);
    ensure!(summary.iter().any(|it| it.ends_with(&said)), "{summary:?}");
    Ok(())
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn members_get_what_the_policys_filter_lets_through() {
    for engine in ["packet", "afxdp"] {
        within(|| check(engine)).unwrap();
    }
}

#[test]
#[ignore = "needs root: libpcap compiles filters on a packet socket"]
fn a_filter_that_can_not_be_compiled_is_refused_at_its_place() {
    within(|| {
        Veth::new(NEAR, FAR, 1)?;
        let scratch = Scratch::new()?;
        let text = "[user root]\nfilter = udp\n[user 7]\n filter = not prot 9100\n";
        let file = scratch.write("poller.conf", text)?;
        let said = refused(&format!("packet:{FAR} --policy {}", file.display()))?;
        let start = format!("{}:4:11: filter 'not prot 9100': ", file.display());
        ensure!(said.contains(&start), "{said}");
        ensure!(said.contains("syntax error"), "{said}");
        Ok(())
    })
    .unwrap();
}
