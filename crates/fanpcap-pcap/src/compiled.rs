//! Filter expressions as instructions of classic BPF.

use crate::error::Error;
use crate::functions::Functions;
use crate::handle::Handle;
use fanpcap_bpf::Classic;
use std::ffi::c_int;
use std::slice;
use std::sync::Arc;

/// `DLT_EN10MB`.
const ETHERNET: c_int = 1;

/// Compiles an expression for Ethernet. The filter reads only the frame's bytes.
pub(crate) fn compile(
    functions: &Arc<Functions>,
    expression: &str,
    snaplen: c_int,
) -> Result<Vec<Classic>, Error> {
    // SAFETY: the function takes any numbers.
    let open = |_| unsafe { (functions.pcap_open_dead)(ETHERNET, snaplen) };
    Handle::new(functions, "pcap_open_dead", open)?.code(expression, true)
}

impl Handle {
    /// Compiles an expression. On a device, the filter reads the outermost VLAN tag beside the
    /// frame, where the kernel has it. The filter keeps as many bytes of a packet as the handle's
    /// snaplen.
    ///
    /// libpcap does not optimize the filter: the optimizer of libpcap 1.10.3 makes a filter of `ip
    /// and not vlan 8` that accepts VLAN 8.
    ///
    /// # Errors
    /// The expression is wrong.
    pub fn compile(&self, expression: &str) -> Result<Vec<Classic>, Error> {
        self.code(expression, false)
    }

    fn code(&self, expression: &str, optimize: bool) -> Result<Vec<Classic>, Error> {
        self.compiled(expression, optimize, |program| {
            if program.instructions.is_null() {
                return Vec::new();
            }
            let length = usize::try_from(program.len).unwrap_or(0);
            // SAFETY: pcap_compile has stored `length` instructions there.
            unsafe { slice::from_raw_parts(program.instructions, length) }.to_vec()
        })
    }
}
