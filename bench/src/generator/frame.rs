//! The frames that are sent: Ethernet, IPv4, UDP, zeros; and probes, which carry the time.

use anyhow::{Result, ensure};
use fanpcap_linux::process;

/// Lengths that hold the headers with a probe's mark, and fit the device.
pub(crate) const SHORTEST: usize = 60;
const LONGEST: usize = 1514;

/// Where the fields are that differ from frame to frame.
pub(crate) const IP: usize = 14;
pub(crate) const IP_ID: i16 = 18;
pub(crate) const IP_CHECKSUM: i16 = 24;
pub(crate) const SOURCE_ADDRESS_LOW: i16 = 28;
pub(crate) const SOURCE_PORT: i16 = 34;
/// All headers end here.
pub(crate) const PAYLOAD: usize = 42;

/// As many flows as the sequence of frames goes through.
pub(crate) const FLOWS: u16 = 4096;

/// What the reader knows a probe by; the time follows it.
const MARK: &[u8; 8] = b"FANPROBE";

/// The frame of flow 0 with the IP identification 0, `len` bytes without the check sequence. Its
/// destination is nobody's address, as on a tap.
pub(crate) fn template(len: usize) -> Result<Vec<u8>> {
    ensure!(
        (SHORTEST..=LONGEST).contains(&len),
        "a frame of {len} bytes: they have {SHORTEST} to {LONGEST}"
    );
    let [ip_high, ip_low] = u16::try_from(len - IP)?.to_be_bytes();
    let [udp_high, udp_low] = u16::try_from(len - IP - 20)?.to_be_bytes();
    let mut frame = Vec::with_capacity(len);
    frame.extend([0x02, 0, 0, 0, 0, 0x99]);
    frame.extend([0x02, 0, 0, 0, 0, 0x0a, 0x08, 0x00]);
    // No fragment, time to live 64, protocol 17, no checksum yet.
    frame.extend([0x45, 0, ip_high, ip_low, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend([10, 1, 0, 0, 10, 2, 0, 1]);
    // Ports, length, and no checksum, which IPv4 allows.
    frame.extend([0, 0, 0x13, 0x89, udp_high, udp_low, 0, 0]);
    frame.resize(len, 0);
    Ok(frame)
}

/// The one's complement sum of the template's IP header, in the machine's byte order: the sum does not
/// depend on the order (RFC 1071).
pub(crate) fn header_sum(frame: &[u8]) -> u16 {
    let words = frame[IP..IP + 20].chunks_exact(2);
    fold(
        words
            .map(|word| u32::from(u16::from_ne_bytes([word[0], word[1]])))
            .sum(),
    )
}

/// Fills in what tells frame number `number` from the others, as the program of `program.rs` does.
pub(crate) fn number(frame: &mut [u8], number: u16) {
    let flow = number % FLOWS;
    let base = header_sum(frame);
    let sum = fold(u32::from(base) + u32::from(number) + u32::from(flow));
    let mut put = |at: i16, value: u16| {
        let at = usize::from(at.unsigned_abs());
        frame[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    };
    put(IP_ID, number);
    put(IP_CHECKSUM, !sum);
    put(SOURCE_ADDRESS_LOW, flow);
    put(SOURCE_PORT, FIRST_PORT + flow);
}

/// The first flow's source port, before the machine's byte order turns it.
pub(crate) const FIRST_PORT: u16 = 1024;

/// Makes a probe of a frame: the mark, and the time now.
pub(crate) fn stamp(frame: &mut [u8]) {
    let now = process::monotonic_ns().to_ne_bytes();
    frame[PAYLOAD..PAYLOAD + 8].copy_from_slice(MARK);
    frame[PAYLOAD + 8..PAYLOAD + 16].copy_from_slice(&now);
}

fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    let twice = (once & 0xffff) + (once >> 16);
    u16::try_from(twice).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frames_header_sums_to_all_ones() {
        for len in [SHORTEST, 508, LONGEST] {
            for n in [0, 1, FLOWS, 0x7fff, 0xfffe, 0xffff] {
                let mut frame = template(len).unwrap();
                number(&mut frame, n);
                assert_eq!(header_sum(&frame), 0xffff, "{len} bytes, number {n}");
            }
        }
    }

    #[test]
    fn a_length_that_no_frame_has_is_refused() {
        assert!(template(SHORTEST - 1).is_err());
        assert!(template(LONGEST + 1).is_err());
    }
}
