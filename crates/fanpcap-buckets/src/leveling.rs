//! Chooses the buckets that get another owner, so that no owner has more than its share of the
//! load.
//!
//! The rule is that of RSS++ (Barbette et al., CoNEXT 2019, section 3). The owner that exceeds its
//! share most gives a bucket away: its biggest bucket that fits. The owner that lacks the most load
//! gets this bucket. The buckets are those of a group, or they are the entries of a NIC's
//! indirection table.

#[cfg(test)]
mod tests;

/// An owner is overloaded if it exceeds its share by more than 1/50 (2 %).
const EXACT: u64 = 50;

/// At most 1/10 of the buckets move in a round.
const MOST: usize = 10;

/// An owner that exceeds its share by 1/16 or more gets no new flows.
const NO_MORE: u64 = 16;

/// The load of each bucket and each owner since the last round.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// Packets of each bucket; their sum is below 2^44.
    pub packets: &'a [u64],
    /// The owner of each bucket, an index of `weights`.
    pub owners: &'a [usize],
    /// The share that each owner is due, compared with the other owners. An owner with weight 0 is
    /// due nothing.
    pub weights: &'a [u16],
}

/// The buckets that may move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moves<'a> {
    /// All buckets. If a bucket moves, its flows move too.
    All,
    /// Only the buckets whose entry is `true`, which are the buckets without live flows. After a
    /// bucket has moved, its next flows go to the new owner.
    Idle(&'a [bool]),
}

/// A bucket that gets another owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shift {
    /// Index of the bucket.
    pub bucket: usize,
    /// Its new owner.
    pub to: usize,
}

/// The result of a round.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Round {
    /// The buckets that get another owner, in the order in which they were chosen.
    pub shifts: Vec<Shift>,
    /// Buckets with more packets than the share of their owner: such a bucket probably has one
    /// large flow. Any owner of such a bucket would be overloaded, so these buckets do not move.
    pub elephants: Vec<usize>,
}

/// Levels the load of owners, a round at a time.
#[derive(Debug, Default)]
pub struct Leveling {
    /// The owners that got buckets in the last round. Their counters do not include their new load
    /// yet, so these owners give no buckets away in this round.
    received: Vec<usize>,
}

impl Leveling {
    /// The state after a round in which the owners in `received` got buckets.
    pub fn after(received: Vec<usize>) -> Self {
        Self { received }
    }

    /// The next round. Nothing moves unless an owner exceeds its share by more than 2 %.
    pub fn round(&mut self, load: &Load<'_>, moves: Moves<'_>) -> Round {
        let mut scales = Scales::new(load);
        let mut round = Round {
            shifts: Vec::new(),
            elephants: scales.elephants(load),
        };
        for &owner in &self.received {
            scales.rest(owner);
        }
        let most = load.packets.len().div_ceil(MOST);
        round.shifts = match moves {
            Moves::All => scales.level(load, most),
            Moves::Idle(idle) => scales.share_out(load, idle, most),
        };
        self.received = round.shifts.iter().map(|shift| shift.to).collect();
        round
    }
}

/// The imbalance: the excess of the busiest owner over its share, in parts of 1000 of the share. 0
/// if there are no packets.
pub fn imbalance(load: &Load<'_>) -> u64 {
    let scales = Scales::new(load);
    let above = |owner: &Owner| owner.has.saturating_sub(owner.due) * 1000 / owner.due.max(1);
    scales.owners.iter().map(above).max().unwrap_or(0)
}

/// The load of each owner, and the load that the owner is due.
struct Scales {
    owners: Vec<Owner>,
}

struct Owner {
    has: u64,
    due: u64,
    /// Whether the owner gives no buckets away in this round.
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

    /// Moves buckets from owners above their share to the owners that lack the most load.
    fn level(&mut self, load: &Load<'_>, most: usize) -> Vec<Shift> {
        let mut owners = load.owners.to_vec();
        let mut shifts = Vec::new();
        while shifts.len() < most {
            let Some((from, to)) = self.ends() else {
                break;
            };
            // A bucket that has moved in this round stays with its new owner: each bucket moves at
            // most once.
            let is_free = |&bucket: &usize| [owners[bucket], load.owners[bucket]] == [from; 2];
            let free = (0..owners.len()).filter(is_free);
            match self.biggest(free, load.packets, from, to) {
                Some((bucket, weight)) => {
                    self.carry(weight, from, to);
                    owners[bucket] = to;
                    shifts.push(Shift { bucket, to });
                }
                None => self.rest(from),
            }
        }
        shifts
    }

    /// Divides the buckets without live flows among the owners, by each owner's room for new flows.
    /// The room is how far the owner's load is below the limit of [`NO_MORE`]. An idle bucket moves
    /// no load, only later flows. So moving buckets until the load is level would move too many of
    /// them.
    fn share_out(&self, load: &Load<'_>, idle: &[bool], most: usize) -> Vec<Shift> {
        let mut shifts = Vec::new();
        let is_idle = |bucket: &usize| idle[*bucket];
        let all = (0..idle.len()).filter(is_idle).count() as u64;
        let room = |owner: &Owner| (owner.due + owner.due / NO_MORE).saturating_sub(owner.has);
        let sum: u64 = self.owners.iter().map(room).sum();
        if self.ends().is_none() || sum == 0 {
            return shifts;
        }
        // Rounds up, so that the last buckets get an owner too.
        let mut lacks = vec![0_i64; self.owners.len()];
        for (lack, owner) in lacks.iter_mut().zip(&self.owners) {
            *lack = i64::try_from((all * room(owner)).div_ceil(sum)).unwrap_or(0);
        }
        for bucket in (0..idle.len()).filter(is_idle) {
            lacks[load.owners[bucket]] -= 1;
        }
        for bucket in (0..idle.len()).filter(is_idle) {
            let from = load.owners[bucket];
            let to = (0..lacks.len()).max_by_key(|&to| lacks[to]).unwrap_or(from);
            if lacks[to] <= 0 || shifts.len() >= most {
                break;
            }
            if lacks[from] < 0 {
                lacks[from] += 1;
                lacks[to] -= 1;
                shifts.push(Shift { bucket, to });
            }
        }
        shifts
    }

    fn rest(&mut self, owner: usize) {
        self.owners[owner].rests = true;
    }

    /// The owner that exceeds its share most, and the owner that lacks the most load.
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

    /// The biggest bucket that neither takes `from` below its share nor lifts `to` above its share.
    /// If there is no such bucket, the smallest bucket, provided that `to` with this bucket exceeds
    /// its share by a smaller percentage than `from` does now.
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

    fn carry(&mut self, packets: u64, from: usize, to: usize) {
        self.owners[from].has -= packets;
        self.owners[to].has += packets;
    }
}
