//! How each mode distributes packets. The members are unmodified copies of tcpdump.

use std::collections::BTreeMap;
use std::thread;

use anyhow::{Result, ensure};
use fanpcap_netns::{FAR_DEVICE, ensure_each_once, ensure_flows_whole, finish, on_wire, shares};
use fanpcap_testkit::traffic::{self, Frame};
use fanpcap_testkit::{Capture, Direction, Flow, Injector, Member, Transport};
use fanpcap_testkit::{capture, cpus, member, pin, veth};

#[test]
#[ignore = "needs root: run by make test"]
fn hash_keeps_both_directions_of_a_flow_at_one_member() -> Result<()> {
    on_wire(1, |wire| {
        let members = wire.start_group(4, 7, "hash")?;
        let frames = traffic::frames(1, &traffic::flows(1, 100), 0..8000)?;
        wire.send(&frames)?;

        let captures = finish(members, frames.len())?;
        ensure_each_once(&captures, &frames)?;
        ensure_flows_whole(&captures)?;
        ensure!(
            shares(&captures).iter().all(|&share| share > 0),
            "{:?}",
            shares(&captures)
        );
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn hash_keeps_flows_with_vlan_tags_together() -> Result<()> {
    on_wire(1, |wire| {
        let members = wire.start_group(4, 7, "hash")?;
        let mut flows = traffic::flows(2, 50);
        for flow in &mut flows {
            flow.vlan = Some(42.try_into()?);
        }
        let frames = traffic::frames(2, &flows, 0..2000)?;
        // The kernel's flow dissector does not parse a tag in a frame that a packet socket sends
        // out. It parses tags in frames that arrive, so all frames are sent as a tap sends them.
        wire.send_as_tap(&frames)?;

        let captures = finish(members, frames.len())?;
        ensure_each_once(&captures, &frames)?;
        ensure_flows_whole(&captures)?;
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn lb_shares_the_loopback_devices_packets_evenly() -> Result<()> {
    on_wire(1, |wire| {
        veth::ip("link set lo up")?;
        let start = || wire.tcpdump_on("lo")?.group(7, "lb").start(&wire.scratch);
        let members = vec![start()?, start()?];
        let frames = traffic::frames(6, &traffic::flows(6, 10), 0..400)?;
        let sender = Injector::open("lo")?;
        for frame in &frames {
            sender.send(&frame.bytes)?;
        }
        let captures = finish(members, frames.len())?;
        ensure_each_once(&captures, &frames)?;
        let half = frames.len() / 2;
        ensure!(shares(&captures) == [half, half], "{:?}", shares(&captures));
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn lb_gives_every_member_the_same_number() -> Result<()> {
    on_wire(1, |wire| {
        let members = wire.start_group(3, 7, "lb")?;
        let frames = traffic::frames(3, &traffic::flows(3, 20), 0..4000)?;
        wire.send(&frames)?;

        let captures = finish(members, frames.len())?;
        ensure_each_once(&captures, &frames)?;
        let mut shares = shares(&captures);
        shares.sort_unstable();
        ensure!(shares == [1333, 1333, 1334], "{shares:?}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn rnd_gives_every_member_about_the_same_number() -> Result<()> {
    on_wire(1, |wire| {
        let members = wire.start_group(4, 7, "rnd")?;
        let frames = traffic::frames(4, &traffic::flows(4, 20), 0..8000)?;
        wire.send(&frames)?;

        let captures = finish(members, frames.len())?;
        ensure_each_once(&captures, &frames)?;
        // Binomial: the expected value is 2000, σ = √(8000 · ¼ · ¾) = 38.7. By chance, one run in
        // 400 000 gives a share beyond 5 σ.
        let fair = 2000 - 194..=2000 + 194;
        let shares = shares(&captures);
        ensure!(
            shares.iter().all(|share| fair.contains(share)),
            "{shares:?}"
        );
        // Exactly equal shares would mean `lb`. By chance they occur in one run of a million.
        ensure!(shares.iter().any(|&share| share != 2000), "{shares:?}");
        ensure!(
            !capture::split_flows(&captures).is_empty(),
            "rnd kept every flow together"
        );
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn qm_gives_every_queue_one_member() -> Result<()> {
    one_member_for_each_sender("qm")
}

#[test]
#[ignore = "needs root: run by make test"]
fn cpu_gives_every_processor_one_member() -> Result<()> {
    one_member_for_each_sender("cpu")
}

#[test]
#[ignore = "needs root: run by make test"]
fn qm_and_cpu_differ_where_processors_share_a_queue() -> Result<()> {
    if cpus_apart()?.len() < 2 {
        println!("SKIP: one CPU only");
        return Ok(());
    }
    for (mode, expected) in [("qm", 1), ("cpu", 2)] {
        on_wire(1, |wire| {
            let members = wire.start_group(4, 7, mode)?;
            let mut sent = 0;
            for (_, frames) in send_from_cpus_apart()? {
                sent += frames.len();
            }
            let captures = finish(members, sent)?;
            let homes = captures
                .iter()
                .filter(|capture| !capture.packets.is_empty());
            let homes = homes.count();
            ensure!(homes == expected, "{mode}: {homes} members of {expected}");
            Ok(())
        })?;
    }
    Ok(())
}

/// Checks modes that choose the member by the CPU or the queue. The senders' CPUs differ modulo
/// four, so on a device with four queues the senders use different queues, too. As there are four
/// members, each sender must have a member of its own.
fn one_member_for_each_sender(mode: &'static str) -> Result<()> {
    on_wire(4, |wire| {
        let members = wire.start_group(4, 7, mode)?;
        let senders = send_from_cpus_apart()?;

        let captures = finish(members, 1000 * senders.len())?;
        let mut homes = BTreeMap::new();
        for (cpu, frames) in &senders {
            let homes_of_sender = members_that_saw(&captures, frames);
            ensure!(
                homes_of_sender.len() == 1,
                "frames of CPU {cpu} reached members {homes_of_sender:?}"
            );
            homes.insert(homes_of_sender[0], cpu);
        }
        ensure!(
            homes.len() == senders.len(),
            "frames of two senders reached one member: {homes:?}"
        );
        Ok(())
    })
}

/// Sends a thousand frames on each CPU of [`cpus_apart`]. Returns the CPUs with their frames.
fn send_from_cpus_apart() -> Result<Vec<(usize, Vec<Frame>)>> {
    let flows = traffic::flows(5, 10);
    let senders = cpus_apart()?.into_iter().zip([0..1000, 1000..2000]);
    senders
        .map(|(cpu, numbers)| {
            let frames = traffic::frames(5, &flows, numbers)?;
            send_from_cpu(cpu, &frames)?;
            Ok((cpu, frames))
        })
        .collect()
}

/// Two CPUs whose numbers differ modulo four, or one CPU if the machine has no two such CPUs.
fn cpus_apart() -> Result<Vec<usize>> {
    let all = cpus()?;
    let second = all.iter().find(|&&cpu| cpu % 4 != all[0] % 4);
    Ok([Some(&all[0]), second]
        .into_iter()
        .flatten()
        .copied()
        .collect())
}

fn send_from_cpu(cpu: usize, frames: &[Frame]) -> Result<()> {
    let body = || -> Result<()> {
        pin(cpu)?;
        Ok(Injector::open_bypass(FAR_DEVICE)?.send_all(frames)?)
    };
    thread::scope(|scope| scope.spawn(body).join()).expect("the sender does not panic")
}

fn members_that_saw(captures: &[Capture], frames: &[Frame]) -> Vec<usize> {
    let numbers = frames[0].sequence..=frames[frames.len() - 1].sequence;
    let saw = |capture: &Capture| {
        capture.packets.iter().any(|packet| {
            packet
                .sequence
                .is_some_and(|sequence| numbers.contains(&sequence))
        })
    };
    (0..captures.len())
        .filter(|&index| saw(&captures[index]))
        .collect()
}

#[test]
#[ignore = "needs root: run by make test"]
fn rollover_spares_a_stalled_member() -> Result<()> {
    with_a_stalled_member("rollover", |members, frames| {
        let captures = finish(members, frames.len())?;
        ensure_each_once(&captures, frames)?;
        let shares = shares(&captures);
        ensure!(shares[0] > 0 && shares[1] + shares[2] > 0, "{shares:?}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_rollover_option_spares_a_stalled_member() -> Result<()> {
    with_a_stalled_member("hash+rollover", |members, frames| {
        // The kernel stays with the flow's own member while this member has any room (ROOM_LOW,
        // net/packet/af_packet.c fanout_demux_rollover). So the packet that finds the member's last
        // block full is lost.
        member::wait_for_packets(&members, frames.len() - 1)?;
        let captures = stop_all(members)?;
        let seen = capture::sequences(&captures);
        ensure!(
            seen.values().all(|&times| times == 1),
            "packets captured twice"
        );
        ensure!(
            seen.len() + 1 >= frames.len(),
            "{} of {} captured",
            seen.len(),
            frames.len()
        );
        ensure!(
            !capture::split_flows(&captures).is_empty(),
            "nothing rolled over"
        );
        Ok(())
    })
}

/// Starts a group whose first member has a small buffer and is stopped while frames arrive. The
/// buffers of the other members can hold all frames.
fn with_a_stalled_member(
    mode: &'static str,
    check: impl FnOnce(Vec<Member>, &[Frame]) -> Result<()> + Send,
) -> Result<()> {
    on_wire(1, |wire| {
        let small = wire
            .tcpdump()?
            .args(["-B", "2048"])
            .group(7, mode)
            .start(&wire.scratch)?;
        let mut members = vec![small];
        for _ in 0..2 {
            members.push(wire.tcpdump()?.group(7, mode).start(&wire.scratch)?);
        }
        members[0].signal("STOP")?;
        let frames = traffic::frames(6, &traffic::flows(6, 100), 0..30_000)?;
        wire.send(&frames)?;
        members[0].signal("CONT")?;
        check(members, &frames)
    })
}

fn stop_all(members: Vec<Member>) -> Result<Vec<Capture>> {
    members
        .into_iter()
        .map(|member| member.stop()?.capture())
        .collect()
}

#[test]
#[ignore = "needs root: run by make test"]
fn defrag_keeps_fragments_with_their_flow() -> Result<()> {
    on_wire(1, |wire| {
        let members = wire.start_group(4, 7, "hash+defrag")?;
        let datagrams = datagrams_of_mixed_size()?;
        wire.send(&cut_to_1480(&datagrams)?)?;

        // The kernel delivers a reassembled datagram as one packet.
        let captures = finish(members, datagrams.len())?;
        ensure_each_once(&captures, &datagrams)?;
        ensure!(
            capture::split_by(&captures, |flow| flow.hosts()).is_empty(),
            "fragments strayed"
        );
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn without_defrag_fragments_may_leave_their_flow() -> Result<()> {
    on_wire(1, |wire| {
        let members = wire.start_group(4, 7, "hash")?;
        let fragments = cut_to_1480(&datagrams_of_mixed_size()?)?;
        wire.send(&fragments)?;

        let captures = finish(members, fragments.len())?;
        let split = capture::split_by(&captures, |flow| flow.hosts());
        ensure!(
            !split.is_empty(),
            "without defrag no flow was split, so this test proves nothing"
        );
        Ok(())
    })
}

/// Datagrams of one to three fragments, of the UDP flows over IPv4 among 41 flows. With this
/// number, each of the flows has datagrams of every size. Each flow has different hosts.
fn datagrams_of_mixed_size() -> Result<Vec<Frame>> {
    let is_udp4 = |flow: &Flow| flow.transport == Transport::Udp && flow.client.is_ipv4();
    let flows: Vec<Flow> = traffic::flows(7, 41).into_iter().filter(is_udp4).collect();
    let sizes = [100, 1400, 2000, 3000, 4000].into_iter().cycle();
    let in_turn = flows.iter().cycle().zip(sizes).zip(0..400);
    in_turn
        .map(|((&flow, size), number)| traffic::frame(flow, Direction::Request, number, size))
        .collect()
}

fn cut_to_1480(datagrams: &[Frame]) -> Result<Vec<Frame>> {
    let mut frames = Vec::new();
    for datagram in datagrams {
        frames.extend(traffic::fragments(datagram, 1480)?);
    }
    Ok(frames)
}
