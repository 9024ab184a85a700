//! A group under load. Members join and end; the time between two such changes is a phase.

mod draining;
mod relinking;

use std::ops::Range;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fanpcap_netns::remains::on_wire_that_ends_clean;
use fanpcap_netns::{DEVICE, Wire, on_wire};
use fanpcap_testkit::await_for;
use fanpcap_testkit::await_for::{LIMIT, within};

use super::change::{Change, SERVED_WITHIN};
use super::load::{self, FLOWS, Load, Sent, print};
use super::recorder::{End, Recorder};
use super::records::{self, now_us};
use super::story::Story;
use super::table::{BUCKETS, Owners, Table};

/// The least number of frames of each flow in a phase.
const ROUNDS: u64 = 3;

/// After a change of the table, the packets that were under way during the change arrive within
/// this time.
const SETTLED: Duration = Duration::from_millis(30);

/// The time that the group waits for a member's successor after it has noticed the member's end.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// The number of times that a test is tried if a busy machine keeps successors from joining in
/// time.
const ATTEMPTS: usize = 5;

/// The argument that puts a recorder's handle on the XDP engine.
pub(super) const ON_XDP: &str = "driver=xdp";

/// Runs a test with a wire. If the members' arguments `how` select the XDP engine, also checks that
/// the members leave nothing behind.
pub(super) fn on_wire_of<T: Send>(
    how: &[&str],
    test: impl FnOnce(&Wire) -> Result<T> + Send,
) -> Result<T> {
    match how.contains(&ON_XDP) {
        true => on_wire_that_ends_clean(1, test),
        false => on_wire(1, test),
    }
}

/// Repeats a test until it returns true: then its successors joined within the grace period
/// ([`Scene::end_and_succeed`]).
pub(super) fn until_in_time(test: impl Fn() -> Result<bool>) -> Result<()> {
    for _ in 0..ATTEMPTS {
        if test()? {
            return Ok(());
        }
    }
    bail!("no successor came within {GRACE:?}, {ATTEMPTS} times")
}

/// A group of members that record their packets.
pub(super) struct Scene<'a> {
    wire: &'a Wire,
    device: &'static str,
    group: u16,
    how: &'static [&'static str],
    members: Vec<Recorder>,
    table: Table,
    /// The slot that owns each bucket, since the last change.
    owners: Owners,
    phases: Vec<Range<u64>>,
    changes: Vec<Change>,
    /// The reason why a packet may be recorded after a later packet of its flow; `None` if this
    /// must not happen. It happens if other members get a member's share before that member's ring
    /// has been read.
    late: Option<&'static str>,
}

impl<'a> Scene<'a> {
    /// Starts the members one by one; `how` has the arguments of `c/records.c`.
    pub(super) fn start(
        wire: &'a Wire,
        group: u16,
        count: usize,
        how: &'static [&'static str],
    ) -> Result<Self> {
        Self::start_on(wire, DEVICE, group, count, how)
    }

    /// Starts the members on a device, or on the devices of two wires, `vb^vd`.
    pub(super) fn start_on(
        wire: &'a Wire,
        device: &'static str,
        group: u16,
        count: usize,
        how: &'static [&'static str],
    ) -> Result<Self> {
        let first = Recorder::start(wire, device, group, how)?;
        let table = Table::of(first.pid()?)?;
        let owners = table.owners();
        let mut scene = Self {
            wire,
            device,
            group,
            how,
            members: vec![first],
            table,
            owners,
            phases: Vec::new(),
            changes: Vec::new(),
            late: None,
        };
        scene.members[0].slot = scene.owners.shares().keys().next().copied();
        for _ in 1..count {
            scene.join()?;
        }
        Ok(scene)
    }

    /// Waits for the end of a phase, which is a time without changes. At its end the members have
    /// read all the phase's packets, so that no other member takes packets over later.
    pub(super) fn phase(&mut self) -> Result<()> {
        let phase = phase_of(self.device, &self.members, self.is_sticky())?;
        self.phases.push(phase);
        Ok(())
    }

    /// Waits for the end of a phase, and checks that no bucket has another owner than in the
    /// previous phase.
    pub(super) fn still_phase(&mut self, what: &str) -> Result<()> {
        let at = self.phases.len();
        self.phase()?;
        let moved = self.owners.moved(&self.table.owners());
        ensure!(moved.is_empty(), "{what}: {} buckets moved", moved.len());
        self.note_nothing(what, at);
        Ok(())
    }

    /// Starts a member, and waits until it has its share.
    pub(super) fn join(&mut self) -> Result<()> {
        self.start_another(self.how)?;
        self.await_share_of_last()
    }

    /// Starts a member with the name `name`, and waits until it has its share.
    pub(super) fn join_as(&mut self, name: &str) -> Result<()> {
        self.start_another(&[self.how, &[name]].concat())?;
        self.await_share_of_last()
    }

    /// Starts a member, and does not wait for its share.
    pub(super) fn start_another(&mut self, how: &[&str]) -> Result<()> {
        let member = Recorder::start(self.wire, self.device, self.group, how)?;
        self.members.push(member);
        Ok(())
    }

    /// Waits until the newest member has its share of the buckets. Checks that no bucket has moved
    /// to another member.
    pub(super) fn await_share_of_last(&mut self) -> Result<()> {
        let shares = self.owners.shares();
        let count = shares.len() + 1;
        let even = [BUCKETS / count, BUCKETS.div_ceil(count)];
        let moved = self.await_move("the newcomer's share", |owners| {
            let shares = owners.shares();
            shares.len() == count && shares.values().all(|share| even.contains(share))
        })?;
        let now = self.owners.shares();
        let new = now.keys().copied().find(|slot| !shares.contains_key(slot));
        let is_right = moved.iter().all(|(_, to)| Some(*to) == new);
        ensure!(
            is_right && even.contains(&moved.len()),
            "{shares:?}, {now:?}"
        );
        let member = self.members.len() - 1;
        self.members[member].slot = new;
        self.note(format!("join as one of {count}"), member, moved.len(), None);
        Ok(())
    }

    /// Ends a member. Only the member's own buckets may move.
    pub(super) fn end(&mut self, member: usize, how: End) -> Result<()> {
        let (slot, shares) = (self.slot(member)?, self.owners.shares().len());
        let ended_us = self.members[member].end(how)?;
        let moved = self.moved_from(slot)?;
        let what = format!("{how:?} in slot {slot} of {shares}");
        self.note(what, member, moved, Some((how, ended_us)));
        Ok(())
    }

    /// Waits until a slot owns no bucket. Returns how many buckets moved, all of them from this
    /// slot.
    fn moved_from(&mut self, slot: u8) -> Result<usize> {
        let before = self.owners.shares();
        let moved = self.await_move("others to have its share", |owners| {
            !owners.shares().contains_key(&slot)
        })?;
        let is_right = moved.iter().all(|(from, _)| *from == slot);
        ensure!(is_right, "{before:?}, {:?}", self.owners.shares());
        Ok(moved.len())
    }

    /// A named member ends, and its successor joins. The successor must get the member's buckets.
    /// No other flow may move, not even before the successor joins. Returns false if the successor
    /// came after the grace period on a busy machine.
    pub(super) fn end_and_succeed(&mut self, member: usize, how: End, name: &str) -> Result<bool> {
        let old = self.slot(member)?;
        let before = self.owners.clone();
        let ended_us = self.members[member].end(how)?;
        let ended = Instant::now();
        self.start_another(&[self.how, &[name]].concat())?;
        let came = ended.elapsed();
        let moved = self.await_move("the successor's share", |owners| {
            !owners.shares().contains_key(&old)
        })?;
        let new = moved.first().context("nothing moved")?.1;
        let is_right = moved.iter().all(|step| *step == (old, new));
        let has_had = before.shares().contains_key(&new);
        if has_had && came >= GRACE {
            return Ok(false);
        }
        ensure!(
            is_right && !has_had,
            "the successor came after {came:?}: {:?}",
            self.owners.shares()
        );
        let successor = self.members.len() - 1;
        self.members[successor].slot = Some(new);
        let what = format!("{how:?} in slot {old}, and succeeded in slot {new}");
        self.note(what, member, moved.len(), Some((how, ended_us)));
        if let Some(change) = self.changes.last_mut() {
            change.successor = Some(successor);
        }
        Ok(true)
    }

    /// Keeps a member from reading: if `is_held`, its process ends and a child holds its
    /// descriptors; otherwise the member is stopped. Then the load pauses until other members have
    /// the member's share. No other buckets may move.
    pub(super) fn silence(&mut self, member: usize, load: &mut Load, is_held: bool) -> Result<()> {
        let (slot, begun) = (self.slot(member)?, Instant::now());
        if is_held {
            self.late = Some("its child kept the ring long after other members had its share");
        }
        let recorder = &mut self.members[member];
        let ended = match is_held {
            true => Some((End::Held, recorder.end(End::Held)?)),
            false => recorder.signal("STOP").map(|()| None)?,
        };
        // Wait so that packets which the member does not read collect in its ring.
        thread::sleep(SETTLED);
        load.pause()?;
        let moved = self.await_move("others to have its share", |owners| {
            !owners.shares().contains_key(&slot)
        })?;
        ensure!(moved.iter().all(|(from, _)| *from == slot), "{moved:?}");
        self.members[member].slot = None;
        let after = begun.elapsed();
        print(&format!("other members have the share after {after:?}"));
        load.go_on(self.device)?;
        let what = format!("silence in slot {slot}");
        self.note(what, member, moved.len(), ended);
        Ok(())
    }

    /// Waits for a change of the table. Returns the old and the new slot of each bucket that has
    /// moved.
    fn await_move(
        &mut self,
        what: &str,
        is_done: impl Fn(&Owners) -> bool,
    ) -> Result<Vec<(u8, u8)>> {
        let awaited = await_for(what, LIMIT, || {
            let owners = self.table.owners();
            let is_done = is_done(&owners) && self.table.is_followed();
            Ok(is_done.then_some(owners))
        });
        let shares = || format!("shares {:?}", self.table.owners().shares());
        let owners = awaited.with_context(shares)?;
        let moved = self.owners.moved(&owners);
        self.owners = owners;
        Ok(moved)
    }

    fn note(&mut self, what: String, member: usize, buckets: usize, end: Option<(End, u64)>) {
        if self.phases.is_empty() {
            return;
        }
        self.changes.push(Change {
            what,
            phase: self.phases.len(),
            member: Some(member),
            buckets,
            successor: None,
            is_sticky: self.is_sticky(),
            end,
            served_within: within(SERVED_WITHIN),
        });
    }

    /// Whether flows stay at their member when their bucket moves.
    fn is_sticky(&self) -> bool {
        self.how.iter().any(|word| word.contains("+sticky"))
    }

    /// Records that no member joined or ended before a phase.
    fn note_nothing(&mut self, what: &str, phase: usize) {
        self.changes.push(Change {
            what: what.to_owned(),
            phase,
            member: None,
            buckets: 0,
            successor: None,
            is_sticky: self.is_sticky(),
            end: None,
            served_within: SERVED_WITHIN,
        });
    }

    /// A member, by its number in the order of joining.
    pub(super) fn member(&mut self, member: usize) -> &mut Recorder {
        &mut self.members[member]
    }

    /// The slot of a member.
    pub(super) fn slot(&self, member: usize) -> Result<u8> {
        self.members[member].slot.context("a member without a slot")
    }

    /// Ends the load and waits until its last frame was recorded. Checks that each frame was
    /// recorded once, in spite of all changes. Checks that only flows of members that joined or
    /// ended have moved.
    pub(super) fn finish(self, load: Load) -> Result<()> {
        let sent = load.stop()?;
        self.check(&sent)
    }

    /// Does the checks of [`Scene::finish`] if the load has already ended. `sent` are the frames
    /// that the load has sent.
    pub(super) fn check(mut self, sent: &Sent) -> Result<()> {
        let files: Vec<PathBuf> = self.members.iter().map(|it| it.file.clone()).collect();
        let await_count = |wanted: usize, limit| {
            await_for("the last frame", limit, || {
                let counts = files.iter().map(|file| records::count(file));
                let count = counts.sum::<Result<u64>>()?;
                Ok((count >= wanted as u64).then_some(()))
            })
        };
        // A member that was killed while it handled a packet has not recorded this packet.
        // `Story::in_hand` returns the frames that may be missing for this reason.
        let _ = await_count(sent.count().saturating_sub(self.members.len()), LIMIT);
        let _ = await_count(sent.count(), Duration::from_secs(3));
        self.members.iter_mut().try_for_each(Recorder::stop)?;
        let all = files.iter().map(|file| records::read(file));
        let story = Story::new(sent, all.collect::<Result<_>>()?, &self.phases);
        self.changes.iter().for_each(|change| change.tell(&story));
        let in_hand = self.changes.iter().filter_map(|it| it.in_hand(&story));
        story.ensure_each_once(&in_hand.collect())?;
        story.ensure_flows_whole()?;
        match self.late {
            Some(why) => print(&format!("order is not checked: {why}")),
            None => story.ensure_in_order()?,
        }
        let mut changes = self.changes.iter();
        changes.try_for_each(|change| change.check(&story))
    }
}

/// Waits for the end of a phase and returns its time, in microseconds since 1970. At the end, these
/// members have read the phase's packets. In a sticky group, the function does not wait for a
/// member that has recorded nothing, because a newcomer may get no packet.
pub(super) fn phase_of(device: &str, members: &[Recorder], is_sticky: bool) -> Result<Range<u64>> {
    thread::sleep(SETTLED);
    let from = now_us();
    let received = || load::received(device);
    let before = received()?;
    await_for("frames of each flow", LIMIT, || {
        let count = received()? - before;
        Ok((count >= ROUNDS * u64::from(FLOWS)).then_some(()))
    })?;
    let until = now_us();
    let readers = members.iter().enumerate();
    for (number, reader) in readers.filter(|(_, it)| it.reads()) {
        let what = format!("member {number} to read the phase");
        await_for(&what, LIMIT, || {
            let last = records::last_arrived_us(&reader.file)?;
            let has_flows = last != 0 || !is_sticky;
            Ok((last >= until || !has_flows).then_some(()))
        })?;
    }
    Ok(from..until)
}
