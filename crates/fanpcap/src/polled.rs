//! Handles whose packets come from a poller. The handle is activated silently, as for an engine
//! that attaches to devices, and then enters a group of its device's poller. If the handle can't
//! enter, the application gets an error: packet sockets do not replace a poller.

use crate::handle::Handle;
use crate::plan::Plans;
use crate::several::{Failed, each, note_live, take_over};
use crate::warnings::warn;
use fanpcap_config::device::ANY;
use fanpcap_config::driver::Driver;
use fanpcap_config::settings::{Group, GroupChoice, Plan, Polled};
use fanpcap_group::join::{JoinError, NO_POLLER, SILENT_POLLER};
use fanpcap_linux::packet::ETH_P_ALL;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

/// The error of a handle on several devices of which only some have a poller. `engine` is the
/// engine of a device that has one.
pub fn mixed(engine: &str) -> String {
    format!(
        "not all devices of the handle are on the engine {engine}: open a handle for each, or set \
         the driver of all"
    )
}

/// The error of a handle whose application has called pcap_set_protocol_linux(3PCAP).
pub fn one_protocol(engine: &str) -> String {
    format!(
        "the application captures only one protocol, but the engine {engine} captures all: leave \
         pcap_set_protocol_linux() out, and set a filter"
    )
}

/// The error of a process that may open no packet socket, not even one that receives nothing.
/// `reason` is the error of the system's library.
pub fn not_permitted(engine: Driver, reason: &str) -> String {
    match engine.has_poller() {
        true => format!("{reason}: a handle of a poller needs CAP_NET_RAW or user namespaces"),
        // A kernel module of others checks the same privileges when it opens the device.
        false => format!("{reason}: the engine {engine} needs CAP_NET_RAW and CAP_NET_ADMIN"),
    }
}

/// The error of pcap_inject(3PCAP) on a handle that has no packet socket on its device,
/// and whose poller sends nothing for it.
pub const NOT_SENT: &str = "send: the handle has no socket on the device, and its poller sends no \
                            frames of members: give this process CAP_NET_RAW, or start the poller \
                            with --send";

/// The plan of a handle whose device no poller can serve, because the device is no network
/// interface, or all of them; `None` for other handles. libpcap reads such a device.
///
/// # Errors
/// The handle, and the status to return when its settings are wrong.
pub(crate) fn of_no_interface<H: Handle>(
    all: &[H],
    plans: &mut Plans<H>,
) -> Result<Option<Polled>, Failed<H>> {
    let [p] = all else {
        return Ok(None);
    };
    let request = p.request();
    let device = request.as_ref().map_or(ANY, |it| it.system_name());
    let plan = plans.of(*p).map_err(|status| (*p, status))?;
    let is_strange = device == ANY || !p.finds(device);
    Ok(plan.polled.clone().filter(|_| is_strange))
}

/// Whether the packets of the handles come from pollers.
///
/// # Errors
/// Why no poller can serve all the handles.
pub(crate) fn settle<H: Handle>(all: &[H], plans: &mut Plans<H>) -> Result<bool, Failed<H>> {
    let mut engines = Vec::new();
    for &part in all {
        let plan = plans.of(part).map_err(|status| (part, status))?;
        engines.push(plan.polled.as_ref().map(|polled| polled.engine));
    }
    let Some(engine) = engines.iter().flatten().next() else {
        return Ok(false);
    };
    let first = all[0];
    let failed = |text: &str| Err((first, first.fail(text)));
    if engines.contains(&None) {
        return failed(&mixed(engine.name()));
    }
    if all
        .iter()
        .any(|part| part.notes().protocol.is_some_and(|it| it != ETH_P_ALL))
    {
        return failed(&one_protocol(engine.name()));
    }
    Ok(true)
}

/// Enters the groups of the pollers of all devices. The handles on these devices are activated
/// silently.
///
/// # Errors
/// The handle that failed, and the status of pcap_activate(3PCAP).
pub(crate) fn enter<H: Handle>(p: H, all: &[H], plans: &mut Plans<H>) -> Result<c_int, Failed<H>> {
    let whole = number_of(all);
    let mut entered_groups = Vec::new();
    for &part in all {
        let plan = plans.of(part).map_err(|status| (part, status))?;
        let Some(polled) = &plan.polled else {
            return Err((
                part,
                part.fail("the settings have changed: open a new handle"),
            ));
        };
        let choice = plan.choice.as_ref();
        let group = choice.map(|choice| choice.group);
        let is_same = |(other, _): &&(Group, u64)| group == Some(*other) && *other != Group::New;
        let same = entered_groups.iter().find(is_same);
        let poller = same.map_or(0, |(_, poller)| *poller);
        part.note(|notes| (notes.whole, notes.poller) = (whole, poller));
        let entered = part.enter(choice, polled);
        let failed = |error| (part, part.fail(&blamed(choice, polled, &error)));
        let poller = entered.map_err(failed)?;
        entered_groups.extend(group.map(|group| (group, poller)));
        let is_new = choice.is_some_and(|choice| choice.group == Group::New);
        let new_group = part.group().map(|it| it.group).filter(|_| is_new);
        part.note(|notes| {
            notes.is_alone = choice.is_none();
            notes.new_group = new_group;
        });
    }
    take_over(p, all)?;
    note_live(p, all);
    if let [_] = all {
        p.publish_counters();
    }
    Ok(each(p, warn))
}

/// The number that the handles on all devices have in common; 0 for one device. A handle keeps it
/// if its activation fails and is tried again.
fn number_of<H: Handle>(all: &[H]) -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    match all.first().map_or(0, |first| first.notes().whole) {
        _ if all.len() < 2 => 0,
        0 => LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1),
        number => number,
    }
}

/// Why a handle does not enter its group again.
pub(crate) enum NotEntered {
    /// No poller serves the device, or the poller does not answer.
    NoPoller,
    /// For another reason.
    Refused(String),
}

/// Enters the group again, after the poller or the device was gone. A new group keeps the number
/// that its handle got at first: all its members enter again, and if a poller gave them other
/// numbers, it would mix the members of several groups.
///
/// # Errors
/// Why the handle does not enter.
pub(crate) fn enter_again<H: Handle>(p: H, plan: &Plan, polled: &Polled) -> Result<(), NotEntered> {
    let mut choice = plan.choice.clone();
    if let (Some(choice), Some(number)) = (&mut choice, p.notes().new_group) {
        if choice.group == Group::New {
            choice.group = Group::Number(number);
        }
    }
    let choice = choice.as_ref();
    let entered = p.enter(choice, polled).map(drop);
    entered.map_err(|error| match error.slug() {
        NO_POLLER | SILENT_POLLER => NotEntered::NoPoller,
        _ => NotEntered::Refused(blamed(choice, polled, &error)),
    })
}

/// The error with the settings that ask for the group and the engine. Leaves out a device's name,
/// which the error has already.
fn blamed(choice: Option<&GroupChoice>, polled: &Polled, error: &JoinError) -> String {
    let is_name = polled.origin.starts_with(&format!("{}:", polled.engine));
    match choice {
        _ if error.slug() == NO_POLLER && is_name => error.to_string(),
        Some(choice) if error.slug() != NO_POLLER => choice.blame(error),
        None if is_name => error.to_string(),
        Some(_) | None => format!("{error} (set by {})", polled.origin),
    }
}
