//! Activates a handle on the XDP engine. Where the engine can't serve the device, packet sockets
//! stand in for it, and the application gets a warning that tells why.

use crate::default_mode;
use crate::handle::{AskedOnXdp, Handle, WARNING};
use crate::plan::{Plans, provide};
use crate::warnings::warn;
use fanpcap_config::settings::{Membership, OnXdp, Plan, Steal};
use fanpcap_group::join::JoinError;
use fanpcap_linux::packet::{ETH_P_ALL, ETH_P_SILENT};
use std::ffi::c_int;
use std::sync::Arc;

/// Why packets of a device that the host uses are not stolen, after what it is used for.
pub const NOT_STOLEN: &str =
    "so the host would lose packets: write 'steal@DEVICE = force' if it may";

/// Why a handle that has a group of its own joins no other.
pub const ALONE: &str = "a handle on the engine xdp joins a group by pcap_activate() alone: call \
     pcap_fanout() before that, or open another handle for the group and close this one then";

/// Bytes of the ring of the handle's socket, which receives nothing unless it must stand in for the
/// engine: the default of the system's library.
const SILENT_RING: c_int = 2 << 20;

/// Activates a handle. `on_sockets` activates it without the engine.
pub(crate) fn activate<H: Handle>(
    p: H,
    plan: &Plan,
    asked: &OnXdp,
    on_sockets: fn(H, &Plan) -> c_int,
) -> c_int {
    let membership = match membership(p, plan, asked) {
        Ok(membership) => membership,
        Err(text) => return p.fail(&text),
    };
    let mut status = 0;
    if !p.notes().is_unjoined {
        match prepare(p, &membership, asked) {
            Ok(None) => status = activate_silently(p, plan, asked),
            Ok(Some(reason)) => {
                let status = fall_back(p).map_or_else(|status| status, |plan| on_sockets(p, &plan));
                return told(p, status, asked, &reason);
            }
            Err(status) => return status,
        }
    }
    if status < 0 {
        return status;
    }
    p.note(|notes| notes.is_alone = plan.membership.is_none());
    match join(p, &membership, asked) {
        0 => status,
        joined => joined,
    }
}

/// Prepares a handle for the engine. Returns why packet sockets are to stand in for it, if they
/// are.
///
/// # Errors
/// The status of pcap_activate(3PCAP) where they can't either.
pub(crate) fn prepare<H: Handle>(
    p: H,
    membership: &Membership,
    asked: &OnXdp,
) -> Result<Option<String>, c_int> {
    if asked.steal == Steal::Yes {
        if let Some(why) = p.host_use() {
            return Err(p.fail(&format!("{why}, {NOT_STOLEN}")));
        }
    }
    if p.notes().protocol.is_some_and(|it| it != ETH_P_ALL) {
        return Ok(Some(
            "the application captures one protocol alone".to_owned(),
        ));
    }
    match p.prepare_on_xdp(membership, asked.outgoing) {
        Ok(()) => Ok(None),
        Err(error) if error.is_of_engine() => Ok(Some(error.to_string())),
        Err(error) => Err(p.fail(&membership.blame(&error))),
    }
}

/// Activates a handle whose socket receives nothing.
pub(crate) fn activate_silently<H: Handle>(p: H, plan: &Plan, asked: &OnXdp) -> c_int {
    provide(p, plan);
    p.set_buffer_size(SILENT_RING);
    p.set_protocol(ETH_P_SILENT);
    let status = p.activate();
    if status < 0 {
        p.leave_xdp();
        p.set_protocol(p.notes().protocol.unwrap_or(0));
        return status;
    }
    p.note(|notes| {
        notes.on_xdp = Some(AskedOnXdp {
            steal: asked.steal,
            outgoing: asked.outgoing,
        });
    });
    status
}

/// The handle's group. A handle without one has a group of its own.
pub(crate) fn membership<H: Handle>(
    p: H,
    plan: &Plan,
    asked: &OnXdp,
) -> Result<Membership, String> {
    if let Some(membership) = &plan.membership {
        return Ok(membership.clone());
    }
    let alone = Membership::alone_at_xdp(&asked.origin, p.compiler());
    alone.map_err(|report| report.to_string())
}

fn join<H: Handle>(p: H, membership: &Membership, asked: &OnXdp) -> c_int {
    let joined = match p.group() {
        Some(_) => Ok(()),
        None => default_mode::join(p, membership, &[]),
    };
    match joined {
        Ok(()) => match p.take_over_on_xdp() {
            Ok(()) => {
                p.note(|notes| notes.is_unjoined = false);
                p.publish_counters();
                warn(p)
            }
            Err(text) => p.fail(&text),
        },
        Err(error) if error.is_of_engine() => stand_in(p, asked, &error),
        Err(error) => unjoined(p, membership, &error),
    }
}

/// Reports why a handle can't join. The application may call again.
fn unjoined<H: Handle>(p: H, membership: &Membership, error: &JoinError) -> c_int {
    p.note(|notes| notes.is_unjoined = true);
    p.fail(&membership.blame(error))
}

/// Lets the socket of an activated handle receive after all, as the engine can't serve the device.
fn stand_in<H: Handle>(p: H, asked: &OnXdp, error: &JoinError) -> c_int {
    let plan = match fall_back(p) {
        Ok(plan) => plan,
        Err(status) => return status,
    };
    p.note(|notes| {
        notes.on_xdp = None;
        notes.is_alone = false;
    });
    p.take_over();
    let received = match &plan.membership {
        Some(membership) => default_mode::join(p, membership, &[]).is_ok(),
        None => p.bind().is_ok(),
    };
    if !received {
        p.note(|notes| notes.is_unjoined = true);
        return p.fail(&format!("{error} (set by {})", asked.origin));
    }
    p.note(|notes| notes.is_unjoined = false);
    p.truncate(p);
    p.publish_counters();
    told(p, 0, asked, &error.to_string())
}

/// Plans the handle with packet sockets in the place of the engine, also for later calls.
pub(crate) fn fall_back<H: Handle>(p: H) -> Result<Plan, c_int> {
    p.leave_xdp();
    if let Some(request) = p.request() {
        p.remember(Arc::new(request.falling_back()));
    }
    Plans::new().of(p).cloned()
}

/// Tells the application of a handle that works why packet sockets stand in for the engine, or that
/// the device is none that the kernel gives packets of, such as libpcap's `nflog`.
pub(crate) fn told<H: Handle>(p: H, status: c_int, asked: &OnXdp, reason: &str) -> c_int {
    if status < 0 {
        return status;
    }
    let origin = &asked.origin;
    let stranger = p.request().filter(|_| !p.is_on_interfaces());
    p.fail(&match stranger {
        None => format!("packet sockets are read, not the engine xdp: {reason} (set by {origin})"),
        Some(request) => format!(
            "{} is no network interface: libpcap reads it, not the engine xdp (set by {origin})",
            request.system_name()
        ),
    });
    WARNING
}
