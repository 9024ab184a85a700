//! The loader's cache: any bytes yield paths within them, never a panic.
#![no_main]

use fanpcap_pcap::ldcache;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for path in ldcache::paths(bytes, "libpcap.so.1") {
        assert!(path.len() <= bytes.len());
    }
});
