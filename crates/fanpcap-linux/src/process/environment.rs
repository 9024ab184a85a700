//! The process's environment, read in one pass.
//!
//! Another thread of the application may change the environment with setenv(3) during this pass,
//! although POSIX forbids it. Before glibc 2.41, setenv(3) may free the text that this module is
//! reading.
//!
//! libpcap's own getenv(3) has the same risk. This module keeps its risk as low as that of one
//! getenv(3): it makes one pass, and copies only the variables that matter. Rust's `vars_os()`
//! would copy every variable, and its lock does not stop setenv(3) of C code.

use std::ffi::{CStr, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStrExt;

/// Returns names and values of the variables whose names fulfil `matters`.
pub fn variables(matters: impl Fn(&OsStr) -> bool) -> Vec<(OsString, OsString)> {
    of_names(&matters)
}

/// As [`variables`]. The library has this code once (decision 13).
fn of_names(matters: &dyn Fn(&OsStr) -> bool) -> Vec<(OsString, OsString)> {
    let mut found = Vec::new();
    let mut next = first();
    loop {
        // SAFETY: `environ` ends with a null pointer (environ(7)).
        let variable = unsafe { next.as_ref() }.filter(|variable| !variable.is_null());
        let Some(&variable) = variable else {
            return found;
        };
        // SAFETY: the array's other elements are C strings (environ(7)).
        let text = unsafe { CStr::from_ptr(variable) }.to_bytes();
        if let Some((name, value)) = split(text).filter(|(name, _)| matters(name)) {
            found.push((name.to_owned(), value.to_owned()));
        }
        // SAFETY: after an element that is not null the array has another element.
        next = unsafe { next.add(1) };
    }
}

/// Returns the array's first element; null if the application has cleared the environment
/// (clearenv(3)).
fn first() -> *const *const c_char {
    unsafe extern "C" {
        // The C library's name for the array (environ(7)).
        static mut environ: *const *const c_char;
    }
    let place = &raw const environ;
    // SAFETY: the C library defines `environ`. It is read once.
    unsafe { place.read() }
}

/// Splits an element into name and value; `None` if setenv(3) can't have made the element.
fn split(text: &[u8]) -> Option<(&OsStr, &OsStr)> {
    let mut bytes = text.iter();
    let at = bytes.position(|&byte| byte == b'=').filter(|&at| at > 0)?;
    Some((
        OsStr::from_bytes(&text[..at]),
        OsStr::from_bytes(bytes.as_slice()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_is_found_with_its_value() {
        let path = variables(|name| name == "PATH");
        assert_eq!(path, [("PATH".into(), std::env::var_os("PATH").unwrap())]);
        assert!(variables(|_| false).is_empty());
        let all = variables(|_| true);
        assert_eq!(all.len(), std::env::vars_os().count());
    }

    #[test]
    fn a_variable_has_a_name_and_any_value() {
        let split = |text: &str| {
            let (name, value) = split(text.as_bytes())?;
            Some((name.to_str()?.to_owned(), value.to_str()?.to_owned()))
        };
        let owned = |name: &str, value: &str| Some((name.to_owned(), value.to_owned()));
        assert_eq!(split("A=b=c"), owned("A", "b=c"));
        assert_eq!(split("A="), owned("A", ""));
        assert_eq!((split("A"), split("=b"), split("")), (None, None, None));
    }
}
