//! How much time the selection takes for each packet, compared with a BPF program that only reads
//! the headers.

use fanpcap_bpf::assembler::{Assembler, Label, Op, R1, R2, R3, R4, R5, R6, Width};
use fanpcap_bpf::{MapSpec, Object, ProgramKind};
use fanpcap_clusterd::selector::Selector;
use fanpcap_linux::bpf::Loaded;
use fanpcap_select::layout::Lanes;
use fanpcap_select::{Action, Claim, Claims, Key, Program};
use fanpcap_steer::ebpf::{self, Keyed};
use fanpcap_testkit::frames;

use super::agreement::program;

/// The number of packets in a round. No two packets are equal.
const PACKETS: u32 = 10_000;
const ROUNDS: usize = 101;

/// A selection whose BPF program first changes each packet. A trial repeats one frame, so without
/// the changes all packets of the trial would be equal.
struct Varied(Program);

/// Writes new numbers into an IPv4 packet: identification, source address, and 8 bytes of payload.
fn vary(asm: &mut Assembler) {
    let short = asm.label();
    asm.load(Width::Word, R1, R6, 0);
    asm.load(Width::Word, R2, R6, 4);
    asm.set(R3, R1 + 60);
    asm.jump_if(R3.above(R2), short);
    asm.load(Width::Double, R4, R1, 42);
    asm.number(R5, 6_364_136_223_846_793_005);
    asm.set(R4, (R4 * R5) + 1_442_695_041);
    asm.store(Width::Double, R1, 42, R4);
    asm.alu(Op::Right, R4, 16);
    asm.store(Width::Word, R1, 26, R4);
    asm.alu(Op::And, R4, 0xffff);
    // Sets the flag "don't fragment" too. A narrower store would stall the wider load that follows.
    asm.alu(Op::Or, R4, 0x0040_0001);
    asm.store(Width::Word, R1, 18, R4);
    asm.bind(short);
}

/// A BPF program that reads the same fields as the selection's fast path.
fn parsed() -> Object {
    let mut asm = Assembler::new();
    let other = asm.label();
    asm.set(R6, R1);
    vary(&mut asm);
    asm.load(Width::Word, R1, R6, 0);
    asm.load(Width::Word, R2, R6, 4);
    asm.set(R3, R1 + 50);
    asm.jump_if(R3.above(R2), other);
    asm.load(Width::Half, R3, R1, 12);
    asm.jump_if(R3.is_not(i32::from(0x0800_u16.to_be())), other);
    asm.load(Width::Byte, R3, R1, 14);
    asm.jump_if(R3.is_not(0x45), other);
    asm.bind(other);
    asm.exit_with(1);
    asm.finish(ProgramKind::Xdp, Vec::new()).unwrap()
}

impl Keyed for Varied {
    fn maps(&self) -> Vec<MapSpec> {
        self.0.maps()
    }

    fn arrive(&self, asm: &mut Assembler, keyed: Label) {
        vary(asm);
        self.0.arrive(asm, keyed);
    }

    fn key(&self, asm: &mut Assembler, keyed: Label) {
        self.0.key(asm, keyed);
    }

    fn leave(&self, asm: &mut Assembler, filter: Option<Label>) {
        self.0.leave(asm, filter);
    }
}

/// The time for a packet: median, minimum and maximum over the rounds.
fn median(mut times: Vec<u32>) -> (u32, u32, u32) {
    times.sort_unstable();
    (times[times.len() / 2], times[0], times[times.len() - 1])
}

/// The claims of one of eight nodes.
fn eighth() -> Claims {
    Claims::new(|bucket| {
        if bucket % 8 == 3 {
            Claim::Mine
        } else {
            Claim::Elsewhere
        }
    })
}

fn selection(program: Program) -> Selector {
    let varied = Varied(program);
    let object = match varied.0.selection.key {
        Key::Flow => {
            let source = fanpcap_steer::modes::source("flow").unwrap();
            let tree = fanpcap_steer::tree(source, &|_| Err(String::new())).unwrap();
            ebpf::xdp_by_hash(&tree, &varied)
        }
        Key::Packet | Key::RoundRobin | Key::Identification => ebpf::xdp_by_headers(&varied),
    };
    let selector = Selector::load_object(&object.unwrap(), &varied.0, Some(0)).unwrap();
    selector.switch(&eighth(), 1);
    selector
}

#[test]
#[ignore = "needs root: eBPF; prints figures, and fails only if a packet takes 400 ns more"]
fn the_selection_costs_little() {
    let datagram = frames::udp(1111, 2222, &[9; 18]);
    let packet = frames::ethernet(0x0800, &frames::v4(17, 0x4000, &datagram));
    assert_eq!(packet.len(), 60);
    let keys = super::agreement::KEYS.map(|key| (format!("{key:?}"), program(key, 77)));
    let mut ways = keys.to_vec();
    for (name, lanes) in [
        ("64 lanes", Lanes::for_queues(64)),
        ("a shared lane", Lanes::SHARED),
    ] {
        let program = Program {
            lanes,
            ..program(Key::Packet, 77)
        };
        ways.push((format!("Packet, {name}"), program));
    }
    let shipped = Program {
        action: Action::Ship {
            bytes: 80,
            shape: fanpcap_xdp::pool_shape().unwrap(),
        },
        ..program(Key::Packet, 77)
    };
    ways.push(("Packet, shipped until the pool is full".to_owned(), shipped));
    let baseline = Loaded::load(&parsed(), "parsed").unwrap();
    let selectors: Vec<_> = ways.iter().map(|(_, it)| selection(it.clone())).collect();
    let mut times = vec![Vec::new(); 1 + ways.len()];
    for _ in 0..ROUNDS {
        times[0].push(baseline.time(&packet, PACKETS).unwrap().1);
        for (times, selector) in times[1..].iter_mut().zip(&selectors) {
            times.push(
                selector
                    .program()
                    .run(&packet, &[], PACKETS)
                    .unwrap()
                    .nanoseconds,
            );
        }
    }
    let mut medians = times.into_iter().map(median);
    let base = medians.next().unwrap();
    println!("parsed: {base:?} ns (median, least, greatest of {ROUNDS} rounds)");
    for ((name, _), time) in ways.iter().zip(medians) {
        println!(
            "{name}: {time:?} ns, +{}",
            i64::from(time.0) - i64::from(base.0)
        );
        assert!(time.1 < base.1 + 400, "{name}");
    }
    let counts = selectors[0].counts();
    let sum: u64 = counts.seen.iter().sum();
    assert_eq!(sum, u64::from(PACKETS) * ROUNDS as u64);
    let used = counts.seen.iter().filter(|count| **count > 0).count();
    assert!(used > 3000, "{used} buckets: the packets are not different");
}
