//! Reads any text as a steering program. The compiler compiles the text, or refuses it and names a
//! place in the text, and never panics.
#![no_main]

use fanpcap_steer::tree;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let source = String::from_utf8_lossy(bytes);
    let pcap = |text: &str| match text.len() % 2 {
        0 => Ok(Vec::new()),
        _ => Err("syntax error".to_owned()),
    };
    if let Err(error) = tree(&source, &pcap) {
        assert!(source.get(error.span.clone()).is_some());
        let (line, column) = error.position(&source);
        assert!(line >= 1 && column >= 1);
        assert!(error.render(&source).ends_with('^'));
    }
});
