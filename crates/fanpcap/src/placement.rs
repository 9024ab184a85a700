//! Changes settings of a network device, as pcap.conf and the environment ask, before a handle on
//! the device is activated.

use crate::handle::{Handle, PERM_DENIED};
use crate::plan::ERROR_LENGTH;
use fanpcap_config::settings::{Ask, Kind, Plan, What};
use fanpcap_nic::channels::Wanted;
use fanpcap_nic::placing::{Until, Want};
use std::ffi::c_int;

const EPERM: i32 = 1;
const EACCES: i32 = 13;

/// Sets the channels, interrupts and polling threads of the handle's device as its settings ask.
/// Does nothing if the packets come from a poller: the poller has the device, and the handle may be
/// in another network namespace or without privileges.
///
/// # Errors
/// The status to return when the device can't have these settings. pcap_geterr(3PCAP) has the
/// report.
pub(crate) fn place<H: Handle>(p: H, plan: &Plan) -> Result<(), c_int> {
    let Some(placement) = plan.placement.as_ref().filter(|_| plan.polled.is_none()) else {
        return Ok(());
    };
    let wants: Vec<Want> = placement.asks.iter().map(want).collect();
    let until = match placement.stays {
        true => Until::Restored,
        false => Until::Dropped,
    };
    let placed = p.place(&placement.device, &wants, until);
    placed.map_err(|error| {
        let report = placement.blame(error.want, &error.to_string());
        let failed = p.fail(&report.render(ERROR_LENGTH));
        match error.error.errno() {
            EPERM | EACCES => PERM_DENIED,
            _ => failed,
        }
    })
}

fn want(ask: &Ask) -> Want {
    match &ask.what {
        What::Channels(kind, count) => channels(*kind, *count),
        What::Irq(channel, ranges) => Want::Irq {
            channel: (*channel).into(),
            cpus: cpus(ranges),
        },
        What::Napi(queue, cpu) => Want::Napi {
            queue: (*queue).into(),
            cpu: *cpu as usize,
        },
    }
}

fn channels(kind: Kind, count: u32) -> Want {
    let mut wanted = Wanted::default();
    match kind {
        Kind::Rx => wanted.rx = Some(count),
        Kind::Tx => wanted.tx = Some(count),
        Kind::Other => wanted.other = Some(count),
        Kind::Combined => wanted.combined = Some(count),
        Kind::Receiving => return Want::Receiving(count),
    }
    Want::Channels(wanted)
}

fn cpus(ranges: &[(u32, u32)]) -> Vec<usize> {
    let ranges = ranges.iter().flat_map(|&(first, last)| first..=last);
    ranges.map(|cpu| cpu as usize).collect()
}
