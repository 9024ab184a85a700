//! Runs a case, which is a steering program and its packets, at each hook. Compares the results of
//! kernel and evaluator.

use std::collections::BTreeMap;
use std::fmt;

use fanpcap_steer::ebpf::EbpfError;
use fanpcap_steer::ir::{Function, Node, Steer, Tree};
use fanpcap_steer::native::{Decision, Evaluator, Packet};
use fanpcap_steer::parts::Parts;
use fanpcap_wire::{Frame, Layers};

use super::group::{Group, Table};
use super::seed::Seed;
use super::side::{Clock, Hook, NotRun, STOPPED_NS, Side};
use super::traffic::{Shot, Untried};
use super::tree;

/// A steering program and its packets.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) program: Tree,
    /// The program's source text, or empty if the program was drawn.
    pub(crate) source: String,
    pub(crate) shots: Vec<Shot>,
    /// The hooks to compare.
    pub(crate) hooks: &'static [Hook],
    pub(crate) group: Group,
}

/// Numbers of comparisons, and of their results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Steering programs that ran at each hook.
    pub(crate) programs: [u64; 3],
    /// Trials at each hook.
    pub(crate) trials: [u64; 3],
    /// Trials in which the packet was dropped.
    pub(crate) drops: [u64; 3],
    /// Packets for which both parts together were compared with the whole steering program.
    pub(crate) together: u64,
    /// Later fragments that came before the first fragment of their datagram. The kernel and the
    /// evaluator must count the same number.
    pub(crate) late: u64,
    /// Packets that went to several members, or to none, at XDP.
    pub(crate) copied: u64,
    /// Packets of a class that is not the default one.
    pub(crate) classified: u64,
    /// Steering programs that changed a counter.
    pub(crate) counting: u64,
    /// Numbers of frames that BPF_PROG_TEST_RUN refuses, by reason.
    pub(crate) untried: BTreeMap<Untried, u64>,
    /// Numbers of steering programs that the back end refuses, by reason.
    pub(crate) refused: BTreeMap<String, u64>,
}

/// A difference between the kernel and the evaluator.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    pub(crate) hook: Hook,
    /// The index of the packet that shows the difference; `None` if no packet shows it.
    pub(crate) shot: Option<usize>,
    pub(crate) what: String,
    /// Whether the kernel has loaded the program.
    pub(crate) is_taken: bool,
    pub(crate) listing: String,
}

/// Runs a case on the CPU that the thread is pinned to. The clock is stopped, because the thread
/// may lose its CPU between the evaluator's look at the clock and the kernel's. Fragments that are
/// as old as their datagram's entry may be would then be new to one of them only.
pub(crate) fn check(case: &Case, cpu: u32, seed: &Seed<'_>) -> Result<Outcome, Difference> {
    let mut outcome = Outcome::default();
    let table = if classifies(&case.program) {
        case.group.table_with_classes()
    } else {
        case.group.table()
    };
    let mut sides = sides(case, &table, seed, &mut outcome)?;
    let mut whole = Whole::of(&case.program, &sides, &table);
    for (number, shot) in case.shots.iter().enumerate() {
        let mut bytes = shot.bytes.clone();
        let mut returned = [None; 3];
        for side in &mut sides {
            let place = side.hook as usize;
            let mut packet = Packet {
                cpu,
                now_ns: STOPPED_NS.into(),
                ..Packet::of(Frame {
                    bytes: &shot.bytes,
                    tag: None,
                })
            };
            if let Seed::Packet(change) = seed {
                bytes.clone_from(&shot.bytes);
                change(&mut bytes);
                packet.frame.bytes = &bytes;
            }
            returned[place] = one(side, shot, number, packet, &mut outcome)?;
        }
        if let Some(whole) = &mut whole {
            whole.compare(shot, number, cpu, returned, &mut outcome)?;
        }
    }
    for side in &sides {
        states(side, &mut outcome)?;
    }
    Ok(outcome)
}

/// Whether the program uses classes. Then the group's members must have classes, too.
pub(crate) fn classifies(program: &Tree) -> bool {
    let mut found = false;
    program.main.walk(&mut |node| {
        found |= matches!(node, Node::Function(Function::Classify(_)));
    });
    found
}

fn sides<'t>(
    case: &Case,
    table: &'t Table,
    seed: &Seed<'_>,
    outcome: &mut Outcome,
) -> Result<Vec<Side<'t>>, Difference> {
    let mut sides = Vec::new();
    for &hook in case.hooks {
        match Side::new(hook, &case.program, (table, Clock::Stopped), seed) {
            Ok(side) => {
                outcome.programs[hook as usize] += 1;
                sides.push(side);
            }
            Err(NotRun::Idle) => {}
            Err(NotRun::Refused(error)) => {
                *outcome.refused.entry(why(hook, &error)).or_default() += 1
            }
            Err(NotRun::Load { error, listing }) => {
                return Err(Difference {
                    hook,
                    shot: None,
                    what: format!("the kernel does not load the BPF program: {error:#}"),
                    is_taken: false,
                    listing,
                });
            }
        }
    }
    Ok(sides)
}

/// The kind of refusal, without the program's details.
fn why(hook: Hook, error: &EbpfError) -> String {
    let kind = match error {
        EbpfError::Unfit(unfit) => unfit.what.split([',', ':']).next().unwrap_or_default(),
        EbpfError::TooLong { what, .. } => what,
        EbpfError::TooDeep => "too deep",
        EbpfError::Filter { why, .. } => why,
    };
    format!("{hook:?}: {kind}")
}

/// Compares the results for one packet. Returns the kernel's result; `None` if the kernel refuses
/// to run the program on such a frame.
fn one(
    side: &mut Side<'_>,
    shot: &Shot,
    number: usize,
    packet: Packet<'_>,
    outcome: &mut Outcome,
) -> Result<Option<u32>, Difference> {
    let place = side.hook as usize;
    let untried = shot.untried(side.hook != Hook::Xdp);
    let answers = match (side.run(shot, packet), untried) {
        (Ok(answers), _) => answers,
        (Err(error), Some(why)) if error.raw_os_error() == Some(EINVAL) => {
            *outcome.untried.entry(why).or_default() += 1;
            return Ok(None);
        }
        (Err(error), _) => return Err(side.differs(Some(number), format!("no trial: {error}"))),
    };
    outcome.trials[place] += 1;
    outcome.drops[place] += u64::from(answers.native.decision == Decision::Drop);
    outcome.copied += match answers.native.decision {
        Decision::Copy | Decision::Broadcast | Decision::Double(..) => 1,
        Decision::Drop | Decision::Steer(_) | Decision::Member(_) => 0,
    };
    outcome.classified += u64::from(answers.native.class != 0);
    if let Some(what) = side.difference(&answers) {
        return Err(side.differs(Some(number), what));
    }
    Ok(Some(answers.kernel))
}

fn states(side: &Side<'_>, outcome: &mut Outcome) -> Result<(), Difference> {
    let [kernel, native] = side
        .state()
        .map_err(|error| side.differs(None, format!("no counters: {error}")))?;
    if kernel != native {
        let what = format!("the kernel has counted {kernel:?}, the evaluator {native:?}");
        return Err(side.differs(None, what));
    }
    outcome.late += kernel.1;
    outcome.counting += u64::from(kernel.0.iter().any(|&counter| counter != 0));
    Ok(())
}

impl Side<'_> {
    fn differs(&self, shot: Option<usize>, what: String) -> Difference {
        Difference {
            hook: self.hook,
            shot,
            what,
            is_taken: true,
            listing: self.listing().to_owned(),
        }
    }
}

/// The evaluator of the whole program. The two parts of the program together must give the same
/// results as this evaluator.
struct Whole<'t> {
    table: &'t Table,
    evaluator: Evaluator,
    /// Whether the program has a filtering part.
    judges: bool,
    /// Whether the program steers in turn or at random. Then the parts may choose another member
    /// than the whole program, because a turn also depends on dropped packets.
    has_turns: bool,
}

impl<'t> Whole<'t> {
    /// Returns `None` if the program does not run in a kernel group.
    fn of(program: &Tree, sides: &[Side<'_>], table: &'t Table) -> Option<Self> {
        sides.iter().find(|side| side.hook == Hook::Fanout)?;
        let judges = Parts::of(program).ok()?.filtering().is_some();
        if judges {
            sides.iter().find(|side| side.hook == Hook::Filter)?;
        }
        let mut has_turns = false;
        tree::each(&mut program.main.clone(), &mut |function| {
            has_turns |= matches!(function, Function::Steer(Steer::RoundRobin | Steer::Random));
        });
        Some(Self {
            table,
            evaluator: Evaluator::of_group(program),
            judges,
            has_turns,
        })
    }

    fn compare(
        &mut self,
        shot: &Shot,
        number: usize,
        cpu: u32,
        returned: [Option<u32>; 3],
        outcome: &mut Outcome,
    ) -> Result<(), Difference> {
        let [Some(member), filter, _] = returned else {
            return Ok(());
        };
        let frame = Frame {
            bytes: &shot.bytes,
            tag: None,
        };
        let packet = Packet {
            cpu,
            mark: Some(shot.mark),
            ..Packet::of(frame)
        };
        let decision = self.evaluator.decide(&packet);
        let keeps = !self.judges || filter == Some(u32::MAX);
        let agree = match decision {
            Decision::Drop => !keeps,
            // The member of a fragment depends on earlier fragments, also on fragments that were
            // dropped. So only compare whether the packet is kept.
            Decision::Steer(_) | Decision::Member(_) if self.has_turns || is_fragment(&frame) => {
                keeps
            }
            Decision::Steer(_) | Decision::Member(_) => {
                keeps && self.table.returns(decision) == member
            }
            Decision::Copy | Decision::Broadcast | Decision::Double(..) => false,
        };
        outcome.together += 1;
        if agree {
            return Ok(());
        }
        Err(Difference {
            hook: Hook::Fanout,
            shot: Some(number),
            what: format!(
                "both parts: member {member:#x}, filter {filter:x?}; the whole program: {decision:x?}"
            ),
            is_taken: true,
            listing: String::new(),
        })
    }
}

pub(crate) fn is_fragment(frame: &Frame<'_>) -> bool {
    let outer = Layers::of(frame);
    let inner = outer.inner();
    [Some(&outer), inner.as_ref()]
        .into_iter()
        .flatten()
        .any(|layers| layers.ip().is_some_and(|ip| ip.is_fragment()))
}

impl Outcome {
    pub(crate) fn add(&mut self, other: &Outcome) {
        for place in 0..3 {
            self.programs[place] += other.programs[place];
            self.trials[place] += other.trials[place];
            self.drops[place] += other.drops[place];
        }
        self.together += other.together;
        self.late += other.late;
        self.copied += other.copied;
        self.classified += other.classified;
        self.counting += other.counting;
        for (why, count) in &other.untried {
            *self.untried.entry(*why).or_default() += count;
        }
        for (why, count) in &other.refused {
            *self.refused.entry(why.clone()).or_default() += count;
        }
    }
}

/// Shows a difference, with all data by which it can be reproduced.
pub(crate) struct Report<'a>(pub(crate) &'a Case, pub(crate) &'a Difference);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(case, difference) = self;
        writeln!(f, "{:?}: {}", difference.hook, difference.what)?;
        if let Some(shot) = difference.shot {
            writeln!(f, "at packet {shot} of {}", case.shots.len())?;
        }
        if !case.source.is_empty() {
            writeln!(f, "{}", case.source)?;
        }
        writeln!(f, "{:?}, {:#?}", case.group, case.program)?;
        let end = difference.shot.map_or(case.shots.len(), |shot| shot + 1);
        for (number, shot) in case.shots.iter().take(end).enumerate() {
            writeln!(f, "packet {number}: {shot}")?;
        }
        f.write_str(&difference.listing)
    }
}

/// errno(3).
const EINVAL: i32 = 22;
