//! Frames made by hand: headers around a payload, from 10.0.0.1 or 2001:db8::1 to the same with a
//! 2.

/// Where frames go to.
pub const DESTINATION: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Where frames come from.
pub const SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// TCP from port 8080 to 80, with a header of 24 bytes that is cut off behind the 20th.
pub const TCP: [u8; 20] = [
    0x1f, 0x90, 0, 80, 0, 0, 0, 7, 0, 0, 0, 0, 0x60, 0x12, 0, 0, 0, 0, 0, 0,
];

/// Ethernet.
pub fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [
        &DESTINATION[..],
        &SOURCE,
        &ether_type.to_be_bytes(),
        payload,
    ]
    .concat()
}

/// IPv4 with these flags and offset, of identification 0x1234.
pub fn v4(protocol: u8, field: u16, payload: &[u8]) -> Vec<u8> {
    let [a, b] = field.to_be_bytes();
    let header = [
        0x45, 0xb8, 0, 60, 0x12, 0x34, a, b, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    [&header[..], payload].concat()
}

/// IPv6.
pub fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x6b, 0x80, 0, 0, 0, 60, next, 63];
    header.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    header.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    [&header[..], payload].concat()
}

/// IPv6's fragment header of identification 0x5678, with the field of offset and flag.
pub fn fragment(next: u8, field: u16, payload: &[u8]) -> Vec<u8> {
    let [a, b] = field.to_be_bytes();
    [&[next, 0, a, b, 0, 0, 0x56, 0x78][..], payload].concat()
}

/// UDP.
pub fn udp(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let [a, b] = source.to_be_bytes();
    let [c, d] = destination.to_be_bytes();
    [&[a, b, c, d, 0, 99, 0, 0][..], payload].concat()
}
