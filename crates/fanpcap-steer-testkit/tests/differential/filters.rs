//! The filters of handles on the XDP engine. The test compares the kernel's result with the result
//! of a reader. The reader gets the packet in the form in which the kernel's receive path delivers
//! it.

use fanpcap_bpf::classic::ancillary::*;
use fanpcap_bpf::classic::opcode::*;
use fanpcap_bpf::{Classic, Shifts, run};
use fanpcap_linux::bpf::Loaded;
use fanpcap_reader::filter::{LinkInfo, View};
use fanpcap_steer::ebpf;
use fanpcap_steer_testkit::{Draw, programs, tape};

use super::traffic::{Shot, drawn};

/// Number of filters, unless FANPCAP_PROOF_FILTERS sets another number. The next constant is the
/// number of packets for each filter.
const FILTERS: u64 = 400;
const PACKETS: usize = 200;

/// The index of the loopback device, on which the kernel runs a trial.
const INTERFACE: u32 = 1;

/// Draws a filter of a live handle. It may load metadata.
pub(crate) fn live(draw: &mut Draw<'_>) -> Vec<Classic> {
    let mut code = programs::classic(draw);
    for one in &mut code {
        let is_load = matches!(one.code, LD_W_ABS | LD_H_ABS | LD_B_ABS);
        if is_load && draw.one_in(4) {
            one.k = SKF_AD_OFF
                + draw.pick(&[
                    SKF_AD_VLAN_TAG_PRESENT,
                    SKF_AD_VLAN_TAG,
                    SKF_AD_VLAN_TPID,
                    SKF_AD_PROTOCOL,
                    SKF_AD_PKTTYPE,
                    SKF_AD_IFINDEX,
                    SKF_AD_HATYPE,
                    SKF_AD_ALU_XOR_X,
                ]);
            one.code = LD_W_ABS;
        }
    }
    code
}

/// The frame without its first tag, and the tag; `None` if the frame has no tag that the kernel
/// removes.
fn untagged(frame: &[u8]) -> (Vec<u8>, Option<(u16, u16)>) {
    let half = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    if frame.len() < 18 || ![0x8100, 0x88a8].contains(&half(12)) {
        return (frame.to_vec(), None);
    }
    let bytes = [&frame[..12], &frame[16..]].concat();
    (bytes, Some((half(12), half(14))))
}

/// The frame's protocol, as the kernel determines it (net/ethernet/eth.c, `eth_type_trans`).
fn protocol(frame: &[u8]) -> u16 {
    match u16::from_be_bytes([frame[12], frame[13]]) {
        kind @ 0x0600.. => kind,
        _ if frame.get(14..16) == Some(&[0xff, 0xff]) => 1,
        _ => 4,
    }
}

/// The number of bytes of the frame on the wire that the filter must keep, by the reader's
/// interpreter.
fn expected(code: &[Classic], frame: &[u8]) -> u32 {
    let (bytes, vlan) = untagged(frame);
    let view = View {
        data: frame,
        is_tag_inside: vlan.is_some(),
        wire_len: u32::try_from(bytes.len()).unwrap(),
        link: LinkInfo {
            protocol: protocol(&bytes),
            pkttype: 0,
            ifindex: INTERFACE,
            hatype: 1,
        },
        vlan,
    };
    match run(code, &view, Shifts::Modulo) {
        0 => 0,
        kept if vlan.is_some() && kept < 1 << 20 => kept + 4,
        kept => kept,
    }
}

/// Whether the frame ends before the bytes from which the kernel determines its protocol.
fn is_cut(frame: &[u8]) -> bool {
    let (bytes, _) = untagged(frame);
    bytes.len() < 16
}

#[test]
#[ignore = "needs root: eBPF"]
fn filters_keep_at_xdp_what_a_reader_keeps() {
    let filters = std::env::var("FANPCAP_PROOF_FILTERS");
    let filters = filters.map_or(FILTERS, |filters| filters.parse().unwrap());
    let shots: Vec<Shot> = drawn(1 << 33, PACKETS)
        .shots
        .into_iter()
        .filter(|shot| shot.untried(false).is_none() && !is_cut(&shot.bytes))
        .collect();
    let (mut kept, mut rejected, mut tagged, mut refused) = (0, 0, 0, 0);
    for seed in 0..filters {
        let code = live(&mut Draw::new(&tape(seed, 300)));
        let Ok(object) = ebpf::xdp_filter(&code) else {
            refused += 1;
            continue;
        };
        let loaded = Loaded::load(&object, "proof").unwrap_or_else(|error| panic!("{error}"));
        for shot in &shots {
            let (found, expected) = (
                loaded.run(&shot.bytes).unwrap(),
                expected(&code, &shot.bytes),
            );
            assert_eq!(
                found,
                expected,
                "filter {seed}, {shot}\n{code:#x?}\n{}",
                object.listing()
            );
            *if found == 0 { &mut rejected } else { &mut kept } += 1;
            tagged += u32::from(untagged(&shot.bytes).1.is_some());
        }
    }
    println!(
        "{filters} filters, {refused} refused: {kept} packets kept, {rejected} rejected, {tagged} of them with a tag"
    );
    assert!(refused < filters / 10);
    assert!(kept > rejected / 10 && rejected > kept / 10 && tagged > 100);
}

#[test]
fn what_only_the_kernel_knows_is_refused() {
    for what in [
        SKF_AD_MARK,
        SKF_AD_QUEUE,
        SKF_AD_RXHASH,
        SKF_AD_CPU,
        SKF_AD_PAY_OFFSET,
        SKF_AD_RANDOM,
    ] {
        let load = Classic::new(LD_W_ABS, SKF_AD_OFF + what);
        assert!(ebpf::xdp_filter(&[load, Classic::keep(1)]).is_err());
        assert!(ebpf::sent_filter(&[load, Classic::keep(1)]).is_err());
    }
}
