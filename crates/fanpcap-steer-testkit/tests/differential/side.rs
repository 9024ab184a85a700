//! A steering program at one hook, in the kernel and in the evaluator.

use std::collections::BTreeMap;
use std::io;

use fanpcap_bpf::kernel::KTIME_GET_NS;
use fanpcap_bpf::{Instruction, Object};
use fanpcap_linux::bpf::{LoadError, Loaded, Map};
use fanpcap_steer::GroupOptions;
use fanpcap_steer::ebpf::{self, COUNTERS_MAP, EbpfError, LATE_MAP};
use fanpcap_steer::ir::{COUNTERS, Function, Steer, Tree};
use fanpcap_steer::native::{Decision, Evaluator, Outcome, Packet};
use fanpcap_steer::parts::Parts;

use super::group::Table;
use super::recording::{Record, Recording};
use super::seed::Seed;
use super::traffic::Shot;
use super::tree;

/// The hook at which a BPF program runs, and the part of the steering program that runs there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// The fanout group: the steering part.
    Fanout,
    /// A member's filter: the filtering part.
    Filter,
    /// XDP: the whole program.
    Xdp,
}

pub(crate) static HOOKS: [Hook; 3] = [Hook::Fanout, Hook::Filter, Hook::Xdp];

/// The member that the evaluator returns for steering at random. The kernel's random number can't
/// be predicted, so the test checks only its range. Other ways to steer return this member with a
/// probability of 2^-31.
const ANY: u32 = 0x5a3c_96e1;

/// The clock that a BPF program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// The kernel's clock.
    Runs,
    /// The time is always [`STOPPED_NS`].
    Stopped,
}

/// The time of a stopped clock in nanoseconds.
pub(crate) const STOPPED_NS: u16 = 10_000;

impl Clock {
    /// The object with this clock: a stopped clock replaces each call of the kernel's clock by a
    /// number.
    fn object(self, mut object: Object) -> Object {
        let is_look = |it: &&mut Instruction| {
            (it.code(), it.source(), it.immediate()) == (CALL, OF_KERNEL, KTIME_GET_NS)
        };
        if self == Self::Stopped {
            for look in object.instructions.iter_mut().filter(is_look) {
                *look = Instruction::set(RESULT, STOPPED_NS.into());
            }
        }
        object
    }
}

/// Parts of an instruction: the code BPF_JMP | BPF_CALL, the source register by which a call means
/// a function of the kernel, and the register of a function's result.
const CALL: u8 = 0x85;
const OF_KERNEL: u8 = 0;
const RESULT: u8 = 0;

/// The reason why a program does not run at a hook.
#[derive(Debug)]
pub(crate) enum NotRun {
    /// The back end refuses the program.
    Refused(EbpfError),
    /// The program has no work at this hook.
    Idle,
    /// The kernel refuses the back end's code.
    Load { error: LoadError, listing: String },
}

/// A program in the kernel, and its evaluator.
pub(crate) struct Side<'t> {
    pub(crate) hook: Hook,
    table: &'t Table,
    listing: String,
    loaded: Loaded,
    evaluator: Evaluator,
}

/// Results for one packet.
#[derive(Debug)]
pub(crate) struct Answers {
    pub(crate) kernel: u32,
    pub(crate) native: Outcome,
    /// The record of the packet; `None` at hooks other than XDP.
    pub(crate) record: Option<Record>,
}

impl Hook {
    /// A list that has only this hook.
    pub(crate) fn alone(self) -> &'static [Hook] {
        let place = self as usize;
        &HOOKS[place..=place]
    }

    /// The tree that the evaluator runs for this hook. `None` if the program has no part for the
    /// hook.
    fn part(self, program: &Tree) -> Result<Option<Tree>, EbpfError> {
        Ok(match self {
            Self::Fanout => Some(Parts::of(program)?.steering().clone()),
            Self::Filter => Parts::of(program)?.filtering().cloned(),
            Self::Xdp => Some(program.clone()),
        })
    }

    /// The object that the kernel loads for this hook. It uses a group's table.
    pub(crate) fn object(self, program: &Tree) -> Result<Option<Object>, EbpfError> {
        match self {
            Self::Fanout => ebpf::fanout(&Parts::of(program)?).map(Some),
            Self::Filter => ebpf::filter(&Parts::of(program)?, None),
            Self::Xdp => {
                ebpf::xdp(program, GroupOptions::default(), &Recording { sent: false }).map(Some)
            }
        }
    }
}

impl<'t> Side<'t> {
    pub(crate) fn new(
        hook: Hook,
        program: &Tree,
        (table, clock): (&'t Table, Clock),
        seed: &Seed<'_>,
    ) -> Result<Self, NotRun> {
        let object = hook.object(program).map_err(NotRun::Refused)?;
        let part = hook.part(program).map_err(NotRun::Refused)?;
        let (Some(object), Some(mut part)) = (object, part) else {
            return Err(NotRun::Idle);
        };
        let object = clock.object(seed.object(hook, object));
        let listing = object.listing();
        let load = |error| NotRun::Load {
            error,
            listing: listing.clone(),
        };
        let loaded = table.load(&object, "proof").map_err(load)?;
        tree::each(&mut part.main, &mut |function| {
            if *function == Function::Steer(Steer::Random) {
                *function = Function::Steer(Steer::To(ANY));
            }
        });
        seed.program(&mut part);
        let evaluator = Evaluator::of_group(&part);
        Ok(Self {
            hook,
            table,
            listing,
            loaded,
            evaluator,
        })
    }

    /// Runs the BPF program and the evaluator on one packet. If the kernel refuses to run the BPF
    /// program on the frame, returns an error, and the evaluator does not get the frame.
    pub(crate) fn run(&mut self, shot: &Shot, packet: Packet<'_>) -> io::Result<Answers> {
        let kernel = if shot.mark == 0 || self.hook == Hook::Xdp {
            self.loaded.run(&shot.bytes)?
        } else {
            self.loaded.run_marked(&shot.bytes, shot.mark)?
        };
        let packet = match self.hook {
            // The kernel runs a trial on the loopback device's only queue.
            Hook::Xdp => Packet {
                queue: Some(0),
                ..packet
            },
            Hook::Fanout | Hook::Filter => Packet {
                mark: Some(shot.mark),
                ..packet
            },
        };
        let native = self.evaluator.evaluate(&packet);
        let record = (self.hook == Hook::Xdp).then(|| self.table.recorded(kernel));
        Ok(Answers {
            kernel,
            native,
            record,
        })
    }

    /// The BPF program's result for a decision; `None` for a random number.
    fn returns(&self, decision: Decision) -> Option<u32> {
        match (self.hook, decision) {
            (Hook::Filter, Decision::Drop) => Some(0),
            (Hook::Filter, _) => Some(u32::MAX),
            (_, Decision::Member(ANY)) => None,
            // A group's BPF program can't drop.
            (Hook::Fanout | Hook::Xdp, _) => Some(self.table.returns(decision)),
        }
    }

    /// The difference between the results of kernel and evaluator, if there is one.
    pub(crate) fn difference(&self, answers: &Answers) -> Option<String> {
        let Answers {
            kernel,
            native,
            record,
        } = answers;
        if let Some(record) = record {
            let mut expected = self.table.delivers(native);
            if native.decision == Decision::Member(ANY) && expected.missed == 0 {
                // At random the packet may go to any slot, but only to one.
                let one = record.slots.values().sum::<u64>() == 1;
                expected.slots = if one {
                    record.slots.clone()
                } else {
                    BTreeMap::new()
                };
            }
            return (*record != expected).then(|| {
                format!("the kernel delivers {record:?}, the evaluator decides {native:x?}: expected {expected:?}")
            });
        }
        let decision = native.decision;
        let agree = match self.returns(decision) {
            Some(expected) => *kernel == expected,
            None => *kernel <= 0x7fff_ffff,
        };
        let expected = self.returns(decision);
        (!agree).then(|| {
            format!("the kernel returns {kernel:#x}, the evaluator decides {decision:x?}: expected {expected:x?}")
        })
    }

    /// The counters and the number of late fragments: first the kernel's, then the evaluator's.
    pub(crate) fn state(&self) -> io::Result<[(Vec<u64>, u64); 2]> {
        let numbers = |map| self.loaded.map(map).map_or(Ok(Vec::new()), Map::numbers);
        let mut counters = numbers(COUNTERS_MAP)?;
        let late = numbers(LATE_MAP)?.first().copied().unwrap_or(0);
        counters.resize(COUNTERS, 0);
        let native = (self.evaluator.counters().to_vec(), self.evaluator.late());
        Ok([(counters, late), native])
    }

    pub(crate) fn listing(&self) -> &str {
        &self.listing
    }
}
