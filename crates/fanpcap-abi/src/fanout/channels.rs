//! A device's channels and the CPUs of their interrupts.

use crate::errbuf;
use crate::message::guard_errbuf;
use crate::system::ERROR;
use fanpcap_nic::channels::{self, Wanted};
use fanpcap_nic::device::Device;
use fanpcap_nic::error::DeviceError;
use fanpcap_nic::interrupts;
use fanpcap_nic::placing::{self, Until, Want};
use libc::cpu_set_t;
use std::ffi::{c_char, c_int, c_uint};
use std::fmt::Display;
use std::mem;
use std::ptr::null_mut;

/// Success is 1, not 0, because the examples in the paper that proposed this interface test for 1
/// (decision 3).
const DONE: c_int = 1;

const RX: c_int = 1;
const TX: c_int = 2;
const COMBINED: c_int = 4;
const OTHER: c_int = 8;

/// `struct pcap_channels`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    rx: c_uint,
    tx: c_uint,
    other: c_uint,
    combined: c_uint,
}

/// See pcap_set_channels(3PCAP).
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_channels(
    device: *const c_char,
    counts: *const Counts,
    mask: c_int,
    errbuf: *mut c_char,
) -> c_int {
    let set = || {
        // SAFETY: the caller's promise: a C string.
        let device = unsafe { errbuf::string(device) }.unwrap_or_default();
        // SAFETY: the caller's promise: a struct or null.
        let counts = unsafe { counts.as_ref() };
        let Some(wanted) = counts.and_then(|counts| wanted(counts, mask)) else {
            return Err((libc::EINVAL, WHICH.to_owned()));
        };
        let set = placing::place(&device, &[Want::Channels(wanted)], Until::Restored);
        set.map(drop)
            .map_err(|error| (error.error.errno(), of(&device, &error)))
    };
    // SAFETY: the caller's promise.
    unsafe { done(errbuf, set) }
}

/// See pcap_get_channels(3PCAP).
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_get_channels(
    device: *const c_char,
    counts: *mut Counts,
    errbuf: *mut c_char,
) -> c_int {
    let get = || {
        // SAFETY: the caller's promise: a C string.
        let device = unsafe { errbuf::string(device) }.unwrap_or_default();
        let now = read(&device)?;
        let found = Counts {
            rx: now.rx,
            tx: now.tx,
            other: now.other,
            combined: now.combined,
        };
        // SAFETY: the caller's promise: a writable struct.
        unsafe { counts.write(found) };
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { done(errbuf, get) }
}

/// See pcap_channel_setaffinity(3PCAP).
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_channel_setaffinity(
    device: *const c_char,
    channel: c_int,
    cpus: *const cpu_set_t,
) -> c_int {
    let set = || {
        // SAFETY: the caller's promise: a C string.
        let device = unsafe { errbuf::string(device) };
        // SAFETY: the caller's promise: a set or null.
        let cpus = unsafe { cpus.as_ref() };
        let cpus = cpus.map(members).unwrap_or_default();
        let channel = u32::try_from(channel);
        let (Ok(channel), false) = (channel, cpus.is_empty()) else {
            return Err((libc::EINVAL, String::new()));
        };
        let want = [Want::Irq { channel, cpus }];
        let set = placing::place(&device.unwrap_or_default(), &want, Until::Restored);
        set.map(drop)
            .map_err(|failed| (failed.error.errno(), String::new()))
    };
    // SAFETY: the buffer may be null.
    unsafe { done(null_mut(), set) }
}

/// See pcap_channel_getaffinity(3PCAP).
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_channel_getaffinity(
    device: *const c_char,
    channel: c_int,
    cpus: *mut cpu_set_t,
) -> c_int {
    let get = || {
        // SAFETY: the caller's promise: a C string.
        let device = unsafe { errbuf::string(device) }.unwrap_or_default();
        let channel = u32::try_from(channel);
        let channel = channel.map_err(|_| (libc::EINVAL, String::new()))?;
        let found = affinity(&device, channel)?;
        // SAFETY: the caller's promise: a writable set.
        unsafe { cpus.write(set_of(&found)) };
        Ok(())
    };
    // SAFETY: the buffer may be null.
    unsafe { done(null_mut(), get) }
}

/// The result of a failed call: errno, and a message.
type Failed = (c_int, String);

/// Runs the body of an entry point, and reports its result to the caller.
///
/// # Safety
/// `errbuf` is null or has PCAP_ERRBUF_SIZE bytes.
unsafe fn done(errbuf: *mut c_char, body: impl FnOnce() -> Result<(), Failed>) -> c_int {
    // SAFETY: the caller guarantees the buffer.
    let done = unsafe {
        guard_errbuf(errbuf, Err((libc::EFAULT, None)), || {
            body().map_err(|(errno, text)| (errno, Some(text)))
        })
    };
    let Err((errno, text)) = done else {
        return DONE;
    };
    if let Some(text) = text {
        // SAFETY: the caller guarantees the buffer.
        unsafe { errbuf::write(errbuf, &text) };
    }
    // SAFETY: the function has no preconditions.
    let own = unsafe { libc::__errno_location() };
    // SAFETY: errno is this thread's own.
    unsafe { own.write(errno) };
    ERROR
}

fn wanted(counts: &Counts, mask: c_int) -> Option<Wanted> {
    if mask == 0 || mask & !(RX | TX | COMBINED | OTHER) != 0 {
        return None;
    }
    let masked = |kind, count| (mask & kind != 0).then_some(count);
    Some(Wanted {
        rx: masked(RX, counts.rx),
        tx: masked(TX, counts.tx),
        other: masked(OTHER, counts.other),
        combined: masked(COMBINED, counts.combined),
    })
}

fn read(device: &str) -> Result<channels::Channels, Failed> {
    let found = Device::open(device).and_then(|found| channels::read(&found));
    found.map_err(|error| (error.errno(), of(device, &error)))
}

/// The CPUs to which the interrupts of a channel are delivered.
fn affinity(device: &str, channel: u32) -> Result<Vec<usize>, Failed> {
    let affinity = || -> Result<_, DeviceError> {
        let mut cpus = Vec::new();
        for interrupt in interrupts::of_channel(&Device::open(device)?, channel)? {
            cpus.extend(interrupts::affinity(interrupt.number)?.chosen());
        }
        Ok(cpus)
    };
    affinity().map_err(|error| (error.errno(), String::new()))
}

fn of(device: &str, why: &dyn Display) -> String {
    format!("{device}: {why}")
}

/// The number of CPUs for which a `cpu_set_t` has a bit.
const CPUS: usize = 8 * size_of::<cpu_set_t>();

fn members(set: &cpu_set_t) -> Vec<usize> {
    let has = |cpu: &usize| {
        // SAFETY: `cpu` is below `CPUS`, so the mask has a bit for it.
        unsafe { libc::CPU_ISSET(*cpu, set) }
    };
    (0..CPUS).filter(has).collect()
}

fn set_of(cpus: &[usize]) -> cpu_set_t {
    // SAFETY: cpu_set_t is a bit mask; all zeros is the empty set.
    let mut set: cpu_set_t = unsafe { mem::zeroed() };
    for &cpu in cpus.iter().filter(|&&cpu| cpu < CPUS) {
        // SAFETY: `cpu` is below `CPUS`, so the mask has a bit for it.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    set
}

const WHICH: &str = "which channels: a mask of PCAP_RX_CHANNELS, PCAP_TX_CHANNELS, \
                     PCAP_COMBINED_CHANNELS and PCAP_OTHER_CHANNELS";
