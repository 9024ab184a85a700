//! From code to what the kernel is given: distances, and limits.

use super::{Assembler, CONDITIONS_MAX, Code, EbpfError, INSTRUCTIONS_MAX, Label, STEPS_MAX};
use std::collections::BTreeSet;

impl Assembler {
    /// Puts the distances in.
    pub(in super::super) fn finish(mut self) -> Result<Code, EbpfError> {
        let long = |what, count, limit| Err(EbpfError::TooLong { what, count, limit });
        if self.code.len() > INSTRUCTIONS_MAX {
            return long("instructions", self.code.len(), INSTRUCTIONS_MAX);
        }
        if self.conditions > CONDITIONS_MAX {
            return long("conditional jumps", self.conditions, CONDITIONS_MAX);
        }
        let steps = self.steps();
        if steps > STEPS_MAX {
            return long(
                "steps, its functions counted with each call,",
                steps,
                STEPS_MAX,
            );
        }
        for &(at, label) in &self.jumps {
            let distance = self.distance(at, label)?;
            let short = i16::try_from(distance).map_err(|_| EbpfError::TooDeep)?;
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
        Ok(Code {
            functions: self.functions(),
            instructions: self.code,
            relocations: self.relocations,
            notes: self.notes,
            steps,
        })
    }

    fn functions(&self) -> Vec<u32> {
        let labels = self
            .calls
            .iter()
            .filter_map(|(_, label)| self.labels.get(label.0));
        let starts = labels.filter_map(|place| u32::try_from(place.at?).ok());
        starts.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The code's length with that of each function once more for each call, as the verifier follows calls.
    fn steps(&self) -> usize {
        let functions = self.functions();
        let starts = functions.iter().filter_map(|&at| usize::try_from(at).ok());
        let bounds: Vec<usize> = [0]
            .into_iter()
            .chain(starts)
            .chain([self.code.len()])
            .collect();
        let own: Vec<usize> = bounds.windows(2).map(|range| range[1] - range[0]).collect();
        let within = |at: usize| bounds.partition_point(|&begin| begin <= at) - 1;
        let calls: Vec<(usize, usize)> = self
            .calls
            .iter()
            .filter_map(|&(at, label)| {
                let function = self.labels.get(label.0)?.at?;
                Some((within(at), within(function)))
            })
            .collect();
        let mut steps = own.clone();
        for _ in 0..FRAMES_MAX {
            let mut all = own.clone();
            for &(caller, function) in &calls {
                all[caller] += steps[function];
            }
            steps = all;
        }
        steps[0]
    }

    fn distance(&self, at: usize, label: Label) -> Result<i32, EbpfError> {
        let place = self.labels.get(label.0).and_then(|place| place.at);
        debug_assert!(place.is_some(), "a label that is not bound");
        let place = place.and_then(|place| i32::try_from(place).ok());
        let next = i32::try_from(at + 1).ok();
        place
            .zip(next)
            .map(|(place, next)| place - next)
            .ok_or(EbpfError::TooDeep)
    }
}

/// Functions call functions so deep at most (MAX_CALL_FRAMES).
const FRAMES_MAX: usize = 8;
