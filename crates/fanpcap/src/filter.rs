//! pcap_setfilter(3PCAP), together with steering programs.

use crate::handle::Handle;
use crate::several::{all, each};
use fanpcap_bpf::Classic;
use fanpcap_group::steered::{Filtering, SteerError, Unchanging};
use fanpcap_linux::process::signal::Blocked;
use std::ffi::c_int;
use std::fmt::Display;

/// Sets a filter, and returns the status of the system's library. `set` makes that library set the
/// filter on the handle of one device. `take` gives the filter to our reader. The argument of
/// `take` is the filter's number if the kernel runs the filter on all devices, else `None`. `code`
/// is the filter's code, or empty if the application sets no filter. During the call no other
/// thread or process replaces the groups' steering programs.
pub fn set_filter<H: Handle>(
    p: H,
    code: &[Classic],
    set: impl Fn(H) -> c_int,
    take: impl FnOnce(Option<u32>),
) -> c_int {
    let set_filter = || {
        let all: Vec<_> = all(p)
            .into_iter()
            .map(|part| (part, part.steered()))
            .collect();
        // The filter is first set alone and then combined with the steering program. If a signal
        // handler jumped out by siglongjmp(3) between these steps, the kernel would run the filter
        // alone. So block signals.
        let is_steered = all.iter().any(|(_, steered)| steered.is_some());
        let _signals = is_steered.then(Blocked::new);
        let parts = all.iter().map(|(part, steered)| {
            let steered = steered.as_ref().map(|steered| steered.unchanging());
            Ok((*part, steered.transpose()?))
        });
        let parts: Result<Vec<_>, SteerError> = parts.collect();
        let parts = parts.map_err(|error| not_beside(&error))?;
        let status = each(p, |part| while_rejecting(part, &set));
        if status == 0 {
            take(put_beside_programs(p, code, parts)?);
        }
        Ok(status)
    };
    let result: Result<c_int, String> = set_filter();
    result.unwrap_or_else(|text| p.fail(&text))
}

/// Runs `set`. While `set` runs, the member's page says that the member rejects all packets: to
/// empty the ring, the system's library attaches a reject-all filter before the new one.
fn while_rejecting<H: Handle>(p: H, set: impl Fn(H) -> c_int) -> c_int {
    let rejections = p.rejections();
    if let Some(rejections) = &rejections {
        rejections.begin();
    }
    let status = set(p);
    if let Some(rejections) = rejections {
        rejections.end();
    }
    status
}

fn not_beside(why: &dyn Display) -> String {
    format!("the filter can't be set beside the steering program: {why}")
}

/// Combines the filter that the system's library has just set with the steering program of each
/// member. Returns the filter's number if the kernel runs the filter on all devices. If the kernel
/// refused the filter, the system's library has detached the old filter too, and the kernel runs no
/// filter.
///
/// # Errors
/// Why the filter can't be run at all.
fn put_beside_programs<H: Handle>(
    p: H,
    code: &[Classic],
    parts: Vec<(H, Option<Unchanging<'_>>)>,
) -> Result<Option<u32>, String> {
    let is_ours = p.is_read_by_us();
    p.note(|notes| notes.filters = notes.filters.wrapping_add(1).max(1));
    let number = p.notes().filters;
    let mut in_kernel = true;
    for (part, steered) in parts {
        if !is_ours && steered.is_none() {
            continue;
        }
        if part.notes().on_engine.is_some() {
            in_kernel &= part.filter_on_engine(code, number);
            continue;
        }
        let own = part.kernel_filter();
        let is_filtered = own.as_ref().is_ok_and(Option::is_some);
        in_kernel &= is_filtered;
        let Some(mut steered) = steered else {
            continue;
        };
        let filtering = part.refilter(&mut steered, own);
        match filtering.map_err(|error| not_beside(&error))? {
            Filtering::Kernel => {}
            Filtering::Reader if is_filtered && !is_ours => {
                return Err(not_beside(
                    &"the kernel can't run both as one program (this needs CAP_BPF, and room in \
                      net.core.optmem_max), and fanpcap can't run the filter, because it does not \
                      read this handle: set a shorter filter, or none",
                ));
            }
            Filtering::Reader => in_kernel = false,
        }
    }
    Ok(in_kernel.then_some(number))
}
