//! tcpdump with our library, whose packets come from `fanpcap poller`.

use anyhow::{Result, ensure};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::capture::{self, Capture};
use fanpcap_testkit::netns::within_new;
use fanpcap_testkit::{Injector, Member, Program, Scratch, Veth, traffic};

use crate::running::Poller;
use crate::{FAR, NEAR};

/// The packets of the first frames, which give each member its share.
const FIRST: u64 = 1_000_000;

const COUNT: u64 = 8000;

/// Two and then four copies of tcpdump in a group share the packets of a poller's device, to which
/// the frames come that are sent on [`NEAR`].
pub(crate) fn share_flow_by_flow(device: &str) -> Result<()> {
    let scratch = Scratch::new()?;
    let injector = Injector::open(NEAR)?;
    for copies in [2, 4] {
        let start = |number| {
            let file = scratch.file(&format!("{copies}-{number}.pcap"));
            let program = Program::tcpdump(device, file)?;
            program.group(5, "flow").start(&scratch)
        };
        let members = (0..copies).map(start).collect::<Result<Vec<_>>>()?;
        let before = share(&injector, &members)?;
        let flows = traffic::flows(1, 300);
        for frame in traffic::frames(1, &flows, 0..COUNT)? {
            injector.send(&frame.bytes)?;
        }
        await_captured(&members, before + COUNT)?;
        let ended = members.into_iter().map(Member::stop);
        let ended = ended.collect::<Result<Vec<_>>>()?;
        let mut received = 0;
        for ended in &ended {
            received += ended.count(" packets received by filter")? as u64;
            ensure!(ended.count(" packets dropped by kernel")? == 0);
        }
        ensure!(received == before + COUNT, "{received}");
        check(ended.iter().map(|it| it.capture()).collect::<Result<_>>()?)?;
    }
    Ok(())
}

fn captured(members: &[Member]) -> u64 {
    members.iter().map(|it| it.captured() as u64).sum()
}

fn await_captured(members: &[Member], count: u64) -> Result<()> {
    await_for("the packets", LIMIT, || {
        Ok((captured(members) >= count).then_some(()))
    })
}

/// Sends frames of many flows until each member has got some. Returns how many.
fn share(injector: &Injector, members: &[Member]) -> Result<u64> {
    let flows = traffic::flows(9, 200);
    let mut count = 0;
    await_for("the members' shares", LIMIT, || {
        let from = FIRST + count;
        for frame in traffic::frames(from, &flows, from..from + 200)? {
            injector.send(&frame.bytes)?;
        }
        count += 200;
        await_captured(members, count)?;
        let have_some = members.iter().all(|it| it.captured() > 0);
        Ok(have_some.then_some(count))
    })
}

/// Checks that each of the last frames is in one capture, and each flow of them, too.
fn check(mut captures: Vec<Capture>) -> Result<()> {
    for capture in &mut captures {
        let packets = &mut capture.packets;
        packets.retain(|it| it.sequence.is_some_and(|number| number < FIRST));
        ensure!(!packets.is_empty(), "each member has a part");
    }
    let seen = capture::sequences(&captures);
    let is_once = |number| seen.get(&number) == Some(&1);
    ensure!((0..COUNT).all(is_once) && seen.len() as u64 == COUNT);
    let split = capture::split_flows(&captures);
    ensure!(split.is_empty(), "{} flows at several members", split.len());
    Ok(())
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn tcpdumps_in_a_group_share_the_packets_flow_by_flow() {
    within_new(|| {
        Veth::new(NEAR, FAR, 1)?;
        let poller = Poller::start(&format!("packet:{FAR}"), 1)?;
        share_flow_by_flow(&format!("packet:{FAR}"))?;
        poller.end()?;
        Ok(())
    })
    .unwrap();
}
