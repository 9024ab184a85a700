//! The devices that one poller serves, and what their servers' threads tell each other about groups
//! of the same user and number. Each thread changes only the groups of its own device. No thread
//! holds the lock while it waits for a queue.

use super::steering::Compiled;
use fanpcap_linux::memory::Memory;
use fanpcap_linux::wait::Wake;
use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A group's number and user.
pub(super) type Key = (u16, u32);

/// The devices of a poller. A clone stands for the same devices.
#[derive(Clone, Debug)]
pub struct Together {
    number: u64,
    all: Arc<Mutex<All>>,
}

#[derive(Debug, Default)]
struct All {
    /// The number of the last device.
    last: u64,
    devices: Vec<OfDevice>,
    /// The groups, the oldest first.
    groups: Vec<OfGroup>,
}

#[derive(Debug)]
struct OfDevice {
    device: u64,
    name: Arc<str>,
    news: Arc<Wake>,
}

#[derive(Debug)]
struct OfGroup {
    device: u64,
    key: Key,
    compiled: Arc<Compiled>,
    table: Arc<Memory>,
    /// The pairs of members that hang.
    hanging: BTreeSet<u64>,
}

/// What a group sees of the groups beside it.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The table of the oldest group, if that is another one.
    pub(super) oldest: Option<Arc<Memory>>,
    /// The pairs whose members hang in other groups.
    pub(super) hanging: BTreeSet<u64>,
    /// Whether there is any other group.
    pub(super) has_others: bool,
}

impl Default for Together {
    fn default() -> Self {
        Self {
            number: RandomState::new().hash_one(0).max(1),
            all: Arc::default(),
        }
    }
}

impl Together {
    /// The poller's number, by which a handle on several devices knows that one poller serves them.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// If another thread has panicked while it had the lock, the poller ends. Until then this
    /// thread goes on.
    fn lock(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a device.
    pub(super) fn add(&self, name: &str) -> io::Result<Neighbors> {
        let news = Arc::new(Wake::new()?);
        let mut all = self.lock();
        all.last += 1;
        let device = all.last;
        all.devices.push(OfDevice {
            device,
            name: name.into(),
            news: Arc::clone(&news),
        });
        drop(all);
        Ok(Neighbors {
            together: self.clone(),
            device,
            news,
        })
    }
}

/// The devices beside a device, which leaves them with this value.
#[derive(Debug)]
pub(super) struct Neighbors {
    together: Together,
    device: u64,
    news: Arc<Wake>,
}

impl Neighbors {
    pub(super) fn poller(&self) -> u64 {
        self.together.number()
    }

    /// Readable when another device has changed something.
    pub(super) fn news(&self) -> &Wake {
        &self.news
    }

    /// A group begins on this device.
    pub(super) fn begin(&self, key: Key, compiled: &Arc<Compiled>, table: &Arc<Memory>) {
        let mut all = self.together.lock();
        all.groups.push(OfGroup {
            device: self.device,
            key,
            compiled: Arc::clone(compiled),
            table: Arc::clone(table),
            hanging: BTreeSet::new(),
        });
        all.tell_others(self.device, key);
    }

    /// A group of this device ends.
    pub(super) fn end(&self, key: Key) {
        let mut all = self.together.lock();
        let is_it = |it: &OfGroup| it.device == self.device && it.key == key;
        all.groups.retain(|it| !is_it(it));
        all.tell_others(self.device, key);
    }

    /// Tells the other devices that this device's group has changed.
    pub(super) fn tell_others(&self, key: Key) {
        self.together.lock().tell_others(self.device, key);
    }

    /// The pairs of members of this device's group that hang now.
    pub(super) fn note_hanging(&self, key: Key, hanging: BTreeSet<u64>) {
        let mut all = self.together.lock();
        let is_it = |it: &&mut OfGroup| it.device == self.device && it.key == key;
        if let Some(it) = all.groups.iter_mut().find(is_it) {
            if it.hanging != hanging {
                it.hanging = hanging;
                all.tell_others(self.device, key);
            }
        }
    }

    /// What this device's group sees of the groups beside it.
    pub(super) fn look(&self, key: Key) -> Seen {
        let all = self.together.lock();
        let Some(own) = all.own(self.device, key).filter(|it| it.compiled.spans()) else {
            return Seen::default();
        };
        let others = all.beside(own).filter(|it| it.device != self.device);
        let oldest = all.beside(own).next();
        let oldest = oldest.filter(|it| it.device != self.device);
        Seen {
            oldest: oldest.map(|it| Arc::clone(&it.table)),
            has_others: others.clone().next().is_some(),
            hanging: others.flat_map(|it| it.hanging.iter().copied()).collect(),
        }
    }

    /// The name of the device whose group decides about members of both groups, if that is another
    /// device.
    pub(super) fn decider(&self, key: Key) -> Option<Arc<str>> {
        let all = self.together.lock();
        let own = all.own(self.device, key)?;
        let oldest = all.beside(own).next()?.device;
        let name = all.devices.iter().find(|it| it.device == oldest)?;
        (oldest != self.device).then(|| Arc::clone(&name.name))
    }

    /// The steering program of the oldest group with this key.
    pub(super) fn steering(&self, key: Key) -> Option<Arc<Compiled>> {
        let all = self.together.lock();
        let found = all.groups.iter().find(|it| it.key == key)?;
        Some(Arc::clone(&found.compiled))
    }

    /// Whether any device has a group with this key.
    pub(super) fn has(&self, key: Key) -> bool {
        self.together.lock().groups.iter().any(|it| it.key == key)
    }
}

impl Drop for Neighbors {
    fn drop(&mut self) {
        let mut all = self.together.lock();
        let own = all.groups.iter().filter(|it| it.device == self.device);
        let left: Vec<Key> = own.map(|it| it.key).collect();
        all.groups.retain(|it| it.device != self.device);
        all.devices.retain(|it| it.device != self.device);
        for key in left {
            all.tell_others(self.device, key);
        }
    }
}

impl All {
    fn own(&self, device: u64, key: Key) -> Option<&OfGroup> {
        let mut groups = self.groups.iter();
        groups.find(|it| it.device == device && it.key == key)
    }

    /// The groups that stand beside each other, this one included, the oldest first.
    fn beside<'a>(&'a self, own: &'a OfGroup) -> impl Iterator<Item = &'a OfGroup> + Clone {
        let is_one =
            move |it: &&OfGroup| it.key == own.key && it.compiled.digest == own.compiled.digest;
        self.groups.iter().filter(is_one)
    }

    fn tell_others(&self, device: u64, key: Key) {
        let others = self.groups.iter().filter(|it| it.key == key);
        let others: BTreeSet<u64> = others.map(|it| it.device).collect();
        let is_other = |it: &&OfDevice| it.device != device && others.contains(&it.device);
        let devices = self.devices.iter().filter(is_other);
        devices.for_each(|it| it.news.signal());
    }
}
