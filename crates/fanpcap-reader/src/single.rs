//! Reads a handle on one device, with the steps of the system's libpcap in the same order
//! (pcap-linux.c, `pcap_read_linux_mmap_v3` and `_v2`).

use crate::call::{Call, End, Packet, Pause, Wait};
use crate::control::Control;
use crate::lane::Intake;
use crate::rest::WINDOW;
use fanpcap_ring::{Blocks, CallRing, Frames, Layout, Pool};
use std::time::Duration;

#[inline]
pub(crate) fn next_of_blocks(
    blocks: &mut Blocks,
    intake: &mut Intake,
    control: &Control,
    call: &mut Call,
    packet: &mut Packet,
) -> Result<(), Pause> {
    loop {
        if !blocks.open() {
            // An application that waits in poll(2) may have been woken for group tasks.
            let may_be_woken = control.may_be_empty(call) && control.has_group_tasks();
            let may_be_empty = may_be_woken || !control.waits_for_ever();
            return Err(starve(blocks, intake, control, call, may_be_empty));
        }
        call.begun = true;
        let is_spent = blocks.is_spent();
        let goes_on = !call.is_done() && !control.is_broken();
        if goes_on && !is_spent {
            if intake.next_packet(blocks, control, packet)? {
                return Ok(());
            }
            continue;
        }
        // The block is read to its end, or the read must end.
        if is_spent {
            if let Some(closed) = blocks.release() {
                intake.pace.handle_block(closed);
            }
            intake.advance(blocks);
        }
        control.check_end(call)?;
    }
}

#[inline(never)]
pub(crate) fn next_of_frames(
    frames: &mut Frames,
    intake: &mut Intake,
    control: &Control,
    call: &mut Call,
    packet: &mut Packet,
) -> Result<(), Pause> {
    loop {
        let (is_held, is_ready) = (frames.is_held(), frames.is_ready());
        if is_held {
            frames.release();
            intake.advance(frames);
            control.check_end(call)?;
        } else if is_ready {
            call.begun = true;
            if intake.next_packet(frames, control, packet)? {
                return Ok(());
            }
        } else {
            return Err(starve(frames, intake, control, call, true));
        }
    }
}

/// Reads the next packet that the engine's library returns.
#[inline(never)]
pub(crate) fn next_of_calls(
    calls: &mut CallRing,
    intake: &mut Intake,
    control: &Control,
    call: &mut Call,
    packet: &mut Packet,
) -> Result<(), Pause> {
    loop {
        // The library takes its memory back when it returns the next packet, so the read ends
        // before that.
        if call.is_done() || control.is_broken() {
            control.check_end(call)?;
        }
        if !calls.is_ready() {
            return Err(starve(calls, intake, control, call, true));
        }
        call.begun = true;
        if intake.next_packet(calls, control, packet)? {
            return Ok(());
        }
    }
}

/// Reads the next record of the snapshot. The read ends with the snapshot, because otherwise a read
/// would not end while packets come faster than the application takes them.
#[inline(never)]
pub(crate) fn next_of_pool(
    pool: &mut Pool,
    intake: &mut Intake,
    control: &Control,
    call: &mut Call,
    packet: &mut Packet,
) -> Result<(), Pause> {
    loop {
        if !pool.is_open() {
            begin(pool, intake, control, call)?;
        }
        if call.is_done() || control.is_broken() {
            // The read ends before it releases the last delivered packet, and later packets may be
            // unread.
            control.announce_now();
            control.check_end(call)?;
        }
        let before = pool.taken();
        if intake.next_packet(pool, control, packet)? {
            call.begun = true;
            return Ok(());
        }
        // Count the read as begun only if it has taken a record: the snapshot may have held only
        // the packet that the previous call delivered.
        call.begun |= pool.taken() != before;
        if pool.is_spent() {
            end_snapshot(pool, intake);
            if call.delivered > 0 {
                announce(intake, control);
                return Err(End::Delivered(call.delivered).into());
            }
        }
    }
}

#[cold]
#[inline(never)]
fn end_snapshot(pool: &mut Pool, intake: &mut Intake) {
    if let Some(drained) = pool.release() {
        intake.pace.handle_snapshot(drained);
    }
    intake.advance(pool);
}

/// Takes a snapshot of the records, unless the reader rests first.
#[cold]
#[inline(never)]
fn begin(
    pool: &mut Pool,
    intake: &mut Intake,
    control: &Control,
    call: &mut Call,
) -> Result<(), Pause> {
    // An application that was woken by the descriptor does not expect the read to wait.
    if !call.begun && !pool.is_ready() && control.was_woken(call) {
        call.begun = true;
        return Err(Pause::Wait(Wait::Packets(Some(Duration::ZERO))));
    }
    if !call.begun && may_rest(control) && !pool.is_filled_to(4) {
        let rest = match control.is_asked() {
            true => intake.pace.rest_early(pool.unread()),
            false => intake.pace.rest(timeout_of(control)),
        };
        if let Some(rest) = rest {
            intake.handle_empty(pool.taken());
            return Err(Pause::Wait(Wait::Rest(rest)));
        }
    }
    if pool.open() {
        return Ok(());
    }
    let may_be_empty = control.may_be_empty(call) || !control.waits_for_ever();
    let pause = starve(pool, intake, control, call, may_be_empty);
    if matches!(pause, Pause::End(_)) {
        announce(intake, control);
    }
    Err(pause)
}

/// Sets the devices and the time for which the application waits in poll(2), after a read that left
/// nothing unread.
fn announce(intake: &mut Intake, control: &Control) {
    if control.is_asked() {
        let (due, after) = match intake.pace.expect(WINDOW) {
            Some((due, after)) => (Some(due), after),
            None => (None, 1),
        };
        control.announce_after(u64::MAX, due, after);
    }
}

/// Whether the reader may rest while a busy ring fills.
fn may_rest(control: &Control) -> bool {
    !control.is_nonblocking() && !control.is_net_down()
}

fn timeout_of(control: &Control) -> Option<Duration> {
    control.timeout.filter(|timeout| !timeout.is_zero())
}

/// Handles an empty ring. A read that has begun ends if it has delivered a packet, or if
/// `may_be_empty` is set. Otherwise the read waits.
#[cold]
#[inline(never)]
fn starve(
    ring: &impl Layout,
    intake: &mut Intake,
    control: &Control,
    call: &Call,
    may_be_empty: bool,
) -> Pause {
    let taken = ring.taken();
    let next = intake.handle_empty(taken);
    let may_end = call.delivered > 0 || may_be_empty;
    if call.begun && may_end && !control.must_fail() {
        return End::Delivered(call.delivered).into();
    }
    let rest = intake.pace.rest(timeout_of(control));
    let rest = rest.filter(|_| may_rest(control));
    if rest.is_none() && !control.is_nonblocking() {
        intake.handle_idle(taken);
    }
    Pause::Wait(rest.map_or(Wait::Packets(next), Wait::Rest))
}
