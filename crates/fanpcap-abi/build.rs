//! Options for the linker: they set the library's name for the loader, and make the loader never
//! unload the library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpcap.so.0.8");
    // The system's library may hold addresses of our functions, and threads may be running our
    // functions, so the loader must never unload this library.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Our entry points call each other, not functions of the same names in another library.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
