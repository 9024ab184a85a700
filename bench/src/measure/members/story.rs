//! Which member got each frame and has each flow, by the members' records (`c/members.c`).

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Result, ensure};

/// Frame `number` belongs to flow `number % FLOWS`.
pub(super) const FLOWS: u32 = 4096;

/// A packet that a member has got.
#[derive(Clone, Copy, Debug)]
struct Got {
    number: u32,
    /// Microseconds since 1970.
    arrived_us: u64,
    /// Microseconds from the packet's arrival until the member got the packet.
    waited_us: u32,
}

/// All members' packets.
#[derive(Debug)]
pub(super) struct Story(Vec<Vec<Got>>);

/// The member that has each flow.
pub(super) type Owners = Vec<Option<usize>>;

impl Story {
    /// Reads the members' files.
    pub(super) fn read<'a>(files: impl Iterator<Item = &'a Path>) -> Result<Self> {
        files.map(read).collect::<Result<_>>().map(Self)
    }

    /// The member that has each flow in a phase. The phase is in microseconds since 1970.
    pub(super) fn owners(&self, phase: &Range<u64>) -> Owners {
        let mut owners = vec![None; FLOWS as usize];
        for (member, all) in self.0.iter().enumerate() {
            for got in all.iter().filter(|got| phase.contains(&got.arrived_us)) {
                owners[(got.number % FLOWS) as usize] = Some(member);
            }
        }
        owners
    }

    /// How many of the frames no member got. Fails if a frame was delivered twice.
    pub(super) fn lost(&self, frames: u64) -> Result<u64> {
        let mut times = vec![0_u8; usize::try_from(frames)?];
        for got in self.0.iter().flatten() {
            if let Some(times) = times.get_mut(got.number as usize) {
                *times = times.saturating_add(1);
            }
        }
        let doubled = times.iter().filter(|times| **times > 1).count();
        ensure!(doubled == 0, "{doubled} packets were delivered twice");
        Ok(times.iter().filter(|times| **times == 0).count() as u64)
    }

    /// Microseconds from `since_us` until the first packet of a member's former flows came to
    /// another member.
    pub(super) fn served_after(
        &self,
        owners: &Owners,
        member: usize,
        since_us: u64,
    ) -> Option<u64> {
        let others = self.0.iter().enumerate().filter(|(it, _)| *it != member);
        let got = others.flat_map(|(_, all)| all);
        let of_its = got.filter(|got| owners[(got.number % FLOWS) as usize] == Some(member));
        let at = of_its.map(|got| got.arrived_us + u64::from(got.waited_us));
        at.filter(|at| *at >= since_us)
            .min()
            .map(|at| at - since_us)
    }
}

/// The percentage of flows that have another owner now. Includes only flows whose former owner
/// `counts` accepts.
pub(super) fn moved(before: &Owners, now: &Owners, counts: impl Fn(usize) -> bool) -> f64 {
    let flows = before.iter().zip(now);
    let flows = flows.filter(|(before, _)| before.is_some_and(&counts));
    let (all, moved) = flows.fold((0_u32, 0_u32), |(all, moved), (before, now)| {
        (all + 1, moved + u32::from(before != now))
    });
    100.0 * f64::from(moved) / f64::from(all.max(1))
}

/// The arrival time of the last packet in a member's records, in microseconds since 1970; 0 if
/// there is no packet.
pub(super) fn last_arrived_us(file: &Path) -> Result<u64> {
    let file = File::open(file)?;
    let mut word = [0; 8];
    file.read_exact_at(&mut word, 0)?;
    let Some(last) = u64::from_ne_bytes(word).checked_sub(1) else {
        return Ok(0);
    };
    file.read_exact_at(&mut word, HEAD + last * RECORD)?;
    Ok(u64::from_ne_bytes(word))
}

/// Bytes before the first record, and of a record.
const HEAD: u64 = 8;
const RECORD: u64 = 16;

/// All packets that a member has recorded, including the packet in whose callback the member was
/// killed.
fn read(file: &Path) -> Result<Vec<Got>> {
    let file = File::open(file)?;
    let mut all = Vec::new();
    let mut record = [0; 16];
    while file
        .read_exact_at(&mut record, HEAD + all.len() as u64 * RECORD)
        .is_ok()
    {
        let got = Got {
            arrived_us: u64::from_ne_bytes(record[..8].try_into()?),
            number: u32::from_ne_bytes(record[8..12].try_into()?),
            waited_us: u32::from_ne_bytes(record[12..].try_into()?),
        };
        if got.arrived_us == 0 {
            break;
        }
        all.push(got);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn got(number: u32, arrived_us: u64) -> Got {
        Got {
            number,
            arrived_us,
            waited_us: 5,
        }
    }

    #[test]
    fn flows_move_and_packets_are_lost_by_what_was_recorded() {
        let story = Story(vec![vec![got(0, 10), got(1, 11)], vec![got(FLOWS, 30)]]);
        let (before, now) = (story.owners(&(0..20)), story.owners(&(20..40)));
        assert_eq!((before[0], before[1], now[0]), (Some(0), Some(0), Some(1)));
        assert_eq!(moved(&before, &now, |_| true), 100.0);
        assert_eq!(
            story.lost(u64::from(FLOWS) + 1).unwrap(),
            u64::from(FLOWS) - 2
        );
        assert_eq!(story.served_after(&before, 0, 20), Some(15));
        let twice = Story(vec![vec![got(0, 1)], vec![got(0, 2)]]);
        assert!(twice.lost(1).is_err());
    }
}
