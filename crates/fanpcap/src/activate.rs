//! pcap_activate(3PCAP).

use crate::handle::Handle;
use crate::{several, single};
use std::ffi::c_int;

/// Activates a handle by its settings. A handle with a group has joined it when this returns 0 or
/// more.
pub fn activate<H: Handle>(p: H) -> c_int {
    match several::is_several(p) {
        false => single::activate(p),
        true => several::activate(p),
    }
}
