//! Converts the code to an object: resolves jumps and checks limits.

use super::{Assembler, CONDITIONS_MAX, INSTRUCTIONS_MAX, Label, STEPS_MAX};
use crate::{MapSpec, Object, ProgramKind};
use std::fmt;

/// The code is larger than every supported kernel accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssemblerError {
    /// A limit is exceeded.
    TooLong {
        /// What exceeds its limit.
        what: &'static str,
        /// The number that was counted before counting stopped.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// A jump or call is too far for its offset.
    TooFar,
}

impl fmt::Display for AssemblerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { what, count, limit } => {
                write!(
                    f,
                    "the BPF program has {count} {what}, the limit is {limit}"
                )
            }
            Self::TooFar => f.write_str("a jump of the BPF program is too far"),
        }
    }
}

impl std::error::Error for AssemblerError {}

impl Assembler {
    /// Replaces the labels by distances.
    pub fn finish(
        mut self,
        kind: ProgramKind,
        maps: Vec<MapSpec>,
    ) -> Result<Object, AssemblerError> {
        let long = |what, count, limit| Err(AssemblerError::TooLong { what, count, limit });
        if self.code.len() > INSTRUCTIONS_MAX {
            return long("instructions", self.code.len(), INSTRUCTIONS_MAX);
        }
        if self.conditions > CONDITIONS_MAX {
            return long("conditional jumps", self.conditions, CONDITIONS_MAX);
        }
        for &(at, label) in &self.jumps {
            let distance = self.distance(at, label)?;
            let short = i16::try_from(distance).map_err(|_| AssemblerError::TooFar)?;
            if let Some(instruction) = self.code.get_mut(at) {
                *instruction = instruction.with_offset(short);
            }
        }
        for &(at, label) in &self.calls {
            let distance = self.distance(at, label)?;
            if let Some(instruction) = self.code.get_mut(at) {
                *instruction = instruction.with_immediate(distance);
            }
        }
        let object = Object {
            kind,
            functions: self.functions(),
            instructions: self.code,
            maps,
            relocations: self.relocations,
            notes: self.notes,
        };
        let steps = object.steps();
        if steps > STEPS_MAX {
            let what = "steps (a function counts once for each call)";
            return long(what, steps, STEPS_MAX);
        }
        Ok(object)
    }

    fn functions(&self) -> Vec<u32> {
        let labels = self
            .calls
            .iter()
            .filter_map(|(_, label)| self.labels.get(label.0));
        let starts = labels.filter_map(|place| u32::try_from(place.at?).ok());
        let mut functions = Vec::new();
        for start in starts {
            if let Err(place) = functions.binary_search(&start) {
                functions.insert(place, start);
            }
        }
        functions
    }

    fn distance(&self, at: usize, label: Label) -> Result<i32, AssemblerError> {
        let place = self.labels.get(label.0).and_then(|place| place.at);
        debug_assert!(place.is_some(), "a label that is not bound");
        let place = place.and_then(|place| i32::try_from(place).ok());
        let next = i32::try_from(at + 1).ok();
        place
            .zip(next)
            .map(|(place, next)| place - next)
            .ok_or(AssemblerError::TooFar)
    }
}
