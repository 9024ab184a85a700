//! Checks that the kernel loads every program that the compiler and the back end accept, up to
//! their limits.

use std::collections::BTreeMap;
use std::process::Command;

use fanpcap_steer::ebpf::EbpfError;
use fanpcap_steer::ir::{Function, Predicate, Steer, Tree};
use fanpcap_steer::table::{self, Engines};
use fanpcap_steer::{DEPTH_MAX, FILTERS_MAX, NODES_MAX, SAMPLERS_MAX, tree};
use fanpcap_steer_testkit::{Draw, programs, tape};

use super::group::Group;
use super::side::{HOOKS, Hook};
use super::tree;
use super::written::examples;

/// The results of loading many programs.
#[derive(Debug, Default)]
struct Taken {
    taken: usize,
    /// The highest number of instructions that the verifier has processed, and the program's name.
    verified: (u32, String),
    instructions: usize,
    /// Numbers of programs that exceed a limit of the back end, by limit.
    refused: BTreeMap<&'static str, usize>,
}

impl Taken {
    /// Loads a program if the back end accepts it. The kernel must then accept it, too.
    fn load(&mut self, program: &Tree, hook: Hook, what: &str) {
        let object = match hook.object(program) {
            Ok(Some(object)) => object,
            Ok(None) => return,
            Err(error) => return *self.refused.entry(kind(&error)).or_default() += 1,
        };
        let loaded = Group(0).table().load(&object, "limits");
        let loaded = loaded.unwrap_or_else(|error| {
            panic!(
                "{hook:?} of {what}, {} instructions: {error}",
                object.instructions.len()
            )
        });
        self.taken += 1;
        let verified = loaded.verified().unwrap();
        if verified > self.verified.0 {
            let (code, steps) = (object.instructions.len(), object.steps());
            let size = format!("{code} instructions, {steps} steps");
            self.verified = (verified, format!("{hook:?}, {what}: {size}"));
        }
        self.instructions = self.instructions.max(object.instructions.len());
    }
}

fn kind(error: &EbpfError) -> &'static str {
    match error {
        EbpfError::Unfit(_) => "unfit for a group",
        EbpfError::TooLong { what, .. } => what,
        EbpfError::TooDeep => "too deep",
        EbpfError::Filter { .. } => "no filter",
    }
}

/// One program that joins many drawn programs, within the compiler's limits.
fn large(seed: u64) -> Tree {
    let shape = tape(seed, 8);
    let mut draw = Draw::new(&shape);
    let target = draw.pick(&[100, 300, 1000, 2000, NODES_MAX]);
    let shape = draw.below(5);
    let mut whole = Tree {
        main: Function::Pass,
        sets: Vec::new(),
        filters: Vec::new(),
    };
    let (mut parts, mut nodes) = (Vec::new(), 2 * DEPTH_MAX);
    for part in 0.. {
        let tape = tape((seed << 16) | part, 300);
        let drawn = programs::group_program(&mut Draw::new(&tape));
        nodes += tree::nodes(&drawn.main);
        if nodes > target {
            break;
        }
        parts.push(moved(drawn, &mut whole));
    }
    // In half of the programs, replace samplers: a group does not accept alternatives that sample.
    if shape != 0 && shape != 2 && seed % 2 == 0 {
        parts.iter_mut().for_each(|part| {
            tree::each(part, &mut |function| {
                if matches!(function, Function::Sample { .. }) {
                    *function = Function::Count(1, 1);
                }
            })
        });
    }
    let main = shaped(shape, parts);
    whole.main = Function::Sequence(vec![main, Function::Steer(Steer::Link)]);
    whole
}

/// Appends a program's sets and filters to those of `whole`, and returns the program's tree with
/// their new numbers.
fn moved(part: Tree, whole: &mut Tree) -> Function {
    let (sets, filters) = (whole.sets.len(), whole.filters.len());
    whole.sets.extend(part.sets);
    whole.filters.extend(part.filters);
    whole.filters.truncate(FILTERS_MAX);
    let mut main = part.main;
    tree::each_predicate(&mut main, &mut |predicate| match predicate {
        Predicate::Member(_, set) | Predicate::AddressIn { set, .. } => *set += sets,
        Predicate::Pcap(filter) => {
            *filter = (*filter + filters) % FILTERS_MAX.min(whole.filters.len())
        }
        Predicate::Constant(_)
        | Predicate::Not(_)
        | Predicate::And(..)
        | Predicate::Or(..)
        | Predicate::Xor(..)
        | Predicate::Compare(..)
        | Predicate::Has(_)
        | Predicate::Address(..)
        | Predicate::Port(..)
        | Predicate::Share { .. }
        | Predicate::Rtp
        | Predicate::Rtcp => {}
    });
    tree::each(&mut main, &mut |function| {
        if let Function::Sample { index, .. } = function {
            *index %= u8::try_from(SAMPLERS_MAX).unwrap();
        }
    });
    main
}

/// Joins functions to a sequence, to alternatives, to nested conditions, to nested alternatives, or
/// to a sequence of inverted functions.
fn shaped(shape: usize, parts: Vec<Function>) -> Function {
    let inverse = |part| Function::Inverse(Box::new(part));
    // Nests only as deep as the depth of the drawn programs permits.
    let nested = |around: &dyn Fn(usize, Function, Function) -> Function| {
        let each = parts.len().div_ceil(DEPTH_MAX - 20).max(1);
        let groups = parts
            .chunks(each)
            .map(|group| Function::Sequence(group.to_vec()));
        let groups: Vec<_> = groups.enumerate().collect();
        groups
            .into_iter()
            .rev()
            .fold(Function::Pass, |rest, (number, group)| {
                around(number, group, rest)
            })
    };
    match shape {
        0 => Function::Sequence(parts),
        1 => Function::First(parts),
        2 => nested(&|number, group, rest| {
            let port = u16::try_from(number).unwrap();
            let asked = Predicate::Port(fanpcap_steer::ir::Side::Either, port);
            Function::If(Box::new(asked), Box::new(group), Box::new(rest))
        }),
        3 => nested(&|_, group, rest| Function::First(vec![group, rest])),
        _ => Function::Sequence(parts.into_iter().map(inverse).collect()),
    }
}

/// Number of large programs, unless FANPCAP_PROOF_PROGRAMS sets another number. FANPCAP_PROOF_SEED
/// sets the first seed.
const LARGE: u64 = 30;

fn large_programs(hooks: &[Hook]) -> Taken {
    let count = std::env::var("FANPCAP_PROOF_PROGRAMS");
    let count = count.map_or(LARGE, |count| count.parse().unwrap());
    let mut taken = Taken::default();
    let first = std::env::var("FANPCAP_PROOF_SEED").map_or(0, |seed| seed.parse().unwrap());
    for seed in first..first + count {
        let program = large(seed);
        for &hook in hooks {
            taken.load(&program, hook, &format!("large program {seed}"));
        }
    }
    taken
}

#[test]
#[ignore = "needs root: eBPF"]
fn the_kernel_takes_large_programs() {
    let taken = large_programs(&HOOKS);
    println!("large programs: {taken:#?}");
    assert!(taken.taken > 20, "{taken:?}");
}

/// For each kind of function, loads a program that repeats the function as often as the compiler
/// and the back end accept.
fn most_of_each_kind(hooks: &[Hook]) -> Taken {
    let runs = table::entries().filter(|entry| entry.engines == Engines::All);
    let every = if std::env::var_os("FANPCAP_PROOF_ALL").is_some() {
        1
    } else {
        10
    };
    let mut taken = Taken::default();
    for entry in runs.step_by(every) {
        let example = examples(entry).swap_remove(0);
        for &hook in hooks {
            if let Some((count, program)) = most(&example, hook) {
                taken.load(&program, hook, &format!("{count} times {example}"));
            }
        }
    }
    taken
}

/// The largest accepted number of repetitions, and the program with it.
fn most(example: &str, hook: Hook) -> Option<(usize, Tree)> {
    let accepted = |count: usize| {
        let line = format!("  {example}\n");
        let source = format!("main = do\n{}  steer_link\n", line.repeat(count));
        let program = tree(&source, &|_| Err("no libpcap".to_owned())).ok()?;
        hook.object(&program).ok().flatten()?;
        Some((count, program))
    };
    // Search by bisection, because a program with fewer repetitions is accepted, too.
    let (mut least, mut limit, mut best) = (0, 4096, None);
    while limit - least > least / 16 + 1 {
        let middle = least + (limit - least) / 2;
        match accepted(middle) {
            Some(program) => (least, best) = (middle, Some(program)),
            None => limit = middle,
        }
    }
    best
}

/// Runs a test of this file by setpriv(1) in a process that has only these capabilities.
fn with(capabilities: &str, test: &str) {
    let these = format!("-all{capabilities}");
    let output = Command::new("setpriv")
        .args(["--bounding-set", &these, "--inh-caps", &these])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture"])
        .arg(format!("limits::{test}"))
        .env("FANPCAP_TEST_WITH", capabilities)
        .output();
    let Ok(output) = output else {
        return println!("SKIP: setpriv(1) is missing");
    };
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    // Indent the child's output, to distinguish it from the output of this process.
    text.lines().for_each(|line| println!("  {line}"));
    let is_child = text.contains(capabilities);
    assert!(output.status.success() && is_child && text.contains("1 passed"));
}

#[test]
#[ignore = "needs root: eBPF"]
fn with_cap_bpf_alone_the_kernel_takes_large_programs() {
    with(",+bpf", "as_child_large_programs_load");
}

#[test]
#[ignore = "needs root: eBPF"]
fn with_cap_bpf_and_net_admin_the_kernel_takes_large_programs_at_xdp() {
    with(",+bpf,+net_admin", "as_child_large_programs_load");
}

#[test]
#[ignore = "needs root: a child of the test that takes capabilities away"]
fn as_child_large_programs_load() {
    let Ok(capabilities) = std::env::var("FANPCAP_TEST_WITH") else {
        return;
    };
    let hooks = if capabilities.contains("net_admin") {
        Hook::Xdp.alone()
    } else {
        &HOOKS[..2]
    };
    println!("with {capabilities}: {:#?}", large_programs(hooks));
    println!("{:#?}", most_of_each_kind(hooks));
}

/// Tests that take too long for the usual runs.
mod long {
    use super::*;

    /// The tests above load the same programs in child processes with fewer capabilities, for which
    /// the verifier is stricter.
    #[test]
    #[ignore = "needs root: eBPF"]
    fn the_kernel_takes_the_most_of_each_kind() {
        let taken = most_of_each_kind(&HOOKS);
        println!("the most of each kind: {taken:#?}");
        assert!(taken.taken > 20, "{taken:?}");
    }
}
