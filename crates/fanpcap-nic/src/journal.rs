//! The journal of a device's changes. Each change is written down before it is made. A change is
//! undone when no owner wants it any more, but only if the device still has the value that was set.

pub mod entry;
pub mod place;
#[cfg(test)]
mod tests;

use crate::device::Device;
use crate::error::DeviceError;
use crate::knob::{Knob, Knobs};
use entry::{Change, Content};
use place::Guard;
pub(crate) use place::change_irqbalance;
pub use place::{Hold, Place, all_changes, forget, journals};

/// The journal of a device, and the right to change the device and the journal.
#[derive(Debug)]
pub struct Journal {
    place: Place,
    guard: Guard,
    content: Content,
}

/// The time for which a change stays.
#[derive(Clone, Copy, Debug)]
pub enum Wish<'a> {
    /// Until the owner releases the change or dies.
    While(&'a Hold),
    /// Until the user asks for the old value.
    Stays,
}

/// A change that was undone, or that should have been undone.
#[derive(Debug)]
pub struct Undone {
    /// The setting.
    pub knob: Knob,
    /// The value before the change.
    pub old: String,
    /// The value that was set.
    pub new: String,
    /// The result.
    pub outcome: Outcome,
}

/// The result of putting back a value.
#[derive(Debug)]
pub enum Outcome {
    /// The device has the old value again.
    Restored,
    /// The device had the old value already.
    WasBack,
    /// Another value has been set since. That value stays.
    Foreign {
        /// The present value.
        is: String,
    },
    /// A later change of the same setting will put back the old value.
    Later,
    /// The device or the setting is gone.
    Gone,
    /// Putting back failed. The journal keeps the change.
    Failed(DeviceError),
}

impl Journal {
    /// Waits until this process may change the device, and reads the device's journal.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn open(device: &Device) -> Result<Self, DeviceError> {
        // Another process may remove the new directory while it is still empty. In that case
        // opening the lock file fails with `ENOENT`.
        let is_removed = |error: &DeviceError| error.errno() == libc::ENOENT;
        for _ in 1..ATTEMPTS {
            match Self::at(Place::of(device)?) {
                Err(error) if is_removed(&error) => {}
                opened => return opened,
            }
        }
        Self::at(Place::of(device)?)
    }

    fn at(place: Place) -> Result<Self, DeviceError> {
        let guard = place.take()?;
        let mut content = place.read()?;
        if !content.about.is_of(&place.about) {
            // The journal belongs to a former device, whose values are gone with that device.
            content.changes.clear();
        }
        content.about = place.about.clone();
        for change in &mut content.changes {
            change.owners.retain(|&owner| guard.lives(owner));
        }
        Ok(Self {
            place,
            guard,
            content,
        })
    }

    /// The changes in the journal, oldest first, each with its living owners only.
    pub fn changes(&self) -> &[Change] {
        &self.content.changes
    }

    /// Makes a hold for a new owner, whose changes last at most as long as the calling process.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn hold(&self) -> Result<Hold, DeviceError> {
        self.place.hold(&self.content)
    }

    /// Writes the change into the journal, then sets the value. Returns false, and sets nothing, if
    /// the setting has the value already.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn set(
        &mut self,
        knobs: &dyn Knobs,
        wish: Wish<'_>,
        knob: &Knob,
        wanted: &str,
    ) -> Result<bool, DeviceError> {
        let wanted = knobs.complete(knob, wanted)?;
        let is = knobs.read(knob)?;
        let last = self.content.changes.iter().rposition(|it| it.knob == *knob);
        if let Some(at) = last {
            self.ensure_agreed(at, wish, &wanted)?;
        }
        let has_value = is == wanted;
        if has_value {
            return self.join(last, wish, knob, wanted).map(|()| false);
        }
        let mut change = Change::new(knob.clone(), is, wanted.clone());
        change.lost = values(knobs, &knobs.dropped_with(knob));
        change.add(wish);
        self.push(change)?;
        self.make(knobs, knob, &wanted).map(|()| true)
    }

    /// Writes down that an owner wants a value that the device has already.
    fn join(
        &mut self,
        last: Option<usize>,
        wish: Wish<'_>,
        knob: &Knob,
        value: String,
    ) -> Result<(), DeviceError> {
        match (last, wish) {
            (Some(at), _) if self.content.changes[at].new == value => {
                self.content.changes[at].add(wish);
                self.write()
            }
            // The device has the value already, so there will be nothing to undo.
            (_, Wish::Stays) => Ok(()),
            // Write the owner's wish into the journal, because other processes must not set another
            // value.
            (_, Wish::While(_)) => {
                let mut change = Change::new(knob.clone(), value.clone(), value);
                change.add(wish);
                self.push(change)
            }
        }
    }

    fn push(&mut self, change: Change) -> Result<(), DeviceError> {
        self.content.changes.push(change);
        self.write().inspect_err(|_| _ = self.content.changes.pop())
    }

    /// Sets the value of the journal's last change, and checks the result. On an error, puts the
    /// old value back.
    fn make(&mut self, knobs: &dyn Knobs, knob: &Knob, wanted: &str) -> Result<(), DeviceError> {
        step();
        let written = knobs.write(knob, wanted);
        step();
        let problem = match (written, knobs.read(knob)) {
            (Ok(()), Ok(is)) if is == wanted => return Ok(()),
            (Ok(()), Ok(is)) => DeviceError::Differs { is },
            (Err(error), _) | (Ok(()), Err(error)) => error,
        };
        let Some(change) = self.content.changes.last() else {
            return Err(problem);
        };
        // If the old value can't be put back, the journal keeps the change for a later attempt.
        if put_back(knobs, knob, &change.old).is_ok() {
            put_lost_back(knobs, &change.lost);
            self.content.changes.pop();
            self.write()?;
        }
        Err(problem)
    }

    /// Checks that no other owner wants another value.
    fn ensure_agreed(&self, at: usize, wish: Wish<'_>, wanted: &str) -> Result<(), DeviceError> {
        let change = &self.content.changes[at];
        let is_other = |owner: &&entry::Owner| match wish {
            Wish::While(hold) => hold.owner.number != owner.number,
            // A call by an application overrides the configuration of that application.
            Wish::Stays => owner.pid != std::process::id(),
        };
        let other = change.owners.iter().find(is_other);
        match other.filter(|_| change.new != wanted) {
            None => Ok(()),
            Some(owner) => Err(DeviceError::Disagrees {
                pid: owner.pid,
                value: change.new.clone(),
            }),
        }
    }

    /// Merges the last two changes of a setting into one, if both belong to one owner alone and no
    /// other value was set between them. So a process that changes a setting repeatedly has only
    /// one change in the journal.
    ///
    /// # Errors
    /// [`DeviceError::Journal`]: the journal could not be written. The changes can still be undone
    /// later.
    pub fn fold(&mut self, hold: &Hold, knob: &Knob) -> Result<(), DeviceError> {
        let changes = &mut self.content.changes;
        let own = |it: &Change| it.owners == [hold.owner] && !it.stays;
        let of_knob = |it: &Change| it.knob == *knob;
        let Some(last) = changes.iter().rposition(of_knob) else {
            return Ok(());
        };
        let Some(before) = changes[..last].iter().rposition(of_knob) else {
            return Ok(());
        };
        // If another value was set between the two changes, this other value must remain the `old`
        // of the last change, so that the undo puts it back.
        let is_foreign = changes[before].new != changes[last].old;
        if is_foreign || !own(&changes[last]) || !own(&changes[before]) {
            return Ok(());
        }
        let before = changes.remove(before);
        let last = &mut changes[last - 1];
        last.old = before.old;
        last.lost.extend(before.lost);
        self.write()
    }

    /// Ends an owner's wishes, and undoes the changes that no other owner wants.
    pub fn release(&mut self, knobs: &dyn Knobs, hold: Hold) -> Vec<Undone> {
        for change in &mut self.content.changes {
            change.owners.retain(|it| it.number != hold.owner.number);
        }
        let undone = self.undo(knobs, false);
        // The hold proves that the owner lives. It must last until the journal is written, so that
        // no other process undoes the owner's changes as those of a dead owner.
        drop(hold);
        undone
    }

    /// Ends an owner's wishes, but keeps the changes until the user asks for the old values.
    ///
    /// # Errors
    /// [`DeviceError::Journal`]: the changes will be undone once the owner's process is gone.
    pub fn keep(&mut self, hold: &Hold) -> Result<(), DeviceError> {
        for change in &mut self.content.changes {
            let owners = change.owners.len();
            change.owners.retain(|it| it.number != hold.owner.number);
            change.stays |= change.owners.len() < owners;
        }
        // If `old` equals `new`, the device had the value already. Such a change has nothing to
        // undo.
        let is_nothing = |it: &Change| it.owners.is_empty() && it.old == it.new;
        self.content.changes.retain(|it| !is_nothing(it));
        self.write()
    }

    /// Undoes the changes of owners that died before they released their changes.
    pub fn recover(&mut self, knobs: &dyn Knobs) -> Vec<Undone> {
        self.undo(knobs, false)
    }

    /// Undoes all changes without a living owner, including those that stay.
    pub fn restore(&mut self, knobs: &dyn Knobs) -> Vec<Undone> {
        self.undo(knobs, true)
    }

    /// Undoes changes without owners, latest first.
    fn undo(&mut self, knobs: &dyn Knobs, also_staying: bool) -> Vec<Undone> {
        let mut undone = Vec::new();
        for at in (0..self.content.changes.len()).rev() {
            let change = &self.content.changes[at];
            if !change.owners.is_empty() || (change.stays && !also_staying) {
                continue;
            }
            let change = change.clone();
            let outcome = self.undo_one(knobs, at, &change);
            if let Outcome::Foreign { is } = &outcome {
                self.keep_foreign(at, &change.knob, is);
            }
            if !matches!(outcome, Outcome::Failed(_)) {
                self.content.changes.remove(at);
                // If this write fails, the next undo finds the old value in the device and has
                // nothing to do.
                let _ = self.place.write(&self.content);
            }
            step();
            if change.old != change.new {
                undone.push(Undone {
                    knob: change.knob,
                    old: change.old,
                    new: change.new,
                    outcome,
                });
            }
        }
        undone
    }

    /// Notes the foreign value `is` of the setting `knob` in those changes before index `before`
    /// with which the driver may drop `knob`. When such a change is undone later, `put_lost_back`
    /// puts the foreign value back.
    fn keep_foreign(&mut self, before: usize, knob: &Knob, is: &str) {
        for change in &mut self.content.changes[..before] {
            for lost in change.lost.iter_mut().filter(|it| it.0 == *knob) {
                is.clone_into(&mut lost.1);
            }
        }
    }

    fn undo_one(&mut self, knobs: &dyn Knobs, at: usize, change: &Change) -> Outcome {
        let mut later = self.content.changes[at + 1..].iter_mut();
        if let Some(later) = later.find(|it| it.knob == change.knob) {
            later.old.clone_from(&change.old);
            later.lost.extend(change.lost.iter().cloned());
            return Outcome::Later;
        }
        if change.old == change.new {
            return Outcome::WasBack;
        }
        let outcome = match knobs.read(&change.knob) {
            Ok(is) if is == change.old => Outcome::WasBack,
            Ok(is) if is != change.new => return Outcome::Foreign { is },
            Err(error) if error.is_gone() => return Outcome::Gone,
            Err(error) => return Outcome::Failed(error),
            Ok(_) => {
                step();
                match put_back(knobs, &change.knob, &change.old) {
                    Ok(()) => Outcome::Restored,
                    Err(error) if error.is_gone() => return Outcome::Gone,
                    Err(error) => return Outcome::Failed(error),
                }
            }
        };
        step();
        put_lost_back(knobs, &change.lost);
        outcome
    }

    fn write(&self) -> Result<(), DeviceError> {
        step();
        self.place.write(&self.content)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if self.content.changes.is_empty() {
            self.place.tidy(&self.guard);
        }
    }
}

impl Change {
    fn new(knob: Knob, old: String, new: String) -> Self {
        Self {
            knob,
            old,
            new,
            owners: Vec::new(),
            stays: false,
            lost: Vec::new(),
        }
    }

    fn add(&mut self, wish: Wish<'_>) {
        match wish {
            Wish::Stays => self.stays = true,
            Wish::While(hold) => {
                if !self.owners.contains(&hold.owner) {
                    self.owners.push(hold.owner);
                }
            }
        }
    }
}

/// Writes the old value unless the device has it already, and checks the result.
fn put_back(knobs: &dyn Knobs, knob: &Knob, old: &str) -> Result<(), DeviceError> {
    if knobs.read(knob)? == old {
        return Ok(());
    }
    knobs.write(knob, old)?;
    let is = knobs.read(knob)?;
    match is == old {
        true => Ok(()),
        false => Err(DeviceError::Differs { is }),
    }
}

/// The present values of those settings in `which` that can be read.
fn values(knobs: &dyn Knobs, which: &[Knob]) -> Vec<(Knob, String)> {
    let value = |knob: &Knob| Some((knob.clone(), knobs.read(knob).ok()?));
    which.iter().filter_map(value).collect()
}

/// Puts back the settings in `lost`, which a driver may have dropped. Skips settings that no longer
/// exist.
fn put_lost_back(knobs: &dyn Knobs, lost: &[(Knob, String)]) {
    for (knob, value) in lost {
        if knobs.read(knob).is_ok_and(|is| is != *value) {
            let _ = knobs.write(knob, value);
        }
    }
}

/// Number of attempts to open a journal whose directory other processes remove.
const ATTEMPTS: u32 = 8;

/// A point at which a test can imitate the death of the process.
#[cfg(not(test))]
fn step() {}

#[cfg(test)]
use tests::step;
