//! Prepares a newcomer on an engine before its handle is activated. Every step that the engine may
//! refuse is done here: an activated handle could no longer change to packet sockets.

use super::{EngineError, JoinError, device};
use crate::found::{self, Leaving};
use crate::guard::{Claim, GroupLock, LOOKED_AFTER};
use crate::identity::Identity;
use crate::page::GroupDir;
use crate::record::Record;
use crate::roster::{self, Roster};
use crate::shared::{Shared, group_key};
use crate::steered::SteerError;
use crate::table::at;
use crate::taken_devices;
use fanpcap_config::settings::{Group, GroupChoice};
use fanpcap_config::steering::Steering;
use fanpcap_engine::{Engine, NewGroup, Refusal, TakenDevice};
use fanpcap_linux::packet::ETH_P_SILENT;
use std::io;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// A device that an engine has taken, and the objects that a new group on the device shares.
#[derive(Debug)]
pub struct Prepared {
    engine: &'static dyn Engine,
    pub(super) device: Box<dyn TakenDevice>,
    /// Whether this process took the device itself. If it did, no other process can get the
    /// device's descriptors before a page shows the device.
    is_private: bool,
    /// The objects that a new group shares, and the digest of its steering program; `None` for a
    /// group that has members.
    shared: Mutex<Option<(Shared, u64)>>,
    lock: GroupLock,
    /// The newcomer's claim, kept until the first attempt to join.
    arriving: Mutex<Option<Claim>>,
}

/// How long to wait until the page of another newcomer shows the device. The wait has a limit,
/// because the other newcomer's process may be stopped.
const ARRIVED_WITHIN: Duration = Duration::from_secs(10);

/// Takes a device for a newcomer with the engine of this name, or finds that the engine has the
/// device already. The host still gets all packets. `outgoing` says whether the newcomer wants
/// packets that the host sends.
///
/// # Errors
/// Why the engine can't serve the newcomer.
pub fn prepare(
    engine: &str,
    ifindex: u32,
    choice: &GroupChoice,
    outgoing: bool,
) -> Result<Prepared, JoinError> {
    let engine = fanpcap_engines::named(engine).ok_or_else(|| {
        EngineError::from(Refusal::new(
            "the engine: unsupported",
            "system-call-failed",
        ))
    })?;
    let number = match choice.group {
        Group::Number(number) => number,
        Group::New => 0,
    };
    let steering = choice.steering.as_ref().ok_or_else(|| {
        let (engine, group, mode) = (engine.name(), number, choice.shown_mode());
        EngineError::Unsteered {
            engine,
            group,
            mode,
        }
    })?;
    // Make the root, if needed: it has the file with the locks.
    let _ = GroupDir::for_member(ifindex, number);
    let identity = Identity::outside(number, ifindex);
    let lock = GroupLock::open(&identity).map_err(EngineError::Lock)?;
    let (device, is_private, arriving) = device_of(engine, ifindex, &lock)?;
    let found = match choice.group {
        Group::Number(number) => has_begun(engine, (number, ifindex), steering),
        Group::New => Ok(false),
    };
    let shared = match found {
        Ok(true) => None,
        Ok(false) | Err(_) => Some(new_shared(engine, &*device, ifindex, steering)?),
    };
    let on_device = shared.as_ref().and_then(|shared| shared.on_device.as_ref());
    if let Some(on_device) = on_device.filter(|_| outgoing) {
        on_device.sees_sent().map_err(EngineError::from)?;
    }
    // Return an error of `found` only after the engine's checks. If the engine can't serve the
    // newcomer, the newcomer joins the members on packet sockets.
    found?;
    Ok(Prepared {
        engine,
        device,
        is_private,
        shared: Mutex::new(shared.map(|shared| (shared, steering.digest()))),
        lock,
        arriving: Mutex::new(arriving),
    })
}

impl Prepared {
    pub(super) fn engine(&self) -> &'static dyn Engine {
        self.engine
    }

    /// Makes other newcomers wait for this newcomer's page as long as the result is kept.
    pub(crate) fn arriving(&self) -> Option<Claim> {
        let arriving = self.arriving.lock().ok().and_then(|mut it| it.take());
        arriving.or_else(|| self.lock.arrive())
    }

    /// Whether this process took the device itself. If it did, no other process has the device's
    /// descriptors during the first attempt to join.
    pub(super) fn is_private(&self) -> bool {
        self.is_private
    }

    /// For the first attempt to join, returns the prepared objects that the members of a new group
    /// share. The group gets no packets yet. Returns `None` if another steering program was
    /// prepared: the application has asked for another group since, or the group ran another
    /// steering program until now.
    pub(crate) fn begin(&self, key: u64, steering: &Steering) -> Option<Shared> {
        let (shared, digest) = self.shared.lock().ok()?.take()?;
        if digest != steering.digest() {
            return None;
        }
        shared.table().begin(key);
        Some(shared)
    }

    /// For any attempt to join, makes the objects that the members of a new group share.
    pub(super) fn shared(&self, key: u64, steering: &Steering) -> Result<Shared, EngineError> {
        let (ifindex, _) = crate::shared::group_of(key);
        let shared = new_shared(self.engine, &*self.device, ifindex, steering)?;
        shared.table().begin(key);
        Ok(shared)
    }
}

/// Whether the group has members, or a founder that has founded it with this steering program.
fn has_begun(
    engine: &dyn Engine,
    (group, ifindex): (u16, u32),
    steering: &Steering,
) -> Result<bool, EngineError> {
    let roster = Roster::look().unwrap_or_default();
    let mut members = roster.members(group).filter(|it| it.ifindex == ifindex);
    match members.next().map(|it| it.protocol == ETH_P_SILENT) {
        Some(false) => Err(EngineError::other(group, None, Some(engine.name()))),
        Some(true) => Ok(true),
        None => {
            let founder = roster::founder(ifindex, group).filter(Record::is_on_engine);
            let founded = founder.and_then(|founder| founder.steering);
            Ok(founded.is_some_and(|it| it.digest == steering.digest()))
        }
    }
}

fn new_shared(
    engine: &'static dyn Engine,
    device: &dyn TakenDevice,
    ifindex: u32,
    steering: &Steering,
) -> Result<Shared, EngineError> {
    let shared = Shared::with_classes(engine, group_key(ifindex, 0));
    let mut shared = shared.map_err(EngineError::of_store(engine))?;
    let at_device = steering
        .for_engine()
        .ok_or_else(|| EngineError::Unsteered {
            engine: engine.name(),
            group: 0,
            mode: steering.title().to_owned(),
        })?;
    let begun = device.begin(&NewGroup {
        steering: at_device,
        text: steering.text(),
        table: shared.map(),
        store: &shared.fd_store,
        ifindex,
    })?;
    let table = shared.table();
    table.set(at::COUNTS, begun.counts.into());
    let kept = shared.keep_program(begun.program.as_fd(), steering.text());
    kept.map_err(EngineError::of_store(engine))?;
    shared.on_device = Some(begun.on_device);
    let watched = shared.lifelines.add(device.lifelines(), true);
    watched.map_err(EngineError::of_store(engine))?;
    Ok(shared)
}

/// The newcomer's device, whether this process took it itself, and the newcomer's claim.
type DeviceOf = (Box<dyn TakenDevice>, bool, Option<Claim>);

/// Takes the device, or gets its descriptors from a member. If other processes have the device's
/// descriptors, they may be members that are ending, or newcomers that no page shows yet. The
/// function waits for both.
///
/// Takes the device without the locks: the device's driver may need a while, and the process may be
/// stopped in that time. If several newcomers try, the kernel gives the device to one of them.
fn device_of(engine: &dyn Engine, ifindex: u32, lock: &GroupLock) -> Result<DeviceOf, EngineError> {
    let mut arriving_since = None;
    let mut leaving = Leaving::new();
    let mut look = Instant::now() + LOOKED_AFTER;
    loop {
        let guard = lock.take().map_err(EngineError::Lock)?;
        let device_guard = guard.device_guard().map_err(EngineError::Lock)?;
        // Check for newcomers before searching the pages: a newcomer that is no longer announced
        // has a page, which the search then finds.
        arriving_since = lock
            .sees_arriving()
            .then(|| arriving_since.unwrap_or_else(Instant::now));
        if arriving_since.is_some_and(|it| it.elapsed() < ARRIVED_WITHIN) {
            leaving.renew();
        }
        if let Some(device) = find(engine, ifindex)? {
            return Ok((device, false, lock.arrive()));
        }
        let checked = engine.check(ifindex);
        let arriving = checked.as_ref().ok().and_then(|()| lock.arrive());
        drop(device_guard);
        drop(guard);
        match checked.and_then(|()| engine.take(ifindex)) {
            Err(Refusal { is_busy: true, .. }) if leaving.goes_on(found::count_silent(ifindex)) => {
            }
            Err(refusal) => return Err(refusal.into()),
            Ok(device) => return Ok((device, true, arriving)),
        }
        drop(arriving);
        if Instant::now() >= look {
            look = Instant::now() + LOOKED_AFTER;
            if let Some(stopped) = lock.stopped_newcomer() {
                return Err(EngineError::Lock(SteerError::BusyBy(stopped)));
            }
        }
        thread::sleep(found::STEP);
    }
}

/// Finds the device by a member of any group on it. The caller holds the device's guard.
fn find(engine: &dyn Engine, ifindex: u32) -> Result<Option<Box<dyn TakenDevice>>, EngineError> {
    if let Some(descriptors) = found::recall_device(engine, ifindex) {
        match engine.open_device(descriptors, ifindex) {
            // The engine has lost the device, or another process has taken it since.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found.map(Some).map_err(EngineError::of_store(engine)),
        }
    }
    let found = taken_devices::search(engine, ifindex);
    found.map_err(|reasons| EngineError::Unreachable {
        device: device(ifindex),
        reasons,
    })
}
