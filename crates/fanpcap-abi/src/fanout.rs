//! The functions of pcap/fanout.h.

pub mod modes;
pub mod stats;

use crate::errbuf::{self, ERRBUF_SIZE};
use crate::handles::{self, Entry};
use crate::message::guard_handle;
use crate::pcap_handle::PcapHandle;
use crate::system::{self, ERROR, NOT_ACTIVATED, Pcap};
use crate::take_over;
use fanpcap::handle::Handle;
use fanpcap::request::Request;
use fanpcap::several;
use fanpcap_config::fanout::Fanout;
use fanpcap_config::mode::described;
use fanpcap_config::report::Report;
use fanpcap_config::settings::{Call, Group, Membership};
use fanpcap_config::source::Source;
use fanpcap_config::steering::Steering;
use fanpcap_group::join::{JoinError, ProgramError};
use fanpcap_group::member::Place;
use fanpcap_group::replace::replace;
use fanpcap_group::turn::Turn;
use std::ffi::{c_char, c_int};
use std::mem;
use std::sync::Arc;

/// `PCAP_FANOUT_NEW`.
const FANOUT_NEW: c_int = -1;

/// See pcap_fanout(3PCAP).
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_fanout(p: *mut Pcap, group: c_int, fanout: *const c_char) -> c_int {
    // SAFETY: the caller's promise: `p` is an open handle.
    let p = unsafe { PcapHandle::new(p) };
    guard_handle(p, || {
        // SAFETY: the caller's promise: null or a C string.
        let fanout = unsafe { errbuf::string(fanout) };
        match call(group, fanout).and_then(|call| apply(p, call)) {
            Ok(()) => 0,
            Err(text) => p.fail(&text),
        }
    })
}

fn call(group: c_int, fanout: Option<String>) -> Result<Call, String> {
    let group = match u16::try_from(group) {
        Ok(number) => Group::Number(number),
        Err(_) if group == FANOUT_NEW => Group::New,
        Err(_) => {
            return Err(format!(
                "pcap_fanout: group {group} is out of range: 0 to 65535, or PCAP_FANOUT_NEW"
            ));
        }
    };
    let parse = |text: String| {
        let parsed = Fanout::parse(Source::new("pcap_fanout()", &text));
        parsed.map_err(|fault| fault.at("pcap_fanout()", 1, &text).render(ERRBUF_SIZE - 1))
    };
    let fanout = fanout.map(parse).transpose()?;
    Ok(Call { group, fanout })
}

/// Before activation the call is remembered; after, the handle joins at once.
fn apply(p: PcapHandle, call: Call) -> Result<(), String> {
    if several::is_several(p) && call.group != Group::New {
        return Err(
            "pcap_fanout: the kernel's groups are of one device each, and the handle has \
                    several: use PCAP_FANOUT_NEW, or set PCAP_GROUP_dev for each device"
                .to_owned(),
        );
    }
    let mut result = Ok(());
    let apply = |p| {
        result = apply_to_one(p, call.clone());
        if result.is_ok() { 0 } else { ERROR }
    };
    let status = several::each(p, apply);
    take_over::publish_counters(p);
    if status < 0 { result } else { Ok(()) }
}

fn apply_to_one(p: PcapHandle, call: Call) -> Result<(), String> {
    let before = handles::with_new(p, |entry| Arc::clone(&entry.request));
    let mut request = Request::clone(&before);
    request.handle_call(call);
    let request = Arc::new(request);
    let remember = |request: &Arc<Request>| {
        let request = Arc::clone(request);
        handles::with(p, |entry| mem::replace(&mut entry.request, request))
    };
    drop(remember(&request));
    // What is wrong with a program is said here, as of a mode, and what was refused is not remembered.
    let refused = |report: Report| {
        drop(remember(&before));
        report.render(ERRBUF_SIZE - 1)
    };
    let compiled = request.compile_call(&system::compile);
    compiled.map_err(refused)?;
    if p.datalink() == NOT_ACTIVATED {
        return Ok(());
    }
    let plan = request
        .plan(&system::compile)
        .map_err(|report| report.render(ERRBUF_SIZE - 1))?;
    let Some(membership) = plan.membership else {
        return Err("pcap_fanout: no group".to_owned());
    };
    if let Some(place) = handles::place(p) {
        let (group, mode) = (Group::Number(place.group()), place.mode());
        if (membership.group, membership.mode) == (group, mode) {
            let replaced = |steering| replace_program(p, &place, steering);
            return membership.steering.as_ref().map_or(Ok(()), replaced);
        }
        return Err(membership.blame(&already(p, &place, &membership)));
    }
    p.join(&membership)
        .map_err(|error| membership.blame(&error))
}

/// Why a member can't become one of this kind.
fn already(p: PcapHandle, place: &Place, wanted: &Membership) -> JoinError {
    let group = place.group();
    if wanted.group != Group::Number(group) {
        return JoinError::AlreadyIn(group);
    }
    let steering = handles::steered(p).and_then(|steered| steered.steering());
    let has = described(place.mode(), steering.as_ref().map(|it| it.title()));
    let asked = wanted.shown_mode();
    JoinError::AlreadyAs { group, has, asked }
}

/// Gives the group of a member another program.
fn replace_program(p: PcapHandle, place: &Place, steering: &Arc<Steering>) -> Result<(), String> {
    let digest = |entry: &mut Entry| Some(entry.member.as_ref()?.0.digest());
    let has = handles::with(p, digest).flatten();
    let is_unknown = handles::steered(p).is_some_and(|steered| steered.is_unknown());
    if has == Some(steering.digest()) && !is_unknown {
        return Ok(());
    }
    let busy = |error| ProgramError::of(place.group(), error).to_string();
    let turn = Turn::take(place).map_err(busy)?;
    let members = handles::members(p, place);
    if members.is_empty() {
        return Err("pcap_fanout: the handle has no part in a program to replace".to_owned());
    }
    let replaced = replace(&turn, &members, steering, &handles::copy_socket);
    // Those that wait do so until they are to publish, if the old program had them publish at all.
    handles::nudge_readers();
    replaced.map_err(|error| error.to_string())
}

/// See pcap_fanout_group(3PCAP).
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_fanout_group(p: *mut Pcap) -> c_int {
    // SAFETY: the caller's promise: `p` is an open handle.
    let p = unsafe { PcapHandle::new(p) };
    guard_handle(p, || match handles::place(p) {
        Some(place) => place.group().into(),
        None if p.datalink() == NOT_ACTIVATED => NOT_ACTIVATED,
        None => ERROR,
    })
}
