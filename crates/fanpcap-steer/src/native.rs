//! Evaluates a steering program in user space, packet by packet, on the headers that `fanpcap-wire`
//! finds. Tests compare the decisions of compiled steering programs with those of this evaluator.

mod address;
mod classic;
mod fragments;
mod key;
pub mod plain;
mod predicate;
mod state;
mod steer;
mod table;

pub use table::{Flows, Table};

use fanpcap_wire::{Frame, Layers};

use crate::ir::{COUNTERS, Function, Tree};
use fragments::Datagram;
use predicate::Question;
use state::State;

/// A packet with its metadata.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packet<'a> {
    /// The captured bytes, and the tag beside them.
    pub frame: Frame<'a>,
    /// The frame's length on the wire in bytes, without the tag beside it.
    pub length: u32,
    /// The hash from the NIC or the kernel; 0 if there is no hash.
    pub hash: u32,
    /// The receiving queue, from 0.
    pub queue: Option<u32>,
    /// The CPU that handles the packet.
    pub cpu: u32,
    /// The packet's mark in the kernel; absent in XDP.
    pub mark: Option<u32>,
    /// The time in nanoseconds, by a monotonic clock.
    pub now_ns: u64,
}

impl<'a> Packet<'a> {
    /// A packet that was captured whole, without metadata.
    pub fn of(frame: Frame<'a>) -> Self {
        Self {
            frame,
            length: u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX),
            ..Self::default()
        }
    }
}

/// The members that get a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// No member.
    Drop,
    /// All members of the packet's class.
    Copy,
    /// The member that this hash selects in the packet's class.
    Steer(u32),
    /// The member of this rank in the packet's class, modulo the number of members with a share.
    Member(u32),
    /// The members that these two hashes select. Both hashes may select the same member.
    Double(u32, u32),
    /// All members of all classes except 63.
    Broadcast,
}

/// Whether the host gets a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// The steering program did not decide about the host.
    Unsaid,
    /// The host gets the packet too.
    Too,
    /// Only the host gets the packet.
    Only,
}

/// The result of a steering program for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The members that get the packet.
    pub decision: Decision,
    /// The members' class, 0 to 63; 0 is the default class.
    pub class: u8,
    /// Whether the host gets the packet.
    pub host: Host,
    /// The mark that the steering program has set.
    pub mark: Option<u32>,
}

impl Outcome {
    /// The outcome before the first function.
    const START: Outcome = Outcome {
        decision: Decision::Copy,
        class: 0,
        host: Host::Unsaid,
        mark: None,
    };
    /// The outcome of a dropped packet, if the steering program did not decide about the host.
    const DROP: Outcome = Outcome {
        decision: Decision::Drop,
        ..Outcome::START
    };
}

/// State of an evaluation. If a function drops the packet, the caller may continue with the state
/// as it was before the function.
#[derive(Clone, Copy, Debug)]
struct Course {
    outcome: Outcome,
    state: u32,
    /// If the packet must go to its datagram's member when it is a fragment, this is its depth: the
    /// number of packets, one inside the other, that carry it. Otherwise `None`.
    fragment: Option<u32>,
}

impl Course {
    const START: Course = Course {
        outcome: Outcome::START,
        state: 0,
        fragment: None,
    };

    fn decided(self, decision: Decision, fragment: Option<u32>) -> Self {
        Self {
            outcome: Outcome {
                decision,
                ..self.outcome
            },
            fragment,
            ..self
        }
    }
}

/// A steering program with the data that it keeps between packets: counters, turns, samples,
/// fragments.
#[derive(Clone, Debug)]
pub struct Evaluator {
    program: Tree,
    state: State,
    group: bool,
}

impl Evaluator {
    /// An evaluator without the limits of a group, for tests. A packet that is steered by both its
    /// addresses goes to the member of each address, and a broadcast goes to all members. No engine
    /// of this version steers in this way.
    pub fn new(program: &Tree) -> Self {
        Self {
            program: program.clone(),
            state: State::default(),
            group: false,
        }
    }

    /// An evaluator that decides as a kernel group and the XDP engine do: a packet that is steered
    /// by both its addresses goes to one member. It also evaluates functions that a kernel group
    /// can't run.
    pub fn of_group(program: &Tree) -> Self {
        Self {
            group: true,
            ..Self::new(program)
        }
    }

    /// An evaluator of the same steering program for another thread, with counters, turns and
    /// samples of its own. Both share the fragments: those of one datagram go to one member,
    /// whichever of the two gets them.
    pub fn for_other_thread(&self) -> Self {
        Self {
            program: self.program.clone(),
            state: self.state.sharing(),
            group: self.group,
        }
    }

    /// The members that get the packet.
    pub fn decide(&mut self, packet: &Packet<'_>) -> Decision {
        self.evaluate(packet).decision
    }

    /// The whole result for the packet.
    pub fn evaluate(&mut self, packet: &Packet<'_>) -> Outcome {
        let layers = Layers::of_cut(&packet.frame, packet.length);
        let mut run = Run {
            program: &self.program,
            state: &mut self.state,
            group: self.group,
            packet,
            host: Host::Unsaid,
            looks_inside: 0,
            inside: 0,
        };
        let Some(course) = run.function(&self.program.main, &layers, Course::START) else {
            let host = run.host;
            return Outcome {
                host,
                ..Outcome::DROP
            };
        };
        let mut outcome = course.outcome;
        if let (Decision::Steer(hash), Some(inside)) = (outcome.decision, course.fragment) {
            let followed = self.follow(&layers, inside, hash, packet.now_ns);
            outcome.decision = Decision::Steer(followed);
        }
        outcome
    }

    /// The hash that selects the member, if the packet's own hash is `hash`. If the packet is a
    /// fragment, or if fragments carry it, this is the hash of their datagram, which is remembered.
    /// Called only after the final decision, so that no other hash is remembered.
    fn follow(&mut self, layers: &Layers<'_>, inside: u32, hash: u32, now_ns: u64) -> u32 {
        (0..=inside).rev().fold(hash, |hash, depth| {
            let layers = (0..depth).try_fold(*layers, |layers, _| layers.inner());
            let datagram = layers.and_then(|layers| Datagram::of(&layers));
            datagram.map_or(hash, |datagram| {
                self.state.fragments().follow(datagram, hash, now_ns)
            })
        })
    }

    /// The steering program.
    pub fn program(&self) -> &Tree {
        &self.program
    }

    /// The steering program's counters, modulo 2^64.
    pub fn counters(&self) -> &[u64; COUNTERS] {
        &self.state.counters
    }

    /// Number of fragments that came before the first fragment of their datagram. These fragments
    /// were steered by their addresses only.
    pub fn late(&self) -> u64 {
        self.state.fragments().late()
    }
}

struct Run<'r> {
    program: &'r Tree,
    state: &'r mut State,
    group: bool,
    packet: &'r Packet<'r>,
    /// The decision about the host, which stays if a later function drops the packet.
    host: Host,
    /// Nesting depth of `inner`.
    looks_inside: u32,
    /// Number of packets that carry the current packet.
    inside: u32,
}

impl<'r> Run<'r> {
    /// Evaluates a function; `None` if the function drops the packet.
    fn function(
        &mut self,
        function: &'r Function,
        layers: &Layers<'r>,
        mut course: Course,
    ) -> Option<Course> {
        match function {
            Function::Sequence(functions) => functions
                .iter()
                .try_fold(course, |course, next| self.function(next, layers, course)),
            Function::If(predicate, then, otherwise) => {
                let holds = self.question(layers, &course).holds(predicate);
                self.function(if holds { then } else { otherwise }, layers, course)
            }
            Function::First(functions) => functions.iter().find_map(|alternative| {
                self.host = course.outcome.host;
                self.function(alternative, layers, course)
            }),
            Function::Inverse(function) => {
                let passed = self.function(function, layers, course).is_some();
                self.host = course.outcome.host;
                (!passed).then_some(course)
            }
            Function::Inner(function) => {
                let inner = layers.inner();
                let depth = u32::from(inner.is_some());
                self.looks_inside += 1;
                self.inside += depth;
                let course = self.function(function, inner.as_ref().unwrap_or(layers), course);
                self.inside -= depth;
                self.looks_inside -= 1;
                course
            }
            Function::Drop => None,
            Function::Steer(steer) => {
                let decision = self.steer(steer, layers)?;
                Some(course.decided(decision, self.follows(steer)))
            }
            Function::Sample { keep, of, index } => self
                .state
                .is_sampled(self.packet.cpu, *index, *keep, *of)
                .then_some(course),
            Function::Count(counter, by) => {
                self.state.count(*counter, *by);
                Some(course)
            }
            Function::Pass => Some(course),
            Function::Broadcast => Some(course.decided(Decision::Broadcast, None)),
            Function::Classify(class) => {
                course.outcome.class = *class;
                Some(course)
            }
            Function::Host(only) => {
                self.host = if *only { Host::Only } else { Host::Too };
                course.outcome.host = self.host;
                (!only).then_some(course)
            }
            Function::Mark(mark) => {
                course.outcome.mark = Some(*mark);
                Some(course)
            }
            Function::SetState(state) => {
                course.state = *state;
                Some(course)
            }
        }
    }

    fn question<'q>(&'q self, layers: &'q Layers<'r>, course: &Course) -> Question<'q> {
        Question {
            program: self.program,
            packet: self.packet,
            layers,
            mark: course.outcome.mark.or(self.packet.mark),
            state: course.state,
        }
    }
}
