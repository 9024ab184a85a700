//! Compiles the pcap expressions of steering programs with libpcap. libpcap is not loaded before
//! the first expression.

use std::path::Path;
use std::sync::OnceLock;

use fanpcap_bpf::Classic;

use crate::library::Library;

/// The names by which the loader finds libpcap: Debian's name, and the name in other distributions.
const NAMES: [&str; 2] = ["libpcap.so.0.8", "libpcap.so.1"];

const SNAPLEN: i32 = 65_535;

static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();

/// Compiles an expression for Ethernet.
///
/// # Errors
/// Fails if libpcap can't be loaded, or if libpcap rejects the expression. In the second case the
/// error is libpcap's text.
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
