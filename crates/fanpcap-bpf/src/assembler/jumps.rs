//! Removes superfluous jumps.

use super::{Assembler, If, Instruction, JUMP, JUMP32, JUMP64, Label};

impl Assembler {
    /// Whether the last instruction is an unconditional jump to `label`, which is about to be
    /// bound.
    pub(super) fn ends_with_jump_to(&self, label: Label) -> bool {
        let last = self.code.len().wrapping_sub(1);
        self.jumps.last() == Some(&(last, label)) && self.ends_with_jump()
    }

    fn ends_with_jump(&self) -> bool {
        self.code.last() == Some(&Instruction::new(JUMP, 0, 0, 0, 0))
    }

    /// Merges two jumps at the end of the code, if the first is a conditional jump to `label` and
    /// the second is a jump to another label. `label` is about to be bound. The inverse condition
    /// then jumps to the other label, so the unconditional jump is superfluous. Returns whether the
    /// jumps were merged.
    pub(super) fn turn_around(&mut self, label: Label) -> bool {
        let last = self.code.len().wrapping_sub(1);
        let [.., (at, over), (jump, elsewhere)] = self.jumps[..] else {
            return false;
        };
        let goes_over = (at.wrapping_add(1), jump, over) == (last, last, label);
        if !goes_over || !self.ends_with_jump() || self.is_bound_at(last) {
            return false;
        }
        let Some(condition) = self.code.get_mut(at) else {
            return false;
        };
        let Some(contrary) = contrary(*condition) else {
            return false;
        };
        *condition = contrary;
        if let [.., condition, _] = &mut self.jumps[..] {
            condition.1 = elsewhere;
        }
        true
    }

    fn is_bound_at(&self, last: usize) -> bool {
        let places = self.bound.iter().rev().map_while(|label| {
            let place = self.labels.get(label.0)?;
            (place.at? >= last).then_some(place)
        });
        places
            .into_iter()
            .any(|place| place.at == Some(last) && place.used)
    }

    pub(super) fn leave_out_last(&mut self) {
        self.code.pop();
        self.jumps.pop();
        self.live = true;
        // Labels bound after the removed jump move to the end of the code.
        let here = self.code.len();
        for label in self.bound.iter().rev() {
            match self
                .labels
                .get_mut(label.0)
                .and_then(|place| place.at.as_mut())
            {
                Some(at) if *at > here => *at = here,
                _ => break,
            }
        }
        for (at, _) in self.notes.iter_mut().rev().take_while(|(at, _)| *at > here) {
            *at = here;
        }
    }
}

/// The inverse condition, if there is one.
fn contrary(condition: Instruction) -> Option<Instruction> {
    const OPERATION: u8 = 0xf0;
    let code = condition.code();
    if ![JUMP64, JUMP32].contains(&(code & 7)) {
        return None;
    }
    let pairs = [
        (If::Equal, If::NotEqual),
        (If::Greater, If::LessEqual),
        (If::Less, If::GreaterEqual),
    ];
    let operation = pairs.into_iter().find_map(|(one, other)| {
        let (one, other) = (one as u8, other as u8);
        match code & OPERATION {
            is if is == one => Some(other),
            is if is == other => Some(one),
            _ => None,
        }
    })?;
    Some(Instruction::new(
        code & !OPERATION | operation,
        condition.target(),
        condition.source(),
        condition.offset(),
        condition.immediate(),
    ))
}
