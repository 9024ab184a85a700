//! Changes of tables into which another member has written arbitrary values. Even then no change
//! may panic, or make many calls to the kernel. The fuzz target `tables` and a test use this.

use super::memory::Memory;
use super::{KernelOps, Slots, due_ns};
use crate::table::{FinalCounters, Row, at};
use fanpcap_buckets::Slot;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

/// How many calls to the kernel one change may make.
const CALLS_MAX: u64 = 1000;

const CHANGES: usize = 12;

/// Makes changes of a table, chosen by `bytes`. When the bytes are used up, a random generator
/// makes the choices, with the bytes as its seed.
///
/// # Panics
/// If a change panics or makes too many calls to the kernel.
pub fn run(bytes: &[u8]) {
    let mut choice = Choice {
        bytes,
        state: bytes.len() as u64,
    };
    let has_classes = choice.below(2) == 0;
    let (memory, lead) = (Memory::new(has_classes), Memory::new(has_classes));
    let count = match choice.below(4) {
        0 => 2 * at::END as u64,
        _ => 1 + choice.below(40),
    };
    for memory in [&memory, &lead] {
        scribble(&mut choice, memory, count);
    }
    let mut kernel = Hostile {
        choice: Choice {
            bytes: &[],
            state: choice.next(),
        },
        calls: 0,
    };
    for _ in 0..CHANGES {
        let before = kernel.calls;
        change(&mut choice, &memory, &lead, &mut kernel);
        assert!(kernel.calls - before < CALLS_MAX, "{} calls", kernel.calls);
    }
}

/// One change, by a member or by a process that writes to the table without its lock.
fn change(choice: &mut Choice<'_>, memory: &Memory, lead: &Memory, kernel: &mut Hostile<'_>) {
    let (kind, own) = (choice.below(13), choice.below(8));
    let lead = (choice.below(3) == 0).then(|| lead.table());
    let mut slots = Slots::new(memory.table(), kernel).behind(lead);
    // Ignore the result: for a hostile table, both success and an error are right.
    let _ = match kind {
        0 => slots.repair().is_ok(),
        1 => slots.begin_share(own).is_ok(),
        2 => slots.depart(own).is_ok(),
        3 => slots.take_over(own).is_ok(),
        4 => slots.look_for_silent(own).is_ok(),
        5 => {
            slots.level(own);
            true
        }
        6 => slots.follow().is_ok(),
        7 => slots.note_downs(own, choice.byte()).is_ok(),
        8 => slots.vacate(own, &gone(choice)).is_ok(),
        9 => slots.weigh(own, choice.weight()).is_ok(),
        10 => {
            let chosen = (choice.below(2) == 0).then(|| Slot(choice.byte()));
            slots.join(&newcomer(choice, own), chosen).is_ok()
        }
        11 => {
            let table = memory.table();
            let _ = (
                table.gone(),
                table.ledger(),
                table.leveled(),
                table.device_groups(),
            );
            let _ = due_ns(table, own, choice.odd());
            true
        }
        _ => {
            let count = 1 + choice.below(40);
            scribble(choice, memory, count);
            true
        }
    };
}

fn gone(choice: &mut Choice<'_>) -> FinalCounters {
    FinalCounters {
        members: choice.odd(),
        received: choice.odd(),
        dropped: choice.odd(),
        taken: choice.odd(),
        inherited: choice.odd(),
        unread: choice.odd(),
        unknown: choice.odd(),
    }
}

fn newcomer(choice: &mut Choice<'_>, own: u64) -> Row {
    Row {
        cookie: own,
        member: own,
        weight: choice.weight(),
        class: choice.byte() % 64,
        name: choice.below(3),
        ..Row::default()
    }
}

/// Writes `count` times to words of the table that `choice` chooses.
fn scribble(choice: &mut Choice<'_>, memory: &Memory, count: u64) {
    let table = memory.table();
    for _ in 0..count {
        match choice.below(10) {
            0 => choice
                .of(table.default.buckets)
                .store(choice.byte(), Relaxed),
            1 => {
                table.default.rank_count[0].store(choice.short(), Relaxed);
                choice.of(table.default.ranks).store(choice.byte(), Relaxed);
            }
            2 => choice.of(table.sticky_ids).store(choice.odd(), Relaxed),
            3 => choice.of(table.holders).store(choice.odd(), Relaxed),
            4 => choice.of(table.loads).store(choice.short(), Relaxed),
            5 if !table.classes.bytes.is_empty() => {
                choice.of(table.classes.bytes).store(choice.byte(), Relaxed);
                choice
                    .of(table.classes.numbers)
                    .store(choice.short(), Relaxed);
            }
            6 => likely_row(choice, memory),
            7 => {
                table.set(at::POSITIONS, choice.odd());
                table.set(at::JOURNAL, choice.below(8) | choice.next() & 0x00ff_ff00);
                table.set(at::BALANCE, choice.below(4));
            }
            _ => table.set(choice.index(at::END), choice.odd()),
        }
    }
}

/// Writes a row with values that are likely in a member's row.
fn likely_row(choice: &mut Choice<'_>, memory: &Memory) {
    let table = memory.table();
    let begin = at::ROWS + 8 * choice.index(8);
    table.set(begin, choice.below(8) | choice.next() & 0xffff_ff00);
    for word in [1, 2, 3, 6, 7] {
        table.set(begin + word, choice.below(8));
    }
    table.set(begin + 4, choice.odd());
    table.set(begin + 5, choice.below(3));
}

/// Makes choices from the bytes, and after them from a random generator (splitmix64).
struct Choice<'a> {
    bytes: &'a [u8],
    state: u64,
}

impl Choice<'_> {
    fn next(&mut self) -> u64 {
        let taken = self.bytes.iter().take(8);
        let number = taken.fold(0, |number, &byte| (number << 8) | u64::from(byte));
        self.bytes = self.bytes.get(8..).unwrap_or_default();
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ number;
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).unwrap_or(0)
    }

    fn of<'t, T>(&mut self, all: &'t [T]) -> &'t T {
        &all[self.index(all.len())]
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    fn weight(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn short(&mut self) -> u32 {
        let [a, b, c, d, ..] = self.odd().to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    /// A number: small, at an end of the range, a power of two, or any.
    fn odd(&mut self) -> u64 {
        match self.below(6) {
            0 => self.below(8),
            1 => self.below(300),
            2 => u64::MAX - self.below(4),
            3 => 1 << self.below(64),
            _ => self.next(),
        }
    }

    fn cookies(&mut self) -> Vec<u64> {
        (0..self.below(6)).map(|_| self.below(8)).collect()
    }
}

/// A kernel whose functions return any values, whatever happened before.
struct Hostile<'a> {
    choice: Choice<'a>,
    calls: u64,
}

impl Hostile<'_> {
    fn call(&mut self) -> io::Result<()> {
        self.calls += 1;
        match self.choice.below(20) {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    }
}

impl KernelOps for Hostile<'_> {
    type Refused = ();

    fn now_ns(&self) -> u64 {
        self.choice.state
    }

    fn deposit(&mut self) -> io::Result<()> {
        self.call()
    }

    fn enter(&mut self, _: Slot) -> Result<(), ()> {
        self.call().map_err(drop)
    }

    fn leave(&mut self, _: Slot) -> io::Result<()> {
        self.call()
    }

    fn has_entered(&mut self, _: u64) -> io::Result<Option<bool>> {
        let answers = [None, Some(true), Some(false)];
        Ok(*self.choice.of(&answers))
    }

    fn withdraw(&mut self, _: u64, _: u64) -> io::Result<()> {
        self.call()
    }

    fn cut(&mut self, _: u64) -> io::Result<()> {
        self.call()
    }

    fn living(&mut self) -> io::Result<Vec<u64>> {
        Ok(self.choice.cookies())
    }

    fn settle(&mut self) -> io::Result<()> {
        self.call()
    }

    fn told(&mut self) -> io::Result<Vec<u64>> {
        Ok(self.choice.cookies())
    }

    fn order(&mut self) -> io::Result<Option<Vec<u64>>> {
        let length = self.choice.below(260);
        Ok((length < 259).then(|| (0..length).collect()))
    }

    fn refuse(&mut self, _: u64) -> io::Result<()> {
        self.call()
    }

    fn is_half_full(&mut self, _: u64) -> bool {
        self.choice.below(2) == 0
    }

    fn unread(&mut self) -> io::Result<Vec<(u64, u64)>> {
        let cookies = self.choice.cookies().into_iter();
        Ok(cookies.map(|cookie| (cookie, cookie)).collect())
    }

    fn borrow(&mut self, _: u64) -> io::Result<bool> {
        Ok(self.choice.below(2) == 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn any_table_is_changed_without_a_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
        ) {
            super::run(&bytes);
        }
    }
}
