//! Compiles the pcap expressions of steering programs by libpcap, which is loaded for the first.

use std::path::Path;
use std::sync::OnceLock;

use fanpcap_bpf::Classic;

use crate::library::Library;

/// Names by which the loader knows libpcap: Debian's, and other distributions'.
const NAMES: [&str; 2] = ["libpcap.so.0.8", "libpcap.so.1"];

/// Snapshot length of the compiled filter.
const SNAPLEN: i32 = 65_535;

/// libpcap, or why it can't be loaded.
static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();

/// Compiles an expression for Ethernet.
///
/// # Errors
/// libpcap can't be loaded, or does not take the expression: the reason in its own words.
pub fn compile_expression(expression: &str) -> Result<Vec<Classic>, String> {
    let library = LIBRARY.get_or_init(open).as_ref().map_err(String::clone)?;
    let code = library.compile(expression, SNAPLEN);
    code.map_err(|error| error.reason)
}

fn open() -> Result<Library, String> {
    let mut opened = NAMES.iter().map(|name| Library::open(Path::new(name)));
    let found = opened.find_map(Result::ok);
    found.ok_or_else(|| format!("loading {} failed", NAMES.join(" and ")))
}
