//! The system's libpcap with its functions, or the reason why it is missing.

use crate::compiled;
use crate::created::Created;
use crate::functions::{Functions, Symbols};
use crate::loader::SystemLibrary;
use crate::object::SocketFunction;
use fanpcap_bpf::Classic;
use std::ffi::{CStr, c_void};
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

/// The functions of the system's library. A function that the library lacks is `None`.
#[derive(Debug)]
pub struct System {
    library: Option<SystemLibrary>,
    symbols: Symbols,
    missing: String,
}

impl System {
    /// Loads the system's libpcap. If `chosen` (`FANPCAP_LIBPCAP`) names a file, only this file is
    /// tried. If `chosen` is `None` or one of our own libraries, the libraries in the system's
    /// directories are tried first, then those in the loader's cache.
    pub fn find(chosen: Option<&Path>) -> Self {
        let (library, missing) = match SystemLibrary::find(chosen) {
            Ok(library) => (Some(library), String::new()),
            Err(error) => (None, error.to_string()),
        };
        let symbol = |name: &CStr| library.as_ref()?.symbol(name);
        Self {
            symbols: Symbols::find(&symbol),
            library,
            missing,
        }
    }

    /// Whether a library could be loaded.
    pub fn is_loaded(&self) -> bool {
        self.library.is_some()
    }

    /// Explains, for an error message, why a function of the library is missing.
    pub fn missing(&self) -> &str {
        match self.missing.as_str() {
            "" => "the system's libpcap lacks this function; fanpcap needs libpcap 1.10 or newer",
            text => text,
        }
    }

    /// Whether `address` lies in the system's library.
    pub fn holds(&self, address: *const c_void) -> bool {
        let library = self.library.as_ref();
        library.is_some_and(|library| library.holds(address))
    }

    /// Whether the system's library itself made the call of our function that is running now. This
    /// happens if the application had loaded the system's library before ours. Our function must
    /// then give the result that the system's library would give.
    pub fn is_calling(&self) -> bool {
        self.library.as_ref().is_some_and(SystemLibrary::is_calling)
    }

    /// Makes the library call `function` in the place of socket(2), from now on. On machines whose
    /// relocations are not known, it goes on to call socket(2).
    pub fn redirect_socket(&self, function: SocketFunction) {
        if let Some(library) = &self.library {
            library.redirect_socket(function);
        }
    }

    /// Compiles a filter expression; see [`crate::Library::compile`].
    ///
    /// # Errors
    /// The expression is wrong, or no libpcap with all functions is loaded. The message says which.
    pub fn compile(&self, expression: &str, snaplen: i32) -> Result<Vec<Classic>, String> {
        if expression.contains('\0') {
            return Err("a zero byte in a filter expression".to_owned());
        }
        let code = compiled::compile(&self.functions()?, expression, snaplen);
        code.map_err(|error| error.reason)
    }

    /// Creates a handle on a device, whatever our settings say about that device.
    ///
    /// # Errors
    /// libpcap's message, or no libpcap with all functions is loaded.
    pub fn create(&self, device: &str) -> Result<Created, String> {
        Created::on(&self.functions()?, device).map_err(|error| error.reason)
    }

    fn functions(&self) -> Result<Arc<Functions>, String> {
        let functions = Functions::of(&self.symbols);
        let functions = functions.map_err(|lacking| match self.is_loaded() {
            true => format!("the system's libpcap lacks {lacking}"),
            false => "no libpcap that could compile it".to_owned(),
        });
        functions.map(Arc::new)
    }
}

impl Deref for System {
    type Target = Symbols;

    fn deref(&self) -> &Symbols {
        &self.symbols
    }
}
