//! Completes the tree: gives numbers to the samplers, the sets and the filters, in the order in
//! which the tree uses them.

use super::Checker;
use crate::Error;
use crate::ir::{Filter, Function, NodeMut, Predicate, Tree};
use crate::limits::SAMPLERS_MAX;
use std::collections::HashMap;
use std::hash::Hash;

impl Checker<'_, '_> {
    /// The tree with `main` as its function. Each use of `sample` becomes a separate sampler, even
    /// if one definition is used twice.
    pub(super) fn finish(self, mut main: Function) -> Result<Tree, Error> {
        let mut samplers = 0;
        let (mut sets, mut filters) = (Numbering::default(), Numbering::default());
        main.walk_mut(&mut |node| match node {
            NodeMut::Function(Function::Sample { index, .. }) => {
                *index = u8::try_from(samplers).unwrap_or(u8::MAX);
                samplers += 1;
            }
            NodeMut::Predicate(Predicate::Member(_, set) | Predicate::AddressIn { set, .. }) => {
                *set = sets.number(&self.sets[*set]);
            }
            NodeMut::Predicate(Predicate::Pcap(filter)) => {
                *filter = filters.number(&self.filters[*filter].text);
            }
            NodeMut::Function(_) | NodeMut::Predicate(_) => {}
        });
        if samplers > SAMPLERS_MAX {
            let message = format!(
                "expected 'sample' at most {SAMPLERS_MAX} times in a program, found it {samplers} times"
            );
            return Err(Error::new(self.sample.clone(), message));
        }
        let sets = sets.all.into_iter().cloned().collect();
        let named = |text: &String| self.filters.iter().find(|filter| filter.text == *text);
        let filters: Vec<Filter> = filters.all.into_iter().filter_map(named).cloned().collect();
        Ok(Tree {
            main,
            sets,
            filters,
        })
    }
}

struct Numbering<'a, T> {
    all: Vec<&'a T>,
    places: HashMap<&'a T, usize>,
}

impl<T> Default for Numbering<'_, T> {
    fn default() -> Self {
        Numbering {
            all: Vec::new(),
            places: HashMap::new(),
        }
    }
}

impl<'a, T: Eq + Hash> Numbering<'a, T> {
    fn number(&mut self, thing: &'a T) -> usize {
        let next = self.all.len();
        let place = *self.places.entry(thing).or_insert(next);
        if place == next {
            self.all.push(thing);
        }
        place
    }
}
