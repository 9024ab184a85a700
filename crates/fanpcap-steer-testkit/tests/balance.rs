//! Checks that flows are spread evenly over members, even if their addresses and ports increase
//! together.

use std::collections::HashSet;

use fanpcap_steer::ir::{Flow, Function, Key, Predicate, Steer, Tree};
use fanpcap_steer::native::{Decision, Evaluator, Packet};
use fanpcap_steer_testkit::tape;
use fanpcap_testkit::frames::{ethernet, udp, v4, v6};
use fanpcap_wire::Frame;

const MEMBERS: usize = 8;

/// The hashes by which the evaluator steers these frames.
fn hashes(steer: Steer, frames: impl Iterator<Item = Vec<u8>>) -> Vec<u32> {
    let mut evaluator = Evaluator::of_group(&Tree {
        main: Function::Steer(steer),
        sets: Vec::new(),
        filters: Vec::new(),
    });
    let mut hash = |bytes: Vec<u8>| {
        let frame = Frame {
            bytes: &bytes,
            tag: None,
        };
        let Decision::Steer(number) = evaluator.decide(&Packet::of(frame)) else {
            panic!("expected the frame to be steered");
        };
        number
    };
    frames.map(&mut hash).collect()
}

/// The number of these frames that each member gets.
fn shares(frames: impl Iterator<Item = Vec<u8>>) -> [usize; MEMBERS] {
    let mut shares = [0; MEMBERS];
    for number in hashes(Steer::Flow(Flow::WHOLE), frames) {
        shares[number as usize % MEMBERS] += 1;
    }
    shares
}

/// Checks that every share is within five standard deviations of an equal share.
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
        // The hosts are in one network, so the upper halves of their addresses are equal.
        let frames = random.chunks_exact(12).map(|flow| {
            let mut bytes = ethernet(0x86dd, &v6(17, &udp(0, 443, &[])));
            bytes[30..38].copy_from_slice(&flow[..8]);
            bytes[54..58].copy_from_slice(&flow[8..]);
            bytes
        });
        assert_even(shares(frames), &format!("seed {seed}"));
    }
}

/// The hash by the RSS key 6D:5A has a weakness that `flow` must not have: if a client's address
/// and port increase together, their XOR is always the same.
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

/// Checks that nearly all hashes are different. Also checks, for 2 to 12 members, that the member
/// with the most hashes has no more of them than random hashes would give it.
fn assert_spread(steer: &Steer, frames: impl Iterator<Item = Vec<u8>>, what: &str) {
    let hashes = hashes(steer.clone(), frames);
    let distinct = hashes.iter().collect::<HashSet<_>>().len();
    let count = hashes.len();
    assert!(
        distinct + 4 >= count,
        "{what}: {distinct} different hashes of {count}"
    );
    for members in 2..=12 {
        let mut shares = vec![0_u32; members];
        for hash in &hashes {
            shares[*hash as usize % members] += 1;
        }
        let mean = count as f64 / members as f64;
        let fullest = f64::from(shares.iter().copied().fold(0, u32::max)) / mean;
        let bound = 1.0 + 5.0 / mean.sqrt();
        assert!(
            fullest <= bound,
            "{what}: the fullest of {members} members has {fullest} times the mean: {shares:?}"
        );
    }
}

/// Pairs of ends. Each end is a number of one byte.
type Pairs = Vec<[u8; 2]>;

/// Three sets of pairs among the numbers from 0 to 255. "mesh": all pairs. "halves": each number
/// below 128 with the number that is greater by 128. "mirror": each number `n` below 128 with `255
/// - n`.
fn among_themselves() -> [(&'static str, Pairs); 3] {
    let mesh = (0..=255).flat_map(|one| (0..one).map(move |other| [one, other]));
    let halves = (0..128).map(|one| [one, one + 128]);
    let mirror = (0..128).map(|one| [one, 255 - one]);
    [
        ("mesh", mesh.collect()),
        ("halves", halves.collect()),
        ("mirror", mirror.collect()),
    ]
}

/// All pairs of two numbers from 0 to 255.
fn with_others() -> Pairs {
    let all = (0..=255).flat_map(|one| (0..=255).map(move |other| [one, other]));
    all.collect()
}

/// A frame for each pair, with the pair's numbers at these offsets.
fn numbered<'a>(
    frame: &'a [u8],
    [from, to]: [usize; 2],
    pairs: &'a Pairs,
) -> impl Iterator<Item = Vec<u8>> + 'a {
    pairs.iter().map(move |[one, other]| {
        let mut bytes = frame.to_vec();
        (bytes[from], bytes[to]) = (*one, *other);
        bytes
    })
}

/// Two ways of steering: by addresses and ports, and by all properties of a flow.
fn flows() -> [Steer; 2] {
    let all = Flow {
        protocol: true,
        vlan: true,
        ..Flow::WHOLE
    };
    [Flow::WHOLE, all].map(Steer::Flow)
}

#[test]
fn grids_of_ipv4_addresses_are_spread() {
    let (net, hosts) = ([10, 0, 0, 0], [10, 0, 0, 1]);
    let others = [172, 16, 1, 0];
    for (steer, at) in flows()
        .iter()
        .flat_map(|steer| (0..4).map(move |at| (steer, at)))
    {
        for (from, to) in [(net, net), (hosts, hosts), (hosts, others)] {
            let mut frame = ethernet(0x0800, &v4(17, 0, &udp(5060, 5060, &[])));
            frame[26..30].copy_from_slice(&from);
            frame[30..34].copy_from_slice(&to);
            let grids = if from == to {
                among_themselves().to_vec()
            } else {
                vec![("others", with_others())]
            };
            for (what, pairs) in &grids {
                let what = format!("{what} of {from:?} and {to:?} at byte {at}, {steer:?}");
                assert_spread(steer, numbered(&frame, [26 + at, 30 + at], pairs), &what);
            }
        }
    }
}

/// The test leaves out the first byte of an address, because that byte distinguishes kinds of
/// addresses, not hosts.
#[test]
fn grids_of_ipv6_addresses_are_spread() {
    for (steer, at) in flows()
        .iter()
        .flat_map(|steer| (1..16).map(move |at| (steer, at)))
    {
        let mut frame = ethernet(0x86dd, &v6(17, &udp(5060, 5060, &[])));
        frame[53] = frame[37];
        for (what, pairs) in among_themselves() {
            let what = format!("{what} at byte {at}, {steer:?}");
            assert_spread(steer, numbered(&frame, [22 + at, 38 + at], &pairs), &what);
        }
    }
}

#[test]
fn grids_of_ports_are_spread() {
    let four = ethernet(0x0800, &v4(17, 0, &udp(0, 0, &[])));
    let six = ethernet(0x86dd, &v6(17, &udp(0, 0, &[])));
    let pairs = with_others();
    for (frame, ports) in [(four, 34), (six, 54)] {
        for at in [ports, ports + 1] {
            let what = format!("ports at byte {at}");
            let frames = numbered(&frame, [at, at + 2], &pairs);
            assert_spread(&flows()[0], frames, &what);
        }
    }
}

#[test]
fn grids_of_ethernet_addresses_are_spread() {
    let mut frame = ethernet(0x88b5, &[0; 46]);
    frame.copy_within(0..6, 6);
    for at in 0..6 {
        for (what, pairs) in among_themselves() {
            let what = format!("{what} at byte {at}");
            assert_spread(&Steer::Link, numbered(&frame, [at, 6 + at], &pairs), &what);
        }
    }
}

/// The hosts differ in one byte of the address that is the key. The test tries each byte of the
/// address.
#[test]
fn keys_of_one_address_are_spread() {
    let frame = ethernet(0x88b5, &[0; 46]);
    let all = (0..=255).map(|one| [one, 0]).collect();
    for at in 0..6 {
        let frames = numbered(&frame, [6 + at, 0], &all);
        assert_spread(&Steer::Key(Key::LINK_SOURCE), frames, &format!("byte {at}"));
    }
}

/// `share` selects one eighth of the packets by a key, and the same key then steers them. If both
/// used the same bits of the hash, one of eight members would get all of these packets.
#[test]
fn what_is_shared_out_by_a_key_is_still_spread_by_it() {
    let key = Key::IP_SOURCE;
    let of = 8;
    let share = Predicate::Share { index: 3, of, key };
    let steer = Function::Steer(Steer::Key(key)).into();
    let mut evaluator = Evaluator::of_group(&Tree {
        main: Function::If(share.into(), steer, Function::Drop.into()),
        sets: Vec::new(),
        filters: Vec::new(),
    });
    let mut got = [0; MEMBERS];
    for address in 0..32768_u16 {
        let mut bytes = ethernet(0x0800, &v4(17, 0, &udp(0, 0, &[])));
        bytes[28..30].copy_from_slice(&address.to_be_bytes());
        let frame = Frame {
            bytes: &bytes,
            tag: None,
        };
        if let Decision::Steer(number) = evaluator.decide(&Packet::of(frame)) {
            got[number as usize % MEMBERS] += 1;
        }
    }
    assert_even(got, "selected and steered by one key");
}
