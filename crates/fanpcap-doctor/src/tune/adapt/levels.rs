//! Decides in each round which entries of an indirection table move to another queue. The decision
//! depends only on the counts of this and the earlier rounds.

use std::fmt::Write as _;

use fanpcap_buckets::leveling::{Leveling, Load, Moves, Shift, imbalance};

use super::counter::Counts;

/// The decision of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    /// The queue of each entry after this round.
    pub(super) table: Vec<u32>,
    /// How far the busiest queue exceeds its share, in parts of 1000.
    pub(super) before: u64,
    /// How far the busiest queue of the new table exceeds its share, in parts of 1000.
    pub(super) after: u64,
    /// Packets of the round.
    pub(super) packets: u64,
    /// The moves: the entry, its old queue and its new queue.
    pub(super) moves: Vec<[usize; 3]>,
    /// Entries that exceed a queue's share in this round, but did not in the round before.
    pub(super) elephants: Vec<usize>,
    /// Why no entry moves, regardless of the load.
    pub(super) hindrance: Option<Hindrance>,
}

/// Why nothing can be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hindrance {
    /// So few packets that their distribution is due to chance.
    Few,
    /// This many of 1000 packets have no hash.
    NoHash(u64),
    /// Another queue than the indirection table names received this many of 1000 packets.
    Elsewhere(u64),
}

/// What the next decision needs from the rounds so far.
#[derive(Debug)]
pub(super) struct Levels {
    leveling: Leveling,
    /// For each queue: 1 if the queue is in the table, otherwise 0.
    weights: Vec<u16>,
    /// For each entry, the number of rounds since its last packet.
    quiet: Vec<u8>,
    moves_live: bool,
    /// The elephants of the last round.
    elephants: Vec<usize>,
}

/// The least number of packets for each queue in a round. With fewer packets, chance alone too
/// often makes a queue more than 2 % busier than the others.
pub(super) const PACKETS_MIN: u64 = 2000;

/// An entry without packets for this many rounds has no live flow.
const QUIET: u8 = 3;

/// Limit for the packets that have no hash or come to another queue than the table says, per 1000
/// packets. With more such packets, moves would not have the computed effect.
const STRAY_MAX: u64 = 100;

impl Levels {
    /// Levels the queues in the table. Without `moves_live`, only entries without live flows move.
    pub(super) fn new(table: &[u32], moves_live: bool) -> Self {
        let mut weights = Vec::new();
        for queue in indices(table) {
            if weights.len() <= queue {
                weights.resize(queue + 1, 0);
            }
            weights[queue] = 1;
        }
        Self {
            leveling: Leveling::default(),
            weights,
            quiet: vec![0; table.len()],
            moves_live,
            elephants: Vec::new(),
        }
    }

    /// The number of queues, up to the last one in the table.
    pub(super) fn queues(&self) -> usize {
        self.weights.len()
    }

    /// The number of packets that a round needs for a decision.
    pub(super) fn enough(&self) -> u64 {
        let queues: u64 = self.weights.iter().map(|&weight| u64::from(weight)).sum();
        queues * PACKETS_MIN
    }

    /// Decides from the counts of a round in which the table was `table`.
    pub(super) fn round(&mut self, table: &[u32], counts: &Counts) -> Decision {
        for (quiet, &packets) in self.quiet.iter_mut().zip(&counts.entries) {
            *quiet = if packets > 0 {
                0
            } else {
                quiet.saturating_add(1)
            };
        }
        let owners: Vec<usize> = indices(table).collect();
        let load = Load {
            packets: &counts.entries,
            owners: &owners,
            weights: &self.weights,
        };
        let before = imbalance(&load);
        let mut decision = Decision {
            table: table.to_vec(),
            before,
            after: before,
            packets: counts.entries.iter().sum(),
            moves: Vec::new(),
            elephants: Vec::new(),
            hindrance: self.hindrance(&owners, counts),
        };
        if decision.hindrance.is_some() {
            return decision;
        }
        let idle: Vec<bool> = self.quiet.iter().map(|&quiet| quiet >= QUIET).collect();
        let moves = match self.moves_live {
            true => Moves::All,
            false => Moves::Idle(&idle),
        };
        let round = self.leveling.round(&load, moves);
        let mut next = owners.clone();
        for Shift { bucket, to } in round.shifts {
            decision.moves.push([bucket, owners[bucket], to]);
            next[bucket] = to;
            decision.table[bucket] = u32::try_from(to).unwrap_or(0);
        }
        decision.after = imbalance(&Load {
            owners: &next,
            ..load
        });
        let is_new = |entry: &&usize| !self.elephants.contains(entry);
        decision.elephants = round.elephants.iter().filter(is_new).copied().collect();
        self.elephants = round.elephants;
        decision
    }

    fn hindrance(&self, owners: &[usize], counts: &Counts) -> Option<Hindrance> {
        let packets = counts.packets();
        let share = |part: u64| part * 1000 / packets.max(1);
        let unhashed = share(counts.unhashed);
        if packets < self.enough() {
            return Some(Hindrance::Few);
        }
        if unhashed > STRAY_MAX {
            return Some(Hindrance::NoHash(unhashed));
        }
        let mut expected = vec![0; self.weights.len()];
        for (&packets, &owner) in counts.entries.iter().zip(owners) {
            expected[owner] += packets;
        }
        // If the driver records no queue for any packet, nothing is checked. Packets without a hash
        // may come to any queue, so a queue may get more packets than expected. Only the packets
        // that are missing at a queue count as strays.
        let is_noted = counts.queues.iter().sum::<u64>() + counts.elsewhere > 0;
        let lacking = |(&expected, &came): (&u64, &u64)| expected.saturating_sub(came);
        let strays: u64 = expected.iter().zip(&counts.queues).map(lacking).sum();
        let strays = share(strays);
        (is_noted && strays > STRAY_MAX).then_some(Hindrance::Elsewhere(strays))
    }
}

/// Queues as indices of arrays.
fn indices(table: &[u32]) -> impl Iterator<Item = usize> {
    table.iter().map(|&queue| queue as usize)
}

impl Decision {
    /// A line of text about the round.
    pub(super) fn text(&self, number: u32) -> String {
        let (before, packets) = (percent(self.before), self.packets);
        let mut text =
            format!("round {number}: busiest queue {before} % above its share, {packets} packets");
        // Writing to a String can't fail.
        let _ = match self.hindrance {
            Some(Hindrance::Few) => write!(text, "; too few for a decision"),
            Some(Hindrance::NoHash(part)) => write!(
                text,
                "; nothing moves: {} % of the packets have no hash of the device",
                percent(part)
            ),
            Some(Hindrance::Elsewhere(part)) => write!(
                text,
                "; nothing moves: {} % of the packets come to other queues than the table says: \
                 rules ('ethtool -n') or another table choose the queues",
                percent(part)
            ),
            None if self.moves.is_empty() => write!(text, "; nothing moves"),
            None => write!(text, "; {} moved:", self.moves.len()),
        };
        for [entry, from, to] in &self.moves {
            let _ = write!(text, " {entry}:{from}>{to}");
        }
        if !self.moves.is_empty() {
            let _ = write!(text, "; {} % expected", percent(self.after));
        }
        text
    }

    /// A line about an elephant: an entry with more packets than a queue's share. `flow` describes
    /// the flow with most of the entry's packets.
    pub(super) fn elephant(&self, entry: usize, counts: &Counts, flow: &str) -> String {
        let part = counts.entries[entry] * 1000 / self.packets.max(1);
        let queue = self.table[entry];
        format!(
            "entry {entry} of queue {queue} has {} % of the packets, more than a queue's share: \
             {flow}; it stays",
            percent(part)
        )
    }
}

fn percent(thousandths: u64) -> String {
    format!("{}.{}", thousandths / 10, thousandths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table that gives the entries to the queues in turn, as drivers create it.
    fn by_turns(entries: u32, queues: u32) -> Vec<u32> {
        (0..entries).map(|entry| entry % queues).collect()
    }

    /// The counts of these packets if the table decides their queues.
    fn counts(entries: Vec<u64>, table: &[u32]) -> Counts {
        let mut queues = vec![0; 4];
        for (&packets, queue) in entries.iter().zip(indices(table)) {
            queues[queue] += packets;
        }
        Counts {
            entries,
            queues,
            ..Counts::default()
        }
    }

    /// Flows whose sizes follow Zipf's law. The large flows are in entries of queue 0.
    fn skewed() -> Vec<u64> {
        let mut entries = vec![0; 128];
        for flow in 1..=2000_usize {
            let entry = flow * flow % 509 % 128;
            let entry = if flow < 40 { entry & !3 } else { entry };
            entries[entry] += 40_000 / (flow as u64 + 10);
        }
        entries
    }

    #[test]
    fn skewed_flows_are_level_after_few_rounds() {
        let mut table = by_turns(128, 4);
        let mut levels = Levels::new(&table, true);
        let first = levels.round(&table, &counts(skewed(), &table));
        let mut last = first.clone();
        for number in 2..=20 {
            table.clone_from(&last.table);
            last = levels.round(&table, &counts(skewed(), &table));
            println!("{}", last.text(number));
        }
        assert!(first.before > 400, "{first:?}");
        assert!(last.before <= 50 && last.moves.is_empty(), "{last:?}");
        let line = first.text(1);
        assert!(
            line.contains(" moved: ") && line.ends_with(" % expected"),
            "{line}"
        );
    }

    #[test]
    fn only_queues_of_the_table_get_entries() {
        let table: Vec<u32> = (0..128).map(|entry| 2 * (entry % 2)).collect();
        let mut levels = Levels::new(&table, true);
        assert_eq!((levels.queues(), levels.enough()), (3, 2 * PACKETS_MIN));
        let mut packets = vec![10; 128];
        packets[0] = 4000;
        let decision = levels.round(&table, &counts(packets, &table));
        assert!(!decision.moves.is_empty());
        assert!(decision.table.iter().all(|queue| [0, 2].contains(queue)));
    }

    #[test]
    fn live_flows_stay_unless_asked() {
        let table = by_turns(128, 4);
        let mut packets: Vec<u64> = table
            .iter()
            .map(|queue| [500, 100][usize::from(*queue > 0)])
            .collect();
        // One entry of the busy queue is idle.
        packets[8] = 0;
        let counts = counts(packets, &table);
        let mut levels = Levels::new(&table, false);
        for _ in 1..QUIET {
            let decision = levels.round(&table, &counts);
            assert!(decision.moves.is_empty(), "quiet for too short a time");
        }
        let decision = levels.round(&table, &counts);
        assert!(
            matches!(decision.moves[..], [[8, 0, 1..=3]]),
            "{decision:?}"
        );
        let moved = levels.round(&decision.table, &counts);
        assert!(moved.moves.is_empty(), "{moved:?}");
        let all = Levels::new(&table, true).round(&table, &counts);
        assert!(all.moves.len() > 1, "{all:?}");
    }

    #[test]
    fn an_elephant_is_told_once_and_stays() {
        let table = by_turns(128, 4);
        let mut packets = vec![100; 128];
        packets[8] = 50_000;
        let mut levels = Levels::new(&table, true);
        let counts = counts(packets, &table);
        let decision = levels.round(&table, &counts);
        assert_eq!(decision.elephants, [8]);
        assert!(decision.moves.iter().all(|it| it[0] != 8));
        let line = decision.elephant(8, &counts, "udp a - b");
        assert_eq!(
            line,
            "entry 8 of queue 0 has 79.7 % of the packets, more than a queue's share: udp a - b; \
             it stays"
        );
        assert!(levels.round(&table, &counts).elephants.is_empty());
    }

    #[test]
    fn nothing_moves_by_counts_that_say_nothing() {
        let table = by_turns(128, 4);
        let mut levels = Levels::new(&table, true);
        let mut of = |counts: &Counts| {
            let decision = levels.round(&table, counts);
            assert!(decision.moves.is_empty());
            decision.hindrance
        };
        assert_eq!(of(&counts(vec![1; 128], &table)), Some(Hindrance::Few));
        let mut unhashed = counts(skewed(), &table);
        unhashed.unhashed = unhashed.entries.iter().sum();
        assert_eq!(of(&unhashed), Some(Hindrance::NoHash(500)));
        // All packets come to queue 0, whatever the table says.
        let mut elsewhere = counts(skewed(), &table);
        elsewhere.queues = vec![elsewhere.entries.iter().sum(), 0, 0, 0];
        assert!(matches!(of(&elsewhere), Some(Hindrance::Elsewhere(_))));
        // A driver that records no queue is no hindrance.
        elsewhere.queues = vec![0; 4];
        assert_eq!(levels.round(&table, &elsewhere).hindrance, None);
    }
}
