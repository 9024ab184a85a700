//! Runs the selection in the kernel and the one in user space on the same packets, and compares
//! them.

use std::collections::VecDeque;
use std::time::Instant;

use fanpcap_buckets::layout::BUCKETS;
use fanpcap_clusterd::selector::{Counts, Selector};
use fanpcap_select::in_line::{InLine, Kind};
use fanpcap_select::native::{Node, Verdict};
use fanpcap_select::{Claim, Claims, Program};
use fanpcap_steer_testkit::{Draw, packets, tape};
use fanpcap_wire::Frame;

pub(crate) const CLUSTER: u32 = 0x0a0b_0c0d;

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;

pub(crate) struct Both {
    pub(crate) kernel: Selector,
    pub(crate) native: Node,
    seen: Box<[u64; BUCKETS]>,
    captured: Box<[u64; BUCKETS]>,
    begin: Instant,
    /// A device with two queues, which get packets alternately; 0 if packets come from no device.
    pub(crate) device: u32,
    /// How often each verdict occurred: idle, in-line, elsewhere, own, filtered.
    pub(crate) verdicts: [u64; 5],
}

/// Something that happens to a node.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Packet(Vec<u8>),
    Switch(u64, u32),
    Prepare(u64, u32),
    Announce(Kind, u64, u64),
}

/// Random claims of a node.
fn claims(seed: u64) -> Claims {
    let tape = tape(seed, BUCKETS);
    Claims::new(|bucket| match tape[bucket] % 4 {
        0 => Claim::Mine,
        1 => Claim::Shared,
        _ => Claim::Elsewhere,
    })
}

impl Both {
    pub(crate) fn new(kernel: Selector, program: &Program) -> Self {
        Self {
            kernel,
            native: {
                let mut node = Node::new(program.cluster, program.selection);
                node.filter(program.filter.clone());
                node
            },
            seen: Box::new([0; BUCKETS]),
            captured: Box::new([0; BUCKETS]),
            begin: Instant::now(),
            device: 0,
            verdicts: [0; 5],
        }
    }

    /// Runs an event on both sides. The error describes a difference between them.
    pub(crate) fn happens(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::Switch(seed, mark) => {
                self.kernel.switch(&claims(*seed), *mark);
                self.native.switch(claims(*seed), *mark);
            }
            Event::Prepare(seed, mark) => {
                self.kernel.prepare(&claims(*seed), *mark);
                self.native.prepare(claims(*seed), *mark);
            }
            Event::Announce(kind, sequence, number) => {
                self.kernel.announce(*kind, *sequence, *number);
                self.native.announce(*kind, *sequence, *number);
            }
            Event::Packet(bytes) => return self.packet(bytes),
        }
        Ok(())
    }

    fn packet(&mut self, bytes: &[u8]) -> Result<(), String> {
        let queue = u32::try_from(self.verdicts.iter().sum::<u64>() % 2).unwrap_or(0);
        let context = match self.device {
            0 => Vec::new(),
            device => context(bytes, device, queue),
        };
        // The kernel refuses to run a BPF program on a frame that is too short.
        let Ok(run) = self.kernel.program().run(bytes, &context, 1) else {
            return Ok(());
        };
        let now_ns = u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let native = self.native.judge(&Frame { bytes, tag: None }, now_ns);
        let (kind, expected) = match native {
            Verdict::Idle => (0, XDP_PASS),
            Verdict::InLine(_) => (1, XDP_DROP),
            Verdict::Filtered { bucket } => {
                self.seen[bucket] += 1;
                self.captured[bucket] += 1;
                (4, XDP_DROP)
            }
            Verdict::Packet { bucket, claim } => {
                self.seen[bucket] += 1;
                if claim == Claim::Elsewhere {
                    (2, XDP_DROP)
                } else {
                    self.captured[bucket] += 1;
                    (3, XDP_PASS)
                }
            }
        };
        self.verdicts[kind] += 1;
        if run.verdict == expected {
            Ok(())
        } else {
            Err(format!("{native:?}, and the kernel says {}", run.verdict))
        }
    }

    /// Compares the counters of both sides. The error describes a difference.
    pub(crate) fn counters(&self) -> Result<(), String> {
        let counts = self.kernel.counts();
        let (causes, native) = (counts.causes, self.native.causes());
        if causes != native {
            return Err(format!("{causes:?}, not {native:?}"));
        }
        let pairs = [
            (&counts.seen, &self.seen),
            (&counts.captured, &self.captured),
        ];
        for (kernel, native) in pairs {
            if let Some(bucket) = (0..BUCKETS).find(|&it| kernel[it] != native[it]) {
                let (kernel, native) = (kernel[bucket], native[bucket]);
                return Err(format!("bucket {bucket}: {kernel}, not {native}"));
            }
        }
        let sums = [&self.seen, &self.captured].map(|counts| counts.iter().sum::<u64>());
        assert_eq!(elsewhere(&counts), sums[0] - sums[1]);
        if self.kernel.control() != self.native.control() {
            return Err("the control words".to_owned());
        }
        let beacon = self
            .kernel
            .last_beacon()
            .map(|it| (it.sequence, it.sent_ns));
        let native = self
            .native
            .last_beacon()
            .map(|it| (it.sequence, it.time_ns));
        (beacon == native)
            .then_some(())
            .ok_or(format!("{beacon:?}, not {native:?}"))
    }
}

/// The `struct xdp_md` of a frame that came to a queue of a device.
pub(crate) fn context(frame: &[u8], device: u32, queue: u32) -> Vec<u8> {
    let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    // The fields: data, end of data, metadata, device, queue, and the device for output.
    let fields = [0, len, 0, device, queue, 0];
    fields
        .iter()
        .flat_map(|field| field.to_ne_bytes())
        .collect()
}

/// `count` random packets, and between them changes of the table and the coordinator's frames.
pub(crate) fn events(seed: u64, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    let mut frames: VecDeque<Vec<u8>> = VecDeque::new();
    for number in 0..count as u64 {
        let tape = tape((seed << 20) | number, 420);
        let mut draw = Draw::new(&tape);
        // Of five packets, one has content that does not match its type, and one is an edge case.
        let packet = match number % 5 {
            0 => packets::labelled(&mut draw),
            1 => edge(&mut draw),
            _ => packets::packet(&mut draw).bytes,
        };
        let mut draw = Draw::new(&tape[400..]);
        match draw.below(40) {
            // There are few changes of the table, because each one waits for a grace period of the
            // kernel.
            1 if draw.one_in(12) => events.push(Event::Switch(number, draw.byte().into())),
            2 | 3 => in_line(&mut draw, number, &mut frames, &mut events),
            4..=7 => events.extend(frames.pop_front().map(Event::Packet)),
            // 8: sends a copy of a frame that is sent again later. 9: sends a copy with one changed
            // bit.
            8 => events.extend(frames.front().cloned().map(Event::Packet)),
            9 => {
                if let Some(mut frame) = frames.front().cloned() {
                    let at = draw.below(frame.len());
                    frame[at] ^= 1 << draw.below(8);
                    events.push(Event::Packet(frame));
                }
            }
            _ => {}
        }
        events.push(Event::Packet(packet));
    }
    events
}

/// A frame that meets or just fails the conditions of the BPF program's fast path. The conditions:
/// the Ethernet type, the IP header's first byte, the length in the IP header, and the frame's
/// length.
fn edge(draw: &mut Draw<'_>) -> Vec<u8> {
    let mut frame = draw.bytes(12);
    if draw.one_in(4) {
        frame.extend([0x81, 0, 0, 7]);
    }
    let (types, firsts): ([u16; 3], [u8; 3]) = match draw.one_in(2) {
        true => ([0x0800, 0x0800, 0x0900], [0x45, 0x45, 0x44]),
        false => ([0x86dd, 0x86dd, 0x87dd], [0x60, 0x60, 0x61]),
    };
    frame.extend(draw.pick(&types).to_be_bytes());
    let mut packet = draw.bytes(60);
    packet[0] = draw.pick(&firsts);
    let (behind, at) = match packet[0] & 0xf0 {
        0x40 => (20, 2),
        _ => (0, 4),
    };
    packet[at..at + 2].copy_from_slice(&(behind + draw.pick(&[10_u16, 11, 12])).to_be_bytes());
    frame.extend(packet);
    match draw.below(4) {
        0 => frame.truncate(14 + draw.below(6)),
        1 => frame.truncate(44 + draw.below(6)),
        2 => frame.truncate(64 + draw.below(6)),
        _ => {}
    }
    frame
}

/// Makes one of the coordinator's frames, and adds it to `frames`, which are sent later. For four
/// of five frames, adds an event that announces the frame.
fn in_line(
    draw: &mut Draw<'_>,
    number: u64,
    frames: &mut VecDeque<Vec<u8>>,
    events: &mut Vec<Event>,
) {
    let kind = match draw.one_in(16) {
        true => Kind::Update,
        false => Kind::Beacon,
    };
    let sequence = draw.below(80) as u64;
    let secret = (number << 8) | u64::from(draw.byte()) | 1;
    if !draw.one_in(5) {
        if kind == Kind::Update {
            events.push(Event::Prepare(!number, draw.byte().into()));
        }
        events.push(Event::Announce(kind, sequence, secret));
    }
    let frame = InLine {
        kind,
        cluster: CLUSTER,
        sequence,
        time_ns: number,
        number: if draw.one_in(8) { 0 } else { secret },
    };
    let mut bytes = frame.encode([1; 6], [2; 6]).to_vec();
    match draw.below(6) {
        0 => drop(bytes.splice(12..12, [0x81, 0x00, 0, 7])),
        1 => drop(bytes.splice(12..12, [0x88, 0xa8, 0, 7])),
        2 => drop(bytes.splice(12..12, [0x81, 0, 0, 7, 0x81, 0, 0, 7])),
        _ => {}
    }
    frames.push_back(bytes);
}

/// Packets that were dropped because another node has to capture them.
pub(crate) fn elsewhere(counts: &Counts) -> u64 {
    let sum = |counts: &[u64; BUCKETS]| counts.iter().fold(0, |sum: u64, it| sum.wrapping_add(*it));
    let own = sum(&counts.captured).wrapping_add(counts.causes.lost);
    sum(&counts.seen).wrapping_sub(own)
}
