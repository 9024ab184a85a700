//! pcap expressions in steering programs: libpcap compiles them, and is loaded for the first one.

use std::cell::OnceCell;
use std::path::Path;

use fanpcap_bpf::Classic;
use fanpcap_pcap::Library;

/// Names by which the loader knows libpcap: Debian's, and other distributions'.
const NAMES: [&str; 2] = ["libpcap.so.0.8", "libpcap.so.1"];

/// Snapshot length of the compiled filter.
const SNAPLEN: i32 = 65_535;

/// libpcap, or why it can't be loaded.
#[derive(Default)]
pub(crate) struct Pcap(OnceCell<Result<Library, String>>);

impl Pcap {
    /// Compiles an expression for Ethernet.
    pub(crate) fn compile(&self, expression: &str) -> Result<Vec<Classic>, String> {
        let library = self.0.get_or_init(open).as_ref().map_err(String::clone)?;
        let code = library.compile(expression, SNAPLEN);
        code.map_err(|error| error.reason)
    }
}

fn open() -> Result<Library, String> {
    let mut opened = NAMES.iter().map(|name| Library::open(Path::new(name)));
    let found = opened.find_map(Result::ok);
    found.ok_or_else(|| format!("loading {} failed", NAMES.join(" and ")))
}
