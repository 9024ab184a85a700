//! A device changes while readers wait for its packets: it goes down, gets another name, is moved
//! to another namespace, is deleted, or gets another number of queues.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fanpcap_linux::bpf::{Attached, Hook};
use fanpcap_linux::process::pidfd::Process;
use fanpcap_netns::remains::{leaves_nothing, on_wire_that_ends_clean};
use fanpcap_netns::{
    DEVICE, FAR_DEVICE, Wire, ensure_each_once, ensure_flows_whole, on_wire, wait_for_shares,
};
use fanpcap_testkit::await_for::within;
use fanpcap_testkit::member::wait_for_packets;
use fanpcap_testkit::traffic::{self, Frame};
use fanpcap_testkit::veth::{self, ip};
use fanpcap_testkit::{Member, Program, netns};

use crate::scene::{start, start_as, tcpdump};

fn frames(count: u64) -> Result<Vec<Frame>> {
    traffic::frames(1, &traffic::flows(1, 60), 0..count)
}

fn member(wire: &Wire) -> Result<Member> {
    start_as(wire, tcpdump(wire)?.group(7, "flow"))
}

/// A network namespace other than the calling thread's.
fn other_namespace() -> Result<OwnedFd> {
    let own = netns::current()?;
    netns::enter_quiet()?;
    let other = netns::current()?;
    netns::enter(own.as_fd())?;
    Ok(other)
}

/// Checks that three kinds of readers end with the same message after an event: the reader of a
/// packet socket, the reader of a handle on the engine, and the readers of a group's members on the
/// engine. Checks that nothing remains.
fn all_end_alike(event: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        let on_socket = wire.tcpdump()?.set("PCAP_DRIVER", "tpacket");
        let on_socket = on_socket.start(&wire.scratch)?;
        let others = [start(wire)?, member(wire)?, member(wire)?];
        wait_for_shares()?;
        wire.send_as_tap(&frames(100)?)?;
        event()?;
        let wanted = on_socket.wait()?;
        let last_words = |said: &str| said.lines().last().unwrap_or_default().to_owned();
        ensure!(!wanted.status.success(), "{}", wanted.said);
        for other in others {
            let ended = other.wait()?;
            let is_same = ended.status == wanted.status
                && last_words(&ended.said) == last_words(&wanted.said);
            ensure!(is_same, "{}\n{}", ended.said, wanted.said);
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn readers_of_a_device_that_is_deleted_end() -> Result<()> {
    all_end_alike(|| ip(&format!("link del {FAR_DEVICE}")))
}

#[test]
#[ignore = "needs root: run by make test"]
fn readers_of_a_device_that_is_moved_to_another_namespace_end() -> Result<()> {
    let other = other_namespace()?;
    all_end_alike(|| {
        let path = format!("/proc/{}/fd/{}", process::id(), other.as_raw_fd());
        ip(&format!("link set {DEVICE} netns {path}"))
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn readers_that_wait_go_on_when_a_device_was_down_and_had_another_name() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        // Without PCAP_DRIVER the system's library would read the socket, and it ends the read when
        // a device gets another name.
        let on_socket = wire.tcpdump()?.set("PCAP_DRIVER", "tpacket");
        let on_socket = on_socket.start(&wire.scratch)?;
        let readers = [start(wire)?, member(wire)?, on_socket];
        wait_for_shares()?;
        for (from, to) in [(DEVICE, "renamed"), ("renamed", DEVICE)] {
            ip(&format!("link set {from} down"))?;
            ip(&format!("link set {from} name {to}"))?;
            ip(&format!("link set {to} up"))?;
            [FAR_DEVICE, to].into_iter().try_for_each(veth::await_up)?;
        }
        let frames = frames(500)?;
        wire.send_as_tap(&frames)?;
        for reader in readers {
            let reader = [reader];
            wait_for_packets(&reader, frames.len())?;
            let [reader] = reader;
            ensure_each_once(&[reader.stop()?.capture()?], &frames)?;
        }
        Ok(())
    })
}

/// Detaches the engine's BPF program from the device, as `bpftool link detach` does. Uses the BPF
/// link that the process `pid` of a member has open.
fn detach(pid: u32) -> Result<()> {
    let process = Process::open(pid)?;
    let mut links = (3..256).filter_map(|number| {
        let descriptor = process.duplicate(number).ok()?;
        Attached::open(descriptor, Hook::Driver).ok()
    });
    let link = links.next().context("no BPF link")?;
    Ok(link.detach()?)
}

#[test]
#[ignore = "needs root: run by make test"]
fn readers_end_when_somebody_detaches_the_program() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        let polling = Program::new(wire.compile("on_xdp")?, "polling")?;
        let polling = polling.arg("lost").set("PCAP_DRIVER", "xdp");
        let mut readers = vec![start(wire)?, member(wire)?, member(wire)?];
        wait_for_shares()?;
        readers.push(start_as(wire, polling)?);
        wire.send_as_tap(&frames(100)?)?;
        detach(readers[0].pid())?;
        let begun = Instant::now();
        for reader in readers {
            let ended = reader.wait()?;
            let is_told = ended.said.contains("The BPF program was detached");
            ensure!(is_told && !ended.status.success(), "{}", ended.said);
        }
        println!("told within {:?}", begun.elapsed());
        // The reader may take a second to notice the event. Then the application may take a second
        // to write its file and end.
        ensure!(begun.elapsed() < within(Duration::from_secs(2)), "too late");
        Ok(())
    })
}

/// Sets the number of the device's receive queues, and of the peer's transmit queues.
pub(crate) fn set_queues(count: usize, is_more: bool) -> Result<()> {
    // The peer can't have more transmit queues than the device has receive queues. So the order
    // depends on the direction of the change.
    let devices = [(DEVICE, "rx"), (FAR_DEVICE, "tx")];
    let set = |(device, which)| veth::set_queues(device, which, count);
    if !is_more {
        return devices.into_iter().rev().try_for_each(set);
    }
    devices.into_iter().try_for_each(set)?;
    // A veth that is up runs no XDP program for its new queues (drivers/net/veth.c,
    // `veth_enable_range_safe`). So set it down and up.
    ip(&format!("link set {DEVICE} down"))?;
    ip(&format!("link set {DEVICE} up"))?;
    [FAR_DEVICE, DEVICE]
        .into_iter()
        .try_for_each(veth::await_up)
}

/// The members joined when the device had different numbers of queues. All of them must read all
/// queues.
#[test]
#[ignore = "needs root: run by make test"]
fn members_lose_nothing_when_the_device_has_more_queues_or_less() -> Result<()> {
    on_wire(8, |wire| {
        set_queues(2, false)?;
        leaves_nothing(|| {
            let alone = start(wire)?;
            let mut members = vec![member(wire)?];
            let frames = frames(4000)?;
            for (some, queues) in frames.chunks(1000).zip([2, 8, 1, 4]) {
                set_queues(queues, queues > 2)?;
                members.push(member(wire)?);
                wait_for_shares()?;
                let before: usize = members.iter().map(Member::captured).sum();
                wire.send_as_tap(some)?;
                wait_for_packets(&members, before + some.len())
                    .with_context(|| format!("{queues} queues"))?;
            }
            let stopped = members.into_iter().map(|it| it.stop()?.capture());
            let captures: Vec<_> = stopped.collect::<Result<_>>()?;
            ensure_each_once(&captures, &frames)?;
            wait_for_packets(&[alone], frames.len())
        })
    })
}

/// A device may have more queues than the machine has CPUs.
#[test]
#[ignore = "needs root: run by make test"]
fn a_device_with_many_queues_loses_nothing() -> Result<()> {
    on_wire_that_ends_clean(20, |wire| {
        let members = vec![member(wire)?, member(wire)?];
        wait_for_shares()?;
        let frames = frames(4000)?;
        wire.send_as_tap(&frames)?;
        let captures = fanpcap_netns::finish(members, frames.len())?;
        ensure_each_once(&captures, &frames)?;
        ensure_flows_whole(&captures)
    })
}
