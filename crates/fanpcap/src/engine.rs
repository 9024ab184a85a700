//! Handles on an engine other than packet sockets: either all devices of a handle are on the
//! engine, or none is. If the engine can't serve one device, packet sockets replace the engine, and
//! the application gets a warning with the reason.

use crate::default_mode;
use crate::handle::{AskedOfEngine, Handle, PartState, Setting, WARNING};
use crate::plan::{Plans, provide};
use crate::polled;
use crate::several::{Failed, each, note_live, take_over};
use crate::warnings::warn;
use fanpcap_config::driver::Driver;
use fanpcap_config::settings::{Group, GroupChoice, OnEngine, Plan, Steal};
use fanpcap_group::join::JoinError;
use fanpcap_linux::packet::{ETH_P_ALL, ETH_P_SILENT};
use std::ffi::c_int;
use std::sync::Arc;

/// The error of `steal` on a device that the host uses. `why` says how the host uses it.
pub fn not_stolen(device: &str, why: &str) -> String {
    format!(
        "the host uses {device}: {why}, so the host would lose packets: write \
         'steal@{device} = force' if it may"
    )
}

/// The error of pcap_fanout() after activation for a handle that has a private group on this
/// engine.
pub fn alone(engine: Driver) -> String {
    format!(
        "a handle on the engine {engine} joins a group only in pcap_activate(): call pcap_fanout() \
         before that, or open another handle for the group and then close this one"
    )
}

/// Bytes of the ring of the handle's silent socket: the default of the system's library. The socket
/// receives packets only if it must replace the engine.
const SILENT_RING: c_int = 2 << 20;

/// The setting that asked for the engine, and why packet sockets replace it.
pub(crate) type StandIn = (OnEngine, String);

/// Prepares the handles on all devices before any of them is activated. If packet sockets have to
/// replace the engine on one device, they replace it on all.
///
/// # Errors
/// The handle that failed, and the status of pcap_activate(3PCAP).
pub(crate) fn settle<H: Handle>(
    all: &[H],
    plans: &mut Plans<H>,
) -> Result<Option<StandIn>, Failed<H>> {
    let is_live = |part: &H| part.notes().part == PartState::Live;
    if all.iter().any(is_live) {
        return Ok(None);
    }
    if let Some(polled) = polled::of_no_interface(all, plans)? {
        fall_back(all[0]).map_err(|status| (all[0], status))?;
        *plans = Plans::new();
        let asked = OnEngine {
            engine: polled.engine,
            steal: Steal::No,
            outgoing: polled.outgoing,
            origin: polled.origin,
        };
        return Ok(Some((asked, "a poller serves single devices".to_owned())));
    }
    // The application may have called pcap_fanout() since an activation that failed.
    if polled::settle(all, plans)? {
        return Ok(None);
    }
    let is_new = |part: &H| matches!(part.notes().part, PartState::None | PartState::New);
    if !all.iter().all(is_new) {
        return Ok(None);
    }
    let mut first = None;
    let mut reason = None;
    for &part in all {
        let plan = plans.of(part).map_err(|status| (part, status))?;
        match &plan.on_engine {
            Some(asked) => first = first.or_else(|| Some(asked.clone())),
            None => reason = Some("not all devices of the handle are to be on it".to_owned()),
        }
    }
    let Some(asked) = first else {
        return Ok(None);
    };
    // The handles are prepared in the order of their devices' names. All handles on several devices
    // use this order. With different orders two handles could wait for each other, because
    // newcomers to a device wait for each other.
    let name = |part: &H| part.request().map(|it| it.system_name().to_owned());
    let mut left = all.to_vec();
    while let Some(first) = (0..left.len()).min_by_key(|&at| name(&left[at])) {
        let part = left.swap_remove(first);
        if reason.is_none() {
            let refused = prepare(part, plans).map_err(|status| (part, status))?;
            reason = refused.map(|reason| match name(&part).filter(|_| all.len() > 1) {
                Some(name) => format!("{name}: {reason}"),
                None => reason,
            });
        }
    }
    let Some(reason) = reason else {
        return Ok(None);
    };
    for &part in all {
        fall_back(part).map_err(|status| (part, status))?;
    }
    *plans = Plans::new();
    Ok(Some((asked, reason)))
}

/// Prepares a handle for its engine. Returns the reason if packet sockets have to replace the
/// engine.
///
/// # Errors
/// The status of pcap_activate(3PCAP) if packet sockets can't replace the engine either.
pub(crate) fn prepare<H: Handle>(p: H, plans: &mut Plans<H>) -> Result<Option<String>, c_int> {
    let plan = plans.of(p)?;
    let Some(asked) = &plan.on_engine else {
        return Ok(None);
    };
    let choice = choice(p, plan, asked).map_err(|text| p.fail(&text))?;
    if asked.steal == Steal::Yes {
        if let Some(why) = p.host_use() {
            let request = p.request();
            let device = request.as_ref().map_or("DEVICE", |it| it.system_name());
            return Err(p.fail(&not_stolen(device, why)));
        }
    }
    if p.notes().protocol.is_some_and(|it| it != ETH_P_ALL) {
        return Ok(Some(
            "the application captures only one protocol".to_owned(),
        ));
    }
    match p.prepare(&choice, asked) {
        Ok(()) => Ok(None),
        Err(error) if error.is_of_engine() => Ok(Some(error.to_string())),
        Err(error) => Err(p.fail(&choice.blame(&error))),
    }
}

/// Activates a handle silently, for an engine or a poller.
pub(crate) fn activate_silently<H: Handle>(p: H, plan: &Plan, asked: AskedOfEngine) -> c_int {
    provide(p, plan);
    p.set(Setting::BufferSize(SILENT_RING));
    p.set(Setting::Protocol(ETH_P_SILENT));
    let status = p.activate();
    if status < 0 {
        p.forget();
        p.set(Setting::Protocol(p.notes().protocol.unwrap_or(0)));
        return status;
    }
    p.note(|notes| notes.on_engine = Some(asked));
    status
}

/// The requirements for the engine or the poller of a plan; `None` for packet sockets.
pub(crate) fn asked(plan: &Plan) -> Option<AskedOfEngine> {
    let of_poller = || {
        plan.polled.as_ref().map(|polled| AskedOfEngine {
            engine: polled.engine,
            steal: Steal::No,
            outgoing: polled.outgoing,
        })
    };
    let on_engine = plan.on_engine.as_ref().map(|asked| AskedOfEngine {
        engine: asked.engine,
        steal: asked.steal,
        outgoing: asked.outgoing,
    });
    on_engine.or_else(of_poller)
}

/// The handle's group: a private group if the handle has asked for none.
fn choice<H: Handle>(p: H, plan: &Plan, asked: &OnEngine) -> Result<GroupChoice, String> {
    if let Some(choice) = &plan.choice {
        return Ok(choice.clone());
    }
    let alone = GroupChoice::alone_on_engine(&asked.origin, p.compiler());
    alone.map_err(|report| report.to_string())
}

/// Joins the groups of all devices. The handles on these devices are already activated silently.
///
/// # Errors
/// As [`settle`].
pub(crate) fn join<H: Handle>(p: H, all: &[H], plans: &mut Plans<H>) -> Result<c_int, Failed<H>> {
    let mut choices: Vec<GroupChoice> = Vec::new();
    for &part in all {
        let plan = plans.of(part).map_err(|status| (part, status))?;
        let on_engine = plan.on_engine.as_ref();
        let chosen = on_engine.map(|asked| choice(part, plan, asked));
        let chosen =
            chosen.unwrap_or_else(|| Err("not on an engine that takes devices".to_owned()));
        choices.push(chosen.map_err(|text| (part, part.fail(&text)))?);
    }
    for (&part, choice) in all.iter().zip(&choices) {
        if part.group().is_some() {
            continue;
        }
        match default_mode::join(part, choice, &beside(all, &choices, choice)) {
            Ok(()) => {
                let is_alone = plans.of(part).is_ok_and(|plan| plan.choice.is_none());
                part.note(|notes| notes.is_alone = is_alone);
            }
            Err(error) if all.len() == 1 && error.is_of_engine() => {
                return stand_in(p, plans, &error);
            }
            Err(error) => return Err((part, part.fail(&choice.blame(&error)))),
        }
    }
    take_over(p, all)?;
    note_live(p, all);
    if let [_] = all {
        p.publish_counters();
    }
    Ok(each(p, warn))
}

/// Joins the group again, after the device was gone. The handle is prepared.
///
/// # Errors
/// Why the handle can't join.
pub(crate) fn join_again<H: Handle>(p: H, plan: &Plan) -> Result<(), String> {
    let Some(asked) = &plan.on_engine else {
        return Err("not on an engine that takes devices".to_owned());
    };
    let choice = choice(p, plan, asked)?;
    default_mode::join(p, &choice, &[]).map_err(|error| choice.blame(&error))
}

/// The handles on all devices of `own`'s group; empty if the group has one device.
fn beside<H: Handle>(all: &[H], choices: &[GroupChoice], own: &GroupChoice) -> Vec<H> {
    let is_beside =
        |other: &GroupChoice| matches!(other.group, Group::Number(_)) && other.group == own.group;
    let beside = all.iter().zip(choices);
    let beside = beside.filter(|(_, other)| is_beside(other));
    let together: Vec<H> = beside.map(|(part, _)| *part).collect();
    if together.len() > 1 {
        together
    } else {
        Vec::new()
    }
}

/// Replaces the engine, which can't serve the device, by the packet socket of the handle `p`. The
/// handle is activated already, and silent.
fn stand_in<H: Handle>(p: H, plans: &mut Plans<H>, error: &JoinError) -> Result<c_int, Failed<H>> {
    let plan = plans.of(p).map_err(|status| (p, status))?;
    let Some(asked) = plan.on_engine.clone() else {
        return Err((p, p.fail(&error.to_string())));
    };
    p.note(|notes| notes.on_engine = None);
    let plan = fall_back(p).map_err(|status| (p, status))?;
    take_over(p, &[p])?;
    let received = match &plan.choice {
        Some(choice) => default_mode::join(p, choice, &[]).is_ok(),
        None => p.bind().is_ok(),
    };
    if !received {
        let origin = &asked.origin;
        return Err((p, p.fail(&format!("{error} (set by {origin})"))));
    }
    p.truncate(p);
    p.publish_counters();
    note_live(p, &[p]);
    Ok(told(p, 0, &asked, &error.to_string()))
}

/// Makes a plan with packet sockets instead of the engine. Later calls use this plan too.
fn fall_back<H: Handle>(p: H) -> Result<Plan, c_int> {
    p.forget();
    if let Some(request) = p.request() {
        p.remember(Arc::new(request.falling_back()));
    }
    Plans::new().of(p).cloned()
}

/// Warns the application that packet sockets replace the engine, and why. The handle works all the
/// same. For libpcap's own devices, such as `nflog`, the warning says that they are no network
/// interfaces, and leaves `reason` out.
pub(crate) fn told<H: Handle>(p: H, status: c_int, asked: &OnEngine, reason: &str) -> c_int {
    if status < 0 {
        return status;
    }
    let OnEngine { engine, origin, .. } = asked;
    let stranger = p.request().filter(|_| !p.is_on_interfaces());
    p.fail(&match stranger {
        None => {
            format!("packet sockets are read, not the engine {engine}: {reason} (set by {origin})")
        }
        Some(request) => format!(
            "{} is no network interface: libpcap reads it, not the engine {engine} (set by {origin})",
            request.system_name()
        ),
    });
    WARNING
}
