//! Which buckets get another owner so that no owner has more than its share of the load.
//!
//! The rule is that of RSS++ (Barbette et al., CoNEXT 2019, section 3): the owner that has most too
//! much gives its biggest bucket that fits to the owner that lacks most. Buckets are those of a
//! group, or the entries of a NIC's indirection table.

#[cfg(test)]
mod tests;

/// An owner that is above its share by less than one part in so many is not overloaded: 2 %.
const EXACT: u64 = 50;

/// One bucket in so many moves in a round at most.
const MOST: usize = 10;

/// What each bucket and each owner had to do since the last round.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// Packets of each bucket, below 2^44 in all.
    pub packets: &'a [u64],
    /// The owner of each bucket, an index of `weights`.
    pub owners: &'a [usize],
    /// How much each owner is due, compared with the others. 0: it takes nothing.
    pub weights: &'a [u16],
}

/// Which buckets may move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moves<'a> {
    /// All buckets. Flows move with them.
    All,
    /// Buckets without live flows, those that are true here. Their next flows go to another owner.
    Idle(&'a [bool]),
}

/// A bucket that gets another owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shift {
    /// Which bucket.
    pub bucket: usize,
    /// Its new owner.
    pub to: usize,
}

/// What comes of a round.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Round {
    /// The buckets that get another owner, in the order in which they were chosen.
    pub shifts: Vec<Shift>,
    /// Buckets that have more packets than the share of their owner: probably one flow each. No
    /// owner can take such a bucket without being overloaded. They stay where they are.
    pub elephants: Vec<usize>,
}

/// Levels the load of owners, a round at a time.
#[derive(Debug, Default)]
pub struct Leveling {
    /// The owners that were given buckets in the last round. What they have counted is not yet
    /// what they have to do, so they give nothing in this one.
    received: Vec<usize>,
}

impl Leveling {
    /// The next round. Nothing moves while no owner has more than 2 % too much.
    pub fn round(&mut self, load: &Load<'_>, moves: Moves<'_>) -> Round {
        let mut scales = Scales::new(load);
        let mut round = Round {
            shifts: Vec::new(),
            elephants: scales.elephants(load),
        };
        let mut owners = load.owners.to_vec();
        for &owner in &self.received {
            scales.rest(owner);
        }
        let most = load.packets.len().div_ceil(MOST);
        while round.shifts.len() < most {
            let Some((from, to)) = scales.ends() else {
                break;
            };
            let free = (0..owners.len()).filter(|&bucket| owners[bucket] == from);
            let fits = match moves {
                Moves::All => scales.biggest(free, load.packets, from, to),
                Moves::Idle(idle) => scales.idle(free, idle, from),
            };
            match fits {
                Some((bucket, weight)) => {
                    scales.carry(weight, from, to);
                    owners[bucket] = to;
                    round.shifts.push(Shift { bucket, to });
                }
                None => scales.rest(from),
            }
        }
        self.received = round.shifts.iter().map(|shift| shift.to).collect();
        round
    }
}

/// By how much the busiest owner is above its share, in parts of 1000; 0 without any packet.
pub fn imbalance(load: &Load<'_>) -> u64 {
    let scales = Scales::new(load);
    let above = |owner: &Owner| owner.has.saturating_sub(owner.due) * 1000 / owner.due.max(1);
    scales.owners.iter().map(above).max().unwrap_or(0)
}

/// What each owner has, and what it is due.
struct Scales {
    owners: Vec<Owner>,
}

struct Owner {
    has: u64,
    due: u64,
    /// It gives nothing in this round.
    rests: bool,
}

impl Scales {
    fn new(load: &Load<'_>) -> Self {
        let all: u64 = load.packets.iter().sum();
        let weights = load.weights.iter().map(|&weight| u64::from(weight));
        let total = weights.clone().sum::<u64>().max(1);
        let mut owners: Vec<Owner> = weights
            .map(|weight| Owner {
                has: 0,
                due: all * weight / total,
                rests: false,
            })
            .collect();
        for (&packets, &owner) in load.packets.iter().zip(load.owners) {
            owners[owner].has += packets;
        }
        Self { owners }
    }

    fn elephants(&self, load: &Load<'_>) -> Vec<usize> {
        let is_elephant = |&bucket: &usize| {
            let due = self.owners[load.owners[bucket]].due;
            load.packets[bucket] > due + due / EXACT
        };
        (0..load.packets.len()).filter(is_elephant).collect()
    }

    fn rest(&mut self, owner: usize) {
        self.owners[owner].rests = true;
    }

    /// The owner that has most too much, and the one that lacks most.
    fn ends(&self) -> Option<(usize, usize)> {
        let excess = |owner: &Owner| owner.has.saturating_sub(owner.due + owner.due / EXACT);
        let lack = |owner: &Owner| owner.due.saturating_sub(owner.has);
        let owners = || self.owners.iter().enumerate();
        let givers = owners().filter(|(_, owner)| !owner.rests && excess(owner) > 0);
        let (from, _) = givers.max_by_key(|(_, owner)| excess(owner))?;
        let takers = owners().filter(|(_, owner)| lack(owner) > 0);
        let (to, _) = takers.max_by_key(|(_, owner)| lack(owner))?;
        Some((from, to))
    }

    /// The biggest bucket that neither leaves `from` with less than its share nor gives `to` more
    /// than its own. Else the smallest one, if `to` is then less above its share than `from` is.
    fn biggest(
        &self,
        buckets: impl Iterator<Item = usize>,
        packets: &[u64],
        from: usize,
        to: usize,
    ) -> Option<(usize, u64)> {
        let (from, to) = (&self.owners[from], &self.owners[to]);
        let excess = from.has - from.due;
        let lack = to.due - to.has;
        let fits = excess.min(lack);
        let mut best: Option<(usize, u64)> = None;
        for bucket in buckets {
            let size = packets[bucket];
            let is_better = best.is_none_or(|(_, chosen)| match chosen <= fits {
                true => size <= fits && size > chosen,
                false => size < chosen,
            });
            if size > 0 && is_better {
                best = Some((bucket, size));
            }
        }
        let [due_from, due_to] = [from.due, to.due].map(u128::from);
        let above = |size: u64| u128::from(size.saturating_sub(lack)) * due_from;
        best.filter(|&(_, size)| size <= fits || above(size) < u128::from(excess) * due_to)
    }

    /// A bucket without load, and what it counts for: twice the owner's mean, since its load comes
    /// with its next flows only, and the next round finds the same flows as this one.
    fn idle(
        &self,
        mut buckets: impl Iterator<Item = usize> + Clone,
        idle: &[bool],
        from: usize,
    ) -> Option<(usize, u64)> {
        let count = buckets.clone().count().max(1) as u64;
        let bucket = buckets.find(|&bucket| idle[bucket])?;
        let owner = &self.owners[from];
        let weight = (2 * owner.has / count).min(owner.has - owner.due);
        Some((bucket, weight.max(1)))
    }

    fn carry(&mut self, packets: u64, from: usize, to: usize) {
        self.owners[from].has -= packets;
        self.owners[to].has += packets;
    }
}
