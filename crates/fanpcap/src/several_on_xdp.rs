//! A handle on several devices, on the XDP engine: all of its devices are, or none.

use crate::default_mode;
use crate::handle::{Handle, PartState};
use crate::on_xdp::{fall_back, membership, prepare};
use crate::plan::Plans;
use fanpcap_config::settings::{Group, Membership, OnXdp};
use std::ffi::c_int;

/// Why packet sockets stand in for the engine, and what had asked for it.
pub(crate) type StandIn = (OnXdp, String);

/// Prepares the handles on all devices, of which none is activated yet. If packet sockets have to
/// stand in for the engine on one device, they do so on all.
///
/// # Errors
/// The handle that fails, and the status to return.
pub(crate) fn settle<H: Handle>(
    all: &[H],
    plans: &mut Plans<H>,
) -> Result<Option<StandIn>, (H, c_int)> {
    if all.iter().any(|part| part.notes().part != PartState::New) {
        return Ok(None);
    }
    let mut first = None;
    let mut reason = None;
    for &part in all {
        let plan = plans.of(part).map_err(|status| (part, status))?;
        match &plan.on_xdp {
            Some(asked) => first = first.or_else(|| Some(asked.clone())),
            None => reason = Some("not all devices of the handle are to be on it".to_owned()),
        }
    }
    let Some(asked) = first else {
        return Ok(None);
    };
    // In the same order as other handles, whatever theirs is: newcomers to a device wait for each
    // other.
    let name = |part: &H| part.request().map(|it| it.system_name().to_owned());
    let mut left = all.to_vec();
    while let Some(first) = (0..left.len()).min_by_key(|&at| name(&left[at])) {
        let part = left.swap_remove(first);
        if reason.is_none() {
            reason = prepare_part(part, plans).map_err(|status| (part, status))?;
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

fn prepare_part<H: Handle>(p: H, plans: &mut Plans<H>) -> Result<Option<String>, c_int> {
    let plan = plans.of(p)?;
    let Some(asked) = &plan.on_xdp else {
        return Ok(None);
    };
    let membership = membership(p, plan, asked).map_err(|text| p.fail(&text))?;
    let reason = prepare(p, &membership, asked)?;
    let request = p.request();
    let name = request.as_ref().map_or("", |request| request.system_name());
    Ok(reason.map(|reason| format!("{name}: {reason}")))
}

/// Joins the groups of all devices, whose handles are activated silently.
///
/// # Errors
/// As [`settle`].
pub(crate) fn join<H: Handle>(all: &[H], plans: &mut Plans<H>) -> Result<(), (H, c_int)> {
    let mut memberships: Vec<Membership> = Vec::new();
    for &part in all {
        let of_part = |plans: &mut Plans<H>| {
            let plan = plans.of(part)?;
            let asked = plan
                .on_xdp
                .as_ref()
                .ok_or_else(|| part.fail("not on the engine xdp"))?;
            membership(part, plan, asked).map_err(|text| part.fail(&text))
        };
        memberships.push(of_part(plans).map_err(|status| (part, status))?);
    }
    for (part, membership) in all.iter().zip(&memberships) {
        if part.group().is_some() {
            continue;
        }
        let is_beside = |other: &Membership| {
            matches!(other.group, Group::Number(_)) && other.group == membership.group
        };
        let beside = all.iter().zip(&memberships);
        let beside = beside.filter(|(_, other)| is_beside(other));
        let together: Vec<H> = beside.map(|(part, _)| *part).collect();
        let together = if together.len() > 1 {
            &together[..]
        } else {
            &[]
        };
        let joined = default_mode::join(*part, membership, together);
        joined.map_err(|error| (*part, part.fail(&membership.blame(&error))))?;
        part.note(|notes| notes.is_alone = membership.group == Group::New);
    }
    Ok(())
}
