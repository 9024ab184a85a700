//! Reads any text as the journal of a device's changes. Either the parser refuses the text, or the
//! journal that it returns is written as the same text.
#![no_main]

use fanpcap_nic::journal::entry::Content;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    if let Some(content) = Content::parse(&text) {
        assert_eq!(Content::parse(&content.text()), Some(content));
    }
});
