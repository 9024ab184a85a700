//! The head of a `pcap_t`: two words through which our reader reads a handle of the system's
//! library.
//!
//! A `pcap_t` begins with two function pointers (pcap-int.h, since 1.5): `read_op`, which reads the
//! handle, and `next_packet_op`, which only savefiles use. We store our function in the first word
//! and the function's state in the second. So the system's pcap_dispatch(), pcap_loop(),
//! pcap_next() and pcap_next_ex() call our function. A test at run time on a dead handle verifies
//! this layout.

use crate::pcap_handle::PcapHandle;
use crate::system::{self, Callback, Header, Pcap, system};
use fanpcap_reader::Reader;
use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, from_mut, null_mut};
use std::sync::atomic::{AtomicU8, Ordering, compiler_fence};

/// `read_op`: reads at most the given number of packets.
pub(crate) type Read = unsafe extern "C-unwind" fn(*mut Pcap, c_int, Callback, *mut u8) -> c_int;

#[repr(C)]
#[derive(Clone, Copy)]
struct Head {
    read: *const c_void,
    state: *mut c_void,
}

impl Head {
    fn new(read: Read, state: *mut c_void) -> Self {
        Self {
            read: read as *const c_void,
            state,
        }
    }
}

fn head(p: PcapHandle) -> Head {
    // SAFETY: the handle is open, and every pcap_t is longer than two words.
    unsafe { p.pointer().cast::<Head>().read() }
}

/// Installs `read` as the function that reads `p`, with `reader` as its state. Returns the replaced
/// function of the system's library. Returns `None` and changes nothing if the handle's head is not
/// as expected, or if the system's library does not have this layout.
///
/// # Safety
/// No thread reads `p` meanwhile. `read` expects `reader` as its state. `reader` outlives `p` or is
/// detached.
pub(crate) unsafe fn attach(
    p: PcapHandle,
    read: Read,
    reader: NonNull<Reader>,
) -> Option<*const c_void> {
    let Head { read: own, state } = head(p);
    let as_expected = state.is_null() && system().holds(own);
    if !as_expected || !is_proven() {
        return None;
    }
    // SAFETY: the caller guarantees the function and its state.
    unsafe { put(p, Head::new(read, reader.as_ptr().cast())) };
    Some(own)
}

/// Installs the function of the system's library again.
///
/// # Safety
/// `own` is what attach() has returned for `p`.
pub(crate) unsafe fn detach(p: PcapHandle, own: *const c_void) {
    let (read, state) = (own, null_mut());
    // SAFETY: the system's library has created the head.
    unsafe { put(p, Head { read, state }) };
}

/// Writes a head. A signal handler that breaks the loop during the write finds either a valid
/// reader or none.
///
/// # Safety
/// The system's library can read `p` by this head.
unsafe fn put(p: PcapHandle, head: Head) {
    let read: *mut *const c_void = p.pointer().cast();
    let state: *mut *mut c_void = read.wrapping_add(1).cast();
    // SAFETY: the second word is within the handle, which is open.
    let write_state = || unsafe { state.write_volatile(head.state) };
    if !head.state.is_null() {
        write_state();
    }
    compiler_fence(Ordering::SeqCst);
    // SAFETY: the first word is within the handle, which is open.
    unsafe { read.write_volatile(head.read) };
    compiler_fence(Ordering::SeqCst);
    if head.state.is_null() {
        write_state();
    }
}

/// The reader that `read` was installed with; `None` if the system's library reads `p` itself.
///
/// # Safety
/// The result is not used after its reader is gone.
pub(crate) unsafe fn reader<'a>(p: PcapHandle, read: Read) -> Option<&'a Reader> {
    let head = head(p);
    if head.read != read as *const c_void {
        return None;
    }
    // SAFETY: attach() has put both words there, and the caller guarantees that the reader lives.
    unsafe { head.state.cast::<Reader>().as_ref() }
}

const UNKNOWN: u8 = 0;
const YES: u8 = 1;
const NO: u8 = 2;

/// Whether the system's library has the expected layout. If several threads ask for the first time
/// at once, each of them runs the test.
fn is_proven() -> bool {
    static PROVEN: AtomicU8 = AtomicU8::new(UNKNOWN);
    match PROVEN.load(Ordering::Relaxed) {
        YES => return true,
        NO => return false,
        _ => {}
    }
    let proven = prove();
    PROVEN.store(if proven { YES } else { NO }, Ordering::Relaxed);
    proven
}

/// The arguments with which pcap_dispatch() called the probe.
struct Seen {
    p: *mut Pcap,
    max: c_int,
}

const MAX: c_int = 42;
const ANSWER: c_int = 4711;

unsafe extern "C-unwind" fn probe(p: *mut Pcap, max: c_int, _: Callback, user: *mut u8) -> c_int {
    // SAFETY: prove() passes a Seen.
    if let Some(seen) = unsafe { user.cast::<Seen>().as_mut() } {
        *seen = Seen { p, max };
    }
    ANSWER
}

unsafe extern "C-unwind" fn ignore(_: *mut u8, _: *const Header, _: *const u8) {}

/// Installs a probe in a dead handle, and checks that pcap_dispatch() calls it with the right
/// arguments.
fn prove() -> bool {
    let Some(p) = PcapHandle::dead(64) else {
        return false;
    };
    let own = head(p);
    let mut seen = Seen {
        p: null_mut(),
        max: 0,
    };
    let user: *mut u8 = from_mut(&mut seen).cast();
    let fits = own.state.is_null() && system().holds(own.read);
    let answer = if fits {
        // SAFETY: the handle is long enough for a head, and only this function has the handle.
        unsafe {
            p.pointer()
                .cast::<Head>()
                .write(Head::new(probe, user.cast()))
        };
        // SAFETY: `p` is open, and the probe takes this `user`.
        unsafe { system::pcap_dispatch(p.pointer(), MAX, Some(ignore), user) }
    } else {
        0
    };
    let kept = head(p).state == user.cast();
    // SAFETY: this restores the head that the system's library has made.
    unsafe { p.pointer().cast::<Head>().write(own) };
    let called = seen.p == p.pointer() && seen.max == MAX;
    // SAFETY: the handle is not used again.
    unsafe { p.close() };
    answer == ANSWER && called && kept
}
