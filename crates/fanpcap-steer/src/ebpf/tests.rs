//! Runs all variants of the code in the kernel, on hand-made frames, and checks that all variants
//! give the same answer.

mod agreement;
mod classic;
mod deliver;
mod flows;
mod frames;
mod limits;
mod listing;
mod predicates;
mod privilege;
mod place;
mod speed;
mod steering;
mod wire;

use super::*;
use crate::ir::{Filter, Flow, Predicate, Steer};
use fanpcap_buckets::layout;
use fanpcap_linux::bpf::{LoadError, Loaded, Table};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

fn program(main: Function) -> Tree {
    Tree {
        main,
        sets: Vec::new(),
        filters: Vec::new(),
    }
}

fn object(tree: &Tree, target: Target, drop: u32, plain: bool) -> Object {
    let plain = if plain { Plain::Bodies } else { Plain::Walked };
    emit(tree, target, Role::Steer { drop }, plain).unwrap()
}

fn load(object: &Object) -> Loaded {
    Loaded::load_apart(object, "test").unwrap()
}

fn table() -> Table {
    Table::create("test", u32::try_from(layout::SIZE).unwrap()).unwrap()
}

fn table_at_xdp() -> Table {
    Table::create("test", u32::try_from(layout::SIZE_WITH_CLASSES).unwrap()).unwrap()
}

fn load_with(object: &Object, table: &Table) -> Result<Loaded, LoadError> {
    Loaded::load_with(object, "test", &[(TABLE_MAP, table.as_fd())])
}

fn late(loaded: &Loaded) -> u64 {
    loaded.map(LATE_MAP).unwrap().numbers().unwrap()[0]
}

/// A steering program, loaded in all variants: for a group and for XDP, with separate code for
/// plain packets and without.
struct All(Vec<(&'static str, Loaded)>);

const DROP: u32 = u32::MAX;

impl All {
    fn of(program: &Tree) -> Self {
        let fanout = Target::Fanout;
        let ways: [(&str, Target, Plain); 5] = [
            ("plain socket", fanout, Plain::Bodies),
            ("socket", fanout, Plain::Walked),
            ("plain xdp", Target::Xdp, Plain::Bodies),
            ("plain xdp by views", Target::Xdp, Plain::Views),
            ("xdp", Target::Xdp, Plain::Walked),
        ];
        Self(
            ways.into_iter()
                .map(|(name, target, plain)| {
                    let role = Role::Steer { drop: DROP };
                    let object = emit(program, target, role, plain).unwrap();
                    let loaded = Loaded::load(&object, "test");
                    let loaded = loaded
                        .unwrap_or_else(|error| panic!("{name}: {error}\n{}", program.main_text()));
                    (name, loaded)
                })
                .collect(),
        )
    }

    /// Runs the variants that can run on the frame, and returns their common answer. Panics if the
    /// answers differ or if no variant can run on the frame.
    fn run(&self, frame: &[u8]) -> u32 {
        self.answer(frame)
            .expect("a variant that runs on the frame")
    }

    /// As [`Self::run`], but returns `None` if no variant can run on the frame.
    fn answer(&self, frame: &[u8]) -> Option<u32> {
        let answers: Vec<_> = self
            .0
            .iter()
            .filter_map(|(name, loaded)| Some((name, loaded.run(frame).ok()?)))
            .collect();
        let (_, first) = answers.first()?;
        assert!(
            answers.iter().all(|(_, answer)| answer == first),
            "{answers:?} of {frame:02x?}"
        );
        Some(*first)
    }
}

impl Tree {
    fn main_text(&self) -> String {
        let text = format!("{:?}", self.main);
        text.chars().take(2000).collect()
    }
}

fn steer(main: Function, frame: &[u8]) -> u32 {
    All::of(&program(main)).run(frame)
}

fn ask(predicate: Predicate, frame: &[u8]) -> bool {
    ask_of(predicate, Vec::new(), frame)
}

fn ask_of(predicate: Predicate, sets: Vec<Vec<u128>>, frame: &[u8]) -> bool {
    let program = Tree {
        main: choice(predicate),
        sets,
        filters: Vec::new(),
    };
    All::of(&program).run(frame) == 1
}

/// A function that selects member 1 if the predicate is true, else member 2.
fn choice(predicate: Predicate) -> Function {
    let to = |member| Box::new(Function::Steer(Steer::To(member)));
    Function::If(Box::new(predicate), to(1), to(2))
}

fn inner(function: Function) -> Function {
    Function::Inner(Box::new(function))
}

fn by_flow() -> Function {
    Function::Steer(Steer::Flow(Flow::WHOLE))
}

fn flow_mode() -> Function {
    Function::First(vec![
        inner(by_flow()),
        Function::Steer(Steer::Link),
        Function::Steer(Steer::To(0)),
    ])
}

fn with_filter(main: Function, code: Vec<Classic>) -> Tree {
    let filter = Filter {
        text: "a test's".to_owned(),
        code,
    };
    Tree {
        main,
        sets: Vec::new(),
        filters: vec![filter],
    }
}
