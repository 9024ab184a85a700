//! Reads any bytes as the loader's cache. All found paths lie within the bytes, and nothing panics.
#![no_main]

use fanpcap_pcap::ldcache;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for path in ldcache::paths(bytes, "libpcap.so.1") {
        assert!(path.len() <= bytes.len());
    }
});
