//! Reading: pcap_dispatch(3PCAP), with a closure for each packet.

use crate::error::Error;
use crate::handle::Handle;
use crate::structs::{Header, Pcap};
use std::any::Any;
use std::ffi::c_int;
use std::panic::{self, AssertUnwindSafe};
use std::slice;

/// The result of a dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatched {
    /// This many packets were read. 0 means that the time-out expired, or that the savefile has
    /// ended.
    Packets(u32),
    /// [`Break::now`](crate::Break::now) was called.
    Broken,
}

/// `PCAP_ERROR_BREAK`.
const BREAK: c_int = -2;

struct Reading<'a> {
    visit: &'a mut dyn FnMut(&Header, &[u8]),
    breakloop: unsafe extern "C-unwind" fn(*mut Pcap),
    p: *mut Pcap,
    panicked: Option<Box<dyn Any + Send>>,
}

impl Handle {
    /// Calls `visit` for each packet of one buffer, at most `limit` packets. The bytes that `visit`
    /// gets lie in the ring. Waits for packets, as libpcap does, unless the handle is in
    /// non-blocking mode.
    ///
    /// # Errors
    /// Fails with the message of pcap_dispatch(3PCAP).
    ///
    /// # Panics
    /// Panics if `visit` panics. Later packets of the same buffer may then be lost.
    pub fn dispatch(
        &mut self,
        limit: Option<u32>,
        mut visit: impl FnMut(&Header, &[u8]),
    ) -> Result<Dispatched, Error> {
        if limit == Some(0) {
            // For libpcap, 0 means no limit.
            return Ok(Dispatched::Packets(0));
        }
        let limit = limit.map_or(-1, |limit| c_int::try_from(limit).unwrap_or(c_int::MAX));
        let functions = &self.open.functions;
        let mut reading = Reading {
            visit: &mut visit,
            breakloop: functions.pcap_breakloop,
            p: self.p(),
            panicked: None,
        };
        let user = (&raw mut reading).cast();
        // SAFETY: the handle is activated; `user` has the type that the callback expects, and lives
        // through the call.
        let status = unsafe { (functions.pcap_dispatch)(self.p(), limit, Some(callback), user) };
        if let Some(panicked) = reading.panicked {
            panic::resume_unwind(panicked);
        }
        if status == BREAK {
            return Ok(Dispatched::Broken);
        }
        let packets = self.done("pcap_dispatch", status)?;
        Ok(Dispatched::Packets(packets.unsigned_abs()))
    }
}

/// Calls the closure. Catches a panic of the closure, because the panic must not unwind through
/// libpcap's frames.
///
/// # Safety
/// Only libpcap calls this function, with a [`Reading`] as `user`.
unsafe extern "C-unwind" fn callback(user: *mut u8, header: *const Header, bytes: *const u8) {
    // SAFETY: `dispatch` gave a live Reading, which no other code uses during the call.
    let reading = unsafe { &mut *user.cast::<Reading<'_>>() };
    if reading.panicked.is_some() {
        return;
    }
    // SAFETY: libpcap gives a header that is live during the call.
    let header = unsafe { &*header };
    // SAFETY: libpcap gives as many bytes as the header says.
    let bytes = unsafe { slice::from_raw_parts(bytes, header.caplen as usize) };
    let visited = panic::catch_unwind(AssertUnwindSafe(|| (reading.visit)(header, bytes)));
    if let Err(panicked) = visited {
        reading.panicked = Some(panicked);
        // SAFETY: the handle is the one being read.
        unsafe { (reading.breakloop)(reading.p) };
    }
}
