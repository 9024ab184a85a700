//! Defines which parts of a packet the content hash covers. Routers do not change these parts.

use fanpcap_wire::{Frame, Header, Layers};

use crate::bob;

/// Number of payload bytes that the hash covers. These bytes include UDP's checksum. With 11 bytes,
/// the hash of an IPv4 packet takes two rounds; with one byte more, it would take three.
pub const PAYLOAD: usize = 11;
/// How many bytes the hash covers: of an IPv4 packet, of an IPv6 packet, and of any other frame.
pub(crate) const V4: usize = 12 + PAYLOAD;
pub(crate) const V6: usize = 36 + PAYLOAD;
pub(crate) const OTHER: usize = 14 + PAYLOAD;

/// The longest key.
const LONGEST: usize = V6;

/// The hash of a packet's content (RFC 5475), and whether it is the content of an IP packet.
///
/// For IPv4 the hash covers identification, flags, fragment offset and addresses. For IPv6 it
/// covers payload length, next header and addresses. For IPv4 it also covers the 11 bytes after the
/// header and its options, and for IPv6 the 11 bytes after the fixed header. If a packet contains
/// another IP packet, the hash covers the outer packet. For other frames it covers the Ethernet
/// addresses, the type after all tags, and 11 bytes after the type. Missing bytes, and bytes after
/// the IP packet's end, count as 0.
pub fn digest(frame: &Frame<'_>, initial: u32) -> (u32, bool) {
    let mut key = [0; LONGEST];
    let (len, is_ip) = fill(&mut key, frame);
    let key = key.get(..len).unwrap_or_default();
    (bob::hash(key, initial), is_ip)
}

/// Writes a packet's key. Returns the key's length, and whether the packet is an IP packet.
fn fill(key: &mut [u8; LONGEST], frame: &Frame<'_>) -> (usize, bool) {
    let layers = Layers::of(frame);
    let Some(ip) = layers.ip() else {
        return (fill_link(key, frame, &layers), false);
    };
    let (fixed, len) = match ip.header {
        Header::V4(header) => {
            put(key, 0, &header.id().to_be_bytes());
            put(key, 2, &header.flags_and_offset().to_be_bytes());
            put(key, 4, &header.source().octets());
            put(key, 8, &header.destination().octets());
            let behind = usize::from(header.total_len()).saturating_sub(header.len());
            (V4 - PAYLOAD, behind)
        }
        Header::V6(header) => {
            put(key, 0, &header.payload_len().to_be_bytes());
            put(key, 2, &[header.next_header()]);
            put(key, 4, &header.source().octets());
            put(key, 20, &header.destination().octets());
            (V6 - PAYLOAD, header.payload_len().into())
        }
    };
    let payload = ip.payload();
    let len = len.min(PAYLOAD).min(payload.len());
    put(key, fixed, payload.get(..len).unwrap_or_default());
    (fixed + PAYLOAD, true)
}

fn fill_link(key: &mut [u8; LONGEST], frame: &Frame<'_>, layers: &Layers<'_>) -> usize {
    let Some(link) = layers.link() else {
        return OTHER;
    };
    let tags = link.tags().count() - usize::from(frame.tag.is_some());
    put(key, 0, frame.bytes.get(..12).unwrap_or_default());
    let behind = frame.bytes.get(12 + 4 * tags..).unwrap_or_default();
    let len = behind.len().min(2 + PAYLOAD);
    put(key, 12, behind.get(..len).unwrap_or_default());
    OTHER
}

fn put(key: &mut [u8; LONGEST], at: usize, bytes: &[u8]) {
    if let Some(place) = key.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_testkit::frames;

    fn of(bytes: &[u8]) -> u32 {
        let frame = Frame { bytes, tag: None };
        digest(&frame, 5).0
    }

    fn datagram() -> Vec<u8> {
        let udp = frames::udp(1111, 2222, &[7; 22]);
        frames::ethernet(0x0800, &frames::v4(17, 0x4000, &udp))
    }

    #[test]
    fn what_routers_change_does_not_count() {
        let packet = datagram();
        // The hash does not cover MAC addresses, type of service, time to live, checksum, or
        // payload after its first 11 bytes.
        for at in [0, 6, 15, 22, 24, 25, 45] {
            let mut other = packet.clone();
            other[at] ^= 0x40;
            assert_eq!(of(&other), of(&packet), "byte {at}");
        }
    }

    #[test]
    fn what_stays_the_same_counts() {
        let packet = datagram();
        let fields = (18..22).chain(26..45);
        for at in fields {
            let mut other = packet.clone();
            other[at] ^= 0x40;
            assert_ne!(of(&other), of(&packet), "byte {at}");
        }
    }

    #[test]
    fn padding_does_not_count() {
        let short = frames::ethernet(0x0800, &frames::v4(17, 0, &frames::udp(1, 2, &[])));
        let padded = [&*short, &[0xee; 18]].concat();
        assert_eq!(of(&padded), of(&short));
    }

    #[test]
    fn behind_tags_and_labels_a_packet_is_the_same() {
        let packet = datagram();
        let tagged = [&[0, 100, 0x08, 0], &packet[14..]].concat();
        let labelled = [&[0, 0, 0x11, 64], &packet[14..]].concat();
        for other in [
            frames::ethernet(0x8100, &tagged),
            frames::ethernet(0x8847, &labelled),
        ] {
            assert_eq!(of(&other), of(&packet));
        }
    }

    #[test]
    fn frames_without_ip_go_by_their_first_bytes() {
        let arp = frames::ethernet(0x0806, &[3; 28]);
        for at in 0..25 {
            let mut other = arp.clone();
            other[at] ^= 0x40;
            assert_ne!(of(&other), of(&arp), "byte {at}");
        }
        let mut other = arp.clone();
        other[25] ^= 1;
        assert_eq!(of(&other), of(&arp));
        let tagged = [&[0, 100, 0x08, 0x06], &arp[14..]].concat();
        assert_eq!(of(&frames::ethernet(0x8100, &tagged)), of(&arp));
        assert_eq!(of(&[]), bob::hash(&[0; OTHER], 5));
    }
}
