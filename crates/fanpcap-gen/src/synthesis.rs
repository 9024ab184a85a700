//! Makes a pool of frames from a description.

use std::fmt;

use rand_pcg::Pcg64Mcg;

use crate::datagram::{Datagram, Layers};
use crate::description::{Description, Families, Lengths};
use crate::flow::{self, Flow};
use crate::pool::{Pool, PoolError, Synthetic};
use crate::prefix::Prefix;
use crate::random;

/// Why there are no frames like that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DescriptionError {
    /// No flows at all.
    NoFlows,
    /// More flows than addresses and ports.
    TooManyFlows {
        /// As many as asked for.
        flows: u32,
        /// The addresses that they would come from.
        sources: Prefix,
    },
    /// A length that no frame has.
    Length(u16),
    /// The range's ends are the wrong way round.
    Range(u16, u16),
    /// More than two VLANs, or a number that is not 0 to 4094.
    Vlans(Vec<u16>),
    /// A VXLAN network identifier of more than 24 bits.
    Vxlan(u32),
    /// Fragments of every 0th datagram.
    NoFragments,
    /// Fragments of every so manieth datagram come at the same places only after so many datagrams,
    /// more than fit.
    Fragments(u32, u64),
    /// A length whose three fragments make a datagram that is too long for IP.
    FragmentLength(u16),
    /// Addresses of IPv4 where those of IPv6 belong, or the other way round.
    Family(Prefix),
    /// The pool can't be made.
    Pool(PoolError),
}

impl fmt::Display for DescriptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFlows => write!(f, "0 flows: at least one is needed"),
            Self::TooManyFlows { flows, sources } => write!(
                f,
                "{flows} flows: the addresses {sources} have room for {}, so give more addresses",
                flow::room(sources)
            ),
            Self::Length(len) => write!(
                f,
                "a length of {len}: frames have {SHORTEST} to {LONGEST} bytes"
            ),
            Self::Range(from, to) => write!(f, "lengths {from}-{to}: write the shorter one first"),
            Self::Vlans(vlans) => write!(
                f,
                "VLANs {vlans:?}: a frame has two at most, with numbers from 0 to 4094"
            ),
            Self::Vxlan(number) => write!(f, "VXLAN {number}: its identifier has 24 bits"),
            Self::NoFragments => write!(f, "fragments of every 0th datagram: say 1 or more"),
            Self::Fragments(every, datagrams) => write!(
                f,
                "fragments of every {every}th datagram: that takes {datagrams} datagrams to repeat; choose \
                 one that has a divisor in common with the number of flows"
            ),
            Self::FragmentLength(len) => write!(
                f,
                "fragments of {len} bytes: they have {LONGEST_FRAGMENT} at most, for a datagram is three"
            ),
            Self::Family(prefix) => write!(f, "the addresses {prefix} are of the other family"),
            Self::Pool(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DescriptionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Pool(error) => Some(error),
            Self::NoFlows
            | Self::TooManyFlows { .. }
            | Self::Length(_)
            | Self::Range(..)
            | Self::Vlans(_)
            | Self::Vxlan(_)
            | Self::NoFragments
            | Self::Fragments(..)
            | Self::FragmentLength(_)
            | Self::Family(_) => None,
        }
    }
}

impl Description {
    /// Makes the frames: a whole number of rounds through all flows, and as many rounds as lengths
    /// need to come in their proportions.
    ///
    /// # Errors
    /// When no frames are like that, or they take more than [`crate::POOL_LIMIT`].
    pub fn pool(&self) -> Result<Pool, DescriptionError> {
        self.check()?;
        let mut pool = Synthetic::new();
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
                pool.push(&frame).map_err(DescriptionError::Pool)?;
            }
        }
        Ok(pool.finish())
    }

    fn check(&self) -> Result<(), DescriptionError> {
        if self.flows == 0 {
            return Err(DescriptionError::NoFlows);
        }
        for v4 in [true, false] {
            let (sources, destinations) = self.prefixes(v4);
            for prefix in [sources, destinations] {
                if prefix.is_v4() != v4 {
                    return Err(DescriptionError::Family(*prefix));
                }
            }
            let used = !matches!(
                (self.families, v4),
                (Families::V4, false) | (Families::V6, true)
            );
            if used && u64::from(self.flows) > flow::room(sources) {
                return Err(DescriptionError::TooManyFlows {
                    flows: self.flows,
                    sources: *sources,
                });
            }
        }
        if self.vlans.len() > 2 || self.vlans.iter().any(|&vlan| vlan > 4094) {
            return Err(DescriptionError::Vlans(self.vlans.clone()));
        }
        if let Some(number) = self.vxlan.filter(|&number| number >= 1 << 24) {
            return Err(DescriptionError::Vxlan(number));
        }
        match self.fragments {
            Some(0) => return Err(DescriptionError::NoFragments),
            Some(every) if self.datagrams() > MOST => {
                return Err(DescriptionError::Fragments(every, self.datagrams()));
            }
            Some(_) | None => {}
        }
        self.check_lengths()
    }

    fn check_lengths(&self) -> Result<(), DescriptionError> {
        let (from, to) = match self.lengths {
            Lengths::Fixed(len) => (len, len),
            Lengths::Uniform(from, to) => (from, to),
            Lengths::Imix => return Ok(()),
        };
        if let Some(&len) = [from, to]
            .iter()
            .find(|len| !(SHORTEST..=LONGEST).contains(*len))
        {
            return Err(DescriptionError::Length(len));
        }
        if from > to {
            return Err(DescriptionError::Range(from, to));
        }
        if self.fragments.is_some() && to > LONGEST_FRAGMENT {
            return Err(DescriptionError::FragmentLength(to));
        }
        Ok(())
    }

    /// Whole rounds: of the flows, of their answers, of the deck of lengths, of what is fragmented.
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

/// At least about as many datagrams when they differ in more than the flow.
const VARIETY: u64 = 4096;

/// A round of so many flows is enough by itself.
const MANY: u64 = 1 << 16;

const SHORTEST: u16 = 14;
/// What one frame may have; longer than any device's, whose MTU is checked when sending.
const LONGEST: u16 = u16::MAX;
/// Two of these and one of half the length are less than 64 KiB.
const LONGEST_FRAGMENT: u16 = 26_000;
/// More datagrams never fit into a pool.
const MOST: u64 = 1 << 22;

fn least_common_multiple(a: u64, b: u64) -> u64 {
    let (mut divisor, mut rest) = (a, b);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    a / divisor * b
}

/// The lengths in the order in which frames get them.
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
