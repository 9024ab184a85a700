//! Any frame is parsed to its end without a panic. If a truncated frame shows a property of its
//! flow, the complete frame shows the same property.
#![no_main]

use fanpcap_wire::{FlowKey, Frame, Ip, Layers, Tag};
use libfuzzer_sys::fuzz_target;

/// Reads all properties of a packet, and of the packets that it quotes and carries.
fn walk(layers: &Layers<'_>, depth: usize) {
    if let Some(link) = layers.link() {
        assert!(link.tags().count() <= fanpcap_wire::TAGS_MAX);
        assert!(link.labels().into_iter().flatten().count() <= fanpcap_wire::LABELS_MAX);
    }
    let Some(ip) = layers.ip() else {
        return;
    };
    assert!(ip.extensions().count() <= fanpcap_wire::EXTENSIONS_MAX);
    assert!(ip.transport().is_none() || !ip.is_later_fragment());
    let [low, high] = FlowKey::of(ip).ends();
    assert!(low <= high);
    if let Some(inner) = layers.inner() {
        // Each carrier has used some of the remaining bytes.
        assert!(inner.ip().is_some() && depth > 0);
        walk(&inner, depth - 1);
    }
}

// The first byte says whether a tag is beside the frame, the second byte how much of the frame was
// captured.
fuzz_target!(|bytes: &[u8]| {
    let [kind, len, bytes @ ..] = bytes else {
        return;
    };
    let tag = (kind & 1 == 1).then_some(Tag {
        tpid: 0x8100,
        tci: 1,
    });
    let whole = Layers::of(&Frame { bytes, tag });
    walk(&whole, bytes.len());
    let captured = &bytes[..bytes.len().min(usize::from(*len))];
    let part = Layers::of(&Frame {
        bytes: captured,
        tag,
    });
    walk(&part, bytes.len());
    let addresses = |ip: &Ip<'_>| (ip.source(), ip.destination());
    if let Some(ip) = part.ip() {
        assert_eq!(whole.ip().map(addresses), Some(addresses(ip)));
        assert!(ip.ports().is_none() || ip.ports() == whole.ip().and_then(Ip::ports));
    }
});
