//! Tests with real frames on a link. Trial runs can't test tags that the kernel keeps beside the
//! frame, marks, and a steered group.

use super::frames::*;
use super::*;
use crate::ir::{Comparison, Header, Key, Property};
use fanpcap_bpf::classic::opcode::*;
use fanpcap_linux::interface;
use fanpcap_linux::packet::{self, Address, ETH_P_ALL, PacketFanout, inject::Injector};
use fanpcap_testkit::netns::within_new;
use fanpcap_testkit::veth::Veth;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

fn listen(device: &str) -> Address {
    let ifindex = interface::index(device).unwrap();
    Address {
        ifindex,
        protocol: ETH_P_ALL,
    }
}

/// Counts the frames for which each predicate is true, in a member's filter and in a group's BPF
/// program.
fn count(predicates: Vec<Predicate>, filters: Vec<Filter>, frames: &[Vec<u8>]) -> Vec<u64> {
    let number = predicates.len();
    let counts = predicates
        .into_iter()
        .enumerate()
        .map(|(index, predicate)| {
            let count = Function::Count(u8::try_from(index).unwrap(), 1);
            Function::If(
                Box::new(predicate),
                Box::new(count),
                Box::new(Function::Pass),
            )
        });
    let all = std::iter::once(Function::Count(63, 1))
        .chain(counts)
        .collect();
    let program = Tree {
        main: Function::Sequence(all),
        sets: Vec::new(),
        filters,
    };
    let (filter, fanout) = (
        filter_of(&program, None).unwrap(),
        fanout_of(&program).unwrap(),
    );
    within_new(|| {
        let _veth = Veth::new("near", "far", 1)?;
        let (filter, fanout) = (
            Loaded::load_apart(&filter, "filter").unwrap(),
            Loaded::load(&fanout, "fanout").unwrap(),
        );
        let counters = [&filter, &fanout].map(|loaded| loaded.map(COUNTERS_MAP).unwrap());
        let [filtered, steered] = counters;
        let single = packet::open()?;
        packet::attach_program(single.as_fd(), filter.as_fd())?;
        packet::bind(single.as_fd(), listen("far"))?;
        let member = member()?;
        packet::set_fanout_program(member.as_fd(), fanout.as_fd())?;
        let injector = Injector::open("near")?;
        for frame in frames {
            injector.send(frame)?;
        }
        let sent = u64::try_from(frames.len())?;
        let end = Instant::now() + Duration::from_secs(60);
        while Instant::now() < end
            && (filtered.numbers()?[63] < sent || steered.numbers()?[63] < sent)
        {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(
            filtered.numbers()?[63],
            sent,
            "the filter counted other frames than those sent"
        );
        assert_eq!(filtered.numbers()?, steered.numbers()?);
        Ok(filtered.numbers()?[..number].to_vec())
    })
    .unwrap()
}

/// Opens a socket in a group of mode `PACKET_FANOUT_EBPF`.
fn member() -> std::io::Result<OwnedFd> {
    let socket = packet::open()?;
    packet::bind(socket.as_fd(), listen("far"))?;
    let fanout = PacketFanout {
        id: 7,
        mode: 7,
        flags: 0,
    };
    packet::join(socket.as_fd(), fanout)
        .map_err(|refused| std::io::Error::other(format!("{refused:?}")))?;
    Ok(socket)
}

fn tagged() -> Vec<u8> {
    ethernet(0x8100, &tag(0x6005, 0x0800, &udp4()[14..]))
}

#[test]
#[ignore = "needs root: real packets"]
fn tags_beside_the_frame_are_its_outermost() {
    let is = |property, value| Predicate::Compare(property, Comparison::Equal, value);
    let ports = Predicate::Port(crate::ir::Side::Either, 1111);
    let share = Predicate::Share {
        index: 0,
        of: 1,
        key: Key::VLAN,
    };
    let four = |outer: u16| {
        let inner = tag(2, 0x8100, &tag(3, 0x8100, &tag(4, 0x0800, &udp4()[14..])));
        ethernet(0x88a8, &tag(outer, 0x88a8, &inner))
    };
    let five = ethernet(0x8100, &tag(6, 0x88a8, &four(1)[14..]));
    for (frame, id, network) in [
        (tagged(), Some(5), true),
        (udp4(), None, true),
        (four(9), Some(9), true),
        (five, Some(6), false),
        (ethernet(0x8100, &tag(8, 0x0806, &[0; 46])), Some(8), false),
    ] {
        let asked = vec![
            Predicate::Has(Header::Tag),
            is(Property::VlanId, id.unwrap_or(0)),
            ports.clone(),
            share.clone(),
            is(Property::EtherType, 0x0800),
        ];
        let there = u64::from(id.is_some());
        let network = u64::from(network);
        let name = format!("{frame:02x?}");
        assert_eq!(
            count(asked, Vec::new(), &[frame]),
            [there, there, network, there, network],
            "{name}"
        );
    }
}

/// Filters that each accept a frame that has the same bytes as `frame` at one offset. With
/// `behind_x`, the offset is relative to X.
fn of_bytes(frame: &[u8], behind_x: bool) -> Vec<Filter> {
    let mut filters = Vec::new();
    for (size, len) in [(0x10, 1), (0x08, 2), (0x00, 4)] {
        for offset in 8..28 - 2 * len {
            let bytes = &frame[offset..offset + len];
            let value = bytes
                .iter()
                .fold(0, |sum, &byte| (sum << 8) | u32::from(byte));
            let k = u32::try_from(offset).unwrap();
            let mode = if behind_x { IND } else { ABS };
            let code = vec![
                Classic::new(LDX_IMM, 3),
                Classic::new(LD | mode | size, if behind_x { k - 3 } else { k }),
                Classic::jump(JMP_JEQ_K, value, 0, 1),
                Classic::keep(1),
                Classic::keep(0),
            ];
            let text = format!("{len} at {offset}");
            filters.push(Filter { text, code });
        }
    }
    filters
}

#[test]
#[ignore = "needs root: real packets"]
fn pcap_filters_see_the_tag_in_the_bytes() {
    // All bytes of the frame differ from each other, so that a load from a wrong offset is found.
    let frame: Vec<u8> = tagged().into_iter().take(22).chain(100..140).collect();
    let long = u32::try_from(frame.len()).unwrap();
    let length = vec![
        Classic::new(LD_W_LEN, 0),
        Classic::jump(JMP_JEQ_K, long, 0, 1),
        Classic::keep(1),
        Classic::keep(0),
    ];
    let length = Filter {
        text: "length".to_owned(),
        code: length,
    };
    for behind_x in [false, true] {
        let mut filters = of_bytes(&frame, behind_x);
        filters.push(length.clone());
        assert!((45..63).contains(&filters.len()));
        // Before Linux 6.7 a socket has room for a filter of 2560 instructions.
        for filters in filters.chunks(16) {
            let asked = (0..filters.len()).map(Predicate::Pcap).collect();
            assert_eq!(
                count(asked, filters.to_vec(), std::slice::from_ref(&frame)),
                vec![1; filters.len()],
                "behind X: {behind_x}"
            );
        }
    }
}

#[test]
#[ignore = "needs root: real packets"]
fn a_group_is_steered_and_a_member_s_filter_keeps() {
    let frames: Vec<Vec<u8>> = (0..64)
        .map(|port| ethernet(0x0800, &v4(17, 0, &udp(port, 9, &[0; 20]))))
        .collect();
    let program = program(Function::First(vec![
        by_flow(),
        Function::Steer(Steer::To(0)),
    ]));
    let all = All::of(&program);
    let expected = frames.iter().fold([0_u32; 3], |mut sum, frame| {
        sum[all.run(frame) as usize % 3] += 1;
        sum
    });
    let counted = within_new(|| {
        let _veth = Veth::new("near", "far", 1)?;
        let members = [member()?, member()?, member()?];
        let fanout = load(&fanout_of(&program).unwrap());
        packet::set_fanout_program(members[0].as_fd(), fanout.as_fd())?;
        let injector = Injector::open("near")?;
        for socket in &members {
            packet::take_statistics(socket.as_fd())?;
        }
        for frame in &frames {
            injector.send(frame)?;
        }
        std::thread::sleep(Duration::from_millis(100));
        Ok(members.map(|socket| {
            packet::take_statistics(socket.as_fd())
                .map(|sum| sum.packets)
                .unwrap_or(0)
        }))
    });
    assert_eq!(counted.unwrap(), expected);
}
