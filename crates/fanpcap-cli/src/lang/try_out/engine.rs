//! Runs a program as a fan-out group of the kernel's does, or, where it can't, by itself.

use fanpcap_steer::ir::{COUNTERS, Tree};
use fanpcap_steer::native::{Decision, Evaluator, Outcome, Packet};
use fanpcap_steer::parts::{Parts, Unfit};

/// What decides.
#[derive(Debug)]
pub(super) enum Engine {
    /// A group: one program decides the member, and then each member's own filter whether it is
    /// kept.
    Group {
        steering: Evaluator,
        /// None where nothing is dropped and nothing counted.
        filters: Option<Vec<Evaluator>>,
    },
    /// The program as it is, which gives a packet to several members if it likes.
    Whole(Evaluator, Unfit),
}

impl Engine {
    /// For so many members.
    pub(super) fn new(program: &Tree, members: u16) -> Self {
        match Parts::of(program) {
            Ok(parts) => Self::Group {
                steering: Evaluator::of_group(parts.steering()),
                filters: parts.filtering().map(|filtering| {
                    let evaluator = Evaluator::of_group(filtering);
                    vec![evaluator; usize::from(members)]
                }),
            },
            Err(unfit) => Self::Whole(Evaluator::new(program), unfit),
        }
    }

    /// What becomes of the packet.
    pub(super) fn evaluate(&mut self, packet: &Packet<'_>) -> Outcome {
        let (steering, filters) = match self {
            Self::Group { steering, filters } => (steering, filters),
            Self::Whole(evaluator, _) => return evaluator.evaluate(packet),
        };
        let mut outcome = steering.evaluate(packet);
        if let Some(filters) = filters {
            let number = match outcome.decision {
                Decision::Steer(number) => number as usize,
                // The kernel has to give it to somebody, whose filter drops it.
                Decision::Drop | Decision::Copy | Decision::Double(..) | Decision::Broadcast => 0,
            };
            let members = filters.len();
            if filters[number % members].decide(packet) == Decision::Drop {
                outcome.decision = Decision::Drop;
            }
        }
        outcome
    }

    /// Why it is not run as a group of the kernel's.
    pub(super) fn unfit(&self) -> Option<&Unfit> {
        match self {
            Self::Group { .. } => None,
            Self::Whole(_, unfit) => Some(unfit),
        }
    }

    /// The program's counters, of all members.
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

    /// Fragments that came before their datagram's first one, as the program counts them.
    pub(super) fn late(&self) -> u64 {
        match self {
            Self::Group { steering, .. } => steering.late(),
            Self::Whole(evaluator, _) => evaluator.late(),
        }
    }
}
