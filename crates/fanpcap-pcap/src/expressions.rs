//! Compiles pcap expressions of steering programs. libpcap does so, and is loaded for the first one.

use std::cell::OnceCell;
use std::path::Path;

use fanpcap_bpf::Classic;

use crate::library::Library;

/// Names by which the loader knows libpcap: Debian's, and other distributions'.
const NAMES: [&str; 2] = ["libpcap.so.0.8", "libpcap.so.1"];

/// Snapshot length of the compiled filter.
const SNAPLEN: i32 = 65_535;

/// libpcap as a compiler of expressions, or why it can't be loaded.
#[derive(Default)]
pub struct ExpressionCompiler(OnceCell<Result<Library, String>>);

impl ExpressionCompiler {
    /// Compiles an expression for Ethernet.
    ///
    /// # Errors
    /// libpcap can't be loaded, or does not take the expression: its own words.
    pub fn compile(&self, expression: &str) -> Result<Vec<Classic>, String> {
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
