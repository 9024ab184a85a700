//! The filters of handles on the XDP engine, on packets that the host sends. The test compares the
//! result of the BPF program with that of a packet socket, on which the kernel runs the same
//! classic filter. Both get the same packets of a device: with a VLAN tag beside the frame, with
//! tags among the bytes, and with both.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use fanpcap_bpf::assembler::*;
use fanpcap_bpf::classic::ancillary::*;
use fanpcap_bpf::classic::opcode::*;
use fanpcap_bpf::kernel::{TAIL_CALL, TCX_NEXT};
use fanpcap_bpf::{Classic, MapKind, MapSpec, Object, ProgramKind};
use fanpcap_linux::bpf::{Attached, Hook, Loaded, ObjectArray, Table};
use fanpcap_linux::packet::{self, Address, Filter};
use fanpcap_linux::wait::events;
use fanpcap_steer::ebpf;
use fanpcap_steer_testkit::{Draw, tape};
use fanpcap_testkit::Injector;
use fanpcap_testkit::netns::on_pair;
use fanpcap_testkit::veth::ip;

use super::filters::live;
use super::traffic::{Shot, drawn};

/// Number of filters, unless FANPCAP_PROOF_SENT_FILTERS sets another number. The next constant is
/// the number of packets for each filter. With many packets for each filter, the test does not
/// attach filters to sockets too often in a second.
const FILTERS: u64 = 200;
const PACKETS: usize = 150;

const RESULT: &str = "result";
const SLOT: &str = "slot";
const RESULT_LEN: u32 = 512;

/// The helper `bpf_skb_vlan_push`.
const SKB_VLAN_PUSH: i32 = 18;

/// The number that the recorder stores if it could not run a filter.
const NOT_RUN: u64 = u64::MAX;

/// The tags that the kernel keeps beside the frames: protocol and control information. The protocol
/// 0 means no tag.
const TAGS: [(u16, u16); 4] = [(0, 0), (0x8100, 5), (0x88a8, 0xe00f), (0x8100, 0x2000)];
const TAG_LEN: u64 = 4;

/// A BPF program at the device's traffic control. It puts a tag beside the frame, as a VLAN device
/// does, runs a filter, as the engine does, and stores the filter's result.
struct Recorder {
    slot: ObjectArray,
    result: Table,
    _link: Attached,
}

impl Recorder {
    /// `None` if the kernel has no hook for sent packets.
    fn on(index: u32) -> Option<Self> {
        let slot = ObjectArray::create(SLOT, MapKind::ProgArray, 1).unwrap();
        let result = Table::create_rows(RESULT, RESULT_LEN, 1).unwrap();
        let given = [(SLOT, slot.as_fd()), (RESULT, result.as_fd())];
        let loaded = Loaded::load_with(&Self::object(), "recorder", &given).unwrap();
        let link = loaded.into_program().attach(index, Hook::Egress).ok()?;
        Some(Self {
            slot,
            result,
            _link: link,
        })
    }

    fn object() -> Object {
        let mut asm = Assembler::new();
        let run = asm.label();
        asm.set(R6, R1);
        asm.value(R1, 1, 0);
        asm.load(Width::Half, R2, R1, 8);
        asm.load(Width::Half, R3, R1, 10);
        asm.unless(R2.is(0), |asm| {
            asm.set(R1, R6);
            asm.call(SKB_VLAN_PUSH, ());
        });
        asm.call_function(run, (R6, 0, 0));
        asm.value(R1, 1, 0);
        asm.store(Width::Double, R1, 0, R0);
        asm.exit_with(TCX_NEXT);
        asm.bind(run);
        asm.call(TAIL_CALL, (R1, map(0), 0));
        asm.exit_with(-1);
        let maps = vec![
            MapSpec::given_rows(SLOT, MapKind::ProgArray, 4, 1),
            MapSpec::given_rows(RESULT, MapKind::Array, RESULT_LEN, 1),
        ];
        asm.finish(ProgramKind::SchedCls, maps).unwrap()
    }

    /// Sets the tag of the next packets.
    fn tag(&self, (protocol, control): (u16, u16)) {
        let tag: &[AtomicU16] = self.result.view(8, 2).unwrap();
        tag[0].store(protocol.to_be(), Ordering::SeqCst);
        tag[1].store(control, Ordering::SeqCst);
    }

    /// The result of the filter for the packet that was sent last.
    fn take(&self) -> u64 {
        let result: &[AtomicU64] = self.result.view(0, 1).unwrap();
        result[0].swap(NOT_RUN, Ordering::SeqCst)
    }
}

/// A packet socket with this filter on the device.
struct Socket(File);

impl Socket {
    fn new(index: u32, code: Vec<Classic>) -> Self {
        let socket: OwnedFd = packet::open().unwrap();
        Filter::new(code).attach(socket.as_fd()).unwrap();
        let address = Address {
            ifindex: index,
            protocol: packet::ETH_P_ALL,
        };
        packet::bind(socket.as_fd(), address).unwrap();
        Self(socket.into())
    }

    /// How many bytes the filter has kept of the packet that was sent last; 0 if it has rejected
    /// the packet.
    fn take(&mut self) -> u64 {
        let found = events::poll(&[self.0.as_fd()], Some(Duration::ZERO)).unwrap();
        if !found[0] {
            return 0;
        }
        self.0.read(&mut [0; 10_000]).unwrap() as u64
    }
}

/// Filters that keep as many bytes as six bits of the metadata say, and one byte more.
fn metadata() -> Vec<Vec<Classic>> {
    let mut filters = Vec::new();
    for what in [
        SKF_AD_VLAN_TAG_PRESENT,
        SKF_AD_VLAN_TAG,
        SKF_AD_VLAN_TPID,
        SKF_AD_PROTOCOL,
        SKF_AD_PKTTYPE,
        SKF_AD_IFINDEX,
        SKF_AD_HATYPE,
    ] {
        filters.extend([0, 6, 12].map(|shift| {
            vec![
                Classic::new(LD_W_ABS, SKF_AD_OFF + what),
                Classic::new(ALU_RSH_K, shift),
                Classic::new(ALU_AND_K, 0x3f),
                Classic::new(ALU_ADD_K, 1),
                Classic::new(RET_A, 0),
            ]
        }));
    }
    filters
}

/// Whether the frame has an MPLS label behind its tags. If the card can't insert tags into such
/// frames, the kernel puts the tag into the frame before packet sockets receive it, but after the
/// recorder has run (net/core/dev.c, `net_mpls_features`).
fn is_labelled(frame: &[u8]) -> bool {
    let types = frame[12..].chunks_exact(4);
    let mut types = types.map(|it| u16::from_be_bytes([it[0], it[1]]));
    let first = types.find(|it| ![0x8100, 0x88a8].contains(it));
    matches!(first, Some(0x8847 | 0x8848))
}

/// Drawn frames, and a long one, which the kernel keeps in several pieces.
fn shots() -> Vec<Shot> {
    let fits = |shot: &Shot| (14..9000).contains(&shot.bytes.len());
    let mut shots: Vec<Shot> = drawn(1 << 34, PACKETS).shots;
    shots.retain(fits);
    let mut long = shots[0].clone();
    long.bytes.resize(8000, 7);
    shots.push(long);
    shots
}

#[test]
#[ignore = "needs root: eBPF, a network namespace, tcx (Linux 6.6)"]
fn filters_keep_of_sent_packets_what_packet_sockets_keep() {
    let filters = std::env::var("FANPCAP_PROOF_SENT_FILTERS");
    let filters = filters.map_or(FILTERS, |filters| filters.parse().unwrap());
    on_pair(|index| {
        let Some(recorder) = Recorder::on(index) else {
            println!("SKIP: the kernel lacks tcx (BPF programs in traffic control, Linux 6.6)");
            return;
        };
        for device in ["va", "vb"] {
            ip(&format!("link set {device} mtu 9000")).unwrap();
        }
        let (sender, shots) = (Injector::open("vb").unwrap(), shots());
        let (mut kept, mut rejected, mut cut, mut refused) = (0, 0, 0, 0);
        let drawn = (0..filters).map(|seed| live(&mut Draw::new(&tape(seed, 300))));
        for (seed, code) in metadata().into_iter().chain(drawn).enumerate() {
            let Ok(object) = ebpf::sent_filter(&code) else {
                refused += 1;
                continue;
            };
            let loaded = Loaded::load(&object, "proof").unwrap_or_else(|error| panic!("{error}"));
            let program = loaded.into_program();
            recorder.slot.put(0, &[program.as_fd()]).unwrap();
            let mut socket = Socket::new(index, code.clone());
            for shot in &shots {
                let tags = if is_labelled(&shot.bytes) {
                    &TAGS[..1]
                } else {
                    &TAGS
                };
                for &tag in tags {
                    let tag_len = if tag.0 == 0 { 0 } else { TAG_LEN };
                    recorder.tag(tag);
                    sender.send(&shot.bytes).unwrap();
                    let found = recorder.take();
                    assert!(found != NOT_RUN, "filter {seed} did not run");
                    let found = found.min(shot.bytes.len() as u64 + tag_len);
                    let expected = match socket.take() {
                        0 => 0,
                        bytes => bytes + tag_len,
                    };
                    assert_eq!(
                        found,
                        expected,
                        "filter {seed}, {tag:x?}, {shot}\n{code:#x?}\n{}",
                        object.listing()
                    );
                    *if found == 0 { &mut rejected } else { &mut kept } += 1;
                    cut += u32::from((1..shot.bytes.len() as u64).contains(&found));
                }
            }
        }
        println!(
            "{filters} filters, {refused} refused: {kept} packets kept, {cut} of them cut, {rejected} rejected"
        );
        assert!(refused < filters / 10);
        assert!(kept > rejected / 10 && rejected > kept / 10 && cut > 100);
    });
}
