//! pcap_activate: with what settings ask for, and into a group.

use crate::handles::Part;
use crate::message::{ERRBUF_SIZE, fail, guard, system_error};
use crate::system::{self, ERROR, Pcap, Stats, system};
use crate::{handles, several, stats, take_over};
use fanpcap::request::Request;
use fanpcap_config::settings::{Group, Membership, Plan};
use fanpcap_group::join::{Entrant, JoinError};
use fanpcap_group::record::Counters;
use fanpcap_linux::interface;
use fanpcap_linux::packet::{self, Address};
use std::ffi::c_int;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

/// The largest snapshot length, and what 0 and senseless values mean (pcap-int.h).
const MAXIMUM_SNAPLEN: c_int = 262_144;

/// `PCAP_ERROR_NO_SUCH_DEVICE`.
const NO_SUCH_DEVICE: c_int = -5;

/// `PCAP_ERROR_PERM_DENIED`.
const PERM_DENIED: c_int = -8;

/// `PCAP_WARNING`: done, but pcap_geterr() has something to say.
const WARNING: c_int = 1;

/// See pcap_activate(3PCAP). A handle with a group has joined it when this returns 0 or more.
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_activate(p: *mut Pcap) -> c_int {
    let body = || match several::is_several(p) {
        // SAFETY: the caller's promise, passed on.
        false => unsafe { activate_one(p) },
        // SAFETY: as above.
        true => unsafe { several::activate(p) },
    };
    // SAFETY: the caller's promise: `p` is a handle.
    guard(body, |text| unsafe { fail(p, text) })
}

/// Activates a handle on one device, by its settings.
///
/// # Safety
/// `p` is a handle.
unsafe fn activate_one(p: *mut Pcap) -> c_int {
    // SAFETY: the caller vouches for `p`.
    match unsafe { plan(p) } {
        // SAFETY: as above.
        Ok(plan) => unsafe { activate_as(p, &plan) },
        Err(status) => status,
    }
}

/// # Safety
/// `p` is a handle.
unsafe fn activate(p: *mut Pcap) -> c_int {
    system()
        .pcap_activate
        // SAFETY: the caller vouches for `p`.
        .map_or(ERROR, |function| unsafe { function(p) })
}

/// # Safety
/// `p` is a handle.
unsafe fn activate_as(p: *mut Pcap, plan: &Plan) -> c_int {
    // SAFETY: the caller vouches for `p`.
    unsafe { provide(p, plan) };
    match &plan.membership {
        // SAFETY: as above.
        Some(membership) => unsafe { activate_in_group(p, membership) },
        // SAFETY: as above.
        None if plan.is_read_by_us() => unsafe { activate_alone(p, plan.by_name) },
        // SAFETY: as above.
        None => unsafe { activate(p) },
    }
}

/// Gives a handle the snapshot length and the ring that its plan has for it.
///
/// # Safety
/// `p` is a handle that is not activated.
unsafe fn provide(p: *mut Pcap, plan: &Plan) {
    if let (Some(caplen), Some(function)) = (plan.caplen, system().pcap_set_snaplen) {
        let asked = handles::with(p, |entry| entry.snaplen).flatten();
        let asked = asked.filter(|asked| (1..=MAXIMUM_SNAPLEN).contains(asked));
        let caplen = c_int::try_from(caplen).unwrap_or(MAXIMUM_SNAPLEN);
        // SAFETY: the caller vouches for `p`.
        unsafe { function(p, asked.unwrap_or(MAXIMUM_SNAPLEN).min(caplen)) };
    }
    let asked = handles::with(p, |entry| entry.buffer_size).flatten();
    if let (Some(bytes), None, Some(function)) =
        (plan.buffer_size(), asked, system().pcap_set_buffer_size)
    {
        // SAFETY: as above.
        unsafe { function(p, bytes) };
    }
}

/// Activates a handle that we read and that joins no group. A program that asks for that `by_name` is told when
/// it can't be; programs can't tell the difference otherwise.
///
/// # Safety
/// `p` is a handle.
unsafe fn activate_alone(p: *mut Pcap, by_name: bool) -> c_int {
    // SAFETY: the caller vouches for `p`.
    let status = unsafe { activate_taken_over(p) };
    if status < 0 {
        return status;
    }
    // SAFETY: as above.
    unsafe { take_over::truncate(p, p) };
    let is_read_by_us = handles::with(p, |entry| entry.reader.is_some()) == Some(true);
    if status > 0 || is_read_by_us || !by_name {
        return status;
    }
    // SAFETY: as above.
    unsafe {
        fail(
            p,
            "fanpcap can't read this device: the system's libpcap does",
        )
    };
    WARNING
}

/// # Safety
/// `p` is a handle.
unsafe fn activate_taken_over(p: *mut Pcap) -> c_int {
    // SAFETY: the caller vouches for `p`.
    let status = unsafe { activate(p) };
    let is_part = handles::with(p, |entry| entry.part != Part::None) == Some(true);
    if status >= 0 && !is_part {
        // SAFETY: as above.
        unsafe { take_over::take_over(p) };
    }
    status
}

/// Activates silently, then joins, see [`fanpcap_group::join`]. Where joining fails, the handle is activated
/// for the system's library but not for the program, which may call again.
///
/// # Safety
/// `p` is a handle.
unsafe fn activate_in_group(p: *mut Pcap, membership: &Membership) -> c_int {
    let again = handles::with(p, |entry| entry.unjoined) == Some(true);
    // SAFETY: the caller vouches for `p`.
    let activate = || unsafe { activate_silently(p) };
    let status = if again { 0 } else { activate() };
    if status == PERM_DENIED {
        let is_steered = membership.steering.is_some();
        // SAFETY: as above.
        let reason = unsafe { system_error(p) };
        let denied = membership.blame(&JoinError::NotPermitted { reason, is_steered });
        // SAFETY: as above.
        unsafe { fail(p, &denied) };
    }
    if status < 0 {
        return status;
    }
    // SAFETY: as above.
    let joined = unsafe { join_group(p, membership) };
    if joined == 0 { status } else { joined }
}

/// Joins a group with a handle that was activated silently.
///
/// # Safety
/// `p` is an activated handle.
unsafe fn join_group(p: *mut Pcap, membership: &Membership) -> c_int {
    let joined = match handles::place(p) {
        // pcap_fanout() has joined since.
        Some(_) => Ok(()),
        // SAFETY: the caller vouches for `p`.
        None => unsafe { join(p, membership) },
    };
    handles::with(p, |entry| entry.unjoined = joined.is_err());
    if joined.is_ok() {
        // SAFETY: as above.
        unsafe { take_over::truncate(p, p) };
        // SAFETY: as above; a part of another handle has no reader.
        unsafe { take_over::keep_counters(p) };
    }
    match joined {
        // SAFETY: as above.
        Ok(()) => unsafe { warn(p) },
        // SAFETY: as above.
        Err(error) => unsafe { fail(p, &membership.blame(&error)) },
    }
}

/// Lets the system's library bind to a protocol that no frame carries.
///
/// # Safety
/// `p` is a handle.
unsafe fn activate_silently(p: *mut Pcap) -> c_int {
    let bind_to = |protocol: u16| {
        if let Some(function) = system().pcap_set_protocol_linux {
            // SAFETY: the caller vouches for `p`.
            unsafe { function(p, c_int::from(protocol)) };
        }
    };
    bind_to(packet::ETH_P_SILENT);
    // SAFETY: as above.
    let status = unsafe { activate_taken_over(p) };
    if status < 0 {
        // It may be tried again, without a group then.
        bind_to(
            handles::with(p, |entry| entry.protocol)
                .flatten()
                .unwrap_or(0),
        );
    }
    status
}

/// Joins a group with an activated handle and notes the member.
///
/// # Safety
/// `p` is an activated handle.
pub(crate) unsafe fn join(p: *mut Pcap, membership: &Membership) -> Result<(), JoinError> {
    // SAFETY: the caller vouches for `p`.
    let fd: RawFd = unsafe { system::pcap_fileno(p) };
    if fd < 0 {
        return Err(JoinError::NotPacket);
    }
    let protocol = handles::with(p, |entry| entry.protocol).flatten();
    let mut told = Stats::default();
    // SAFETY: the caller vouches for `p`. Where there are no statistics, zeros are right.
    unsafe { stats::told(p, &raw mut told) };
    let before = Counters {
        received: told.received.into(),
        dropped: told.dropped.into(),
    };
    // SAFETY: the handle's descriptor is open as long as the handle.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let member = fanpcap_group::join::join(Entrant {
        socket,
        membership,
        protocol: protocol.unwrap_or(packet::ETH_P_ALL),
        before,
    })?;
    handles::with_new(p, |entry| entry.member = Some((member, fd)));
    Ok(())
}

/// A member works though its group is not as it should be, and says so.
///
/// # Safety
/// `p` is a handle.
unsafe fn warn(p: *mut Pcap) -> c_int {
    let Some(text) = of_unknown_program(p).or_else(|| of_strangers(p)) else {
        return 0;
    };
    // SAFETY: the caller vouches for `p`.
    unsafe { fail(p, &text) };
    WARNING
}

/// Who came first has given the group its program, which may be another one.
fn of_unknown_program(p: *mut Pcap) -> Option<String> {
    let group = handles::place(p)?.group();
    let is_unknown = handles::steered(p)?.is_unknown();
    is_unknown.then(|| {
        format!(
            "fan-out group {group} is steered by its first member's program, which may be another than \
             this one: its members have no page that would tell{}",
            fanpcap_group::root::distrust()
        )
    })
}

/// Rarely is it meant to share a group with another program.
fn of_strangers(p: *mut Pcap) -> Option<String> {
    let place = handles::place(p)?;
    let (group, (program, pid)) = (place.group(), place.stranger()?);
    Some(format!(
        "fan-out group {group} is shared with another program, {program} (process {pid}): each sees \
         a part of the packets; give one of them another group to see all"
    ))
}

/// Activates the handle on one of several devices, silently: it receives nothing yet. One that has been
/// activated in vain, as another could not be, stays so; the other stays as it is too, as the system's
/// library may crash when it is activated again.
///
/// # Safety
/// `p` is a handle.
pub(crate) unsafe fn activate_part(p: *mut Pcap) -> c_int {
    match handles::with(p, |entry| entry.part).unwrap_or_default() {
        Part::Silent => return 0,
        // SAFETY: the caller vouches for `p`; the system's library says that it is activated.
        Part::Live => return unsafe { activate(p) },
        Part::Failed => {
            // SAFETY: the caller vouches for `p`.
            return unsafe { fail(p, "it could not be activated: open the handle anew") };
        }
        Part::None | Part::New => {}
    }
    // SAFETY: the caller vouches for `p`.
    let plan = match unsafe { plan(p) } {
        Ok(plan) => plan,
        Err(status) => return status,
    };
    let request = handles::request(p);
    let name = request.as_ref().map(|request| request.system_name());
    let is_there = |name| name == "any" || !matches!(interface::find(name), Ok(None));
    if !name.is_none_or(is_there) {
        // One that was not activated yet can be, when its device comes.
        // SAFETY: as above.
        unsafe { fail(p, "No such device exists") };
        return NO_SUCH_DEVICE;
    }
    // SAFETY: as above.
    unsafe { provide(p, &plan) };
    // SAFETY: as above.
    let status = unsafe { activate_silently(p) };
    let part = if status < 0 {
        Part::Failed
    } else {
        Part::Silent
    };
    handles::with(p, |entry| entry.part = part);
    status
}

/// Foresees whether the handle on one of several devices can join its group: one that has joined can't
/// leave when another is refused. `groups` are those of the devices before it, and their devices.
///
/// # Safety
/// `p` is a handle that was activated silently.
pub(crate) unsafe fn foresee(p: *mut Pcap, groups: &mut Vec<(Group, String)>) -> c_int {
    // SAFETY: the caller vouches for `p`.
    let membership = match unsafe { plan(p) } {
        Ok(plan) => plan.membership,
        Err(status) => return status,
    };
    let Some(membership) = membership.filter(|_| handles::place(p).is_none()) else {
        return 0;
    };
    let protocol = handles::with(p, |entry| entry.protocol).flatten();
    // SAFETY: as above.
    let fd = unsafe { system::pcap_fileno(p) };
    // SAFETY: the handle's descriptor is open as long as the handle.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let group = membership.group;
    let protocol = protocol.unwrap_or(packet::ETH_P_ALL);
    let foreseen = fanpcap_group::join::foresee(socket, &membership, protocol);
    let request = handles::request(p);
    let wants = request.map_or_else(String::new, |request| request.system_name().to_owned());
    let before = groups.iter().find(|(other, _)| *other == group);
    let apart = match (group, before) {
        (Group::Number(group), Some((_, has))) => {
            let has = has.clone();
            Err(JoinError::OtherDevice { group, has, wants })
        }
        _ => {
            groups.push((group, wants));
            Ok(())
        }
    };
    match foreseen.and(apart) {
        Ok(()) => 0,
        // SAFETY: as above.
        Err(error) => unsafe { fail(p, &membership.blame(&error)) },
    }
}

/// Lets the handle on one of several devices receive: in its group, if it has one.
///
/// # Safety
/// `p` is a handle that was activated silently.
pub(crate) unsafe fn go_live(p: *mut Pcap) -> c_int {
    // SAFETY: the caller vouches for `p`.
    match unsafe { plan(p) } {
        Ok(Plan {
            membership: Some(membership),
            ..
        }) => {
            // SAFETY: as above.
            unsafe { join_group(p, &membership) }
        }
        Ok(_) => {
            let protocol = handles::with(p, |entry| entry.protocol).flatten();
            // SAFETY: as above.
            let fd = unsafe { system::pcap_fileno(p) };
            // SAFETY: the handle's descriptor is open as long as the handle.
            let socket = unsafe { BorrowedFd::borrow_raw(fd) };
            let bound = packet::address(socket).and_then(|address| {
                let protocol = protocol.unwrap_or(packet::ETH_P_ALL);
                packet::bind(
                    socket,
                    Address {
                        protocol,
                        ..address
                    },
                )
            });
            bound.map_or_else(
                // SAFETY: as above.
                |error| unsafe { fail(p, &format!("bind: {error}")) },
                |()| 0,
            )
        }
        Err(status) => status,
    }
}

/// What the settings mean for a handle, or that it has failed by them.
///
/// # Safety
/// `p` is a handle.
unsafe fn plan(p: *mut Pcap) -> Result<Plan, c_int> {
    let request = handles::request(p);
    let plan = |request: Arc<Request>| request.plan(&system::compile);
    let plan = request.map_or_else(|| Ok(Plan::default()), plan);
    // SAFETY: the caller vouches for `p`.
    plan.map_err(|report| unsafe { fail(p, &report.render(ERRBUF_SIZE - 1)) })
}
