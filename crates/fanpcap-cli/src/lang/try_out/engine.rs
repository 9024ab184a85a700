//! Runs a steering program as a fanout group of the kernel does. If such a group can't run the
//! steering program, runs it as a whole, as on XDP.

use fanpcap_steer::ir::{COUNTERS, Tree};
use fanpcap_steer::native::{Decision, Evaluator, Outcome, Packet};
use fanpcap_steer::parts::{Parts, Unfit};

use super::members::Members;
use super::owners::Roster;

/// A group with a steering program.
#[derive(Debug)]
pub(super) struct Engine {
    evaluators: Evaluators,
    roster: Roster,
}

/// The evaluators of a steering program.
#[derive(Debug)]
enum Evaluators {
    /// A group: one evaluator picks the member, then the member's filter keeps or drops the packet.
    Group {
        steering: Evaluator,
        /// `None` if the steering program neither drops nor counts packets.
        filters: Option<Vec<Evaluator>>,
    },
    /// The whole steering program, as on XDP: it may give a packet to several members.
    Whole(Evaluator, Unfit),
}

impl Engine {
    /// A group of members with these classes.
    pub(super) fn new(program: &Tree, classes: &[u8]) -> Self {
        let evaluators = match Parts::of(program) {
            Ok(parts) => Evaluators::Group {
                steering: Evaluator::of_group(parts.steering()),
                filters: parts.filtering().map(|filtering| {
                    let evaluator = Evaluator::of_group(filtering);
                    vec![evaluator; classes.len()]
                }),
            },
            Err(unfit) => Evaluators::Whole(Evaluator::of_group(program), unfit),
        };
        Self {
            evaluators,
            roster: Roster::of(classes),
        }
    }

    /// The program's outcome for a packet, and the members that get the packet.
    pub(super) fn evaluate(&mut self, packet: &Packet<'_>) -> (Outcome, Members) {
        let (steering, filters) = match &mut self.evaluators {
            Evaluators::Group { steering, filters } => (steering, filters),
            Evaluators::Whole(evaluator, _) => {
                let outcome = evaluator.evaluate(packet);
                return (outcome, self.roster.members(&outcome));
            }
        };
        let mut outcome = steering.evaluate(packet);
        if let Some(filters) = filters {
            // The kernel must give each packet to some member; that member's filter may drop it.
            let member = self.roster.members(&outcome).numbers().next();
            if filters[member.unwrap_or(0)].decide(packet) == Decision::Drop {
                outcome.decision = Decision::Drop;
            }
        }
        (outcome, self.roster.members(&outcome))
    }

    /// Why a kernel group can't run the steering program.
    pub(super) fn unfit(&self) -> Option<&Unfit> {
        match &self.evaluators {
            Evaluators::Group { .. } => None,
            Evaluators::Whole(_, unfit) => Some(unfit),
        }
    }

    /// The steering program's counters, summed over all members.
    pub(super) fn counters(&self) -> [u64; COUNTERS] {
        let each: Vec<&Evaluator> = match &self.evaluators {
            Evaluators::Group { filters, .. } => filters.iter().flatten().collect(),
            Evaluators::Whole(evaluator, _) => vec![evaluator],
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
        match &self.evaluators {
            Evaluators::Group { steering, .. } => steering.late(),
            Evaluators::Whole(evaluator, _) => evaluator.late(),
        }
    }
}
