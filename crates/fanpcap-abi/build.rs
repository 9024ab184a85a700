//! Options for the linker: the library's name for the loader, and that it is never unloaded.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpcap.so.0.8");
    // The system's library has its functions' addresses from us, and threads may be inside.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Our entry points call each other, not what another library has under the same names.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
