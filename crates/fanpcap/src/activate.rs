//! pcap_activate(3PCAP), for a handle on one device or several, on any engine.
//!
//! First the devices get the settings that were asked for. Then the engine is prepared on all
//! devices; if one device refuses it, packet sockets replace the engine on all. Then each device's
//! handle is activated. A handle that joins a group, or is one of several, is activated silently,
//! so that no handle receives packets before all handles can receive packets. Our reader is
//! installed, and each handle joins its group. A handle that can't join stays activated and silent,
//! and the application may call pcap_activate() again.

use crate::default_mode::{self, one_device, spans_devices};
use crate::engine;
use crate::gone;
use crate::handle::{Handle, NO_SUCH_DEVICE, PERM_DENIED, PartState, Setting, WARNING};
use crate::placement;
use crate::plan::{Plans, provide};
use crate::polled;
use crate::several::{Failed, all, blame, each, note_live, take_over};
use crate::warnings::warn;
use fanpcap_config::device::{ANY, Device};
use fanpcap_config::settings::{Group, GroupChoice, Plan};
use fanpcap_group::join::JoinError;
use fanpcap_linux::packet::ETH_P_SILENT;
use std::ffi::c_int;

/// Activates a handle by its settings. A handle with a group has joined the group if this function
/// returns 0 or more.
pub fn activate<H: Handle>(p: H) -> c_int {
    let all = all(p);
    let mut plans = Plans::new();
    let activated = activate_all(p, &all, &mut plans).map(|status| match plans.of(p) {
        Ok(plan) if status >= 0 => gone::expect(p, plan, status),
        Ok(_) | Err(_) => status,
    });
    activated.unwrap_or_else(|(failed, status)| {
        if failed != p {
            blame(p, failed);
        }
        status
    })
}

fn activate_all<H: Handle>(p: H, all: &[H], plans: &mut Plans<H>) -> Result<c_int, Failed<H>> {
    for &part in all {
        let placed = plans.of(part).and_then(|plan| placement::place(part, plan));
        placed.map_err(|status| (part, status))?;
    }
    let stand_in = engine::settle(all, plans)?;
    let is_one = all.len() == 1;
    let activated = each(p, |part| match plans.of(part) {
        Ok(plan) => activate_part(part, plan, is_one),
        Err(status) => status,
    });
    if activated < 0 {
        if activated == NO_SUCH_DEVICE {
            propose_engine(p);
        }
        return Ok(activated);
    }
    let live = match p.notes().on_engine {
        Some(asked) if asked.engine.is_polled() => polled::enter(p, all, plans)?,
        Some(_) => engine::join(p, all, plans)?,
        None => receive(p, all, plans, activated)?,
    };
    let status = if live == 0 { activated } else { live };
    Ok(match stand_in {
        Some((asked, reason)) => engine::told(p, status, &asked, &reason),
        None => status,
    })
}

/// Activates the handle on one device. If the application's handle is on several devices, a handle
/// whose activation failed is not activated again: the system's library might crash.
fn activate_part<H: Handle>(p: H, plan: &Plan, is_one: bool) -> c_int {
    match p.notes().part {
        PartState::Silent => return 0,
        // The system's library reports that the handle is activated.
        PartState::Live => return p.activate(),
        PartState::Failed => return p.fail("this handle could not be activated: open a new one"),
        PartState::None | PartState::New => {}
    }
    if !is_one && !is_there(p) {
        // The handle is not activated yet, so a later call can succeed once the device exists.
        p.fail("No such device exists");
        return NO_SUCH_DEVICE;
    }
    let status = match engine::asked(plan) {
        Some(asked) => engine::activate_silently(p, plan, asked),
        None => {
            provide(p, plan);
            if is_one && plan.choice.is_none() {
                return p.activate();
            }
            activate_silently(p)
        }
    };
    match (status, &plan.polled, &plan.choice) {
        (PERM_DENIED, Some(asked), _) => {
            p.fail(&polled::not_permitted(asked.engine, &p.error()));
        }
        (PERM_DENIED, None, Some(choice)) => {
            let is_steered = choice.steering.is_some() && !choice.is_default;
            let reason = p.error();
            p.fail(&choice.blame(&JoinError::NotPermitted { reason, is_steered }));
        }
        _ => {}
    }
    let part = match (status < 0, is_one) {
        (false, _) => PartState::Silent,
        (true, true) => PartState::None,
        (true, false) => PartState::Failed,
    };
    p.note(|notes| notes.part = part);
    status
}

/// Adds to the error about a device that does not exist the engine whose name may be misspelt.
fn propose_engine<H: Handle>(p: H) {
    let request = p.request();
    let meant = request.and_then(|request| Device::meant(request.system_name()));
    if let Some(meant) = meant {
        p.fail(&format!("{}; did you mean '{meant}'?", p.error()));
    }
}

fn is_there<H: Handle>(p: H) -> bool {
    let request = p.request();
    let name = request.as_ref().map(|request| request.system_name());
    name.is_none_or(|name| name == ANY || p.finds(name))
}

/// Makes the system's library bind the handle to a protocol that no frame carries.
fn activate_silently<H: Handle>(p: H) -> c_int {
    p.set(Setting::Protocol(ETH_P_SILENT));
    let status = p.activate();
    if status < 0 {
        // The application may activate the handle again, without a group.
        p.set(Setting::Protocol(p.notes().protocol.unwrap_or(0)));
    }
    status
}

/// Starts reception by packet sockets on all devices; each handle joins its group. `activated` is
/// the status that activation returned.
fn receive<H: Handle>(
    p: H,
    all: &[H],
    plans: &mut Plans<H>,
    activated: c_int,
) -> Result<c_int, Failed<H>> {
    let plan = plans.of(p).map_err(|status| (p, status))?;
    let is_one = all.len() == 1;
    if is_one && !plan.is_read_by_us() {
        return Ok(0);
    }
    take_over(p, all)?;
    if is_one && plan.choice.is_none() {
        let by_name = plan.by_name && activated == 0;
        // An earlier call activated the handle silently, for an engine that packet sockets now
        // replace.
        if p.notes().part == PartState::Silent {
            p.bind()
                .map_err(|error| (p, p.fail(&format!("bind: {error}"))))?;
            note_live(p, all);
        }
        return Ok(alone(p, by_name));
    }
    let mut groups = Vec::new();
    if !is_one {
        let foreseen = each(p, |part| match plans.of(part) {
            Ok(plan) => foresee(part, plan, &mut groups),
            Err(status) => status,
        });
        if foreseen < 0 {
            return Ok(foreseen);
        }
    }
    let live = each(p, |part| match plans.of(part) {
        Ok(plan) => go_live(part, plan, &groups),
        Err(status) => status,
    });
    if live >= 0 {
        note_live(p, all);
    }
    Ok(live)
}

/// Starts a handle that joins no group and that our reader shall read. If the system's library has
/// to read the handle, an application that asked for our reader `by_name` gets a warning. Other
/// applications get no warning, because they can't notice the difference.
fn alone<H: Handle>(p: H, by_name: bool) -> c_int {
    p.truncate(p);
    if p.is_read_by_us() || !by_name {
        return 0;
    }
    p.fail("fanpcap can't read this device: the system's libpcap does");
    WARNING
}

/// A group that the application's handle joins, and the handles on the group's devices, in the
/// devices' order.
struct OneGroup<H> {
    choice: GroupChoice,
    parts: Vec<H>,
}

/// Checks whether the handle on one device could join its group. The check is needed because a
/// handle that has joined can't leave when another handle fails. `groups` are the groups of the
/// devices before this one.
fn foresee<H: Handle>(p: H, plan: &Plan, groups: &mut Vec<OneGroup<H>>) -> c_int {
    let Some(choice) = &plan.choice else {
        return 0;
    };
    let mut groups_before = groups.iter_mut();
    if let Some(whole) = groups_before.find(|it| is_one_group(&it.choice, choice)) {
        whole.parts.push(p);
        return 0;
    }
    let foreseen = match p.group() {
        None => default_mode::foresee(p, choice),
        Some(_) => Ok(()),
    };
    let mut numbers = groups.iter().map(|it| it.choice.group);
    let apart = match choice.group {
        Group::Number(group) if numbers.any(|it| it == choice.group) => {
            Err(one_device(group, choice, p))
        }
        Group::Number(_) | Group::New => Ok(()),
    };
    groups.push(OneGroup {
        choice: choice.clone(),
        parts: vec![p],
    });
    match foreseen.and(apart) {
        Ok(()) => 0,
        Err(error) => p.fail(&choice.blame(&error)),
    }
}

/// Whether the handles on two devices are in one group.
fn is_one_group(one: &GroupChoice, other: &GroupChoice) -> bool {
    let is_same = (one.group, one.mode) == (other.group, other.mode);
    is_same && spans_devices(one) && one.steering == other.steering
}

/// Starts reception on one device, in its group if it has one.
fn go_live<H: Handle>(p: H, plan: &Plan, groups: &[OneGroup<H>]) -> c_int {
    let Some(choice) = &plan.choice else {
        return match p.bind() {
            Ok(()) => 0,
            Err(error) => p.fail(&format!("bind: {error}")),
        };
    };
    let whole = groups.iter().find(|it| it.parts.contains(&p));
    let parts = whole.map_or(&[][..], |it| &it.parts);
    let together = if parts.len() > 1 { parts } else { &[] };
    // A call of pcap_fanout(3PCAP) may already have joined the group.
    let joined = match p.group() {
        Some(_) => Ok(()),
        None => default_mode::join(p, choice, together),
    };
    match joined {
        Ok(()) => {
            p.truncate(p);
            p.publish_counters();
            warn(p)
        }
        Err(error) => p.fail(&choice.blame(&error)),
    }
}
