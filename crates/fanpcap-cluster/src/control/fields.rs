//! Reads a list of AVPs by their codes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::avp::{AddressCodes, Avp, code, joined};
use crate::coordination::unreadable_topology;
use crate::identity::Revision;

/// Why a list of AVPs does not fit its message's type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyError {
    /// There are too few AVPs with this code.
    Missing(u8),
    /// An AVP with this code has a value that is not allowed.
    Value(u8),
    /// More AVPs have this code than the receiver keeps.
    Count(u8),
    /// This version can't read the encoding of the topology of this revision.
    Topology(Revision),
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(code) => write!(f, "the message lacks AVP {code}"),
            Self::Value(code) => write!(f, "AVP {code} has a value that is not allowed"),
            Self::Count(code) => write!(f, "the message has too many AVPs {code}"),
            Self::Topology(revision) => f.write_str(&unreadable_topology(*revision)),
        }
    }
}

impl std::error::Error for BodyError {}

/// A list of AVPs that is being read.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a [Avp]);

impl<'a> Fields<'a> {
    /// The values of all AVPs with this code, in the list's order.
    pub fn all(self, code: u8) -> impl Iterator<Item = u32> + 'a {
        let of_code = self.0.iter().filter(move |avp| avp.code == code);
        of_code.map(|avp| avp.value)
    }

    /// The value of the first AVP with this code.
    ///
    /// # Errors
    /// Fails if no AVP has this code.
    pub fn one(self, code: u8) -> Result<u32, BodyError> {
        self.all(code).next().ok_or(BodyError::Missing(code))
    }

    /// The value of the first two AVPs with this code: 64 bits.
    ///
    /// # Errors
    /// Fails if fewer than two AVPs have this code.
    pub fn wide(self, code: u8) -> Result<u64, BodyError> {
        self.wides(code).map(|[value]| value)
    }

    /// The first `N` values of 64 bits of the AVPs with this code.
    ///
    /// # Errors
    /// Fails if too few AVPs have this code.
    pub fn wides<const N: usize>(self, code: u8) -> Result<[u64; N], BodyError> {
        let mut values = self.all(code);
        let mut found = [0; N];
        for one in &mut found {
            *one = match (values.next(), values.next()) {
                (Some(upper), Some(lower)) => joined(upper, lower),
                _ => return Err(BodyError::Missing(code)),
            };
        }
        Ok(found)
    }

    /// The value of the first AVP with this code, if it fits into 16 bits.
    ///
    /// # Errors
    /// Fails if no AVP has this code, or its value is too great.
    pub fn short(self, code: u8) -> Result<u16, BodyError> {
        u16::try_from(self.one(code)?).map_err(|_| BodyError::Value(code))
    }

    /// The bytes of the `BYTES` AVPs, joined in order. The first `LENGTH` AVP says how many bytes
    /// there are. More than `most` bytes are an error.
    pub(super) fn bytes(self, most: usize) -> Result<Vec<u8>, BodyError> {
        let length = usize::try_from(self.one(code::LENGTH)?).unwrap_or(usize::MAX);
        if length > most {
            return Err(BodyError::Count(code::BYTES));
        }
        let mut bytes = Vec::with_capacity(length + 3);
        for four in self.all(code::BYTES).take(length.div_ceil(4)) {
            bytes.extend(four.to_be_bytes());
        }
        match bytes.len() >= length {
            true => bytes.truncate(length),
            false => return Err(BodyError::Missing(code::BYTES)),
        }
        Ok(bytes)
    }

    /// The addresses with these codes, in order. Fails if there are more than `most` addresses.
    pub(super) fn addresses(
        self,
        codes: AddressCodes,
        most: usize,
    ) -> Result<Vec<SocketAddr>, BodyError> {
        let mut found = Vec::new();
        let mut words: Vec<u32> = Vec::new();
        for avp in self.0 {
            if avp.code == codes.ip || avp.code == codes.ip6 {
                words.push(avp.value);
            } else if avp.code == codes.port {
                let port = u16::try_from(avp.value).map_err(|_| BodyError::Value(codes.port))?;
                let ip = address(&words).ok_or(BodyError::Value(codes.ip))?;
                found.push(SocketAddr::new(ip, port));
                words.clear();
            }
            if words.len() > 4 || found.len() > most {
                return Err(BodyError::Count(codes.ip));
            }
        }
        Ok(found)
    }

    pub(super) fn address(self, codes: AddressCodes) -> Result<SocketAddr, BodyError> {
        let all = self.addresses(codes, usize::MAX)?;
        all.first().copied().ok_or(BodyError::Missing(codes.port))
    }
}

/// An IPv4 address from one word, or an IPv6 address from four words.
fn address(words: &[u32]) -> Option<IpAddr> {
    match *words {
        [ip] => Some(Ipv4Addr::from_bits(ip).into()),
        [a, b, c, d] => {
            let [upper, lower] = [joined(a, b), joined(c, d)].map(u128::from);
            Some(Ipv6Addr::from_bits((upper << 64) | lower).into())
        }
        _ => None,
    }
}
