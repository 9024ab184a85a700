//! A libpcap that the caller chooses, loaded by its path: handles, reading, filters, counters and
//! fan-out groups.
//!
//! With this module, the `fanpcap` command can choose at run time between our library and the
//! system's. The system's library lacks the functions of `pcap/fanout.h`. A library is never
//! unloaded.

use crate::compiled;
use crate::error::Error;
use crate::functions::{Functions, Symbols};
use fanpcap_bpf::Classic;
use fanpcap_linux::object::{SharedObject, text};
use std::ffi::CString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A loaded libpcap.
#[derive(Clone, Debug)]
pub struct Library {
    path: PathBuf,
    pub(crate) functions: Arc<Functions>,
}

/// The reason why a libpcap can't be used.
#[derive(Debug)]
pub enum OpenError {
    /// The loader failed.
    Loader {
        /// The library.
        path: PathBuf,
        /// The text of dlerror(3).
        reason: String,
    },
    /// The library lacks a function.
    Symbol {
        /// The library.
        path: PathBuf,
        /// The function.
        name: &'static str,
    },
}

impl Library {
    /// Loads a libpcap (`RTLD_NOW | RTLD_LOCAL`), and looks up all functions that this module
    /// calls.
    ///
    /// # Errors
    /// Fails if the loader can't load the library, or if the library lacks a function.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let failed = |reason| OpenError::Loader {
            path: path.to_owned(),
            reason,
        };
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| failed("the path has a zero byte".to_owned()))?;
        // SAFETY: the object's constructors are those of a libpcap.
        let object = unsafe { SharedObject::load(&name, libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let object = object.map_err(failed)?;
        let symbols = Symbols::find(&|name| object.symbol(name));
        let functions = Functions::of(&symbols).map_err(|name| OpenError::Symbol {
            path: path.to_owned(),
            name,
        })?;
        Ok(Self {
            path: path.to_owned(),
            functions: Arc::new(functions),
        })
    }

    /// The library's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the library's handles can share packets. This is so if the library has all functions
    /// of `pcap/fanout.h` that this crate calls. A single function is no proof: another libpcap may
    /// have a function of the same name with another meaning.
    pub fn fans_out(&self) -> bool {
        let functions = &self.functions;
        functions.pcap_fanout.is_some()
            && functions.pcap_fanout_group.is_some()
            && functions.pcap_fanout_stats.is_some()
    }

    /// Compiles a filter expression (pcap-filter(7)) for Ethernet frames whose VLAN tags are among
    /// their bytes. The filter keeps `snaplen` bytes of each packet that passes.
    ///
    /// # Errors
    /// The expression is wrong.
    pub fn compile(&self, expression: &str, snaplen: i32) -> Result<Vec<Classic>, Error> {
        compiled::compile(&self.functions, expression, snaplen)
    }

    /// pcap_lib_version(3PCAP).
    pub fn version(&self) -> String {
        // SAFETY: the function has no preconditions.
        let version = unsafe { (self.functions.pcap_lib_version)() };
        // SAFETY: the function returns a C string that stays valid.
        unsafe { text(version) }
    }

    /// pcap_datalink_val_to_name(3PCAP): `EN10MB` for 1; `None` for a number without a name.
    pub fn datalink_name(&self, datalink: i32) -> Option<String> {
        // SAFETY: the function takes any number.
        let name = unsafe { (self.functions.pcap_datalink_val_to_name)(datalink) };
        // SAFETY: a name is a C string that stays valid.
        (!name.is_null()).then(|| unsafe { text(name) })
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The text of dlerror already names the path.
            Self::Loader { path, reason } if reason.contains(&*path.to_string_lossy()) => {
                f.write_str(reason)
            }
            Self::Loader { path, reason } => write!(f, "{}: {reason}", path.display()),
            Self::Symbol { path, name } => {
                write!(
                    f,
                    "{} has no {name}: it is no libpcap, or a too old one",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for OpenError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dispatched, Handle, Header, Precision};
    use fanpcap_bpf::classic::opcode::{LD_H_ABS, RET_K};
    use std::{env, fs, panic, process};

    const SYSTEM: [&str; 3] = [
        "/usr/lib/x86_64-linux-gnu/libpcap.so.0.8",
        "/usr/lib/aarch64-linux-gnu/libpcap.so.0.8",
        "/usr/lib64/libpcap.so.1",
    ];

    fn system() -> Option<Library> {
        let path = SYSTEM.iter().map(Path::new).find(|path| path.exists());
        if path.is_none() {
            eprintln!("SKIP: no libpcap in {SYSTEM:?}");
        }
        path.map(|path| Library::open(path).unwrap())
    }

    /// Writes a savefile with `packets` packets of 4 bytes, and opens it.
    fn savefile(library: &Library, name: &str, packets: u32) -> Handle {
        let header = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 1];
        let packets = (1..=packets).flat_map(|second| [second, 7, 4, 60, 0x0403_0201]);
        let words = header.into_iter().chain(packets);
        let bytes: Vec<u8> = words.flat_map(u32::to_ne_bytes).collect();
        let path = env::temp_dir().join(format!("fanpcap-{name}-{}.pcap", process::id()));
        fs::write(&path, bytes).unwrap();
        let handle = library.open_offline(&path, Precision::Nano).unwrap();
        fs::remove_file(path).unwrap();
        handle
    }

    #[test]
    fn what_is_no_libpcap_is_named() {
        let missing = Library::open(Path::new("/nowhere/libpcap.so")).unwrap_err();
        assert!(
            missing.to_string().starts_with("/nowhere/libpcap.so: "),
            "{missing}"
        );
        let wrong = Library::open(Path::new("libc.so.6")).unwrap_err();
        assert!(
            matches!(
                wrong,
                OpenError::Symbol {
                    name: "pcap_lib_version",
                    ..
                }
            ),
            "{wrong}"
        );
    }

    #[test]
    fn a_savefile_is_read_to_its_end() {
        let Some(library) = system() else { return };
        let mut handle = savefile(&library, "read", 3);
        let mut seen = Vec::new();
        let some = handle.dispatch(Some(2), |header, bytes| {
            seen.push((*header, bytes.to_vec()))
        });
        assert_eq!(some, Ok(Dispatched::Packets(2)));
        let rest = handle.dispatch(None, |header, bytes| seen.push((*header, bytes.to_vec())));
        assert_eq!(rest, Ok(Dispatched::Packets(1)));
        assert_eq!(handle.dispatch(None, |_, _| ()), Ok(Dispatched::Packets(0)));
        let third = Header {
            seconds: 3,
            fraction: 7000,
            caplen: 4,
            len: 60,
        };
        assert_eq!(seen[2], (third, 0x0403_0201_u32.to_ne_bytes().to_vec()));
        assert_eq!((handle.datalink(), handle.snaplen()), (1, 65535));
        assert_eq!(library.datalink_name(1).as_deref(), Some("EN10MB"));
        assert_eq!(handle.stats().unwrap_err().call, "pcap_stats");
    }

    #[test]
    fn an_expression_is_compiled_for_frames_with_their_tags() {
        let Some(library) = system() else { return };
        let code = library.compile("vlan 7", 65_535).unwrap();
        // The filter loads the Ethernet type, which follows the addresses, from the frame's bytes.
        assert_eq!((code[0].code, code[0].k), (LD_H_ABS, 12));
        assert_eq!(
            code.last().map(|last| (last.code, last.k)),
            Some((RET_K, 0))
        );
        let wrong = library.compile("tpc port", 65_535).unwrap_err();
        assert_eq!(wrong.call, "pcap_compile");
        assert!(!wrong.reason.is_empty());
    }

    #[test]
    fn a_break_ends_the_dispatch() {
        let Some(library) = system() else { return };
        let mut handle = savefile(&library, "break", 3);
        let end = handle.breaker();
        std::thread::spawn(move || end.now()).join().unwrap();
        assert_eq!(handle.dispatch(None, |_, _| ()), Ok(Dispatched::Broken));
        assert_eq!(handle.dispatch(None, |_, _| ()), Ok(Dispatched::Packets(3)));
    }

    #[test]
    fn a_filter_chooses_and_a_wrong_one_is_an_error() {
        let Some(library) = system() else { return };
        let mut handle = savefile(&library, "filter", 3);
        let error = handle.set_filter("no such word").unwrap_err();
        assert!(!error.reason.is_empty(), "{error}");
        handle.set_filter("ether[0] == 0").unwrap();
        assert_eq!(handle.dispatch(None, |_, _| ()), Ok(Dispatched::Packets(0)));
    }

    #[test]
    fn a_panic_comes_out_of_the_dispatch() {
        let Some(library) = system() else { return };
        let mut handle = savefile(&library, "panic", 3);
        let mut visits = 0;
        let read = panic::AssertUnwindSafe(|| {
            handle.dispatch(None, |_, _| {
                visits += 1;
                panic!("at {visits}");
            })
        });
        let panicked = panic::catch_unwind(read).unwrap_err();
        assert_eq!(panicked.downcast_ref::<String>().unwrap(), "at 1");
        assert_eq!(visits, 1);
    }

    #[test]
    fn without_fan_out_a_library_says_so() {
        let Some(library) = system() else { return };
        assert!(!library.fans_out());
        let error = library
            .create("lo")
            .unwrap()
            .fanout(None, None)
            .unwrap_err();
        assert_eq!(error.call, "pcap_fanout");
    }
}
