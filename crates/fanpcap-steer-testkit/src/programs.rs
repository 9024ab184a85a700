//! Draws steering programs: trees with all kinds of nodes that the checker accepts. The programs
//! compare with numbers that drawn packets have.

mod filter;
mod predicate;
mod steer;

pub use filter::classic;

use fanpcap_steer::ir::{Filter, Function, Tree};

use crate::Draw;

/// Maximum nesting depth of functions and predicates.
const DEPTH: usize = 4;
/// Maximum nesting depth of `inner`.
const INNER_MAX: usize = 2;
/// Maximum number of samplers of a steering program.
const SAMPLERS_MAX: u8 = 16;

/// Any steering program, with functions of all engines.
pub fn program(draw: &mut Draw<'_>) -> Tree {
    let mut maker = Maker::new(draw, false);
    let main = maker.function(DEPTH, Surroundings::default());
    maker.program(main)
}

/// A steering program for XDP, with many functions that a kernel group does not run.
pub fn device_program(draw: &mut Draw<'_>) -> Tree {
    let mut maker = Maker::new(draw, false);
    maker.copies = 40;
    let mut main = vec![maker.function(DEPTH, Surroundings::default())];
    for _ in 0..maker.draw.below(4) {
        main.push(maker.leaf(Surroundings::default()));
        main.push(maker.function(DEPTH - 1, Surroundings::default()));
    }
    maker.program(Function::Sequence(main))
}

/// A steering program whose last function steers. A kernel group can run all these programs. The
/// checker still refuses some of them, because it does not detect that a kernel group can run them.
pub fn group_program(draw: &mut Draw<'_>) -> Tree {
    let mut maker = Maker::new(draw, true);
    let before = maker.function(DEPTH, Surroundings::default());
    let last = maker.steer();
    let main = if maker.draw.one_in(3) {
        Function::First(vec![before, Function::Steer(last)])
    } else {
        Function::Sequence(vec![before, Function::Steer(last)])
    };
    maker.program(main)
}

/// Draws a steering program, and collects its sets and filters.
struct Maker<'d, 't> {
    draw: &'d mut Draw<'t>,
    /// Whether to leave out functions that a kernel group can't run.
    group: bool,
    /// The weight with which a function that a kernel group can't run is drawn.
    copies: usize,
    sets: Vec<Vec<u128>>,
    filters: Vec<Filter>,
    samplers: u8,
}

/// The position of a function in the tree.
#[derive(Clone, Copy, Default)]
struct Surroundings {
    inner: usize,
    /// Whether another function runs after this function has dropped a packet.
    is_told: bool,
}

impl<'d, 't> Maker<'d, 't> {
    fn new(draw: &'d mut Draw<'t>, group: bool) -> Self {
        Self {
            draw,
            group,
            copies: if group { 0 } else { 8 },
            sets: Vec::new(),
            filters: Vec::new(),
            samplers: 0,
        }
    }

    fn program(self, main: Function) -> Tree {
        Tree {
            main,
            sets: self.sets,
            filters: self.filters,
        }
    }

    fn function(&mut self, depth: usize, place: Surroundings) -> Function {
        let deep = usize::from(depth > 1);
        match self.draw.weighted(&[
            44,
            44 * deep,
            34 * deep,
            30,
            16 * deep,
            8 * deep,
            16 * deep,
            30,
        ]) {
            0 => Function::Steer(self.steer()),
            1 => {
                let count = 2 + self.draw.below(3);
                Function::Sequence(
                    (0..count)
                        .map(|_| self.function(depth - 1, place))
                        .collect(),
                )
            }
            2 => Function::If(
                Box::new(self.predicate(DEPTH - 1)),
                Box::new(self.function(depth - 1, place)),
                Box::new(self.function(depth - 1, place)),
            ),
            3 => self.filter_by(Function::Pass, Function::Drop),
            4 => self.first(depth, place),
            5 => {
                let is_told = Surroundings {
                    is_told: true,
                    ..place
                };
                Function::Inverse(Box::new(self.function(depth - 1, is_told)))
            }
            6 if place.inner < INNER_MAX => {
                let inside = Surroundings {
                    inner: place.inner + 1,
                    ..place
                };
                Function::Inner(Box::new(self.function(depth - 1, inside)))
            }
            _ => self.leaf(place),
        }
    }

    fn filter_by(&mut self, then: Function, otherwise: Function) -> Function {
        let predicate = self.predicate(DEPTH - 1);
        Function::If(Box::new(predicate), Box::new(then), Box::new(otherwise))
    }

    fn first(&mut self, depth: usize, place: Surroundings) -> Function {
        let count = 2 + self.draw.below(2);
        let alternatives = (1..=count).map(|each| {
            let is_told = place.is_told || each < count;
            self.function(depth - 1, Surroundings { is_told, ..place })
        });
        Function::First(alternatives.collect())
    }

    fn leaf(&mut self, place: Surroundings) -> Function {
        let copies = self.copies;
        let weights = [10, 6, 30, 30, 20, copies, copies, copies, copies];
        match self.draw.weighted(&weights) {
            0 => Function::Pass,
            1 => Function::Drop,
            2 => Function::Count(self.draw.pick(&[0, 1, 63]), self.draw.pick(&[1, -1])),
            3 => Function::SetState(self.draw.pick(&[1, 2, 0, u32::MAX])),
            4 if self.samplers < SAMPLERS_MAX && !(self.group && place.is_told) => self.sample(),
            5 => Function::Broadcast,
            6 => Function::Classify(self.draw.pick(&[1, 2, 63])),
            7 => Function::Host(self.draw.one_in(2)),
            8 => Function::Mark(self.draw.pick(&[1, 2, u32::MAX])),
            _ => Function::Pass,
        }
    }

    fn sample(&mut self) -> Function {
        let of = self.draw.pick(&[2, 3, 1, 10]);
        let index = self.samplers;
        self.samplers += 1;
        Function::Sample {
            keep: self.draw.pick(&[1, 2, 0, 10]).min(of),
            of,
            index,
        }
    }
}
