//! Makes a pool of frames from a description.

use anyhow::{Result, bail, ensure};
use rand_pcg::Pcg64Mcg;

use crate::datagram::{Datagram, Layers};
use crate::description::{Description, Families, Lengths};
use crate::flow::{self, Flow};
use crate::pool::Pool;
use crate::random;

impl Description {
    /// Makes the frames, in whole rounds through all flows. There are so many rounds that the
    /// lengths have the described proportions.
    ///
    /// # Errors
    /// No frames match the description, or they need more than [`crate::POOL_LIMIT`].
    pub fn pool(&self) -> Result<Pool> {
        self.check()?;
        let mut pool = Pool::default();
        let layers = Layers::of(self);
        let mut lengths = Deal::new(self);
        for number in 0..self.datagrams() {
            let turn = number / u64::from(self.flows);
            let flow = Flow::of(self, number % u64::from(self.flows));
            let answer = self.answers && turn % 2 == 1;
            let flow = if answer { flow.turned() } else { flow };
            let datagram = Datagram {
                flow,
                answer,
                number,
                len: lengths.next(),
                fragmented: self
                    .fragments
                    .is_some_and(|every| (number + 1) % u64::from(every) == 0),
            };
            for frame in layers.frames(&datagram) {
                pool.push_made(&frame)?;
            }
        }
        Ok(pool.of_made())
    }

    fn check(&self) -> Result<()> {
        ensure!(self.flows > 0, "0 flows: at least one is needed");
        for v4 in [true, false] {
            let (sources, destinations) = self.prefixes(v4);
            for prefix in [sources, destinations] {
                ensure!(
                    prefix.is_v4() == v4,
                    "the addresses {prefix} are of the other family"
                );
            }
            let used = !matches!(
                (self.families, v4),
                (Families::V4, false) | (Families::V6, true)
            );
            let (flows, room) = (self.flows, flow::room(sources));
            ensure!(
                !used || u64::from(flows) <= room,
                "{flows} flows: the addresses {sources} have room for {room}, so give more addresses"
            );
        }
        let vlans = &self.vlans;
        ensure!(
            vlans.len() <= 2 && vlans.iter().all(|&vlan| vlan <= 4094),
            "VLANs {vlans:?}: a frame has two at most, with numbers from 0 to 4094"
        );
        if let Some(number) = self.vxlan.filter(|&number| number >= 1 << 24) {
            bail!("VXLAN {number}: its identifier has 24 bits");
        }
        if let Some(every) = self.fragments {
            ensure!(every > 0, "fragments of every 0th datagram: say 1 or more");
            let datagrams = self.datagrams();
            ensure!(
                datagrams <= MOST,
                "fragments of every {every}th datagram: that takes {datagrams} datagrams to repeat; choose \
                 one that has a divisor in common with the number of flows"
            );
        }
        self.check_lengths()
    }

    fn check_lengths(&self) -> Result<()> {
        let (from, to) = match self.lengths {
            Lengths::Fixed(len) => (len, len),
            Lengths::Uniform(from, to) => (from, to),
            Lengths::Imix => return Ok(()),
        };
        if let Some(&len) = [from, to]
            .iter()
            .find(|len| !(SHORTEST..=LONGEST).contains(*len))
        {
            bail!("a length of {len}: frames have {SHORTEST} to {LONGEST} bytes");
        }
        ensure!(
            from <= to,
            "lengths {from}-{to}: write the shorter one first"
        );
        ensure!(
            self.fragments.is_none() || to <= LONGEST_FRAGMENT,
            "fragments of {to} bytes: {LONGEST_FRAGMENT} at most, because a datagram has three"
        );
        Ok(())
    }

    /// The number of datagrams after which the sequence can repeat: the rounds of flows, answers,
    /// lengths and fragments are all complete.
    fn datagrams(&self) -> u64 {
        let rounds = if self.answers { 2 } else { 1 };
        let every = u64::from(self.fragments.unwrap_or(1));
        let round = least_common_multiple(u64::from(self.flows) * rounds, every);
        match (self.lengths, self.fragments) {
            (Lengths::Fixed(_), None) => round,
            _ if round >= MANY => round,
            (Lengths::Imix, _) => {
                let whole = least_common_multiple(round, 12);
                whole * (VARIETY / whole).max(1)
            }
            (Lengths::Fixed(_) | Lengths::Uniform(..), _) => round * VARIETY.div_ceil(round),
        }
    }
}

/// The approximate minimum number of datagrams in a pool whose lengths or fragments vary.
const VARIETY: u64 = 4096;

/// If a round has this many datagrams, one round is enough.
const MANY: u64 = 1 << 16;

const SHORTEST: u16 = 14;
/// Maximum length of a frame, more than any device accepts. The sender checks the device's MTU.
const LONGEST: u16 = u16::MAX;
/// Maximum length of a fragment. Two fragments of this length and one of half the length are
/// together less than 64 KiB, the limit of a datagram.
const LONGEST_FRAGMENT: u16 = 26_000;
/// A number of datagrams that is greater than any pool can hold.
const MOST: u64 = 1 << 22;

fn least_common_multiple(a: u64, b: u64) -> u64 {
    let (mut divisor, mut rest) = (a, b);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    a / divisor * b
}

/// Draws the lengths of the frames, one after another.
struct Deal {
    lengths: Lengths,
    random: Pcg64Mcg,
    deck: Vec<u16>,
}

impl Deal {
    fn new(description: &Description) -> Self {
        Self {
            lengths: description.lengths,
            random: random::source(description.seed, 1),
            deck: Vec::new(),
        }
    }

    fn next(&mut self) -> usize {
        usize::from(match self.lengths {
            Lengths::Fixed(len) => len,
            Lengths::Uniform(from, to) => {
                let more = random::below(&mut self.random, u64::from(to - from) + 1);
                from + u16::try_from(more).unwrap_or(0)
            }
            Lengths::Imix => self.deck.pop().unwrap_or_else(|| self.deal()),
        })
    }

    fn deal(&mut self) -> u16 {
        self.deck = [[60; 7].as_slice(), &[590; 4], &[1514]].concat();
        random::shuffle(&mut self.random, &mut self.deck);
        self.deck.pop().unwrap_or(60)
    }
}
