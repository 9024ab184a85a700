//! Filter expressions compiled without a device.

use crate::error::{Error, c_text};
use crate::functions::Functions;
use crate::handle::{Handle, NETMASK_UNKNOWN};
use crate::structs::BpfProgram;
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
    const CALL: &str = "pcap_compile";
    let text = c_text(CALL, expression.as_bytes())?;
    // SAFETY: the function takes any numbers.
    let open = |_| unsafe { (functions.pcap_open_dead)(ETHERNET, snaplen) };
    let handle = Handle::new(functions, "pcap_open_dead", open)?;
    let mut program = BpfProgram::EMPTY;
    let (compile, into) = (functions.pcap_compile, &raw mut program);
    // SAFETY: the handle is open, the text a C string, the program live.
    let status = unsafe { compile(handle.p(), into, text.as_ptr(), 1, NETMASK_UNKNOWN) };
    handle.done(CALL, status)?;
    let length = usize::try_from(program.len).unwrap_or(0);
    let code = if program.instructions.is_null() {
        Vec::new()
    } else {
        // SAFETY: pcap_compile has put so many instructions there.
        unsafe { slice::from_raw_parts(program.instructions, length) }.to_vec()
    };
    // SAFETY: the program was compiled above and is not used any more.
    unsafe { (functions.pcap_freecode)(&raw mut program) };
    Ok(code)
}
