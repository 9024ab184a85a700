//! The JSON of `fanpcap config`; docs/config-json.md describes each field.

use fanpcap::overview::{Entry, Overview, mode_text};
use fanpcap_config::report::Report;
use fanpcap_config::settings::{Group, Ignored, Plan};
use serde_json::{Value, json};

use super::ring;

/// Version of the JSON format. A new field does not change the version; a changed or removed field
/// increments it.
const SCHEMA: u32 = 1;

/// The JSON object.
pub(super) fn object(told: &Overview) -> Value {
    let devices: Vec<Value> = told.devices.iter().flatten().map(device).collect();
    let ignored: Vec<Value> = told.ignored().into_iter().map(without_effect).collect();
    json!({
        "schema": SCHEMA,
        "config_file": told.file.as_ref().map(|(path, _)| path),
        "config_file_is_named": told.file.as_ref().is_some_and(|(_, is_named)| *is_named),
        "error": told.devices.as_ref().err().map(error),
        "devices": devices,
        "without_effect": ignored,
    })
}

fn device(seen: &Entry) -> Value {
    let explained = &seen.explained;
    let plan = explained.plan.as_ref().ok();
    let joined = plan.and_then(|plan| plan.choice.as_ref());
    let origins = &explained.origins;
    let polled = plan.and_then(|plan| plan.polled.as_ref());
    let poller = polled.filter(|it| it.engine.has_poller());
    let poller = poller.map(|it| super::poller(it.engine, &seen.base));
    let number = |group: Group| match group {
        Group::Number(number) => Some(number),
        Group::New => None,
    };
    json!({
        "device": explained.device,
        "is_there": seen.is_there,
        "error": explained.plan.as_ref().err().map(error),
        "group": joined.and_then(|joined| number(joined.group)),
        "group_from": joined.map(|joined| &joined.origin),
        "mode": joined.map(|joined| mode_text(joined, seen.default.as_ref())),
        "mode_by_default": seen.default.as_ref().map(|default| &default.why),
        "mode_from": joined.and(origins.mode.as_ref()),
        "is_program": match &seen.default {
            Some(default) => default.is_program,
            None => joined.is_some_and(|joined| joined.steering.is_some()),
        },
        "member": joined.and_then(|joined| joined.name.as_ref()),
        "member_from": joined.and(origins.member.as_ref()),
        "driver": origins.driver.as_ref().map(|(_, engine)| engine.name()),
        "driver_from": origins.driver.as_ref().map(|(origin, _)| origin),
        "steal": plan.and_then(|plan| plan.on_engine.as_ref()).map(|it| it.steal.name()),
        "outgoing": plan.and_then(outgoing),
        "poller_pid": poller.as_ref().and_then(|it| it.as_ref().ok()),
        "poller_problem": poller.as_ref().and_then(|it| it.as_ref().err()),
        "waits_if_gone": plan.map(|plan| plan.waits_if_gone.is_some()),
        "waits_if_gone_from": plan.and_then(|plan| plan.waits_if_gone.as_ref()),
        "is_read_by_fanpcap": plan.map(|plan| plan.is_read_by_us()),
        "caplen": plan.and_then(|plan| plan.caplen),
        "caplen_from": origins.caplen,
        "ring_bytes": plan.and_then(|plan| plan.ring),
        "ring_from": origins.ring,
        "default_ring_bytes": plan.and_then(ring),
        // No engine has a further ring for sent packets. The name stays for programs that read it.
        "default_sent_ring_bytes": null,
    })
}

/// Whether the engine captures the packets that the host sends; `None` on packet sockets.
fn outgoing(plan: &Plan) -> Option<bool> {
    let on_engine = plan.on_engine.as_ref().map(|it| it.outgoing);
    on_engine.or(plan.polled.as_ref().map(|it| it.outgoing))
}

fn error(report: &Report) -> Value {
    let place = report.place.as_ref();
    json!({
        "name": report.slug,
        "message": report.message,
        "hint": report.hint,
        "source": place.map(|place| &place.source),
        "line": place.map(|place| place.line),
        "column": place.map(|place| place.column),
    })
}

fn without_effect(ignored: &Ignored) -> Value {
    json!({
        "setting": ignored.setting,
        "source": ignored.place,
        "reason": ignored.reason.name(),
        "message": ignored.why,
        "hint": ignored.hint,
    })
}
