//! Steering by a packet's metadata: the queue, the CPU, and the hash that the kernel has computed.

use std::thread;

use anyhow::{Result, ensure};
use fanpcap_netns::{DEVICE, FAR_DEVICE};
use fanpcap_testkit::{Direction, Injector, cpus, pin};

use crate::frame::{CLIENT, Frame, SERVER, ip, udp};
use crate::scene::on_scene;

const QUEUES: usize = 4;
const FLOWS: u16 = 100;

/// A veth device does not record a receive queue, so the skb still has the number of the sender's
/// transmit queue, which the kernel's `qm` uses. A driver that records the queue stores the queue's
/// number plus one (include/linux/skbuff.h, `skb_record_rx_queue`); 0 means no queue.
#[test]
#[ignore = "needs root: run by make test"]
fn queues_are_those_that_the_kernel_tells() -> Result<()> {
    let mut program = format!("main = do\n    steer_to {QUEUES}\n");
    for queue in 0..QUEUES {
        program += &format!("    when (rx_queue .== {queue}) (steer_to {queue})\n");
    }
    on_scene(QUEUES, |scene| {
        let frames: Vec<Frame> = (0..FLOWS).flat_map(request_and_reply).collect();
        let numbers = scene.share("qm", QUEUES, &frames)?;
        let outcome = scene.share(&program, QUEUES + 1, &frames)?;
        numbers.ensure_all_came()?;
        for (place, frame) in frames.iter().enumerate() {
            let expected = match (frame.direction, numbers.owners[place]) {
                (Direction::Request, Some(number @ 1..)) => number - 1,
                (Direction::Request, _) | (Direction::Reply, _) => QUEUES,
            };
            let owner = outcome.owners[place];
            ensure!(
                owner == Some(expected),
                "frame {place} reached member {owner:?}, not {expected}"
            );
        }
        println!("{} frames by queue: {:?}", frames.len(), outcome.shares());
        let told = &outcome.shares()[..QUEUES - 1];
        ensure!(!told.contains(&0), "this scene has a single queue");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn cpus_are_members_modulo_members() -> Result<()> {
    on_scene(1, |scene| {
        let senders = senders()?;
        let outcome = scene.share_sent_by("steer_cpu", 4, &all(&senders), || send(&senders))?;
        for (cpu, owner) in sent_by(&senders).zip(&outcome.owners) {
            ensure!(
                *owner == Some(cpu % 4),
                "a frame on CPU {cpu} reached member {owner:?}"
            );
        }
        println!(
            "{} frames by CPU, on CPUs {:?}",
            outcome.owners.len(),
            cpus()?
        );
        Ok(())
    })
}

/// The kernel computes the hash of each packet that it sends over a device with several queues. For
/// a device with a single queue, the kernel does not compute it.
#[test]
#[ignore = "needs root: run by make test"]
fn the_kernels_hash_is_used_where_there_is_one() -> Result<()> {
    let frames: Vec<Frame> = (0..FLOWS).flat_map(conversation).collect();
    for (queues, hashed) in [(1, false), (QUEUES, true)] {
        on_scene(queues, |scene| {
            let rss = scene.share("main = steer_rss", 4, &frames)?;
            let flow = scene.share("main = steer_flow", 4, &frames)?;
            rss.ensure_all_came()?;
            let split = rss
                .owners
                .chunks(2)
                .filter(|pair| pair[0] != pair[1])
                .count();
            ensure!(split == 0, "{queues} queues: {split} flows split");
            let moved = rss
                .owners
                .iter()
                .zip(&flow.owners)
                .filter(|(rss, flow)| rss != flow)
                .count();
            println!(
                "{queues} queues: {moved} of {} frames reached another member than under flow",
                frames.len()
            );
            ensure!(
                (moved > 0) == hashed,
                "{queues} queues: {moved} frames reached another member than under flow"
            );
            Ok(())
        })?;
    }
    Ok(())
}

/// A request and its reply, both sent at the far end, so that one device computes the hash of both.
fn conversation(flow: u16) -> [Frame; 2] {
    let (client, server) = ([10, 0, 0, 1].into(), [192, 168, 0, 42].into());
    let port = 40000 + flow;
    let request = ip((client, server), &udp((port, 53), b"request"));
    let reply = ip((server, client), &udp((53, port), b"reply"));
    [request.framed(), reply.between((SERVER, CLIENT))].map(Frame::arriving)
}

/// A request that arrives, and its reply that leaves.
fn request_and_reply(flow: u16) -> [Frame; 2] {
    let [request, reply] = conversation(flow);
    [request, Frame::leaving(reply.bytes)]
}

/// A CPU, and the frames that are sent on this CPU.
type Sender = (usize, Vec<Frame>);

fn senders() -> Result<Vec<Sender>> {
    let of = |cpu: usize| {
        let number = u8::try_from(cpu).unwrap_or(u8::MAX);
        let frame = |flow: u16| {
            let ends = ([10, 0, number, 1].into(), [192, 168, 0, 42].into());
            let packet = ip(ends, &udp((40000 + flow, 53), b"request"));
            if flow % 2 == 0 {
                Frame::arriving(packet.framed())
            } else {
                Frame::leaving(packet.between((SERVER, CLIENT)))
            }
        };
        (cpu, (0..FLOWS).map(frame).collect())
    };
    Ok(cpus()?.into_iter().map(of).collect())
}

fn all(senders: &[Sender]) -> Vec<Frame> {
    senders
        .iter()
        .flat_map(|(_, frames)| frames.clone())
        .collect()
}

/// For each frame in the order of sending, the CPU that sends the frame.
fn sent_by(senders: &[Sender]) -> impl Iterator<Item = usize> {
    senders
        .iter()
        .flat_map(|(cpu, frames)| vec![*cpu; frames.len()])
}

fn send(senders: &[Sender]) -> Result<()> {
    for (cpu, frames) in senders {
        let body = || -> Result<()> {
            pin(*cpu)?;
            let far = Injector::open_bypass(FAR_DEVICE)?;
            // Frames must pass the queueing discipline, because the device's own taps do not see
            // other frames.
            let near = Injector::open(DEVICE)?;
            for frame in frames {
                match frame.direction {
                    Direction::Request => far.send(&frame.bytes)?,
                    Direction::Reply => near.send(&frame.bytes)?,
                }
            }
            Ok(())
        };
        thread::scope(|scope| scope.spawn(body).join()).expect("the sender does not panic")?;
    }
    Ok(())
}
