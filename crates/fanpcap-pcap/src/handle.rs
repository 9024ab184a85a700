//! Open handles: their filter, counters and group.

use crate::error::{Errbuf, Error, c_text};
use crate::functions::Functions;
use crate::structs::{BpfProgram, FanoutStat, FanoutStats, Pcap, Stats};
use fanpcap_linux::object::text;
use fanpcap_linux::packet::Filter;
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint};
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

/// The unit of the fraction of a second in a packet's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Microseconds.
    Micro,
    /// Nanoseconds.
    Nano,
}

/// A handle that reads packets. Any thread may use the handle, but only one thread at a time. The
/// handle is closed when the value and all its [`Break`]s are dropped.
#[derive(Debug)]
pub struct Handle {
    pub(crate) open: Arc<Open>,
    /// Makes the type not `Sync`, so that two threads can't use a handle at the same time.
    _one_thread: PhantomData<Cell<()>>,
}

/// Ends the reading of a handle, from any thread or signal handler.
#[derive(Clone, Debug)]
pub struct Break(Arc<Open>);

#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) p: NonNull<Pcap>,
    pub(crate) functions: Arc<Functions>,
}

// SAFETY: libpcap binds a handle to no thread. Besides the thread that has the `Handle`, other
// threads call only pcap_breakloop, which any thread may call.
unsafe impl Send for Open {}
// SAFETY: as above.
unsafe impl Sync for Open {}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and there is no other reference to it.
        unsafe { (self.functions.pcap_close)(self.p.as_ptr()) };
    }
}

/// `PCAP_ERROR`.
pub(crate) const ERROR: c_int = -1;
/// `PCAP_WARNING`.
const WARNING: c_int = 1;
/// `PCAP_TSTAMP_PRECISION_NANO`.
pub(crate) const NANO: c_int = 1;
/// `PCAP_NETMASK_UNKNOWN`.
pub(crate) const NETMASK_UNKNOWN: c_uint = 0xffff_ffff;

impl Handle {
    /// Wraps the handle that `open` returns. If `open` returns null, fails with the error that
    /// `open` wrote to the errbuf.
    pub(crate) fn new(
        functions: &Arc<Functions>,
        call: &'static str,
        open: impl FnOnce(*mut c_char) -> *mut Pcap,
    ) -> Result<Self, Error> {
        let mut errbuf = Errbuf::new();
        let p = NonNull::new(open(errbuf.as_mut_ptr())).ok_or_else(|| errbuf.error(call))?;
        let functions = Arc::clone(functions);
        Ok(Self {
            open: Arc::new(Open { p, functions }),
            _one_thread: PhantomData,
        })
    }

    pub(crate) fn p(&self) -> *mut Pcap {
        self.open.p.as_ptr()
    }

    /// Returns a value that ends the handle's reading.
    pub fn breaker(&self) -> Break {
        Break(Arc::clone(&self.open))
    }

    /// Compiles a filter expression (pcap-filter(7)) and sets it as the handle's filter.
    ///
    /// # Errors
    /// The expression is wrong.
    pub fn set_filter(&mut self, expression: &str) -> Result<(), Error> {
        let function = self.open.functions.pcap_setfilter;
        // SAFETY: the program was compiled for this handle.
        let set = |program: &mut BpfProgram| unsafe { function(self.p(), program) };
        let status = self.compiled(expression, true, set)?;
        self.done("pcap_setfilter", status).map(drop)
    }

    /// Calls `take` with the filter into which pcap_compile(3PCAP) compiles an expression.
    pub(crate) fn compiled<T>(
        &self,
        expression: &str,
        optimize: bool,
        take: impl FnOnce(&mut BpfProgram) -> T,
    ) -> Result<T, Error> {
        const CALL: &str = "pcap_compile";
        let text = c_text(CALL, expression.as_bytes())?;
        let mut program = BpfProgram::EMPTY;
        let (compile, into) = (self.open.functions.pcap_compile, &raw mut program);
        // SAFETY: the handle is open, the text a C string, the program live.
        let status = unsafe {
            compile(
                self.p(),
                into,
                text.as_ptr(),
                optimize.into(),
                NETMASK_UNKNOWN,
            )
        };
        self.done(CALL, status)?;
        let taken = take(&mut program);
        // SAFETY: the program was compiled above and is not used any more.
        unsafe { (self.open.functions.pcap_freecode)(&raw mut program) };
        Ok(taken)
    }

    /// Whether the kernel runs the filter. If the kernel can't run a filter, libpcap runs it: for
    /// example, a filter with link-layer addresses on the device `any`. The counters then include
    /// the packets that the filter rejects. Also false for a handle on several devices, because it
    /// is unknown where such a handle's filter runs.
    pub fn is_filtered_in_kernel(&self) -> bool {
        // SAFETY: the handle is activated.
        let fd = unsafe { (self.open.functions.pcap_fileno)(self.p()) };
        if fd < 0 {
            return false;
        }
        // SAFETY: the handle's socket is open as long as the handle.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        Filter::of(socket).is_ok_and(|filter| filter.is_some())
    }

    /// Sets whether [`Handle::dispatch`] returns at once if there is no packet.
    ///
    /// # Errors
    /// Fails with the message of pcap_setnonblock(3PCAP).
    pub fn set_nonblock(&mut self, nonblock: bool) -> Result<(), Error> {
        let mut errbuf = Errbuf::new();
        let set = self.open.functions.pcap_setnonblock;
        // SAFETY: the handle is activated, and the buffer has all bytes that the function may fill.
        match unsafe { set(self.p(), nonblock.into(), errbuf.as_mut_ptr()) } {
            0 => Ok(()),
            _ => Err(errbuf.error("pcap_setnonblock")),
        }
    }

    /// The counters since activation.
    ///
    /// # Errors
    /// Fails with the message of pcap_stats(3PCAP), always for a savefile, which has no counters.
    pub fn stats(&mut self) -> Result<Stats, Error> {
        let mut stats = Stats::default();
        // SAFETY: the handle is activated and the struct live.
        let status = unsafe { (self.open.functions.pcap_stats)(self.p(), &raw mut stats) };
        self.done("pcap_stats", status).map(|_| stats)
    }

    /// The handle's group; `None` if the handle is in no group, or if its library has no groups.
    pub fn group(&self) -> Option<u16> {
        let function = self.open.functions.pcap_fanout_group?;
        // SAFETY: the handle is open.
        let group = unsafe { function(self.p()) };
        u16::try_from(group).ok()
    }

    /// The counters of the handle, as a member, and of its group.
    ///
    /// # Errors
    /// Fails if the handle is in no group, or if its library has no groups.
    pub fn fanout_stats(&mut self) -> Result<FanoutStats, Error> {
        const CALL: &str = "pcap_fanout_stats";
        let Some(function) = self.open.functions.pcap_fanout_stats else {
            return Err(Error::new(CALL, "this libpcap has no such function"));
        };
        let mut stat = FanoutStat::new(FanoutStat::FIRST_SIZE, 0);
        // SAFETY: the handle is activated, and `stat` is live and contains its own size.
        let status = unsafe { function(self.p(), &raw mut stat) };
        self.done(CALL, status).map(|_| stat.into())
    }

    /// The link-layer type of the handle's packets, `DLT_*` (pcap_datalink(3PCAP)).
    pub fn datalink(&self) -> i32 {
        // SAFETY: the handle is open.
        unsafe { (self.open.functions.pcap_datalink)(self.p()) }
    }

    /// The snaplen in bytes.
    pub fn snaplen(&self) -> i32 {
        // SAFETY: the handle is open.
        unsafe { (self.open.functions.pcap_snapshot)(self.p()) }
    }

    /// The unit of the fraction of a second in a packet's header.
    pub fn tstamp_precision(&self) -> Precision {
        // SAFETY: the handle is open.
        match unsafe { (self.open.functions.pcap_get_tstamp_precision)(self.p()) } {
            NANO => Precision::Nano,
            _ => Precision::Micro,
        }
    }

    /// Returns `status` if it is not negative. A negative status is an error: returns its text.
    pub(crate) fn done(&self, call: &'static str, status: c_int) -> Result<c_int, Error> {
        if status < 0 {
            return Err(Error::new(call, self.said(status)));
        }
        Ok(status)
    }

    /// The text of pcap_geterr(3PCAP). If `status` is neither `PCAP_ERROR` nor `PCAP_WARNING`, the
    /// name of this status comes first, and the text follows in parentheses.
    pub(crate) fn said(&self, status: c_int) -> String {
        // SAFETY: the handle is open.
        let said = unsafe { (self.open.functions.pcap_geterr)(self.p()) };
        // SAFETY: the function returns a C string, which stays until the handle's next call.
        let said = unsafe { text(said) };
        if status == ERROR || status == WARNING {
            return said;
        }
        // SAFETY: the function takes any number.
        let name = unsafe { (self.open.functions.pcap_statustostr)(status) };
        // SAFETY: the function returns a C string, which is copied at once.
        let name = unsafe { text(name) };
        if said.is_empty() || said == name {
            return name;
        }
        format!("{name} ({said})")
    }
}

impl Break {
    /// pcap_breakloop(3PCAP): ends the dispatch that is running; if none is running, ends the next
    /// one. Async-signal-safe.
    pub fn now(&self) {
        // SAFETY: the handle is open as long as `self`; the function may be called from anywhere.
        unsafe { (self.0.functions.pcap_breakloop)(self.0.p.as_ptr()) };
    }
}
