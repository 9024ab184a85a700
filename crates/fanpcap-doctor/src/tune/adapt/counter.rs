//! Counts a device's packets for each entry of the indirection table. A packet's hash selects the
//! entry. Uses a packet socket whose filter is a BPF program that counts and rejects packets.

use std::collections::HashMap;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fanpcap_bpf::assembler::{Assembler, Label, Op, R0, R1, R2, R3, R6, R7, R8, R9, Width};
use fanpcap_bpf::{MapKind, MapSpec, Object, ProgramKind};
use fanpcap_linux::bpf::{Loaded, Map};
use fanpcap_linux::packet::{self, Address, ETH_P_ALL};
use fanpcap_wire::FlowKey;

use crate::flow::{flow_of, layers};

/// Packets of a round. Segments that the kernel has merged into one packet count as several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// For each entry of the table, the packets whose hash selects this entry.
    pub(super) entries: Vec<u64>,
    /// For each receive queue, the packets for which the driver has recorded this queue.
    pub(super) queues: Vec<u64>,
    /// Packets from queues that are not in the table.
    pub(super) elsewhere: u64,
    /// Packets without a hash, which therefore belong to no entry.
    pub(super) unhashed: u64,
}

/// The filter and its counts.
#[derive(Debug)]
pub(super) struct Counter {
    socket: UdpSocket,
    loaded: Loaded,
    shape: Shape,
    /// The map's numbers at the beginning of the round.
    last: Vec<u64>,
}

/// The flow with most of an entry's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Most {
    pub(super) flow: FlowKey,
    /// The flow's share of the entry's examined packets, in percent.
    pub(super) share: usize,
}

/// How many numbers of each kind the map has, in the order of [`Counts`]' fields.
#[derive(Clone, Copy, Debug)]
struct Shape {
    entries: i32,
    queues: i32,
}

/// The map of the counts.
const COUNTS: &str = "counts";
/// The map with one number: the entry whose packets the filter accepts, plus one. If the number is
/// 0, the filter accepts no packet.
const SAMPLED: &str = "sampled";

/// How many of an entry's packets are examined, and for how long.
const SAMPLES: usize = 48;
const SAMPLING: Duration = Duration::from_millis(500);
/// Enough bytes for the headers of most tunnels.
const SNAPLEN: usize = 192;

impl Counter {
    /// Starts counting.
    ///
    /// # Errors
    /// The filter can't be loaded or attached, mostly because a capability is missing.
    pub(super) fn start(ifindex: u32, entries: usize, queues: usize) -> Result<Self> {
        let shape = Shape {
            entries: i32::try_from(entries)?,
            queues: i32::try_from(queues)?,
        };
        let loaded = Loaded::load(&shape.object()?, "fanpcap_adapt")?;
        let socket = packet::open().context("a packet socket")?;
        packet::attach_program(socket.as_fd(), loaded.as_fd()).context("attaching the filter")?;
        let address = Address {
            ifindex,
            protocol: ETH_P_ALL,
        };
        packet::bind(socket.as_fd(), address).context("binding to the device")?;
        Ok(Self {
            // Use the standard library's type, because it can receive with a time limit.
            socket: socket.into(),
            loaded,
            shape,
            last: vec![0; shape.words()],
        })
    }

    /// Packets since the beginning of the round.
    ///
    /// # Errors
    /// None on any known kernel.
    pub(super) fn since_last(&self) -> Result<Counts> {
        let now = self.map(COUNTS)?.numbers().context("reading the counts")?;
        let grown = |(now, last): (&u64, &u64)| now.wrapping_sub(*last);
        let words: Vec<u64> = now.iter().zip(&self.last).map(grown).collect();
        Ok(self.shape.counts(&words))
    }

    /// Begins the next round. `had` are the counts of the round before.
    pub(super) fn next_round(&mut self, had: &Counts) {
        let had = had.words();
        for (last, had) in self.last.iter_mut().zip(had) {
            *last = last.wrapping_add(had);
        }
    }

    /// The flow with most of the examined packets of an entry; `None` if no packet came.
    ///
    /// # Errors
    /// None on any known kernel.
    pub(super) fn most_of(&self, entry: usize) -> Result<Option<Most>> {
        self.sample(entry as u64 + 1)?;
        let sampled = self.samples();
        self.sample(0)?;
        // Discard the packets that came after the last sample. Otherwise they would count for the
        // next entry that is examined.
        self.socket.set_nonblocking(true)?;
        while self.socket.recv(&mut [0]).is_ok() {}
        self.socket.set_nonblocking(false)?;
        Ok(most(&sampled?))
    }

    fn sample(&self, number: u64) -> Result<()> {
        let written = self.map(SAMPLED)?.write(0, &number.to_ne_bytes());
        written.context("choosing the entry to look at")
    }

    fn samples(&self) -> Result<Vec<Option<FlowKey>>> {
        let mut flows = Vec::new();
        let end = Instant::now() + SAMPLING;
        let mut frame = [0; SNAPLEN];
        while flows.len() < SAMPLES {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.socket.set_read_timeout(Some(left))?;
            // A time limit or a signal ends the sampling.
            let Ok(len) = self.socket.recv(&mut frame) else {
                break;
            };
            flows.push(flow_of(&layers(&frame[..len])).map(|(key, _)| key));
        }
        Ok(flows)
    }

    fn map(&self, name: &str) -> Result<&Map> {
        self.loaded.map(name).context("a map of the filter")
    }
}

fn most(sampled: &[Option<FlowKey>]) -> Option<Most> {
    let mut packets: HashMap<FlowKey, usize> = HashMap::new();
    for key in sampled.iter().flatten() {
        *packets.entry(*key).or_default() += 1;
    }
    let (flow, count) = packets.into_iter().max_by_key(|&(_, count)| count)?;
    let share = count * 100 / sampled.len();
    Some(Most { flow, share })
}

impl Counts {
    /// All packets, with and without a hash.
    pub(super) fn packets(&self) -> u64 {
        self.entries.iter().sum::<u64>() + self.unhashed
    }

    /// All numbers, in the order of the map.
    fn words(&self) -> impl Iterator<Item = u64> {
        let own = self.entries.iter().chain(&self.queues).copied();
        own.chain([self.elsewhere, self.unhashed])
    }
}

impl Shape {
    fn words(self) -> usize {
        usize::try_from(self.entries + self.queues + 2).unwrap_or(0)
    }

    fn counts(self, words: &[u64]) -> Counts {
        let (entries, rest) = words.split_at(usize::try_from(self.entries).unwrap_or(0));
        let (queues, rest) = rest.split_at(usize::try_from(self.queues).unwrap_or(0));
        Counts {
            entries: entries.to_vec(),
            queues: queues.to_vec(),
            elsewhere: rest.first().copied().unwrap_or(0),
            unhashed: rest.get(1).copied().unwrap_or(0),
        }
    }

    /// The filter. In it, r6 is the packet, r7 the number of segments in the packet, and r9 the
    /// packet's entry.
    fn object(self) -> Result<Object> {
        let mut asm = Assembler::new();
        let reject = asm.label();
        asm.set(R6, R1);
        asm.load(Width::Word, R0, R6, PKT_TYPE);
        asm.jump_if(R0.is(PACKET_OUTGOING), reject);
        let single = asm.label();
        asm.load(Width::Word, R7, R6, GSO_SEGS);
        asm.jump_if(R7.is_not(0), single);
        asm.set(R7, 1);
        asm.bind(single);
        self.count_queue(&mut asm);
        self.count_entry(&mut asm, reject);
        asm.value(R1, 1, 0);
        asm.load(Width::Double, R0, R1, 0);
        asm.alu(Op::Add, R9, 1);
        asm.jump_if(R0.is_not(R9), reject);
        asm.exit_with(i32::try_from(SNAPLEN)?);
        asm.bind(reject);
        asm.exit_with(0);
        let row = |name, words: usize| -> Result<MapSpec> {
            let len = u32::try_from(8 * words)?;
            Ok(MapSpec::new(name, MapKind::Array, 4, len, 1))
        };
        let maps = vec![row(COUNTS, self.words())?, row(SAMPLED, 1)?];
        Ok(asm.finish(ProgramKind::SocketFilter, maps)?)
    }

    /// Counts the packet for its receive queue. The field `queue_mapping` is the queue's number
    /// plus one, or 0 if the driver recorded no queue.
    fn count_queue(self, asm: &mut Assembler) {
        let [known, done] = asm.labels();
        asm.load(Width::Word, R2, R6, QUEUE_MAPPING);
        asm.jump_if(R2.is(0), done);
        asm.alu(Op::Sub, R2, 1);
        asm.jump_if(R2.below(self.queues), known);
        asm.set(R2, self.queues);
        asm.bind(known);
        asm.alu(Op::Left, R2, 3);
        self.add(asm, self.entries, true);
        asm.bind(done);
    }

    fn count_entry(self, asm: &mut Assembler, reject: Label) {
        let hashed = asm.label();
        asm.load(Width::Word, R8, R6, HASH);
        asm.jump_if(R8.is_not(0), hashed);
        self.add(asm, self.entries + self.queues + 1, false);
        asm.jump(reject);
        asm.bind(hashed);
        // The number of entries in most drivers' tables is a power of two. The other drivers also
        // use the remainder.
        asm.alu32(Op::Mod, R8, self.entries);
        asm.set(R9, R8);
        // This jump is never taken, but the verifier does not know the range of a remainder.
        asm.jump_if(R8.at_least(self.entries), reject);
        asm.set(R2, R8 << 3);
        self.add(asm, 0, true);
    }

    /// Adds the number of packets (r7) to the count at this index. If `is_indexed`, adds it to the
    /// count that is r2 bytes after the count at this index.
    fn add(self, asm: &mut Assembler, index: i32, is_indexed: bool) {
        asm.value(R3, 0, 8 * index);
        if is_indexed {
            asm.alu(Op::Add, R3, R2);
        }
        asm.atomic_add(R3, 0, R7);
    }
}

// struct __sk_buff (linux/bpf.h).
const PKT_TYPE: i16 = 4;
const QUEUE_MAPPING: i16 = 12;
const HASH: i16 = 68;
const GSO_SEGS: i16 = 164;
/// linux/if_packet.h
const PACKET_OUTGOING: i32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_linux::interface;
    use fanpcap_testkit::veth::ip;
    use fanpcap_testkit::{frames, netns};

    #[test]
    fn the_flow_with_most_samples_is_told_with_its_share() {
        let of = |port| {
            let packet = frames::v4(17, 0, &frames::udp(port, 53, b""));
            flow_of(&layers(&frames::ethernet(0x0800, &packet))).map(|(key, _)| key)
        };
        let found = most(&[of(1), of(2), of(2), None]).unwrap();
        assert_eq!((Some(found.flow), found.share), (of(2), 50));
        assert_eq!(most(&[None]), None);
        assert_eq!(most(&[]), None);
    }

    #[test]
    #[ignore = "needs root: a network namespace and eBPF"]
    fn packets_are_counted_once_and_an_entrys_can_be_looked_at() -> Result<()> {
        netns::within_new(|| {
            ip("link set lo up")?;
            let lo = interface::index("lo").context("lo")?;
            // Some drivers' tables have a number of entries that is not a power of two, such as 48.
            let mut counter = Counter::start(lo, 48, 1)?;
            let to = UdpSocket::bind("127.0.0.1:0")?;
            let from = UdpSocket::bind("127.0.0.1:0")?;
            from.connect(to.local_addr()?)?;
            // The kernel sets a hash for a connected socket's packets.
            let send = || (0..10).try_for_each(|_| from.send(b"x").map(drop));
            send()?;
            let counts = counter.since_last()?;
            let of_entries: u64 = counts.entries.iter().sum();
            assert_eq!((of_entries, counts.unhashed), (10, 0), "{counts:?}");
            counter.next_round(&counts);
            assert_eq!(counter.since_last()?, counter.shape.counts(&[0; 51]));
            let busy = counts.entries.iter().position(|&it| it == 10);
            let busy = busy.context("one flow has one entry")?;
            assert_eq!(counter.most_of((busy + 1) % 48)?, None);
            let most = std::thread::scope(|scope| {
                let sender = scope.spawn(|| {
                    for _ in 0..20 {
                        std::thread::sleep(Duration::from_millis(5));
                        send()?;
                    }
                    std::io::Result::Ok(())
                });
                let most = counter.most_of(busy);
                sender.join().map_err(|_| anyhow::anyhow!("the sender"))??;
                most
            })?;
            let most = most.context("samples")?;
            let port = from.local_addr()?.port();
            assert!(most.flow.ends().iter().any(|end| end.port == port));
            assert_eq!(most.share, 100);
            Ok(())
        })
    }
}
