//! Packets that the host sends. The tests send packets that the application's filter rejects, and
//! packets of more than 64 KiB.

use std::io::{self, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use fanpcap_group::view::GroupTable;
use fanpcap_linux::interface;
use fanpcap_netns::remains::on_wire_that_ends_clean;
use fanpcap_netns::{Wire, wait_for_shares};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::frames::{ethernet, udp, v4};
use fanpcap_testkit::hosts::{DEVICE, Hosts};
use fanpcap_testkit::veth::{self, ip};
use fanpcap_testkit::{Direction, Program, Scratch, member, netns};

use crate::scene::{start_as, tcpdump};

/// Sends frames of an ethertype for experiments.
fn send(wire: &Wire, direction: Direction, ethertype: u16, count: usize) -> Result<()> {
    let frame = ethernet(ethertype, &[0; 86]);
    wire.send_bytes((0..count).map(|_| (direction, &frame[..])))
}

#[test]
#[ignore = "needs root: run by make test"]
fn what_a_filter_rejects_is_not_received_whoever_runs_it() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        // Each handle is a group of its own on the device.
        let filters = [("ether proto 0x88b5", 20), ("ether proto 0x88b6", 1000)];
        let start = |(filter, _)| start_as(wire, tcpdump(wire)?.arg(filter));
        let members = filters.map(start).into_iter();
        let members = members.collect::<Result<Vec<_>>>()?;
        for direction in [Direction::Request, Direction::Reply] {
            send(wire, direction, 0x88b6, 500)?;
            send(wire, direction, 0x88b5, 10)?;
        }
        member::wait_for_packets(&members, 1020)?;
        for (member, (_, wanted)) in members.into_iter().zip(filters) {
            let ended = member.stop()?;
            let received = ended.count("packets received by filter")?;
            ensure!(received == wanted, "{}", ended.said);
            let dropped = ended.count("packets dropped by kernel")?;
            ensure!(dropped == 0, "{}", ended.said);
            ensure!(ended.capture()?.packets.len() == wanted);
        }
        Ok(())
    })
}

/// The members of a group share out what the host sends, each with the same filter.
#[test]
#[ignore = "needs root: run by make test"]
fn a_groups_members_receive_what_their_filters_want() -> Result<()> {
    const FLOWS: u16 = 200;
    for mode in ["flow", "flow+sticky+balance", "lb"] {
        on_wire_that_ends_clean(1, |wire| {
            let start = |_| start_as(wire, tcpdump(wire)?.group(7, mode).arg("udp port 7777"));
            let mut members = (0..3).map(start).collect::<Result<Vec<_>>>()?;
            member::wait_for_members(7, 3)?;
            wait_for_shares()?;
            let send = |port| -> Result<()> {
                let frame = |flow| ethernet(0x0800, &v4(17, 0, &udp(flow, port, &[7; 90])));
                let frames: Vec<_> = (0..FLOWS).map(frame).collect();
                wire.send_bytes(frames.iter().map(|it| (Direction::Reply, &it[..])))
            };
            let mut received = 0;
            for member in [None, members.pop()] {
                if let Some(member) = member {
                    received += member.stop()?.count("packets received by filter")?;
                    await_takeover()?;
                }
                send(9)?;
                send(7777)?;
            }
            for member in members {
                let ended = member.stop()?;
                received += ended.count("packets received by filter")?;
                ensure!(ended.count("packets dropped by kernel")? == 0);
            }
            ensure!(received == 2 * usize::from(FLOWS), "{mode}: {received}");
            Ok(())
        })?;
    }
    Ok(())
}

/// Waits until the other members of group 7 have the share of one that has ended. Until then its
/// ring gets packets, which no living member counts as received.
fn await_takeover() -> Result<()> {
    let ifindex = interface::index(fanpcap_netns::DEVICE).context("no device")?;
    let table = GroupTable::find(ifindex, 7, LIMIT).map_err(anyhow::Error::msg)?;
    let table = table.context("no table")?;
    await_for("the takeover", LIMIT, || {
        let gone = table.look().context("no view")?.gone;
        Ok((gone.members == 1).then_some(()))
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn long_packets_that_the_host_sends_are_whole() -> Result<()> {
    const BYTES: usize = 20 << 20;
    netns::within_new(|| {
        let hosts = Hosts::new()?;
        veth::offloads_on(DEVICE)?;
        if ip(&format!("link set {DEVICE} gso_max_size 185000")).is_err() {
            println!("SKIP: the kernel or ip(8) has no packets of more than 64 KiB");
            return Ok(());
        }
        let scratch = Scratch::new()?;
        let program = Program::tcpdump(DEVICE, scratch.file("long"))?;
        let member = program.args(["-Q", "out"]).set("PCAP_DRIVER", "xdp");
        let member = member.start(&scratch)?;
        let address = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
        let listener = hosts.on_peer(|| Ok(TcpListener::bind((address, 0))?))?;
        let port = listener.local_addr()?.port();
        let sink = thread::spawn(move || {
            let (mut taken, _) = listener.accept()?;
            io::copy(&mut taken, &mut io::sink())
        });
        let mut stream = TcpStream::connect((address, port))?;
        stream.write_all(&vec![7; BYTES])?;
        drop(stream);
        let taken = sink.join().map_err(|_| anyhow!("the sink"))??;
        ensure!(taken == BYTES as u64);
        let packets = member.stop()?.capture()?.packets;
        let longest = packets.iter().map(|it| it.original_len).max();
        println!("longest {longest:?} of {}", packets.len());
        if longest.is_none_or(|it| it <= 65_536) {
            println!("SKIP: the kernel has sent no packet of more than 64 KiB");
            return Ok(());
        }
        ensure!(packets.iter().all(|it| it.captured_len == it.original_len));
        Ok(())
    })
}
