//! Flows are spread evenly over members, also where addresses and ports grow together.

use fanpcap_steer::ir::{Flow, Function, Program, Steer};
use fanpcap_steer::native::{Decision, Evaluator, Packet};
use fanpcap_steer_testkit::frames::{ethernet, udp, v4, v6};
use fanpcap_steer_testkit::tape;
use fanpcap_wire::Frame;

const MEMBERS: usize = 8;

/// How many of these frames each member gets.
fn shares(frames: impl Iterator<Item = Vec<u8>>) -> [usize; MEMBERS] {
    let mut evaluator = Evaluator::of_group(&Program {
        main: Function::Steer(Steer::Flow(Flow::WHOLE)),
        sets: Vec::new(),
        filters: Vec::new(),
    });
    let mut shares = [0; MEMBERS];
    for bytes in frames {
        let frame = Frame {
            bytes: &bytes,
            tag: None,
        };
        let Decision::Steer(number) = evaluator.decide(&Packet::of(frame)) else {
            panic!("a flow is steered");
        };
        shares[number as usize % MEMBERS] += 1;
    }
    shares
}

/// Every share within five standard deviations of the even one.
fn assert_even(shares: [usize; MEMBERS], what: &str) {
    let count = shares.iter().sum::<usize>() as f64;
    let share = 1.0 / MEMBERS as f64;
    let sigma = (count * share * (1.0 - share)).sqrt();
    for got in shares {
        let off = (got as f64 - count * share).abs();
        assert!(off <= 5.0 * sigma, "{what}: {shares:?}, sigma {sigma}");
    }
}

const FLOWS: usize = 65536;

#[test]
fn random_flows_of_ipv4_are_spread_evenly() {
    for seed in 0..20 {
        let random = tape(seed, FLOWS * 12);
        let frames = random.chunks_exact(12).map(|flow| {
            let mut bytes = ethernet(0x0800, &v4(17, 0, &udp(0, 0, &[])));
            bytes[26..38].copy_from_slice(flow);
            bytes
        });
        assert_even(shares(frames), &format!("seed {seed}"));
    }
}

#[test]
fn random_flows_of_ipv6_are_spread_evenly() {
    for seed in 0..20 {
        let random = tape(seed, FLOWS * 12);
        // Hosts of one network: the upper half of the address is the same.
        let frames = random.chunks_exact(12).map(|flow| {
            let mut bytes = ethernet(0x86dd, &v6(17, &udp(0, 443, &[])));
            bytes[30..38].copy_from_slice(&flow[..8]);
            bytes[54..58].copy_from_slice(&flow[8..]);
            bytes
        });
        assert_even(shares(frames), &format!("seed {seed}"));
    }
}

/// The trap of the RSS key 6D:5A: where address and port grow together, an XOR of both is always the same.
#[test]
fn clients_whose_port_grows_with_their_address_are_spread() {
    let frames = (0..=255_u8).map(|client| {
        let mut bytes = ethernet(
            0x0800,
            &v4(17, 0, &udp(40960 + u16::from(client), 443, &[])),
        );
        bytes[29] = client;
        bytes
    });
    let shares = shares(frames);
    println!("{shares:?}");
    assert!(
        shares.iter().all(|share| (10..=60).contains(share)),
        "{shares:?}"
    );
}

#[test]
fn ports_alone_spread_the_flows_of_two_hosts() {
    let frames = (1024..=65535_u16).map(|port| ethernet(0x0800, &v4(17, 0, &udp(port, 53, &[]))));
    assert_even(shares(frames), "ports");
}
