//! The head of a `pcap_t`: the two words by which a handle of the system's library is read by us.
//!
//! A `pcap_t` begins with the function that reads it, `read_op`, and another, `next_packet_op`, which
//! only savefiles have (pcap-int.h, since 1.5). Ours goes into the first word and its state into the
//! second, so that the system's pcap_dispatch(), pcap_loop(), pcap_next() and pcap_next_ex() call it.
//! That the first word is what we take it for is proven at run time, on a handle made for that.

use crate::system::{self, Callback, Header, Pcap, system};
use fanpcap_reader::Reader;
use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, from_mut, null_mut};
use std::sync::atomic::{AtomicU8, Ordering, compiler_fence};

/// `read_op`: reads at most so many packets.
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

/// The head of a handle.
///
/// # Safety
/// `p` is an open handle of the system's library.
unsafe fn head(p: *mut Pcap) -> Head {
    // SAFETY: every pcap_t is longer than two words.
    unsafe { p.cast::<Head>().read() }
}

/// Makes `read` the function by which `p` is read, and `reader` its state. Returns the system's function; none
/// when the handle is not as expected, or the system's library is none that works so: then nothing was
/// changed.
///
/// # Safety
/// `p` is an activated handle that nobody reads meanwhile. `reader` outlives it.
pub(crate) unsafe fn attach(
    p: *mut Pcap,
    read: Read,
    reader: NonNull<Reader>,
) -> Option<*const c_void> {
    // SAFETY: the caller vouches for `p`.
    let Head { read: own, state } = unsafe { head(p) };
    let as_expected = state.is_null() && system().holds(own);
    if !as_expected || !is_proven() {
        return None;
    }
    let ours = Head::new(read, reader.as_ptr().cast());
    // SAFETY: as above.
    unsafe { put(p, ours) };
    Some(own)
}

/// Makes the system's function the one by which `p` is read again.
///
/// # Safety
/// `p` is an open handle, and `own` what attach() has returned for it.
pub(crate) unsafe fn detach(p: *mut Pcap, own: *const c_void) {
    let (read, state) = (own, null_mut());
    // SAFETY: the caller vouches for both.
    unsafe { put(p, Head { read, state }) };
}

/// Writes a head. A signal handler that breaks the loop meanwhile finds a reader that is there, or none.
///
/// # Safety
/// `p` is an open handle.
unsafe fn put(p: *mut Pcap, head: Head) {
    let place = p.cast::<Head>();
    // SAFETY: the caller vouches for `p`.
    let read = unsafe { &raw mut (*place).read };
    // SAFETY: as above.
    let state = unsafe { &raw mut (*place).state };
    // SAFETY: as above.
    let write_state = || unsafe { state.write_volatile(head.state) };
    if !head.state.is_null() {
        write_state();
    }
    compiler_fence(Ordering::SeqCst);
    // SAFETY: as above.
    unsafe { read.write_volatile(head.read) };
    compiler_fence(Ordering::SeqCst);
    if head.state.is_null() {
        write_state();
    }
}

/// The reader that `read` was attached with; none when the system's library reads `p` itself.
///
/// # Safety
/// `p` is an open handle, and the result is not used after its reader is gone.
pub(crate) unsafe fn reader<'a>(p: *mut Pcap, read: Read) -> Option<&'a Reader> {
    // SAFETY: the caller vouches for `p`.
    let head = unsafe { head(p) };
    if head.read != read as *const c_void {
        return None;
    }
    // SAFETY: attach() has put both words there, and the caller vouches for the reader's life.
    unsafe { head.state.cast::<Reader>().as_ref() }
}

const UNKNOWN: u8 = 0;
const YES: u8 = 1;
const NO: u8 = 2;

/// Whether the system's library reads a handle by its first word. Threads that come first together find
/// out each.
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

/// What the probe was called with.
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

/// Puts a function of ours into a dead handle, and sees whether pcap_dispatch() calls it as it should.
fn prove() -> bool {
    let (ethernet, snaplen) = (1, 64);
    // SAFETY: takes any numbers.
    let p = unsafe { system::pcap_open_dead(ethernet, snaplen) };
    if p.is_null() {
        return false;
    }
    // SAFETY: `p` is open.
    let own = unsafe { head(p) };
    let mut seen = Seen {
        p: null_mut(),
        max: 0,
    };
    let user: *mut u8 = from_mut(&mut seen).cast();
    let fits = own.state.is_null() && system().holds(own.read);
    let answer = if fits {
        // SAFETY: `p` is ours alone.
        unsafe { p.cast::<Head>().write(Head::new(probe, user.cast())) };
        // SAFETY: `p` is open, and the probe takes this `user`.
        unsafe { system::pcap_dispatch(p, MAX, Some(ignore), user) }
    } else {
        0
    };
    // SAFETY: as above.
    let kept = unsafe { head(p) }.state == user.cast();
    // SAFETY: as above; the handle is whole again.
    unsafe { p.cast::<Head>().write(own) };
    let called = seen.p == p && seen.max == MAX;
    if let Some(close) = system().pcap_close {
        // SAFETY: `p` is open and not used again.
        unsafe { close(p) };
    }
    answer == ANSWER && called && kept
}
