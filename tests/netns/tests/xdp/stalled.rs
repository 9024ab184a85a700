//! A member that does not read fills its own ring, and no other member loses a packet.

use anyhow::{Context, Result, ensure};
use fanpcap_group::record::Record;
use fanpcap_group::roster;
use fanpcap_group::view::GroupTable;
use fanpcap_linux::interface;
use fanpcap_netns::remains::on_wire_that_ends_clean;
use fanpcap_netns::{DEVICE, ensure_each_once, wait_for_shares};
use fanpcap_testkit::await_for::LIMIT;
use fanpcap_testkit::member::wait_for_packets;
use fanpcap_testkit::traffic::{self, Frame};
use fanpcap_testkit::{Member, await_for, capture};

use crate::scene::{start_as, tcpdump};

const GROUP: u16 = 7;

/// A third of these frames is more than a ring of 4 MiB can hold.
const COUNT: u64 = 12_000;
const PAYLOAD: usize = 1400;

fn frames() -> Result<Vec<Frame>> {
    let flows = traffic::flows(1, 60);
    let frames = (0..COUNT).zip(flows.iter().cycle());
    let frames = frames.map(|(number, flow)| {
        let direction = fanpcap_testkit::Direction::Request;
        traffic::frame(*flow, direction, number, PAYLOAD)
    });
    frames.collect()
}

/// The page of a member's process.
fn page_of(member: &Member) -> Result<Record> {
    let pages = roster::entries()?.into_iter().filter_map(|it| it.page);
    let mut own = pages.filter(|page| page.pid == member.pid());
    own.next().context("no page")
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_member_that_is_stopped_loses_its_own_packets_only() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        // The rings of the other members are so large that only the stopped member loses packets,
        // even on a busy machine.
        let roomy = || Ok::<_, anyhow::Error>(tcpdump(wire)?.args(["-B", "65536"]));
        let alone = start_as(wire, roomy()?)?;
        let small = tcpdump(wire)?.args(["-B", "4096"]).group(GROUP, "flow");
        let stopped = start_as(wire, small)?;
        let others = (0..2).map(|_| start_as(wire, roomy()?.group(GROUP, "flow")));
        let others = others.collect::<Result<Vec<_>>>()?;
        wait_for_shares()?;
        let frames = frames()?;
        stopped.signal("STOP")?;
        wire.send_as_tap(&frames)?;
        stopped.signal("CONT")?;
        let mut members = others;
        members.push(stopped);
        let told = await_told(&members)?;
        let (lost, others_lost) = told.split_last().context("no members")?;
        ensure!(*lost > 0, "the stopped member has lost nothing");
        ensure!(
            others_lost.iter().all(|it| *it == 0),
            "others lost {others_lost:?}"
        );
        println!("{lost} of {COUNT} packets lost");
        // All packets that were not lost were captured, some of them by the stopped member.
        wait_for_packets(&members, usize::try_from(COUNT - lost)?)?;
        let stopped = members.into_iter().map(|it| it.stop()?.capture());
        let captures = stopped.collect::<Result<Vec<_>>>()?;
        let seen = capture::sequences(&captures);
        ensure!(
            seen.values().all(|times| *times == 1),
            "packets were captured twice"
        );
        ensure!(seen.len() as u64 == COUNT - lost, "{} captured", seen.len());
        // Another group gets separate copies of the packets.
        let alone = [alone];
        wait_for_packets(&alone, frames.len())?;
        let [alone] = alone;
        ensure_each_once(&[alone.stop()?.capture()?], &frames)
    })
}

/// Waits until the members' pages and the group's ledger account for all frames. Returns how many
/// packets each member has lost.
fn await_told(members: &[Member]) -> Result<Vec<u64>> {
    let ifindex = interface::index(DEVICE).context("the device")?;
    let table = GroupTable::find(ifindex, GROUP, LIMIT).map_err(anyhow::Error::msg)?;
    let table = table.context("no table")?;
    let mut said = String::new();
    let told = await_for("all frames to be accounted for", LIMIT, || {
        let pages = members.iter().map(page_of).collect::<Result<Vec<_>>>()?;
        let ledger = table.look().and_then(|view| view.ledger);
        said = format!(
            "{ledger:?}, {:?}",
            pages.iter().map(|it| it.counters).collect::<Vec<_>>()
        );
        let Some(ledger) = ledger else {
            return Ok(None);
        };
        let received: u64 = pages.iter().map(|page| page.counters.received).sum();
        let lost: Vec<u64> = pages.iter().map(|page| page.counters.dropped).collect();
        let sums = [ledger.nowhere, ledger.no_member, ledger.unwanted];
        let is_whole = ledger.offered == COUNT
            && sums == [0; 3]
            && ledger.produced + ledger.dropped == COUNT
            && received == COUNT
            && lost.iter().sum::<u64>() == ledger.dropped;
        Ok(is_whole.then_some(lost))
    });
    told.with_context(|| said.clone())
}
