//! Filter expressions compiled without a device.

use crate::functions::Program;
use crate::handle::{Handle, NETMASK_UNKNOWN, c_text};
use crate::{Error, Library};
use fanpcap_bpf::Classic;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::slice;

/// `DLT_EN10MB`.
const ETHERNET: c_int = 1;
/// Bytes that the filter lets pass.
const SNAPLEN: c_int = 65_535;

impl Library {
    /// Compiles a filter expression, pcap-filter(7), for Ethernet frames with all their bytes, VLAN tags among them.
    ///
    /// # Errors
    /// Where the expression is wrong.
    pub fn compile(&self, expression: &str) -> Result<Vec<Classic>, Error> {
        const CALL: &str = "pcap_compile";
        let text = c_text(CALL, expression.as_bytes())?;
        // SAFETY: the function takes any numbers.
        let open = |_| unsafe { (self.functions.pcap_open_dead)(ETHERNET, SNAPLEN) };
        let handle = Handle::new(&self.functions, "pcap_open_dead", open)?;
        let mut program = Program {
            len: 0,
            instructions: null_mut(),
        };
        let (compile, into) = (self.functions.pcap_compile, &raw mut program);
        // SAFETY: the handle is open, the text a C string, the program live.
        let status = unsafe { compile(handle.p(), into, text.as_ptr(), 1, NETMASK_UNKNOWN) };
        handle.done(CALL, status)?;
        let length = usize::try_from(program.len).unwrap_or(0);
        let code = if program.instructions.is_null() {
            Vec::new()
        } else {
            // SAFETY: pcap_compile has put so many instructions there, which are as `Classic` is.
            unsafe { slice::from_raw_parts(program.instructions.cast::<Classic>(), length) }
                .to_vec()
        };
        // SAFETY: the program was compiled above and is not used any more.
        unsafe { (self.functions.pcap_freecode)(&raw mut program) };
        Ok(code)
    }
}
