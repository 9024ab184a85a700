//! Makes the plan of a handle, and applies it before activation.

use crate::handle::{Handle, Setting};
use fanpcap_config::settings::Plan;
use std::ffi::c_int;

/// The largest snapshot length. libpcap uses it for 0 and for invalid values (pcap-int.h).
const MAXIMUM_SNAPLEN: c_int = 262_144;

/// Maximum length of an error text in bytes (`PCAP_ERRBUF_SIZE` without the terminating zero).
pub(crate) const ERROR_LENGTH: usize = 255;

/// The plans of the handles that one call is about. Each plan is made once.
pub(crate) struct Plans<H>(Vec<(H, Plan)>);

impl<H: Handle> Plans<H> {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    /// The plan of `p`, made at the first call.
    ///
    /// # Errors
    /// The status to return when the settings are wrong. pcap_geterr(3PCAP) has the report.
    pub(crate) fn of(&mut self, p: H) -> Result<&Plan, c_int> {
        let at = match self.0.iter().position(|(handle, _)| *handle == p) {
            Some(at) => at,
            None => {
                self.0.push((p, plan(p)?));
                self.0.len() - 1
            }
        };
        Ok(&self.0[at].1)
    }
}

fn plan<H: Handle>(p: H) -> Result<Plan, c_int> {
    let Some(request) = p.request() else {
        return Ok(Plan::default());
    };
    let plan = request.plan(p.compiler());
    plan.map_err(|report| p.fail(&report.render(ERROR_LENGTH)))
}

/// Sets the snapshot length and the ring size of the plan on a handle that is not activated.
pub(crate) fn provide<H: Handle>(p: H, plan: &Plan) {
    let notes = p.notes();
    if let Some(caplen) = plan.caplen {
        let asked = notes.snaplen;
        let asked = asked.filter(|asked| (1..=MAXIMUM_SNAPLEN).contains(asked));
        let caplen = c_int::try_from(caplen).unwrap_or(MAXIMUM_SNAPLEN);
        let bytes = asked.unwrap_or(MAXIMUM_SNAPLEN).min(caplen);
        p.set(Setting::Snaplen(bytes));
    }
    let of_application = notes.buffer_size.filter(|_| plan.ring.is_none());
    if let (Some(bytes), None) = (plan.buffer_size(), of_application) {
        p.set(Setting::BufferSize(bytes));
    }
    if plan.ring.is_some() {
        p.note(|notes| notes.buffer_size = plan.ring);
    }
}
