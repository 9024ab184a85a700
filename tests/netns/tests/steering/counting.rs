//! Samples and counters of a steering program. The filter of each member takes the samples and
//! increments the counters.

use anyhow::{Result, ensure};

use crate::frame::{CLIENT, Frame, Packet, SERVER, ip, tcp, udp};
use crate::scene::on_scene;

const MEMBERS: usize = 4;
const FLOWS: u16 = 400;

#[test]
#[ignore = "needs root: run by make test"]
fn a_sample_is_the_first_of_so_many_that_come_there() -> Result<()> {
    // The program drops every second frame.
    let frames: Vec<Frame> = (0..200_u16)
        .map(|number| {
            if number % 2 == 0 {
                web(number)
            } else {
                other(number)
            }
        })
        .collect();
    on_scene(1, |scene| {
        let outcome =
            scene.share_on_one_cpu("ip >-> sample 3 10 >-> steer_to 0", MEMBERS, &frames)?;
        for (place, owner) in outcome.owners.iter().enumerate() {
            let sampled = place % 2 == 0 && place / 2 % 10 < 3;
            ensure!(
                *owner == sampled.then_some(0),
                "frame {place} came to {owner:?}"
            );
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn each_member_samples_its_share() -> Result<()> {
    let frames: Vec<Frame> = (0..FLOWS).map(web).collect();
    on_scene(1, |scene| {
        let whole = scene.share_on_one_cpu("main = steer_flow", MEMBERS, &frames)?;
        let sample = scene.share_on_one_cpu("steer_flow >-> sample 1 10", MEMBERS, &frames)?;
        whole.ensure_all_came()?;
        let tenth: Vec<usize> = whole
            .shares()
            .iter()
            .map(|share| share.div_ceil(10))
            .collect();
        ensure!(
            sample.shares() == tenth,
            "{:?} of {:?}",
            sample.shares(),
            whole.shares()
        );
        let stayed = sample.owners.iter().zip(&whole.owners);
        ensure!(
            stayed
                .clone()
                .all(|(sample, whole)| sample.is_none() || sample == whole),
            "sampling changed the members of some frames"
        );
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn counters_add_up_over_the_members() -> Result<()> {
    let program = "main = do
        when is_tcp (inc 0)
        when is_udp (inc 1)
        inc 63
        unless is_ip (dec 5)
        steer_flow";
    let frames: Vec<Frame> = (0..FLOWS)
        .map(|number| match number % 4 {
            0 | 1 => web(number),
            2 => name(number),
            _ => other(number),
        })
        .collect();
    on_scene(1, |scene| {
        let outcome = scene.share(program, MEMBERS, &frames)?;
        // A packet that the program drops still reaches the filter of one member. This filter
        // counts the packet and then drops it.
        let half = i64::from(FLOWS) / 2;
        let expected = [half, half / 2, 2 * half, -half / 2];
        let counter = |number| outcome.told.get(&format!("counter{number}")).copied();
        let found = [0, 1, 63, 5].map(|number| counter(number).unwrap_or(0));
        ensure!(found == expected, "{found:?}, not {expected:?}");
        let came: usize = outcome.shares().iter().sum();
        ensure!(came == usize::from(FLOWS) / 4 * 3, "{:?}", outcome.shares());
        Ok(())
    })
}

fn web(number: u16) -> Frame {
    let ends = ([10, 0, 0, 1].into(), [192, 168, 0, 13].into());
    let packet = ip(ends, &tcp((10000 + number, 80), b"web"));
    Frame::arriving(packet.framed())
}

fn name(number: u16) -> Frame {
    let ends = ([10, 0, 0, 1].into(), [192, 168, 0, 42].into());
    let packet = ip(ends, &udp((10000 + number, 53), b"name"));
    Frame::leaving(packet.between((SERVER, CLIENT)))
}

fn other(number: u16) -> Frame {
    let packet = Packet::other(0x88b5, &number.to_be_bytes().repeat(30));
    Frame::arriving(packet.framed())
}
