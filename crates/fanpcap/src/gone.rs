//! Handles that wait when their device is gone (`gone = wait`), and capture again when a device of
//! the same name is up.

use crate::default_mode;
use crate::engine;
use crate::handle::{Handle, PartState, WARNING};
use crate::plan::Plans;
use crate::polled::{self, NotEntered};
use fanpcap_config::settings::Plan;
use fanpcap_linux::process::signal::Blocked;
use std::ffi::c_int;
use std::io;

/// Prepares a handle that was activated with `status` for the end of its device.
pub(crate) fn expect<H: Handle>(p: H, plan: &Plan, status: c_int) -> c_int {
    let Some(origin) = &plan.waits_if_gone else {
        return status;
    };
    // A handle on no single interface, such as `any`, never loses it.
    if !p.is_of_one_interface() {
        return status;
    }
    let why = match p.is_read_by_us() {
        true => p.expect_return(origin).err(),
        false => Some("fanpcap can't read this device".to_owned()),
    };
    match why {
        None => status,
        Some(why) => {
            p.fail(&format!(
                "the handle will not wait for its device ({origin}): {why}"
            ));
            status.max(WARNING)
        }
    }
}

/// Why a handle does not capture again.
#[derive(Debug)]
pub enum NotBack {
    /// The handle has just left its device, and keeps for a moment what other threads may use. A
    /// later call frees it.
    Left,
    /// No device of the name is up.
    Gone,
    /// No poller serves the device, or the poller does not answer.
    NoPoller,
    /// The handle can't capture on the device. A later call may succeed: other members may still
    /// have the group on the device that is gone.
    Refused(String),
    /// The handle can't wait.
    Failed(String),
}

/// Captures again if the device is back. Only the reading thread calls this function, after it has
/// delivered all packets.
///
/// # Errors
/// Why the handle does not capture again.
pub fn come_back<H: Handle>(p: H) -> Result<(), NotBack> {
    // A signal handler that leaves by siglongjmp(3) must not leave half a handle.
    let _signals = Blocked::new();
    let was_away = p.is_away();
    match was_away {
        false => p.leave().map_err(NotBack::Failed)?,
        true => p.let_go(),
    }
    match p.is_back().map_err(NotBack::Failed)? {
        true => {}
        false if was_away => return Err(NotBack::Gone),
        false => return Err(NotBack::Left),
    }
    capture_again(p).map_err(|why| {
        p.forget();
        match p.group().map(|_| p.leave()) {
            Some(Err(why)) => NotBack::Failed(why),
            Some(Ok(())) | None => why,
        }
    })
}

fn capture_again<H: Handle>(p: H) -> Result<(), NotBack> {
    let mut plans = Plans::new();
    let plan = plans
        .of(p)
        .map_err(|_| NotBack::Refused(p.error()))?
        .clone();
    p.note(|notes| notes.part = PartState::Silent);
    match &plan.polled {
        Some(polled) => {
            let bound = p.bind_silently();
            bound.map_err(|error| NotBack::Refused(unbound(&error)))?;
            polled::enter_again(p, &plan, polled).map_err(|why| match why {
                NotEntered::NoPoller => NotBack::NoPoller,
                NotEntered::Refused(why) => NotBack::Refused(why),
            })?;
        }
        None => join_again(p, &plan, &mut plans).map_err(NotBack::Refused)?,
    }
    p.renew_reader().map_err(NotBack::Refused)?;
    p.note(|notes| notes.part = PartState::Live);
    p.truncate(p);
    p.publish_counters();
    Ok(())
}

fn unbound(error: &io::Error) -> String {
    format!("bind: {error}")
}

/// Binds the handle to its device, or joins its group, on packet sockets or on an engine.
fn join_again<H: Handle>(p: H, plan: &Plan, plans: &mut Plans<H>) -> Result<(), String> {
    let is_on_engine = plan.on_engine.is_some() && p.notes().on_engine.is_some();
    if is_on_engine {
        let refused = engine::prepare(p, plans).map_err(|_| p.error())?;
        refused.map_or(Ok(()), Err)?;
    }
    p.bind_silently().map_err(|error| unbound(&error))?;
    match &plan.choice {
        _ if is_on_engine => engine::join_again(p, plan),
        Some(choice) => default_mode::join(p, choice, &[]).map_err(|error| choice.blame(&error)),
        None => p.bind().map_err(|error| unbound(&error)),
    }
}
