//! Checks that flows are spread evenly over a group's buckets, even if their addresses and ports
//! increase together.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::print_stdout, reason = "a test prints its measurements")]

use fanpcap_buckets::layout::{BUCKETS, bucket};
use fanpcap_steer::ir::{Flow, Function, Steer, Tree};
use fanpcap_steer::native::{Decision, Evaluator, Packet};
use fanpcap_steer_testkit::tape;
use fanpcap_testkit::frames::{ethernet, udp, v4, v6};
use fanpcap_wire::Frame;

/// The number of flows in each bucket.
fn loads(steer: Steer, frames: impl Iterator<Item = Vec<u8>>) -> Vec<usize> {
    let mut evaluator = Evaluator::of_group(&Tree {
        main: Function::Steer(steer),
        sets: Vec::new(),
        filters: Vec::new(),
    });
    let mut loads = vec![0; BUCKETS];
    for bytes in frames {
        let frame = Frame {
            bytes: &bytes,
            tag: None,
        };
        let Decision::Steer(hash) = evaluator.decide(&Packet::of(frame)) else {
            panic!("expected the frame to be steered by its hash");
        };
        loads[bucket(hash)] += 1;
    }
    loads
}

/// Checks that the loads are like those of random hashes: their chi-square is within six standard
/// deviations. Also checks that the fullest bucket has no more flows than random hashes would give
/// it, except with a probability below one in 10^9.
fn assert_random(what: &str, loads: &[usize]) {
    let flows = loads.iter().sum::<usize>() as f64;
    let mean = flows / BUCKETS as f64;
    let squares: f64 = loads.iter().map(|&load| (load as f64 - mean).powi(2)).sum();
    let chi = (squares / mean - BUCKETS as f64) / (2.0 * BUCKETS as f64).sqrt();
    let fullest = loads.iter().copied().max().unwrap_or(0) as f64;
    let empty = loads.iter().filter(|&&load| load == 0).count();
    println!(
        "{what}: {flows} flows, fullest bucket {:.2} of the mean, {empty} empty, chi-square {chi:+.1} sigma",
        fullest / mean
    );
    assert!(chi.abs() < 6.0, "{what}: chi-square {chi}");
    assert!(
        fullest < mean + 7.5 * mean.sqrt() + 7.0,
        "{what}: fullest bucket {fullest}"
    );
}

fn assert_flows(what: &str, frames: impl Iterator<Item = Vec<u8>>) {
    assert_random(what, &loads(Steer::Flow(Flow::WHOLE), frames));
}

fn four(source: [u8; 4], destination: [u8; 4], ports: [u16; 2]) -> Vec<u8> {
    let mut bytes = ethernet(0x0800, &v4(17, 0, &udp(ports[0], ports[1], &[])));
    bytes[26..30].copy_from_slice(&source);
    bytes[30..34].copy_from_slice(&destination);
    bytes
}

/// The address of a host in a network with 2^24 addresses.
fn host(number: u32) -> [u8; 4] {
    (0x0a00_0000 + number).to_be_bytes()
}

#[test]
fn random_flows_are_spread() {
    for seed in 0..4 {
        let random = tape(seed, 65_536 * 12);
        let flows = random.chunks_exact(12).map(|flow| {
            let mut bytes = four([0; 4], [0; 4], [0; 2]);
            bytes[26..38].copy_from_slice(flow);
            bytes
        });
        assert_flows("random IPv4", flows);
        let flows = random.chunks_exact(12).map(|flow| {
            let mut bytes = ethernet(0x86dd, &v6(17, &udp(0, 443, &[])));
            bytes[30..38].copy_from_slice(&flow[..8]);
            bytes[54..58].copy_from_slice(&flow[8..]);
            bytes
        });
        assert_flows("random hosts of an IPv6 net", flows);
    }
}

/// The flows are those of clients of one server. Each client uses one port after the other, as many
/// hosts do.
#[test]
fn clients_and_servers_are_spread() {
    let server = [192, 0, 2, 1];
    let clients = || (0..256).flat_map(|client| (0..256).map(move |flow| (client, flow)));
    let port = |first: u32, number: u32| u16::try_from(first + number).unwrap();
    let flows =
        clients().map(|(client, flow)| four(host(client), server, [port(32768, flow), 443]));
    assert_flows("256 clients, 256 ports each", flows);
    let even =
        clients().map(|(client, flow)| four(host(client), server, [port(32768, 2 * flow), 443]));
    assert_flows("256 clients, even ports", even);
    let grown = clients().map(|(client, flow)| {
        four(
            host(client),
            server,
            [port(32768, (client + flow) % 4096), 443],
        )
    });
    assert_flows("ports that grow with the address", grown);
    let one = (1024..=65_535).map(|source| four(host(1), server, [source, 53]));
    assert_flows("all ports of one client", one);
    let scan = (0..65_536).map(|number| four(host(number), server, [40_000, 80]));
    assert_flows("one port of 65536 clients", scan);
}

#[test]
fn addresses_alone_are_spread() {
    let mesh = || (0..256).flat_map(|one| (0..one).map(move |other| (one, other)));
    for shift in [0, 8, 16] {
        let pairs =
            mesh().map(|(one, other)| four(host(one << shift), host(other << shift), [5060; 2]));
        assert_flows("a mesh of 256 hosts with one port", pairs);
        let pairs =
            mesh().map(|(one, other)| four(host(one << shift), host(other << shift), [0; 2]));
        assert_random(
            "a mesh by addresses",
            &loads(Steer::Flow(Flow::ADDRESSES), pairs),
        );
    }
    let links = mesh().map(|(one, other)| {
        let mut frame = ethernet(0x88b5, &[0; 46]);
        frame.copy_within(0..6, 6);
        (frame[5], frame[11]) = (u8::try_from(one).unwrap(), u8::try_from(other).unwrap());
        frame
    });
    assert_random("a mesh of Ethernet addresses", &loads(Steer::Link, links));
}

/// Short numbers, such as VLAN ids, have few values. Their hashes must be spread over buckets like
/// random hashes.
#[test]
fn short_numbers_come_to_different_buckets() {
    let tagged = (0..4095_u16).map(|id| {
        let mut frame = ethernet(0x8100, &[0; 50]);
        frame[14..16].copy_from_slice(&id.to_be_bytes());
        frame
    });
    assert_random("VLAN ids", &loads(Steer::Vlan, tagged));
}
