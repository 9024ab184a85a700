//! What is done for a newcomer on XDP before its handle is activated: all that the engine may
//! refuse. A handle that was activated could not turn to packet sockets any more.

use super::{JoinError, XdpError, device};
use crate::dock::Dock;
use crate::docks;
use crate::found::{self, Leaving};
use crate::identity::Identity;
use crate::on_xdp::{CountMaps, OnXdp, counts_by_them};
use crate::page::{GroupDir, MemberId};
use crate::roster::Roster;
use crate::selection;
use crate::shared::Shared;
use crate::steered::SteerError;
use crate::table::at;
use crate::turn::{Claim, GroupLock, LOOKED_AFTER};
use fanpcap_config::settings::{Group, Membership};
use fanpcap_config::steering::Steering;
use fanpcap_linux::packet::ETH_P_SILENT;
use fanpcap_xdp::{Capture, Device, GroupProgram, Lanes, Unavailable, Untaken};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// A device that was taken over, and what a new group on it shares.
#[derive(Debug)]
pub struct Prepared {
    dock: Dock<Device>,
    /// Whether nobody else can have the dock before a page shows it.
    is_private: bool,
    /// Not for a group that has members.
    shared: Mutex<Option<Shared>>,
    lock: GroupLock,
    /// Until the first attempt to join.
    arriving: Mutex<Option<Claim>>,
}

/// How long other newcomers' pages may take to show the dock. One may be stopped.
const ARRIVED_WITHIN: Duration = Duration::from_secs(10);

/// Takes over a device for a newcomer, or finds that it is. The host gets all packets meanwhile.
/// `outgoing`: the newcomer wants packets that the host sends.
///
/// # Errors
/// Why the engine can't serve the newcomer.
pub fn prepare(
    ifindex: u32,
    membership: &Membership,
    outgoing: bool,
) -> Result<Prepared, JoinError> {
    let mode = || membership.shown_mode();
    let number = match membership.group {
        Group::Number(number) => number,
        Group::New => 0,
    };
    let steering = membership.steering.as_ref().ok_or_else(|| {
        let (group, mode) = (number, mode());
        XdpError::Unsteered { group, mode }
    })?;
    // Makes the root, in which the locks are.
    let _ = GroupDir::for_member(ifindex, number);
    let identity = Identity::outside(number, ifindex);
    let lock = GroupLock::open(&identity).map_err(XdpError::Lock)?;
    let Docked {
        dock,
        is_private,
        arriving,
    } = dock(ifindex, &lock)?;
    let found = match membership.group {
        Group::Number(number) => has_members(number, ifindex),
        Group::New => Ok(false),
    };
    let shared = match found {
        Ok(true) => None,
        Ok(false) | Err(_) => Some(new_shared(&dock, ifindex, steering)?),
    };
    if let Some(on_xdp) = shared.as_ref().and_then(|shared| shared.on_xdp.as_ref()) {
        ensure_sees_sent(on_xdp, outgoing)?;
    }
    // Where the engine can't serve the newcomer, it joins those who are on packet sockets.
    found?;
    Ok(Prepared {
        dock,
        is_private,
        shared: Mutex::new(shared),
        lock,
        arriving: Mutex::new(arriving),
    })
}

impl Prepared {
    /// The dock of the device.
    pub(super) fn dock(&self) -> &Dock<Device> {
        &self.dock
    }

    /// Others wait for this newcomer's page as long as the result is kept.
    pub(super) fn arriving(&self) -> Option<Claim> {
        let arriving = self.arriving.lock().ok().and_then(|mut it| it.take());
        arriving.or_else(|| self.lock.arrive())
    }

    /// Whether nobody else has the dock, in the first attempt to join.
    pub(super) fn is_private(&self) -> bool {
        self.is_private
    }

    /// What the members of a new group share, to whom no packets come yet, in the first attempt to
    /// join.
    pub(super) fn begin(&self, key: u64) -> Option<Shared> {
        let shared = self.shared.lock().ok()?.take()?;
        shared.table().begin(key);
        Some(shared)
    }

    /// The same in any attempt.
    pub(super) fn shared(&self, key: u64, steering: &Steering) -> Result<Shared, XdpError> {
        let (ifindex, _) = crate::shared::group_of(key);
        let shared = new_shared(&self.dock, ifindex, steering)?;
        shared.table().begin(key);
        Ok(shared)
    }
}

/// Checks that the group's BPF programs see the packets that the host sends, if a member wants
/// them.
pub(super) fn ensure_sees_sent(on_xdp: &OnXdp, outgoing: bool) -> Result<(), XdpError> {
    match outgoing {
        true => on_xdp.program().sees_sent().map_err(XdpError::Unavailable),
        false => Ok(()),
    }
}

/// Whether a group has members on the device.
fn has_members(group: u16, ifindex: u32) -> Result<bool, XdpError> {
    let roster = Roster::look().unwrap_or_default();
    let mut members = roster.members(group).filter(|it| it.ifindex == ifindex);
    match members.next().map(|it| it.protocol == ETH_P_SILENT) {
        Some(false) => {
            let has_xdp = false;
            Err(XdpError::OtherEngine { group, has_xdp })
        }
        member => Ok(member.is_some()),
    }
}

fn new_shared(dock: &Dock<Device>, ifindex: u32, steering: &Steering) -> Result<Shared, XdpError> {
    let mut shared = Shared::for_xdp(0).map_err(XdpError::Locker)?;
    let counts = CountMaps::new().map_err(XdpError::Locker)?;
    let given = counts.given(shared.map());
    let at_xdp = steering.at_xdp().ok_or_else(|| XdpError::Unsteered {
        group: 0,
        mode: steering.title().to_owned(),
    })?;
    let compile = |capture: &Capture| at_xdp.object(capture);
    let lanes = Lanes::of_device(ifindex);
    let loaded = GroupProgram::load(lanes, dock.device().maps(), &given, &compile);
    let (program, loaded) = loaded.map_err(XdpError::Program)?;
    shared
        .table()
        .set(at::COUNTS, counts_by_them(&loaded).into());
    let kept = shared.keep_program(loaded.as_fd(), steering.text());
    let parts = kept.and_then(|()| OnXdp::new(program, counts, dock, &shared.locker));
    shared.on_xdp = Some(parts.map_err(XdpError::Locker)?);
    let watched = shared.lifelines.add(dock.lifelines(), true);
    watched.map_err(XdpError::Locker)?;
    Ok(shared)
}

/// A newcomer at a device's dock.
struct Docked {
    dock: Dock<Device>,
    is_private: bool,
    arriving: Option<Claim>,
}

/// The device's dock. The BPF program that the device has may be that of a dock whose last member
/// has just gone, or which other newcomers have and no page shows yet.
///
/// The device is taken over without the locks: its driver may take its time, and a process may be
/// stopped meanwhile. Of several newcomers the kernel lets one have it.
fn dock(ifindex: u32, lock: &GroupLock) -> Result<Docked, XdpError> {
    let mut arriving_since = None;
    let mut leaving = Leaving::new();
    let mut look = Instant::now() + LOOKED_AFTER;
    loop {
        let turn = lock.take().map_err(XdpError::Lock)?;
        let at_dock = turn.at_dock().map_err(XdpError::Lock)?;
        // Asked first: who has arrived by now is on a page.
        arriving_since = lock
            .sees_arriving()
            .then(|| arriving_since.unwrap_or_else(Instant::now));
        if arriving_since.is_some_and(|it| it.elapsed() < ARRIVED_WITHIN) {
            leaving.renew();
        }
        if let Some(dock) = find(ifindex)? {
            let (is_private, arriving) = (false, lock.arrive());
            return Ok(Docked {
                dock,
                is_private,
                arriving,
            });
        }
        let untaken = Untaken::find(ifindex, selection::find(ifindex).ok());
        let arriving = untaken.as_ref().ok().and_then(|_| lock.arrive());
        drop(at_dock);
        drop(turn);
        match untaken.and_then(Untaken::take_over) {
            Err(Unavailable::Foreign { name, .. })
                if name.as_deref().is_none_or(is_ours)
                    && leaving.goes_on(found::count_on_xdp(ifindex)) => {}
            Err(error) => return Err(XdpError::Unavailable(error)),
            Ok(device) => {
                let dock = Dock::new(device, ifindex).map_err(XdpError::Locker)?;
                let is_private = true;
                return Ok(Docked {
                    dock,
                    is_private,
                    arriving,
                });
            }
        }
        drop(arriving);
        if Instant::now() >= look {
            look = Instant::now() + LOOKED_AFTER;
            if let Some(stopped) = lock.stopped_newcomer() {
                return Err(XdpError::Lock(SteerError::BusyBy(stopped)));
            }
        }
        thread::sleep(found::STEP);
    }
}

/// Whether a BPF program has one of our names.
fn is_ours(name: &str) -> bool {
    name.starts_with("fanpcap_")
}

/// The dock that a member of any group on the device has. The caller has the dock's turn.
fn find(ifindex: u32) -> Result<Option<Dock<Device>>, XdpError> {
    if let Some(ends) = found::recall_dock(ifindex) {
        match dock_here(ends, ifindex) {
            // The engine has lost the device, or another process has taken it over since.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            dock => return dock.map(Some).map_err(XdpError::Locker),
        }
    }
    let nobody = MemberId::of_socket(0);
    let found = docks::search(nobody, ifindex, &|ends| dock_here(ends, ifindex));
    found.map_err(|reasons| XdpError::Unreachable {
        device: device(ifindex),
        reasons,
    })
}

/// The dock behind these ends of its locker, if its device is the one of the index here: another
/// that was moved away may have had the index.
fn dock_here(ends: [OwnedFd; 2], ifindex: u32) -> io::Result<Dock<Device>> {
    let dock = Dock::<Device>::of(ends, ifindex)?;
    match dock.device().is_here(ifindex) {
        true => Ok(dock),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}
