//! Ring buffers whose memory other processes write to during a read. Whatever they write, the
//! reader reads only within the ring buffers, and each read ends.

use super::{LEN, Program, device};
use fanpcap_ring::{Corrupt, Frame, Records};

/// The most reads until a snapshot is spent: each read takes a record's room, or the rest of a
/// lane.
const READS_MAX: usize = 2 * LEN / 8 + 4;

/// The actions of a test, which the test's bytes choose.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }

    fn short(&mut self) -> Option<u64> {
        self.take().map(|bytes| u16::from_le_bytes(bytes).into())
    }

    /// A position near the start, or any position.
    fn position(&mut self) -> Option<u64> {
        let near = self.short()?;
        match near {
            0xffff => self.take().map(u64::from_le_bytes),
            near => Some(near),
        }
    }

    fn write(&mut self, lane: &Program) -> Option<()> {
        match self.byte()? % 6 {
            0 => lane.set_producer(self.position()?),
            1 => lane.set_read(self.position()?),
            2 => lane.put(self.short()? & !7, &self.take::<4>()?),
            3 => lane.put(self.short()?, &self.take::<8>()?),
            // A record, and the producer's position after it.
            4 => {
                let (at, len) = (lane.producer(), self.short()? & 1023);
                lane.put(at, &u32::try_from(len).ok()?.to_le_bytes());
                lane.put(at.wrapping_add(8), &self.take::<8>()?);
                let captured = self.short()? & 1023;
                lane.put(at.wrapping_add(16), &captured.to_le_bytes());
                lane.set_producer(at.wrapping_add((len + 8).next_multiple_of(8)));
            }
            _ => lane.put(self.short()?, &[self.byte()?; 64]),
        }
        Some(())
    }
}

/// Uses all of a frame. Returns true if there is a frame, or garbage in place of one.
fn look(found: Result<Option<Frame<'_>>, Corrupt>) -> bool {
    if let Ok(Some(frame)) = &found {
        let sum: u64 = frame.data().iter().map(|&byte| u64::from(byte)).sum();
        assert!(frame.data().len() <= LEN && sum <= 255 * LEN as u64);
        let _ = (frame.link(), frame.tag_inside(), frame.filter());
        let _ = (frame.stamp(), frame.wire_len());
    }
    !matches!(found, Ok(None))
}

fn drain(records: &mut Records) {
    let mut reads = 0;
    while look(records.next_frame()) {
        reads += 1;
        assert!(reads <= READS_MAX, "no end");
    }
}

/// Writes and reads as `bytes` say.
pub fn run(bytes: &[u8]) {
    let mut script = Script(bytes);
    let count = 1 + usize::from(script.byte().unwrap_or(0) & 1);
    let (lanes, mut records) = device(count);
    while let Some(step) = script.byte() {
        let lane = &lanes[usize::from(step >> 4) % count];
        match step & 15 {
            0..8 => {
                if script.write(lane).is_none() {
                    break;
                }
            }
            8 => _ = records.open(),
            9..12 if records.is_open() => _ = look(records.next_frame()),
            12 => records.release(),
            _ => _ = records.is_ready(),
        }
    }
    records.open();
    if records.is_open() {
        drain(&mut records);
    }
    records.release();
}
