//! Activates a handle on one device by its settings, and joins its group.

use crate::default_mode;
use crate::handle::{Handle, PERM_DENIED, PartState, WARNING};
use crate::on_xdp;
use crate::placement;
use crate::plan::{Plans, provide};
use crate::warnings::warn;
use fanpcap_config::settings::{Membership, Plan};
use fanpcap_group::join::JoinError;
use fanpcap_linux::packet::ETH_P_SILENT;
use std::ffi::c_int;

/// Activates a handle on one device.
pub(crate) fn activate<H: Handle>(p: H) -> c_int {
    let mut plans = Plans::new();
    let placed = plans.of(p).and_then(|plan| {
        placement::place(p, plan)?;
        Ok(plan)
    });
    match placed {
        Ok(plan) => match &plan.on_xdp {
            Some(asked) => on_xdp::activate(p, plan, asked, activate_as),
            None => activate_as(p, plan),
        },
        Err(status) => status,
    }
}

fn activate_as<H: Handle>(p: H, plan: &Plan) -> c_int {
    provide(p, plan);
    match &plan.membership {
        Some(membership) => activate_in_group(p, membership),
        None if plan.is_read_by_us() => activate_alone(p, plan.by_name),
        None => p.activate(),
    }
}

/// Activates a handle that our reader reads and that joins no group. If the system's library has to
/// read it, an application that asked for our reader `by_name` gets a warning. Others can't notice
/// the difference.
fn activate_alone<H: Handle>(p: H, by_name: bool) -> c_int {
    let status = activate_taken_over(p);
    if status < 0 {
        return status;
    }
    p.truncate(p);
    if status > 0 || p.is_read_by_us() || !by_name {
        return status;
    }
    p.fail("fanpcap can't read this device: the system's libpcap does");
    WARNING
}

fn activate_taken_over<H: Handle>(p: H) -> c_int {
    let status = p.activate();
    if status >= 0 && p.notes().part == PartState::None {
        p.take_over();
    }
    status
}

/// Activates the handle silently, then joins. A handle that can't join stays activated in the
/// system's library. For the application the handle is not activated: it may call again.
fn activate_in_group<H: Handle>(p: H, membership: &Membership) -> c_int {
    let status = match p.notes().is_unjoined {
        true => 0,
        false => activate_silently(p),
    };
    if status == PERM_DENIED {
        let is_steered = membership.steering.is_some() && !membership.is_default;
        let reason = p.error();
        p.fail(&membership.blame(&JoinError::NotPermitted { reason, is_steered }));
    }
    if status < 0 {
        return status;
    }
    match join(p, membership, &[]) {
        0 => status,
        joined => joined,
    }
}

/// Makes the system's library bind the handle to a protocol that no frame carries.
pub(crate) fn activate_silently<H: Handle>(p: H) -> c_int {
    p.set_protocol(ETH_P_SILENT);
    let status = activate_taken_over(p);
    if status < 0 {
        // The application may activate the handle again, without a group.
        p.set_protocol(p.notes().protocol.unwrap_or(0));
    }
    status
}

/// Joins a group with a silent handle, unless pcap_fanout(3PCAP) has joined meanwhile. `together`
/// is as [`Handle::join`] says.
pub(crate) fn join<H: Handle>(p: H, membership: &Membership, together: &[H]) -> c_int {
    let joined = match p.group() {
        Some(_) => Ok(()),
        None => default_mode::join(p, membership, together),
    };
    p.note(|notes| notes.is_unjoined = joined.is_err());
    match joined {
        Ok(()) => {
            p.truncate(p);
            p.publish_counters();
            warn(p)
        }
        Err(error) => p.fail(&membership.blame(&error)),
    }
}
