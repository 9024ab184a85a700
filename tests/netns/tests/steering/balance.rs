//! Balance: how evenly `flow` distributes flows.

use std::net::IpAddr;

use anyhow::{Result, ensure};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::RngCore;

use crate::frame::{Frame, ip, tcp};
use crate::scene::on_scene;

const MEMBERS: usize = 8;

#[test]
#[ignore = "needs root: run by make test"]
fn random_flows_are_dealt_out_evenly() -> Result<()> {
    const FLOWS: usize = 65536;
    let mut random = Pcg64Mcg::new(1);
    let frames: Vec<Frame> = (0..FLOWS).map(|_| random_flow(&mut random)).collect();
    on_scene(1, |scene| {
        let outcome = scene.share("flow", MEMBERS, &frames)?;
        outcome.ensure_all_came()?;
        let shares = outcome.shares();
        println!("{FLOWS} flows over {MEMBERS} members: {shares:?}");
        // Binomial: the expected value is 8192, σ = √(65536 · ⅛ · ⅞) = 84.7. By chance, one seed in
        // 200 000 gives a share beyond 5 σ.
        let fair = 8192 - 423..=8192 + 423;
        ensure!(
            shares.iter().all(|share| fair.contains(share)),
            "{shares:?}"
        );
        Ok(())
    })
}

/// The hash of a flow must not be an XOR of its addresses and ports, as the hash with the key 6D:5A
/// is. In such a hash, an address and a port that increase together cancel each other out.
#[test]
#[ignore = "needs root: run by make test"]
fn clients_whose_ports_grow_with_their_addresses_are_dealt_out_too() -> Result<()> {
    let client = |number: u8| {
        let address: IpAddr = [10, 0, 0, number].into();
        let port = 40960 + u16::from(number);
        let request = ip(
            (address, [192, 168, 0, 1].into()),
            &tcp((port, 443), b"hello"),
        );
        Frame::arriving(request.framed())
    };
    let frames: Vec<Frame> = (0..=255).map(client).collect();
    on_scene(1, |scene| {
        let flow = scene.share("flow", MEMBERS, &frames)?;
        let hash = scene.share("hash", MEMBERS, &frames)?;
        flow.ensure_all_came()?;
        println!(
            "256 clients over {MEMBERS} members: flow {:?}, hash {:?}",
            flow.shares(),
            hash.shares()
        );
        let shares = flow.shares();
        ensure!(
            shares.iter().all(|share| (10..=60).contains(share)),
            "{shares:?}"
        );
        Ok(())
    })
}

fn random_flow(random: &mut Pcg64Mcg) -> Frame {
    let [a, b, c, d, e, f, g, h] = random.next_u64().to_be_bytes();
    let [i, j, k, l, ..] = random.next_u64().to_be_bytes();
    let ports = (u16::from_be_bytes([i, j]), u16::from_be_bytes([k, l]));
    let ends = ([a, b, c, d].into(), [e, f, g, h].into());
    Frame::arriving(ip(ends, &tcp(ports, &[])).framed())
}
