//! pcap_fanout(3PCAP): joins a group by a call, before activation or after.

use crate::default_mode::{self, one_device, spans_devices};
use crate::engine;
use crate::handle::{AskedOfEngine, ERROR, Handle, Joined, PartState};
use crate::plan::ERROR_LENGTH;
use crate::request::Request;
use crate::several::{all, each, is_several};
use fanpcap_config::fanout::Fanout;
use fanpcap_config::mode::described;
use fanpcap_config::report::Report;
use fanpcap_config::settings::{FanoutCall, Group, GroupChoice};
use fanpcap_config::source::Source;
use fanpcap_group::join::JoinError;
use std::ffi::c_int;
use std::sync::Arc;

/// `PCAP_FANOUT_NEW`.
const NEW: c_int = -1;

/// Puts a handle into `group` with this mode or steering program. Before activation this function
/// only records the call, and the handle joins in pcap_activate(). After activation the handle
/// joins at once.
///
/// # Errors
/// The error message.
pub fn fanout<H: Handle>(p: H, group: c_int, fanout: Option<String>) -> Result<(), String> {
    let call = call(group, fanout)?;
    let whole = if is_several(p) { all(p) } else { Vec::new() };
    if matches!(call.fanout, Some(Fanout::Mode(_))) {
        ensure_one(&call.group, &whole)?;
    }
    let mut result = Ok(());
    let status = each(p, |part| {
        result = apply(part, call.clone(), &whole);
        if result.is_ok() { 0 } else { ERROR }
    });
    p.publish_counters();
    if status < 0 { result } else { Ok(()) }
}

fn call(group: c_int, fanout: Option<String>) -> Result<FanoutCall, String> {
    let group = match u16::try_from(group) {
        Ok(number) => Group::Number(number),
        Err(_) if group == NEW => Group::New,
        Err(_) => {
            return Err(format!(
                "pcap_fanout: group {group} is out of range: 0 to 65535, or PCAP_FANOUT_NEW"
            ));
        }
    };
    let parse = |text: String| {
        let parsed = Fanout::parse(Source::new("pcap_fanout()", &text));
        parsed.map_err(|fault| fault.at("pcap_fanout()", 1, &text).render(ERROR_LENGTH))
    };
    let fanout = fanout.map(parse).transpose()?;
    Ok(FanoutCall { group, fanout })
}

/// Refuses a numbered group in a kernel mode if the handle has several devices. `whole` is as for
/// [`change`].
fn ensure_one<H>(group: &Group, whole: &[H]) -> Result<(), String> {
    if *group == Group::New || whole.is_empty() {
        return Ok(());
    }
    Err(
        "pcap_fanout: a group of this mode is of one device, and the handle has several: use mode flow, or \
         PCAP_FANOUT_NEW, or set PCAP_GROUP_dev for each device"
            .to_owned(),
    )
}

fn apply<H: Handle>(p: H, call: FanoutCall, whole: &[H]) -> Result<(), String> {
    let before = p.request();
    let before = before.unwrap_or_else(|| Arc::new(Request::plain()));
    let mut request = Request::clone(&before);
    request.handle_call(call);
    let request = Arc::new(request);
    p.remember(Arc::clone(&request));
    // This call reports mistakes in a mode and in a steering program. A refused call is not
    // recorded.
    let refused = |report: Report| {
        p.remember(Arc::clone(&before));
        report.render(ERROR_LENGTH)
    };
    request.compile_call(p.compiler()).map_err(refused)?;
    if !p.is_activated() {
        return Ok(());
    }
    let notes = p.notes();
    let on_poller = notes.on_engine.filter(|asked| asked.engine.is_polled());
    if let Some(asked) = on_poller {
        // A handle that is activated but could not enter its group enters when the application
        // activates it again.
        if notes.part != PartState::Live {
            return Ok(());
        }
        let has_it = has_group(p, &before, &request);
        // The member stays as it entered, so the request stays, too.
        p.remember(before);
        let too_late = || format!("pcap_fanout: {}", engine::alone(asked.engine));
        return has_it.then_some(()).ok_or_else(too_late);
    }
    let too_late = |asked: AskedOfEngine| format!("pcap_fanout: {}", engine::alone(asked.engine));
    if let Some(asked) = notes.on_engine.filter(|_| notes.is_alone) {
        return Err(too_late(asked));
    }
    let plan = request.plan(p.compiler());
    let plan = plan.map_err(|report| report.render(ERROR_LENGTH))?;
    let Some(choice) = plan.choice else {
        return Err("pcap_fanout: no group".to_owned());
    };
    match p.group() {
        Some(has) if is_same(&choice, &has) => change(p, &has, &choice, whole),
        Some(has) => Err(choice.blame(&already(p, &has, &choice))),
        None => {
            let together = match spans_devices(&choice) {
                true => whole,
                false => ensure_one(&choice.group, whole).map(|()| &[][..])?,
            };
            let joined = default_mode::join(p, &choice, together);
            joined.map_err(|error| choice.blame(&error))
        }
    }
}

/// Whether a member of a poller's group, which entered by the request `has`, is as `wanted` asks
/// for. A poller can't replace a group's steering program or change a member.
fn has_group<H: Handle>(p: H, has: &Request, wanted: &Request) -> bool {
    let choice = |request: &Request| request.plan(p.compiler()).ok()?.choice;
    let (Some(joined), Some(has), Some(wanted)) = (p.group(), choice(has), choice(wanted)) else {
        return false;
    };
    let digest = |choice: &GroupChoice| choice.steering.as_ref().map(|it| it.digest());
    let is_member = wanted.weight.is_none_or(|it| joined.weight == Some(it))
        && (wanted.class == 0 || wanted.class == joined.class);
    let is_program = wanted.is_default
        || !has.is_default && has.mode == wanted.mode && digest(&has) == digest(&wanted);
    wanted.group == Group::Number(joined.group)
        && (has.group == wanted.group || has.group == Group::New)
        && is_member
        && is_program
}

/// Whether the member is already in the group and mode that were asked for. Ignores the steering
/// program.
fn is_same(wanted: &GroupChoice, has: &Joined) -> bool {
    wanted.group == Group::Number(has.group) && (wanted.is_default || wanted.mode == has.mode)
}

/// Replaces the steering program of the member's group, if the call gives one. The member keeps its
/// weight and its class. If the application's handle has several devices, `whole` contains the part
/// of the handle for each device; otherwise `whole` is empty.
fn change<H: Handle>(p: H, has: &Joined, wanted: &GroupChoice, whole: &[H]) -> Result<(), String> {
    let group = has.group;
    let Some(steering) = wanted.steering.as_ref().filter(|_| !wanted.is_default) else {
        return Ok(());
    };
    if let Some(second) = whole.get(1).filter(|_| !spans_devices(wanted)) {
        return Err(wanted.blame(&one_device(group, wanted, *second)));
    }
    match (has.weight, wanted.weight) {
        (Some(has), Some(asked)) if has != asked => {
            Err(other(group, wanted, "weight", [has, asked]))
        }
        _ if wanted.class != 0 && wanted.class != has.class => {
            let classes = [has.class, wanted.class].map(u16::from);
            Err(other(group, wanted, "class", classes))
        }
        _ => p.replace_program(steering),
    }
}

/// The error of a member that has another weight or class than the call asks for.
fn other(group: u16, wanted: &GroupChoice, what: &str, [has, asked]: [u16; 2]) -> String {
    let has = format!("a member of {what} {has}");
    let asked = format!("one of {what} {asked}");
    wanted.blame(&JoinError::AlreadyAs { group, has, asked })
}

/// The error of a member that is in another group, or in its group with another mode.
fn already<H: Handle>(p: H, has: &Joined, wanted: &GroupChoice) -> JoinError {
    let (group, mode) = (has.group, has.mode);
    if wanted.group != Group::Number(group) {
        return JoinError::AlreadyIn(group);
    }
    let steering = p.steered().and_then(|steered| steered.steering());
    let has = described(mode, steering.as_ref().map(|it| it.title()));
    let asked = wanted.shown_mode();
    JoinError::AlreadyAs { group, has, asked }
}
