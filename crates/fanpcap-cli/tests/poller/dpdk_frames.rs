//! Long packets on virtual devices of DPDK: in several buffers, in large ones, and cut.

use anyhow::{Result, ensure};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::traffic::{self, Direction};
use fanpcap_testkit::veth::{Veth, ip};
use fanpcap_testkit::{Injector, Program, capture};

use crate::dpdk::{Installed, with_dpdk};
use crate::{FAR, NEAR};

const LENS: [usize; 7] = [60, 1400, 2000, 2048, 2200, 5000, 8900];

fn add_devices() -> Result<()> {
    Veth::new(NEAR, FAR, 1)?;
    for device in [NEAR, FAR] {
        ip(&format!("link set {device} mtu 9000"))?;
    }
    Ok(())
}

/// Frames that were sent, and the same frames in the file of a tcpdump.
struct Captured {
    sent: Vec<Vec<u8>>,
    got: Vec<Vec<u8>>,
}

/// Sends long frames, which a tcpdump at a poller of this device captures.
fn capture(installed: &Installed, device: &str) -> Result<Captured> {
    let scratch = &installed.scratch;
    let file = scratch.new_file("long.pcap");
    let tcpdump = Program::tcpdump(&format!("dpdk:{device}"), file.clone())?.start(scratch)?;
    let injector = Injector::open(NEAR)?;
    let flow = traffic::flows(4, 1)[0];
    let frame = |(sequence, len)| traffic::frame(flow, Direction::Request, sequence, len);
    let frames = (0..).zip(LENS).map(frame);
    let sent = frames.map(|it| Ok(it?.bytes)).collect::<Result<Vec<_>>>()?;
    sent.iter().try_for_each(|it| injector.send(it))?;
    await_for("the packets", LIMIT, || {
        Ok((tcpdump.captured() >= sent.len()).then_some(()))
    })?;
    tcpdump.stop()?;
    let got = capture::frames(&file)?;
    Ok(Captured { sent, got })
}

fn lens(frames: &[Vec<u8>]) -> Vec<usize> {
    frames.iter().map(Vec::len).collect()
}

fn are_whole(installed: &Installed, device: &str, arguments: &str) -> Result<()> {
    let poller = installed.start(&format!("dpdk:{device},iface={FAR}{arguments}"))?;
    let said = poller.said()?;
    ensure!(!said.contains("cuts packets"), "{said}");
    let Captured { sent, got } = capture(installed, device)?;
    ensure!(got == sent, "{device}: {:?}", lens(&got));
    poller.end()?;
    Ok(())
}

#[test]
#[ignore = "needs root: network namespaces"]
fn long_packets_of_several_buffers_are_captured_whole() {
    with_dpdk(|installed| {
        add_devices()?;
        are_whole(installed, "net_pcap0", "")
    });
}

/// The driver puts each packet into one buffer, so the plugin makes large buffers.
#[test]
#[ignore = "needs root: network namespaces"]
fn long_packets_of_one_large_buffer_are_captured_whole() {
    with_dpdk(|installed| {
        add_devices()?;
        let arguments = ",framesz=16384,blocksz=16384";
        are_whole(installed, "net_af_packet0", arguments)
    });
}

/// The poller takes no more memory than the documentation says for four queues, although the driver
/// first refuses the usual buffers.
#[test]
#[ignore = "needs root: network namespaces"]
fn large_buffers_of_four_queues_have_memory() {
    with_dpdk(|installed| {
        add_devices()?;
        let arguments = format!("iface={FAR},qpairs=4,framesz=16384,blocksz=16384");
        let poller = installed.start(&format!("dpdk:net_af_packet0,{arguments} --queues 4"))?;
        poller.end()?;
        Ok(())
    });
}

#[test]
#[ignore = "needs root: network namespaces"]
fn a_poller_tells_that_the_device_cuts_long_packets() {
    with_dpdk(|installed| {
        add_devices()?;
        let poller = installed.start(&format!("dpdk:net_af_packet0,iface={FAR}"))?;
        let said = poller.said()?;
        let expected = "cuts packets after 1982 bytes ('framesz=16384,blocksz=16384' takes 16318)";
        ensure!(said.contains(expected), "{said}");
        let Captured { sent, got } = capture(installed, "net_af_packet0")?;
        let cut = sent.iter().map(|it| it[..it.len().min(1982)].to_vec());
        ensure!(got == cut.collect::<Vec<_>>(), "{:?}", lens(&got));
        poller.end()?;
        ip(&format!("link set {FAR} mtu 1500"))?;
        let said = installed
            .start(&format!("dpdk:net_af_packet1,iface={FAR}"))?
            .said()?;
        ensure!(!said.contains("cuts packets"), "{said}");
        Ok(())
    });
}
