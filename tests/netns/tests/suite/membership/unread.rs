//! A handle that its application does not read at first: which member reads its packets, and which
//! member's counters include them.

use anyhow::{Context, Result, ensure};
use fanpcap_group::page::{GroupDir, HeldPage};
use fanpcap_linux::interface;
use fanpcap_netns::dialog::Dialog;
use fanpcap_netns::{DEVICE, Wire};
use fanpcap_testkit::await_for::LIMIT;
use fanpcap_testkit::{await_for, traffic};

use super::load::Load;
use super::recorder::Recorder;
use super::records;
use super::scene::{ON_XDP, on_wire_of};

const GROUP: u16 = 7;

#[test]
#[ignore = "needs root: run by make test"]
fn what_others_read_of_an_unread_ring_is_not_its_owners() -> Result<()> {
    on_wire_of(&[], |wire| two_read_one_ring(wire, &[]))
}

#[test]
#[ignore = "needs root: run by make test"]
fn what_others_read_of_an_unread_ring_on_xdp_is_not_its_owners() -> Result<()> {
    on_wire_of(&[ON_XDP], |wire| two_read_one_ring(wire, &[ON_XDP]))
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_first_handle_has_all_after_the_only_one_that_was_read_has_closed() -> Result<()> {
    on_wire_of(&[], |wire| one_asks_and_closes(wire, "PCAP_DRIVER=tpacket"))
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_first_handle_on_xdp_has_all_after_the_only_one_that_was_read_has_closed() -> Result<()> {
    on_wire_of(&[ON_XDP], |wire| {
        one_asks_and_closes(wire, "PCAP_DRIVER=xdp")
    })
}

/// Opens and reads handles in the order of scapy's `srp()`: a second handle with its own filter
/// asks for an address and is closed. Then packets are sent, and only after that the first handle
/// is read.
fn one_asks_and_closes(wire: &Wire, engine: &str) -> Result<()> {
    let group = format!("PCAP_GROUP={GROUP}");
    let mut program = Dialog::behind(wire, -1, &["env", &group, engine])?;
    program.expect("plain", "opened 0")?;
    program.expect("plain", "opened 1")?;
    program.expect("filter 1 arp", "done")?;
    ensure!(program.count(1)? == 0);
    program.expect("close 1", "done")?;
    let frames = traffic::frames(1, &traffic::flows(1, 60), 0..600)?;
    wire.send_as_tap(&frames)?;
    let count = program.count(0)?;
    ensure!(count == frames.len(), "{count} of {}", frames.len());
    Ok(())
}

/// First another member reads the packets of a handle, then the handle's own application.
fn two_read_one_ring(wire: &Wire, how: &[&str]) -> Result<()> {
    let mut owner = Recorder::start(wire, DEVICE, GROUP, &[how, &["idle"]].concat())?;
    let ifindex = interface::index(DEVICE).context("no device")?;
    let page = GroupDir::of(ifindex, GROUP)?.hold(owner.pid()?, owner.id()?)?;
    let load = Load::start_at("20kpps")?;
    load.await_each_flow()?;
    let mut other = Recorder::start(wire, DEVICE, GROUP, how)?;
    load.await_each_flow()?;
    let first = load.stop()?.count();
    await_count(&[&other], first)?;
    let [own, others] = shares(&page)?;
    ensure!(
        own == 0 && others > 0,
        "of its packets the owner took {own}, others {others}"
    );
    ensure!(
        others < first as u64,
        "the other member has its own share already"
    );
    owner.call()?;
    // The owner reads now. Both members have a share once both wait for packets.
    fanpcap_netns::wait_for_shares()?;
    let load = Load::start_at("20kpps")?;
    load.await_each_flow()?;
    let second = load.stop()?.count();
    await_count(&[&owner, &other], first + second)?;
    let (counted, after) = (records::count(&owner.file)?, shares(&page)?);
    ensure!(
        counted > 0 && after == [counted, others],
        "{counted}, {after:?}"
    );
    owner.stop()?;
    other.stop()
}

/// Two numbers of packets in a member's ring: those that the owner has taken, and those that other
/// members have taken.
fn shares(page: &HeldPage) -> Result<[u64; 2]> {
    let taken = page.record().and_then(|record| record.taken);
    let others = page.takeover().context("no page")?.inherited;
    Ok([taken.context("no figure")? - others, others])
}

fn await_count(members: &[&Recorder], wanted: usize) -> Result<()> {
    await_for("all packets", LIMIT, || {
        let counts = members.iter().map(|it| records::count(&it.file));
        let count = counts.sum::<Result<u64>>()?;
        Ok((count == wanted as u64).then_some(()))
    })
}
