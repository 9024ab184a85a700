//! Flow consistency. Under `flow`, one of eight members gets both directions of a flow, the ICMP
//! errors about the flow, and the flow's packets in tunnels. For comparison, the test prints the
//! result of the kernel's `hash` on the same frames.

use anyhow::{Result, ensure};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::RngCore;

use crate::conversation::{AT_ONCE, Part, Speaker, data, interleaved};
use crate::scene::on_scene;
use crate::talk::{TRANSPORTS, Talk, WRAPS};
use crate::together::{beside, both_modes, flows, flows_split, split_without_errors};

/// Number of flows for each encapsulation, family and transport.
const EACH: usize = 40;

#[test]
#[ignore = "needs root: run by make test"]
fn flows_stay_at_one_member_both_ways_and_in_tunnels() -> Result<()> {
    on_scene(1, |scene| {
        let parts = interleaved(2, AT_ONCE, conversations(1));
        let (flow, hash) = both_modes(scene, &parts)?;
        let all = flows(&parts);
        let split = [&flow, &hash].map(|outcome| split_without_errors(&parts, outcome));
        println!("{}", beside("flows", &all, &split[0], &split[1]));
        let split = [&flow, &hash].map(|outcome| flows_split(&parts, outcome));
        println!(
            "{}",
            beside(
                "flows with the errors about them",
                &all,
                &split[0],
                &split[1]
            )
        );
        println!(
            "each member: flow {:?}, hash {:?}",
            flow.shares(),
            hash.shares()
        );
        ensure!(split[0].is_empty(), "{} flows split", split[0].len());
        ensure!(!flow.shares().contains(&0), "{:?}", flow.shares());
        Ok(())
    })
}

/// Requests and replies of each flow, and an ICMP error about the flow.
fn conversations(seed: u64) -> Vec<Vec<Part>> {
    let mut random = Pcg64Mcg::new(seed.into());
    let mut conversations = Vec::new();
    for (kind, wrap) in WRAPS {
        for transport in TRANSPORTS {
            for number in 0..2 * EACH {
                let flow = conversations.len();
                let talk = Talk::draw(&mut random, transport, number % 2 == 0, flow);
                let mut speaker = Speaker::new(&mut random, kind, wrap, flow);
                for packet in 0..6 {
                    let reply = speaker.random.next_u32() % 2 == 0;
                    speaker.say(&talk.packet(reply, &data(flow, packet, 20)), reply);
                }
                speaker.complain(&talk);
                conversations.push(speaker.parts);
            }
        }
    }
    conversations
}
