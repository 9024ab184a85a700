//! A handle on several devices. The application has the handle on the first device; the library has
//! the others.

use crate::default_mode::{self, one_device, spans_devices};
use crate::handle::{Handle, NO_SUCH_DEVICE, PartState};
use crate::plan::{Plans, provide};
use crate::{on_xdp, placement, several_on_xdp, single};
use fanpcap_config::device::ANY;
use fanpcap_config::settings::{Group, Membership, Plan};
use std::ffi::c_int;
use std::iter;

/// Milliseconds within which each device must hand over its packets. The merge waits that long.
pub const LATEST: c_int = 20;

/// The time-out of a handle whose application asks for `timeout`. If several devices are merged,
/// none may be much later than the others.
pub fn timeout<H: Handle>(p: H, timeout: c_int) -> c_int {
    match timeout {
        0 if is_several(p) => LATEST,
        1.. if is_several(p) => timeout.min(LATEST),
        _ => timeout,
    }
}

/// Whether `p` has several devices.
pub fn is_several<H: Handle>(p: H) -> bool {
    p.others().is_some()
}

/// The handles on all devices of `p`, which is the first.
pub fn all<H: Handle>(p: H) -> Vec<H> {
    let others = p.others();
    let others = others.iter().flat_map(|others| others.iter());
    iter::once(p).chain(others.copied()).collect()
}

/// Applies `apply` to the handle of every device and stops at the first error. Copies the text of
/// that error, or of the first warning, to `p`. Returns its status.
pub fn each<H: Handle>(p: H, mut apply: impl FnMut(H) -> c_int) -> c_int {
    let mut first = apply(p);
    if first < 0 {
        return first;
    }
    // Build no list here: signal handlers may call pcap_stats().
    let others = p.others();
    for &other in others.iter().flat_map(|others| others.iter()) {
        let status = apply(other);
        if status < 0 || (status > 0 && first == 0) {
            blame(p, other);
            first = status;
        }
        if status < 0 {
            break;
        }
    }
    first
}

/// Copies the error text of `other` to `p`.
fn blame<H: Handle>(p: H, other: H) {
    let request = other.request();
    let name = request.as_ref().map_or("", |request| request.system_name());
    p.fail(&format!("{name}: {}", other.error()));
}

/// Activates the handle on each device, by its own settings, and reads them together. The handles
/// receive packets only when all of them can. If one fails, the application may try again.
pub(crate) fn activate<H: Handle>(p: H) -> c_int {
    let mut plans = Plans::new();
    let all = all(p);
    let placed = each(p, |part| {
        let plan = plans.of(part);
        let placed = plan.and_then(|plan| placement::place(part, plan));
        placed.err().unwrap_or(0)
    });
    if placed < 0 {
        return placed;
    }
    let stand_in = match several_on_xdp::settle(&all, &mut plans) {
        Ok(stand_in) => stand_in,
        Err(failed) => return blamed(p, failed),
    };
    let activated = each(p, |part| activate_part(part, &mut plans));
    let activated = match &stand_in {
        Some((asked, reason)) => on_xdp::told(p, activated, asked, reason),
        None => activated,
    };
    if activated < 0 {
        return activated;
    }
    if p.notes().on_xdp.is_some() {
        if let Err(failed) = several_on_xdp::join(&all, &mut plans) {
            return blamed(p, failed);
        }
    }
    if let Err(text) = H::take_over_several(&all) {
        return p.fail(&text);
    }
    if p.notes().on_xdp.is_some() {
        note_live(p, all);
        return activated;
    }
    let mut groups = Vec::new();
    let foreseen = each(p, |part| match plans.of(part) {
        Ok(plan) => foresee(part, plan, &mut groups),
        Err(status) => status,
    });
    if foreseen < 0 {
        return foreseen;
    }
    let live = each(p, |part| match plans.of(part) {
        Ok(plan) => go_live(part, plan, &groups),
        Err(status) => status,
    });
    if live >= 0 {
        note_live(p, all);
    }
    if live == 0 { activated } else { live }
}

/// Notes that packets come to all devices of a handle.
fn note_live<H: Handle>(p: H, all: Vec<H>) {
    for part in all {
        part.truncate(p);
        part.note(|notes| notes.part = PartState::Live);
    }
    p.publish_counters();
}

/// Copies the error text of the handle on the device that has failed to `p`. Returns its status.
fn blamed<H: Handle>(p: H, (failed, status): (H, c_int)) -> c_int {
    if failed != p {
        blame(p, failed);
    }
    status
}

/// Activates the handle on one device silently. A handle that was activated stays activated when
/// another one fails. A handle that failed is not activated again, because the system's library may
/// crash then.
fn activate_part<H: Handle>(p: H, plans: &mut Plans<H>) -> c_int {
    match p.notes().part {
        PartState::Silent => return 0,
        // The system's library reports that the handle is activated.
        PartState::Live => return p.activate(),
        PartState::Failed => return p.fail("it could not be activated: open the handle anew"),
        PartState::None | PartState::New => {}
    }
    let plan = match plans.of(p) {
        Ok(plan) => plan,
        Err(status) => return status,
    };
    let request = p.request();
    let name = request.as_ref().map(|request| request.system_name());
    if !name.is_none_or(|name| name == ANY || p.finds(name)) {
        // The handle is not activated yet, so this can work once the device exists.
        p.fail("No such device exists");
        return NO_SUCH_DEVICE;
    }
    let status = if let Some(asked) = &plan.on_xdp {
        on_xdp::activate_silently(p, plan, asked)
    } else {
        provide(p, plan);
        single::activate_silently(p)
    };
    let part = if status < 0 {
        PartState::Failed
    } else {
        PartState::Silent
    };
    p.note(|notes| notes.part = part);
    status
}

/// A group of the handle, and the handles on its devices in their order.
struct OneGroup<H> {
    membership: Membership,
    parts: Vec<H>,
}

/// Checks whether the handle on one device could join its group, because a handle that has joined
/// can't leave when another one fails. `groups` are the groups of the devices before it.
fn foresee<H: Handle>(p: H, plan: &Plan, groups: &mut Vec<OneGroup<H>>) -> c_int {
    let Some(membership) = &plan.membership else {
        return 0;
    };
    let mut groups_before = groups.iter_mut();
    if let Some(whole) = groups_before.find(|it| is_one(&it.membership, membership)) {
        whole.parts.push(p);
        return 0;
    }
    let foreseen = match p.group() {
        None => default_mode::foresee(p, membership),
        Some(_) => Ok(()),
    };
    let mut numbers = groups.iter().map(|it| it.membership.group);
    let apart = match membership.group {
        Group::Number(group) if numbers.any(|it| it == membership.group) => {
            Err(one_device(group, membership, p))
        }
        Group::Number(_) | Group::New => Ok(()),
    };
    groups.push(OneGroup {
        membership: membership.clone(),
        parts: vec![p],
    });
    match foreseen.and(apart) {
        Ok(()) => 0,
        Err(error) => p.fail(&membership.blame(&error)),
    }
}

/// Whether the handles on two devices are in one group.
fn is_one(one: &Membership, other: &Membership) -> bool {
    let is_same = (one.group, one.mode) == (other.group, other.mode);
    is_same && spans_devices(one) && one.steering == other.steering
}

/// Starts reception on one device, in its group if it has one.
fn go_live<H: Handle>(p: H, plan: &Plan, groups: &[OneGroup<H>]) -> c_int {
    match &plan.membership {
        Some(membership) => {
            let whole = groups.iter().find(|it| it.parts.contains(&p));
            let parts = whole.map_or(&[][..], |it| &it.parts);
            let together = if parts.len() > 1 { parts } else { &[] };
            single::join(p, membership, together)
        }
        None => match p.bind() {
            Ok(()) => 0,
            Err(error) => p.fail(&format!("bind: {error}")),
        },
    }
}
