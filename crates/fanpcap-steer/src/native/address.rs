//! Turns addresses into numbers, computes their hashes as ends of flows (`hash.rs`), and compares
//! addresses with nets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::hash;
use crate::ir::Net;

pub(super) fn end(address: IpAddr, port: u16) -> u64 {
    match address {
        IpAddr::V4(address) => hash::end4(address.into(), port),
        IpAddr::V6(address) => {
            let (high, low) = hash::halves(address.into());
            hash::end6(high, low, port)
        }
    }
}

pub(super) fn link(address: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = address;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// Clears all bits of an address except the first `bits`.
pub(super) fn cut(address: IpAddr, bits: u8) -> IpAddr {
    let bits = u32::from(bits);
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(bits));
            Ipv4Addr::from(u32::from(address) & mask.unwrap_or(0)).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(bits));
            Ipv6Addr::from(u128::from(address) & mask.unwrap_or(0)).into()
        }
    }
}

/// Whether the address is in the net. Both must be of the same family.
pub(super) fn is_in(address: IpAddr, net: &Net) -> bool {
    cut(address, net.bits) == net.address
}

pub(super) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}
