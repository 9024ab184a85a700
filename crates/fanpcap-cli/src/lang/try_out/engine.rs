//! Runs a steering program as a fanout group of the kernel does. If such a group can't run the
//! steering program, runs it as a whole, as on XDP.

use super::owners::BucketOwners;
use fanpcap_steer::ir::{COUNTERS, Tree};
use fanpcap_steer::native::{Decision, Evaluator, Outcome, Packet};
use fanpcap_steer::parts::{Parts, Unfit};

/// The evaluators of a steering program.
#[derive(Debug)]
pub(super) enum Engine {
    /// A group: one evaluator picks the member, then the member's filter keeps or drops the packet.
    Group {
        steering: Evaluator,
        owners: BucketOwners,
        /// `None` if the steering program neither drops nor counts packets.
        filters: Option<Vec<Evaluator>>,
    },
    /// The whole steering program, as on XDP: it may give a packet to several members.
    Whole(Evaluator, Unfit),
}

impl Engine {
    /// Evaluators for `members` members.
    pub(super) fn new(program: &Tree, members: u16) -> Self {
        match Parts::of(program) {
            Ok(parts) => Self::Group {
                steering: Evaluator::of_group(parts.steering()),
                owners: BucketOwners::of(members),
                filters: parts.filtering().map(|filtering| {
                    let evaluator = Evaluator::of_group(filtering);
                    vec![evaluator; usize::from(members)]
                }),
            },
            Err(unfit) => Self::Whole(Evaluator::of_group(program), unfit),
        }
    }

    pub(super) fn evaluate(&mut self, packet: &Packet<'_>) -> Outcome {
        let (steering, owners, filters) = match self {
            Self::Group {
                steering,
                owners,
                filters,
            } => (steering, owners, filters),
            Self::Whole(evaluator, _) => return evaluator.evaluate(packet),
        };
        let mut outcome = steering.evaluate(packet);
        if let Decision::Steer(hash) = outcome.decision {
            outcome.decision = Decision::Member(owners.member(hash));
        }
        if let Some(filters) = filters {
            let number = match outcome.decision {
                Decision::Steer(number) | Decision::Member(number) => number as usize,
                // The kernel must give the packet to some member; that member's filter drops it.
                Decision::Drop | Decision::Copy | Decision::Double(..) | Decision::Broadcast => 0,
            };
            let members = filters.len();
            if filters[number % members].decide(packet) == Decision::Drop {
                outcome.decision = Decision::Drop;
            }
        }
        outcome
    }

    /// Why a kernel group can't run the steering program.
    pub(super) fn unfit(&self) -> Option<&Unfit> {
        match self {
            Self::Group { .. } => None,
            Self::Whole(_, unfit) => Some(unfit),
        }
    }

    /// The steering program's counters, summed over all members.
    pub(super) fn counters(&self) -> [u64; COUNTERS] {
        let each: Vec<&Evaluator> = match self {
            Self::Group { filters, .. } => filters.iter().flatten().collect(),
            Self::Whole(evaluator, _) => vec![evaluator],
        };
        let mut sum = [0_u64; COUNTERS];
        for counters in each.into_iter().map(Evaluator::counters) {
            sum.iter_mut()
                .zip(counters)
                .for_each(|(sum, more)| *sum = sum.wrapping_add(*more));
        }
        sum
    }

    /// How many fragments came before the first fragment of their datagram, as counted by the
    /// steering program's evaluator.
    pub(super) fn late(&self) -> u64 {
        match self {
            Self::Group { steering, .. } => steering.late(),
            Self::Whole(evaluator, _) => evaluator.late(),
        }
    }
}
