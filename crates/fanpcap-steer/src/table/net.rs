//! Nets of an address and a prefix length.

use crate::ir::Net;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The net of the address' first `bits` bits, or of all its bits if the address has fewer.
pub(crate) fn cut(address: IpAddr, bits: u8) -> Net {
    match address {
        IpAddr::V4(address) => {
            let bits = bits.min(32);
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            let address = IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask));
            Net { address, bits }
        }
        IpAddr::V6(address) => {
            let bits = bits.min(128);
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            let address = IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask));
            Net { address, bits }
        }
    }
}

/// The number of bits of an address.
pub(crate) fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}
