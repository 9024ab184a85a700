//! Tests the walk through tunnels.

use super::*;

#[test]
fn gre_carries_all_that_it_may() {
    let inside = v4(6, 0, &TCP);
    let gre = |flags: u16, protocol: u16, behind: &[u8]| {
        let header = [flags.to_be_bytes(), protocol.to_be_bytes()].concat();
        ethernet(0x0800, &v4(47, 0, &[&header[..], behind].concat()))
    };
    let behind = |len: usize, inside: &[u8]| [&vec![0; len][..], inside].concat();
    assert_eq!(inner_ports(&gre(0, 0x0800, &inside)), HTTP);
    assert_eq!(
        inner_ports(&gre(0xb000, 0x0800, &behind(12, &inside))),
        HTTP
    );
    assert_eq!(inner_ports(&gre(0x2000, 0x0800, &behind(4, &inside))), HTTP);
    assert_eq!(inner_ports(&gre(0x4000, 0x0800, &inside)), None, "routing");
    let twice = gre(0, 0x0800, &v4(4, 0, &inside));
    let carried = Layers::of(&frame(&twice)).inner().unwrap();
    assert!(carried.inner().is_none(), "one level");
    assert_eq!(inner_ports(&gre(1, 0x0800, &inside)), None, "version 1");
    assert_eq!(inner_ports(&gre(0, 0x86dd, &v6(6, &TCP))), HTTP);
    let label = [&[0, 0, 1, 64][..], &inside].concat();
    assert_eq!(inner_ports(&gre(0, 0x8847, &label)), HTTP);
    let bridged = ethernet(0x0800, &inside);
    assert_eq!(inner_ports(&gre(0, 0x6558, &bridged)), HTTP);
    assert_eq!(inner_ports(&gre(0, 0x88be, &bridged)), HTTP, "ERSPAN I");
    let two = behind(4, &[&[0x10, 0, 0x0c, 5, 0, 0, 0, 0][..], &bridged].concat());
    let mirrored = gre(0x1000, 0x88be, &two);
    assert_eq!(inner_ports(&mirrored), HTTP, "ERSPAN II");
    let whole = frame(&mirrored);
    let layers = Layers::of(&whole);
    let erspan = layers.ip().unwrap().gre().unwrap().erspan();
    assert!(matches!(erspan, Some(Erspan::II(..))));
    assert_eq!(erspan.and_then(Erspan::session), Some(5));
    let mut three = behind(4, &behind(12, &bridged));
    assert_eq!(
        inner_ports(&gre(0x1000, 0x22eb, &three)),
        HTTP,
        "ERSPAN III"
    );
    three[4 + 11] = 1;
    three.splice(16..16, [0; 8]);
    assert_eq!(
        inner_ports(&gre(0x1000, 0x22eb, &three)),
        HTTP,
        "with flag O"
    );
}

#[test]
fn tunnels_in_udp_are_told_by_the_destination_port() {
    let inside = v4(6, 0, &TCP);
    let bridged = ethernet(0x0800, &inside);
    let carried = |port: u16, header: &[u8], inside: &[u8]| {
        ethernet(
            0x0800,
            &v4(17, 0, &udp(12345, port, &[header, inside].concat())),
        )
    };
    let vxlan = [8, 0, 0, 0, 0, 0, 9, 0];
    assert_eq!(inner_ports(&carried(4789, &vxlan, &bridged)), HTTP);
    assert_eq!(inner_ports(&carried(8472, &vxlan, &bridged)), HTTP);
    assert_eq!(inner_ports(&carried(4791, &vxlan, &bridged)), None);
    assert_eq!(
        inner_ports(&carried(4789, &[0; 8], &bridged)),
        None,
        "without flag I"
    );
    let geneve = |options: u8, kind: [u8; 2]| {
        let mut header = vec![options, 0, kind[0], kind[1], 0, 0, 9, 0];
        header.extend(vec![0; usize::from(options & 0x3f) * 4]);
        header
    };
    assert_eq!(
        inner_ports(&carried(6081, &geneve(0, [0x65, 0x58]), &bridged)),
        HTTP
    );
    assert_eq!(
        inner_ports(&carried(6081, &geneve(3, [0x65, 0x58]), &bridged)),
        HTTP
    );
    assert_eq!(
        inner_ports(&carried(6081, &geneve(1, [8, 0]), &inside)),
        HTTP
    );
    assert_eq!(
        inner_ports(&carried(6081, &geneve(0x40, [8, 0]), &inside)),
        None,
        "version 1"
    );
    assert_eq!(
        inner_ports(&ethernet(0x86dd, &v6(4, &inside))),
        HTTP,
        "IPIP"
    );
    assert_eq!(
        inner_ports(&ethernet(0x0800, &v4(41, 0, &v6(6, &TCP)))),
        HTTP
    );
    assert_eq!(
        inner_ports(&ethernet(0x0800, &v4(4, 0, &v6(6, &TCP)))),
        None
    );
}

#[test]
fn gtp_is_passed_over_with_its_extensions() {
    let inside = v4(6, 0, &TCP);
    let carried = |header: &[u8]| {
        ethernet(
            0x0800,
            &v4(17, 0, &udp(12345, 2152, &[header, &inside].concat())),
        )
    };
    assert_eq!(inner_ports(&carried(&[0x30, 255, 0, 40, 0, 0, 0, 1])), HTTP);
    assert_eq!(
        inner_ports(&carried(&[0x30, 1, 0, 40, 0, 0, 0, 1])),
        None,
        "the message type is not a user packet"
    );
    assert_eq!(
        inner_ports(&carried(&[0x20, 255, 0, 40, 0, 0, 0, 1])),
        None,
        "GTP'"
    );
    let optional = |flags| [flags, 255, 0, 40, 0, 0, 0, 1, 0, 0, 0, 0x85];
    assert_eq!(
        inner_ports(&carried(&optional(0x32))),
        HTTP,
        "without flag E"
    );
    let extended = |count: usize| {
        let mut header = optional(0x34).to_vec();
        for left in (0..count).rev() {
            header.extend([1, 0, 0, if left == 0 { 0 } else { 0x85 }]);
        }
        header
    };
    for count in 1..=GTP_EXTENSIONS_MAX {
        assert_eq!(
            inner_ports(&carried(&extended(count))),
            HTTP,
            "{count} extensions"
        );
    }
    assert_eq!(
        inner_ports(&carried(&extended(GTP_EXTENSIONS_MAX + 1))),
        None
    );
    let mut endless = extended(1);
    endless[12] = 0;
    assert_eq!(
        inner_ports(&carried(&endless)),
        None,
        "an extension of length 0"
    );
}
