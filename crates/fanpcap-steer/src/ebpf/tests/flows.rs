//! Checks that the hash that selects the member of a flow's packets is the one of `hash.rs`.

use super::frames::*;
use super::*;
use crate::hash::{both, end, end4, end6, finish, fold};
use crate::ir::{FRAGMENT_AGE_NS, Ports};

fn hash4(source: u16, destination: u16) -> u32 {
    let (one, other) = (SOURCE.to_bits(), DESTINATION.to_bits());
    finish(both(end4(one, source), end4(other, destination)))
}

fn sum6(source: u16, destination: u16) -> u64 {
    // The upper half of the address is the network, the lower half the number.
    let end = |number, port| end6(0x2001_0db8_0000_0000, number, port);
    both(end(1, source), end(2, destination))
}

fn link() -> u32 {
    let number = |[a, b, c, d, e, f]: [u8; 6]| u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    finish(both(end(number(MAC_SOURCE)), end(number(MAC_DESTINATION))))
}

#[test]
#[ignore = "needs root: eBPF"]
fn a_flow_is_by_addresses_and_ports() {
    let all = All::of(&program(flow_mode()));
    assert_eq!(all.run(&udp4()), hash4(1111, 2222));
    assert_eq!(all.run(&tcp4()), hash4(1111, 2222));
    assert_eq!(all.run(&udp6()), finish(sum6(1111, 2222)));
    assert_eq!(all.run(&arp()), link());
    let options = ethernet(0x0800, &v4_with(&[1; 40], 17, 0, &udp(5, 6, &[])));
    assert_eq!(all.run(&options), hash4(5, 6));
    assert_eq!(
        all.run(&ethernet(0x0800, &v4(50, 0, &[1; 20]))),
        hash4(0, 0)
    );
    for end in 14..40 {
        // The test expects no particular hash for a frame that is cut off. `run` checks that all
        // variants give the same hash.
        let _ = all.run(&options[..end]);
    }
    let sctp = ethernet(0x0800, &v4(132, 0, &[0, 1, 0, 2, 0, 0, 0, 0]));
    assert_eq!(all.run(&sctp), hash4(1, 2));
}

#[test]
#[ignore = "needs root: eBPF"]
fn the_network_header_is_found_behind_tags_labels_and_pppoe() {
    let all = All::of(&program(flow_mode()));
    let packet = v4(17, 0, &udp(1111, 2222, &[0; 20]));
    let two = tag(7, 0x9100, &tag(8, 0x0800, &packet));
    let four = tag(5, 0x8100, &tag(6, 0x88a8, &two));
    let session = |protocol: u8| [&[0x11, 0, 0, 1, 0, 0, 0, protocol][..], &packet].concat();
    let labels = |number: usize| {
        let mut labels = [0, 0, 0, 64].repeat(number - 1);
        labels.extend([0, 0, 1, 64]);
        [&labels[..], &packet].concat()
    };
    for (name, frame) in [
        ("two tags", ethernet(0x8100, &two)),
        ("four tags", ethernet(0x88a8, &four)),
        ("pppoe", ethernet(0x8864, &session(0x21))),
        ("a label", ethernet(0x8847, &labels(1))),
        ("six labels", ethernet(0x8848, &labels(6))),
        (
            "a label behind tags",
            ethernet(0x8100, &tag(1, 0x8847, &labels(2))),
        ),
    ] {
        assert_eq!(all.run(&frame), hash4(1111, 2222), "{name}");
    }
    for (name, frame) in [
        ("five tags", ethernet(0x8100, &tag(1, 0x8100, &four))),
        ("seven labels", ethernet(0x8847, &labels(7))),
        ("no ip in pppoe", ethernet(0x8864, &session(0x23))),
    ] {
        assert_eq!(all.run(&frame), link(), "{name}");
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn what_is_carried_is_found() {
    let flows = All::of(&program(inner(by_flow())));
    let outer = All::of(&program(by_flow()));
    for (name, frame) in tunnels() {
        assert_eq!(flows.run(&frame), hash4(3333, 4444), "{name}");
        if !name.contains("ipv6") {
            assert_ne!(outer.run(&frame), hash4(3333, 4444), "{name}");
        }
    }
    // A frame that is cut off within the inner header is steered by the outer packet.
    let (_, frame) = tunnels().swap_remove(0);
    assert_eq!(flows.run(&frame[..14 + 20 + 19]), hash4(0, 0));
}

#[test]
#[ignore = "needs root: eBPF"]
fn extension_headers_are_passed_over() {
    let all = All::of(&program(by_flow()));
    let last = udp(1111, 2222, &[0; 20]);
    let behind = |next: u8, rest: &[u8]| [&[next, 0, 0, 0, 0, 0, 0, 0][..], rest].concat();
    let long = [&[17, 1][..], &[0; 14], &last].concat();
    let authentication = [&[17, 4][..], &[0; 22], &last].concat();
    let mut five = behind(17, &last);
    for _ in 0..4 {
        five = behind(60, &five);
    }
    let first = finish(sum6(1111, 2222));
    for (name, packet) in [
        ("one", v6(0, &behind(17, &last))),
        ("long", v6(60, &long)),
        ("authentication", v6(51, &authentication)),
        ("atomic fragment", v6(44, &behind(17, &last))),
        ("five", v6(60, &five)),
    ] {
        assert_eq!(all.run(&ethernet(0x86dd, &packet)), first, "{name}");
    }
    let seven = behind(60, &behind(60, &five));
    assert_eq!(
        all.run(&ethernet(0x86dd, &v6(60, &seven))),
        finish(sum6(0, 0))
    );
}

#[test]
#[ignore = "needs root: eBPF"]
fn an_icmp_error_goes_with_the_flow_that_it_is_about() {
    let all = All::of(&program(by_flow()));
    let error = |kind: u8, quote: &[u8]| [&[kind, 0, 0, 0, 0, 0, 0, 0][..], quote].concat();
    let quote = v4(17, 0, &udp(1111, 2222, &[]));
    for kind in [3, 4, 5, 11, 12] {
        let frame = ethernet(0x0800, &v4(1, 0, &error(kind, &quote)));
        assert_eq!(all.run(&frame), hash4(1111, 2222), "{kind}");
    }
    for (kind, quote) in [(8, &quote[..]), (3, &quote[..19]), (3, &[0x60; 40])] {
        let frame = ethernet(0x0800, &v4(1, 0, &error(kind, quote)));
        assert_eq!(all.run(&frame), hash4(0, 0), "{kind}");
    }
    let later = v4(17, 9, &udp(1111, 2222, &[]));
    assert_eq!(
        all.run(&ethernet(0x0800, &v4(1, 0, &error(3, &later)))),
        hash4(0, 0)
    );
    let quote = v6(
        0,
        &[&[17, 0, 0, 0, 0, 0, 0, 0][..], &udp(1111, 2222, &[])].concat(),
    );
    for kind in 1..=4 {
        let frame = ethernet(0x86dd, &v6(58, &error(kind, &quote)));
        assert_eq!(all.run(&frame), finish(sum6(1111, 2222)), "{kind}");
    }
    let frame = ethernet(0x86dd, &v6(58, &error(128, &quote)));
    assert_eq!(all.run(&frame), finish(sum6(0, 0)));
}

#[test]
#[ignore = "needs root: eBPF"]
fn a_flow_is_told_by_what_it_says() {
    let flow = |ports, protocol, vlan| {
        Function::Steer(Steer::Flow(Flow {
            ports,
            protocol,
            vlan,
        }))
    };
    let (one, other) = (SOURCE.to_bits(), DESTINATION.to_bits());
    let ends = |a, b| both(end4(one, a), end4(other, b));
    assert_eq!(steer(flow(Ports::None, false, false), &udp4()), hash4(0, 0));
    assert_eq!(steer(flow(Ports::Tcp, false, false), &udp4()), hash4(0, 0));
    assert_eq!(
        steer(flow(Ports::Tcp, false, false), &tcp4()),
        hash4(1111, 2222)
    );
    assert_eq!(
        steer(flow(Ports::All, true, false), &udp4()),
        finish(fold(ends(1111, 2222), 17))
    );
    assert_eq!(
        steer(flow(Ports::All, false, true), &udp4()),
        finish(fold(ends(1111, 2222), 0))
    );
    let tagged = ethernet(0x88a8, &tag(0x2007, 0x8100, &tag(9, 0x0800, &udp4()[14..])));
    let all = fold(fold(ends(1111, 2222), 17), 7);
    assert_eq!(steer(flow(Ports::All, true, true), &tagged), finish(all));
    let error = [&[3, 0, 0, 0, 0, 0, 0, 0][..], &udp4()[14..]].concat();
    let error = ethernet(0x8100, &tag(7, 0x0800, &v4(1, 0, &error)));
    assert_eq!(steer(flow(Ports::All, true, true), &error), finish(all));
    assert_eq!(steer(by_flow(), &arp()), DROP);
}

#[test]
#[ignore = "needs root: eBPF"]
fn fragments_go_with_their_datagram() {
    let datagram = udp(1111, 2222, &[0; 40]);
    let six = |field: u16| ethernet(0x86dd, &v6(44, &fragment(17, field, &datagram)));
    let four = |fragment: u16| ethernet(0x0800, &v4(17, fragment, &datagram));
    let whole = [hash4(1111, 2222), finish(sum6(1111, 2222))];
    let bare = [hash4(0, 0), finish(sum6(0, 0))];
    for (version, first, later) in [(0, four(0x2000), four(0x2003)), (1, six(1), six(6 << 3))] {
        for (name, target) in [("socket", Target::Fanout), ("xdp", Target::Xdp)] {
            let loaded =
                Loaded::load(&object(&program(by_flow()), target, DROP, true), "test").unwrap();
            // The fragments come in order.
            assert_eq!(loaded.run(&first).unwrap(), whole[version], "{name}");
            assert_eq!(loaded.run(&later).unwrap(), whole[version], "{name}");
            assert_eq!(loaded.run(&first).unwrap(), whole[version], "{name}");
            assert_eq!(late(&loaded), 0);
            // The later fragment comes first.
            let loaded =
                Loaded::load(&object(&program(by_flow()), target, DROP, true), "test").unwrap();
            assert_eq!(loaded.run(&later).unwrap(), bare[version], "{name}");
            assert_eq!(late(&loaded), 1);
            assert_eq!(loaded.run(&later).unwrap(), bare[version], "{name}");
            assert_eq!(loaded.run(&first).unwrap(), bare[version], "{name}");
            // A second first fragment belongs to another datagram with the same id.
            assert_eq!(loaded.run(&first).unwrap(), whole[version], "{name}");
            assert_eq!(loaded.run(&later).unwrap(), whole[version], "{name}");
            assert_eq!(late(&loaded), 1);
        }
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn a_datagram_on_two_vlans_is_two() {
    let datagram = udp(1111, 2222, &[0; 40]);
    let on = |id: u8, field| {
        let packet = v4(17, field, &datagram);
        ethernet(0x8100, &[&[0, id, 8, 0][..], &packet].concat())
    };
    let by_vlan = Function::Steer(Steer::Flow(Flow {
        vlan: true,
        ..Flow::WHOLE
    }));
    for target in [Target::Fanout, Target::Xdp] {
        let loaded = object(&program(by_vlan.clone()), target, DROP, true);
        let loaded = Loaded::load(&loaded, "test").unwrap();
        let firsts = [7, 8].map(|id| loaded.run(&on(id, 0x2000)).unwrap());
        assert_ne!(firsts[0], firsts[1]);
        let others = [7, 8].map(|id| loaded.run(&on(id, 2)).unwrap());
        assert_eq!((firsts, late(&loaded)), (others, 0));
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn fragments_go_with_the_first_one_whatever_only_that_one_shows() {
    let options = [&[17, 0, 1, 4, 0, 0, 0, 0][..], &udp(1111, 2222, &[0; 40])].concat();
    let six = |field: u16, rest: &[u8]| ethernet(0x86dd, &v6(44, &fragment(60, field, rest)));
    let carried = [&[8, 0, 0, 0, 0, 0, 7, 0][..], &udp6()].concat();
    let four = |field: u16, rest: &[u8]| ethernet(0x0800, &v4(17, field, rest));
    let first = four(0x2000, &udp(50000, 4789, &carried));
    let later = four(0x0006, &[0; 48]);
    let by_addresses = Function::Steer(Steer::Flow(Flow::ADDRESSES));
    for (main, first, later, whole) in [
        (
            by_flow(),
            &six(1, &options),
            &six(48, &[0; 24]),
            sum6(1111, 2222),
        ),
        (inner(by_flow()), &first, &later, sum6(1111, 2222)),
        (inner(by_addresses), &first, &later, sum6(0, 0)),
    ] {
        for target in [Target::Fanout, Target::Xdp] {
            let loaded =
                Loaded::load(&object(&program(main.clone()), target, DROP, true), "test").unwrap();
            assert_eq!(loaded.run(first).unwrap(), finish(whole), "{main:?}");
            assert_eq!(loaded.run(later).unwrap(), finish(whole), "{main:?}");
            assert_eq!(late(&loaded), 0);
        }
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn old_fragments_do_not_count() {
    let four = |fragment: u16| ethernet(0x0800, &v4(17, fragment, &udp(1, 2, &[0; 40])));
    let loaded = Loaded::load(&fanout_of(&program(by_flow())).unwrap(), "test").unwrap();
    assert_eq!(loaded.run(&four(0x2000)).unwrap(), hash4(1, 2));
    std::thread::sleep(std::time::Duration::from_nanos(FRAGMENT_AGE_NS) * 21 / 20);
    assert_eq!(loaded.run(&four(0x0003)).unwrap(), hash4(0, 0));
    assert_eq!(late(&loaded), 1);
}
