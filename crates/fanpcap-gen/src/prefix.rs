//! Address ranges, and the addresses in them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use anyhow::{Error, Result, anyhow};

/// A range of IPv4 or IPv6 addresses, as in `10.1.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

impl Prefix {
    /// The addresses whose first `len` bits are those of `address`. `address` must have that many
    /// bits.
    pub(crate) fn new(address: impl Into<IpAddr>, len: u8) -> Self {
        let address = address.into();
        Self { address, len }
    }

    /// Whether the addresses of the range are IPv4 addresses.
    pub fn is_v4(&self) -> bool {
        self.address.is_ipv4()
    }

    /// The number of addresses in use, a power of two: all addresses, but at most 2^32.
    pub(crate) fn hosts(&self) -> u64 {
        let width = if self.is_v4() { 32 } else { 128 };
        1 << u32::from(width - self.len).min(32)
    }

    /// The address with this number, modulo [`Prefix::hosts`].
    pub(crate) fn host(&self, number: u64) -> IpAddr {
        let host = number & (self.hosts() - 1);
        match self.address {
            IpAddr::V4(address) => {
                let mask = u32::try_from(self.hosts() - 1).unwrap_or(u32::MAX);
                let host = u32::try_from(host).unwrap_or(0);
                Ipv4Addr::from_bits(address.to_bits() & !mask | host).into()
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shr(self.len.into()).unwrap_or(0);
                Ipv6Addr::from_bits(address.to_bits() & !mask | u128::from(host)).into()
            }
        }
    }
}

impl FromStr for Prefix {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            anyhow!("{text:?} is no range of addresses: write one like 10.1.0.0/16 or fd00:1::/112")
        };
        let (address, len) = text.split_once('/').unwrap_or((text, ""));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let len = if len.is_empty() && !text.contains('/') {
            width
        } else {
            len.parse().map_err(|_| wrong())?
        };
        if len > width {
            return Err(wrong());
        }
        Ok(Self { address, len })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_stay_within() {
        for (text, number, host) in [
            ("10.1.0.0/16", 0x2_ffff, "10.1.255.255"),
            ("10.1.2.3", 77, "10.1.2.3"),
            ("10.1.2.3/0", 0x0102_0304, "1.2.3.4"),
            ("fd00::/64", 0x1_0000_0001, "fd00::1"),
            ("fd00::5", 9, "fd00::5"),
            ("fd00::ff00/120", 0x2a, "fd00::ff2a"),
        ] {
            let prefix: Prefix = text.parse().unwrap();
            assert_eq!(prefix.host(number).to_string(), host, "{text}");
        }
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for text in [
            "",
            "10.1.0.0/33",
            "fd00::/129",
            "10.1/16",
            "1.2.3.4/",
            "1.2.3.4/-1",
        ] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
    }
}
