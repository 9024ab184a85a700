//! The setters of handles that are not activated yet. On a handle on several devices, a setter sets
//! the value for every device.

use crate::handles;
use crate::message::guard_handle;
use crate::pcap_handle::PcapHandle;
use crate::system::Setter;
use fanpcap::several;
use fanpcap_pcap::for_each_function;
use std::ffi::c_int;

/// Calls a setter of the system's library for every device of `p`. Where the setter succeeds, calls
/// `note`.
fn set(p: PcapHandle, setter: Setter, value: c_int, note: impl Fn(PcapHandle)) -> c_int {
    several::each(p, |part| {
        let status = part.set(setter, value);
        if status == 0 {
            note(part);
        }
        status
    })
}

/// Declares the entry points that only pass a value on to the system's library.
macro_rules! setters {
    (own { $($own:tt)* } each { $(fn $name:ident($value:ident);)* } forward { $($forward:tt)* }) => {
        $(
            #[doc = concat!("See ", stringify!($name), "(3PCAP).")]
            ///
            /// # Safety
            /// As the man page requires.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(p: PcapHandle, $value: c_int) -> c_int {
                set(p, |of| of.$name, $value, |_| ())
            }
        )*
    };
}

for_each_function!(setters);

/// See pcap_set_snaplen(3PCAP).
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_snaplen(p: PcapHandle, snaplen: c_int) -> c_int {
    let note = |part| {
        handles::with(part, |entry| entry.notes.snaplen = Some(snaplen));
    };
    guard_handle(p, || set(p, |of| of.pcap_set_snaplen, snaplen, note))
}

/// See pcap_set_promisc(3PCAP).
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_promisc(p: PcapHandle, promisc: c_int) -> c_int {
    let note = |part| {
        handles::with(part, |entry| entry.notes.is_promiscuous = promisc != 0);
    };
    guard_handle(p, || set(p, |of| of.pcap_set_promisc, promisc, note))
}

/// See pcap_set_timeout(3PCAP).
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_timeout(p: PcapHandle, timeout: c_int) -> c_int {
    guard_handle(p, || set_timeout(p, timeout))
}

/// Sets the time-out. A handle on several devices, whose packets are merged, may get a shorter
/// time-out than `timeout`.
pub(crate) fn set_timeout(p: PcapHandle, timeout: c_int) -> c_int {
    let timeout = several::timeout(p, timeout);
    let note = |part| {
        handles::with(part, |entry| entry.notes.timeout = Some(timeout));
    };
    set(p, |of| of.pcap_set_timeout, timeout, note)
}

/// See pcap_set_immediate_mode(3PCAP).
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_immediate_mode(p: PcapHandle, immediate: c_int) -> c_int {
    let note = |part| {
        handles::with(part, |entry| entry.notes.is_immediate = immediate != 0);
    };
    guard_handle(p, || {
        set(p, |of| of.pcap_set_immediate_mode, immediate, note)
    })
}

/// See pcap_set_buffer_size(3PCAP).
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_buffer_size(p: PcapHandle, bytes: c_int) -> c_int {
    // Keep the size even for a plain handle, because the application may ask for a group later.
    let note = |part| handles::with_new(part, |entry| entry.notes.buffer_size = Some(bytes));
    guard_handle(p, || set(p, |of| of.pcap_set_buffer_size, bytes, note))
}

/// See pcap_set_protocol_linux(3PCAP).
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_protocol_linux(p: PcapHandle, protocol: c_int) -> c_int {
    let noted = protocol_of(protocol);
    let note = |part| handles::with_new(part, |entry| entry.notes.protocol = noted);
    guard_handle(p, || {
        set(p, |of| of.pcap_set_protocol_linux, protocol, note)
    })
}

/// The protocol to which the system's library binds the socket: the low 16 bits of `protocol`
/// (pcap-linux.c). `None` for 0, which stands for all protocols.
fn protocol_of(protocol: c_int) -> Option<u16> {
    let [low, high, ..] = protocol.to_le_bytes();
    Some(u16::from_le_bytes([low, high])).filter(|&protocol| protocol != 0)
}
