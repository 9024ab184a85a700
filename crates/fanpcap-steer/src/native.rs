//! Runs a program without a kernel, packet by packet, over the views of `fanpcap-wire`: what the
//! hub does, and what proves the other back ends.

mod address;
mod classic;
mod fragments;
mod key;
mod predicate;
mod state;
mod steer;

use fanpcap_wire::{Frame, Layers};

use crate::ir::{COUNTERS, Function, Tree};
use fragments::Datagram;
use predicate::Question;
use state::State;

/// A packet, and what its receiver knows beside its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packet<'a> {
    /// What was captured, and the tag beside it.
    pub frame: Frame<'a>,
    /// The frame's length on the wire in bytes, without a tag beside it.
    pub length: u32,
    /// The hash that the NIC or the kernel gave it; 0 for none.
    pub hash: u32,
    /// The receiving queue, from 0.
    pub queue: Option<u32>,
    /// The CPU that it is on.
    pub cpu: u32,
    /// The kernel's mark; absent in XDP.
    pub mark: Option<u32>,
    /// The time, in nanoseconds of a clock that never goes back.
    pub now_ns: u64,
}

impl<'a> Packet<'a> {
    /// One that was captured whole, of which nothing else is known.
    pub fn of(frame: Frame<'a>) -> Self {
        Self {
            frame,
            length: u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX),
            ..Self::default()
        }
    }
}

/// Which members get a packet. A number says which member, modulo how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nobody.
    Drop,
    /// All members of the packet's class.
    Copy,
    /// The member of this number, among those of the packet's class.
    Steer(u32),
    /// The members of these two numbers, which may be the same.
    Double(u32, u32),
    /// All members of all classes but 63.
    Broadcast,
}

/// Whether the host goes on with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// The program said nothing about it.
    Unsaid,
    /// The host gets it too.
    Too,
    /// The host gets it and no member.
    Only,
}

/// All that a program says about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Which members.
    pub decision: Decision,
    /// Of which class, 0 to 63; 0 is the default class.
    pub class: u8,
    /// Whether the host.
    pub host: Host,
    /// The mark that it gets.
    pub mark: Option<u32>,
}

impl Outcome {
    /// What a program begins with.
    const START: Outcome = Outcome {
        decision: Decision::Copy,
        class: 0,
        host: Host::Unsaid,
        mark: None,
    };
    /// A program that drops says nothing else, but for the host.
    const DROP: Outcome = Outcome {
        decision: Decision::Drop,
        ..Outcome::START
    };
}

/// How far a packet has come: what a function that drops takes back.
#[derive(Clone, Copy, Debug)]
struct Course {
    outcome: Outcome,
    /// What the program remembers while it runs.
    state: u32,
    /// Where the outcome is to be that of the other fragments: how many packets it is inside of.
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

/// A program and what it keeps between packets: counters, turns, samples, fragments.
#[derive(Clone, Debug)]
pub struct Evaluator {
    program: Tree,
    state: State,
    group: bool,
}

impl Evaluator {
    /// Decides as the hub does, which can give a packet to two members or all.
    pub fn new(program: &Tree) -> Self {
        Self {
            program: program.clone(),
            state: State::default(),
            group: false,
        }
    }

    /// Decides as a group of the kernel's does, in which each packet goes to one member: where the
    /// hub would give it to both ends' members, or to all, it goes by both ends.
    pub fn of_group(program: &Tree) -> Self {
        Self {
            group: true,
            ..Self::new(program)
        }
    }

    /// Which members get the packet.
    pub fn decide(&mut self, packet: &Packet<'_>) -> Decision {
        self.evaluate(packet).decision
    }

    /// All that the program says about the packet.
    pub fn evaluate(&mut self, packet: &Packet<'_>) -> Outcome {
        let layers = Layers::of(&packet.frame);
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

    /// A fragment goes where its datagram went, and what one carries with it; only what is decided
    /// in the end is remembered.
    fn follow(&mut self, layers: &Layers<'_>, inside: u32, hash: u32, now_ns: u64) -> u32 {
        (0..=inside).rev().fold(hash, |hash, depth| {
            let layers = (0..depth).try_fold(*layers, |layers, _| layers.inner());
            let datagram = layers.and_then(|layers| Datagram::of(&layers));
            datagram.map_or(hash, |datagram| {
                self.state.fragments.follow(datagram, hash, now_ns)
            })
        })
    }

    /// The program's counters, modulo 2^64.
    pub fn counters(&self) -> &[u64; COUNTERS] {
        &self.state.counters
    }

    /// How many fragments came before their datagram's first one, and went by their addresses
    /// alone.
    pub fn late(&self) -> u64 {
        self.state.fragments.late()
    }
}

/// One packet's way through the program.
struct Run<'r> {
    program: &'r Tree,
    state: &'r mut State,
    group: bool,
    packet: &'r Packet<'r>,
    /// What the host was said to get, where the packet is dropped behind it.
    host: Host,
    /// How many `inner` it is in.
    looks_inside: u32,
    /// How many packets it is inside of by that.
    inside: u32,
}

impl<'r> Run<'r> {
    /// How far it comes with the function; none where that drops.
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
