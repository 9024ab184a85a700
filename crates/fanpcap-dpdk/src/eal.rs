//! The environment of DPDK (EAL): its start, and its own thread.

use crate::abi::Table;
use crate::plugin::Plugin;
use std::error::Error;
use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How DPDK starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EalOptions {
    /// MiB of ordinary memory in the place of huge pages; `None` for huge pages, of which DPDK
    /// takes as many as it needs.
    pub ordinary_mib: Option<u32>,
    /// Whether a device on the PCI bus is to be opened.
    pub has_pci: bool,
    /// A CPU of this process, on which the start runs.
    pub cpu: usize,
    /// What tells this process's files and memory from those of other processes.
    pub prefix: String,
    /// More words for DPDK's command line.
    pub more: Vec<String>,
}

impl EalOptions {
    /// The words of DPDK's command line. Without `--in-memory` or `--no-shconf`, DPDK would leave
    /// files, and wait for other processes that share the device. The list of allowed devices has
    /// one that DPDK has no driver for, so that DPDK opens none at its start.
    fn words(&self) -> Vec<String> {
        let mut words = vec!["fanpcap".to_owned()];
        match self.ordinary_mib {
            // DPDK refuses --in-memory without huge pages.
            Some(mib) => words.extend([
                "--no-huge".to_owned(),
                "--no-shconf".to_owned(),
                "-m".to_owned(),
                mib.to_string(),
            ]),
            None => words.push("--in-memory".to_owned()),
        }
        words.push(format!("--file-prefix={}", self.prefix));
        words.push("--no-telemetry".to_owned());
        words.push(format!("--lcores=0@{}", self.cpu));
        // Errors only (RTE_LOG_ERR).
        words.push("--log-level=4".to_owned());
        match self.has_pci {
            true => words.extend(["-a".to_owned(), "0000:00:00.0".to_owned()]),
            false => words.push("--no-pci".to_owned()),
        }
        words.extend(self.more.iter().cloned());
        words
    }
}

/// Why DPDK does not start.
#[derive(Debug)]
pub enum BeginError {
    /// DPDK has been started in this process before.
    Twice,
    /// A word of the command line contains a zero byte.
    Word,
    /// DPDK's error, and its own words.
    Failed(io::Error, String),
}

impl fmt::Display for BeginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Twice => f.write_str("a process can start DPDK only once"),
            Self::Word => f.write_str("a word for DPDK contains a zero byte"),
            Self::Failed(error, words) if words.is_empty() => {
                write!(f, "DPDK does not start: {error}")
            }
            Self::Failed(error, words) => write!(f, "DPDK does not start: {error} ({words})"),
        }
    }
}

impl Error for BeginError {}

/// The running environment of DPDK.
#[derive(Clone, Copy)]
pub struct Eal {
    table: &'static Table,
}

/// A process has one environment.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// One thread at a time adds or removes devices: DPDK's lists of devices have no lock, and its
/// messages meanwhile are collected for all threads together.
pub(crate) fn devices() -> MutexGuard<'static, ()> {
    static DEVICES: Mutex<()> = Mutex::new(());
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes for DPDK's words about a failure.
pub(crate) const WORDS: usize = 480;

impl Plugin {
    /// Starts DPDK's environment, which a process can do once. DPDK starts a thread of its own. The
    /// calling thread keeps its CPUs.
    ///
    /// # Errors
    /// See [`BeginError`].
    pub fn begin(self, options: &EalOptions) -> Result<Eal, BeginError> {
        let words = options.words().into_iter().map(CString::new);
        let words: Result<Vec<CString>, _> = words.collect();
        let words = words.map_err(|_| BeginError::Word)?;
        if BEGUN.swap(true, Ordering::Relaxed) {
            return Err(BeginError::Twice);
        }
        let count = i32::try_from(words.len()).map_err(|_| BeginError::Word)?;
        // DPDK keeps pointers to some words.
        let mut pointers: Vec<*mut c_char> = words.into_iter().map(CString::into_raw).collect();
        pointers.push(std::ptr::null_mut());
        let pointers = pointers.leak().as_mut_ptr();
        let mut why = [0; WORDS];
        let (text, len) = (why.as_mut_ptr(), why.len());
        // SAFETY: there are `count` C strings and a null pointer, which stay for ever, and `len`
        // bytes of text.
        match unsafe { (self.table().begin)(count, pointers, text, len) } {
            0 => Ok(Eal {
                table: self.table(),
            }),
            rc => Err(BeginError::Failed(error(rc), words_in(&why))),
        }
    }
}

impl Eal {
    /// Calls a function soon in the thread of DPDK that serves interrupts.
    ///
    /// # Errors
    /// DPDK has no memory or no timer. The function is not called then.
    pub fn in_own_thread(self, function: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let boxed: Box<Call> = Box::new(Box::new(function));
        let raw = Box::into_raw(boxed);
        // SAFETY: `call` gets the pointer once, if the function succeeds.
        match unsafe { (self.table.in_own_thread)(call, raw.cast()) } {
            0 => Ok(()),
            rc => {
                // SAFETY: `call` was not called, so this is the only owner.
                drop(unsafe { Box::from_raw(raw) });
                Err(error(rc))
            }
        }
    }

    pub(crate) fn table(self) -> &'static Table {
        self.table
    }
}

impl fmt::Debug for Eal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Eal")
    }
}

type Call = Box<dyn FnOnce() + Send>;

/// Runs a [`Call`] that was boxed twice.
unsafe extern "C" fn call(argument: *mut c_void) {
    // SAFETY: `Eal::in_own_thread` passes the pointer of a box, once.
    let call = unsafe { Box::from_raw(argument.cast::<Call>()) };
    call();
}

/// The error of a negative errno. DPDK returns -1 where it has no better number.
pub(crate) fn error(rc: i32) -> io::Error {
    match rc {
        -1 => io::Error::other("DPDK's function has failed"),
        _ => io::Error::from_raw_os_error(rc.saturating_neg()),
    }
}

/// The text that the plugin has written.
pub(crate) fn words_in(why: &[c_char; WORDS]) -> String {
    let bytes: Vec<u8> = why.iter().flat_map(|it| it.to_ne_bytes()).collect();
    let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
    text.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(ordinary_mib: Option<u32>, has_pci: bool) -> EalOptions {
        EalOptions {
            ordinary_mib,
            has_pci,
            cpu: 3,
            prefix: "fanpcap-7".to_owned(),
            more: vec!["--iova-mode=va".to_owned()],
        }
    }

    #[test]
    fn huge_pages_are_in_memory_and_ordinary_memory_is_private() {
        let words = options(None, true).words().join(" ");
        assert_eq!(
            words,
            "fanpcap --in-memory --file-prefix=fanpcap-7 --no-telemetry --lcores=0@3 \
             --log-level=4 -a 0000:00:00.0 --iova-mode=va"
        );
        let words = options(Some(96), false).words().join(" ");
        assert_eq!(
            words,
            "fanpcap --no-huge --no-shconf -m 96 --file-prefix=fanpcap-7 --no-telemetry \
             --lcores=0@3 --log-level=4 --no-pci --iova-mode=va"
        );
    }

    #[test]
    fn an_error_has_dpdks_own_words() {
        let mut why = [0; WORDS];
        for (to, from) in why.iter_mut().zip(b"EAL: no memory") {
            *to = c_char::from_ne_bytes([*from]);
        }
        assert_eq!(words_in(&why), "EAL: no memory");
        let text = BeginError::Failed(error(-12), words_in(&why)).to_string();
        assert!(text.contains("(EAL: no memory)"), "{text}");
        assert!(error(-1).raw_os_error().is_none());
    }
}
