//! The IPv6 header and its extension headers (RFC 8200), step 6 of the walk.

use std::net::Ipv6Addr;

use crate::EXTENSIONS_MAX;
use crate::number::{AUTHENTICATION, DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, ROUTING};

/// The 40 bytes of a header of version 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6<'a> {
    fixed: &'a [u8; 8],
    source: &'a [u8; 16],
    destination: &'a [u8; 16],
}

impl<'a> Ipv6<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (fixed, rest) = bytes.split_first_chunk::<8>()?;
        let (source, rest) = rest.split_first_chunk()?;
        let (destination, rest) = rest.split_first_chunk()?;
        let header = Self {
            fixed,
            source,
            destination,
        };
        (fixed[0] >> 4 == 6).then_some((header, rest))
    }

    /// Traffic class.
    pub fn traffic_class(self) -> u8 {
        (self.fixed[0] << 4) | (self.fixed[1] >> 4)
    }

    /// Length in bytes of everything after the first 40 bytes.
    pub fn payload_len(self) -> u16 {
        u16::from_be_bytes([self.fixed[4], self.fixed[5]])
    }

    /// The number of the header that follows.
    pub fn next_header(self) -> u8 {
        self.fixed[6]
    }

    /// Hop limit.
    pub fn hop_limit(self) -> u8 {
        self.fixed[7]
    }

    /// Source address.
    pub fn source(self) -> Ipv6Addr {
        Ipv6Addr::from(*self.source)
    }

    /// Destination address.
    pub fn destination(self) -> Ipv6Addr {
        Ipv6Addr::from(*self.destination)
    }
}

/// The first 8 bytes of an extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<'a> {
    number: u8,
    header: &'a [u8; 8],
}

impl Extension<'_> {
    /// The extension header's own number.
    pub fn number(self) -> u8 {
        self.number
    }

    /// The number of the header that follows.
    pub fn next_header(self) -> u8 {
        self.header[0]
    }

    /// The length in bytes. The authentication header counts its length in units of 4 bytes (RFC
    /// 4302). The fragment header has no length field.
    #[expect(clippy::len_without_is_empty, reason = "it is at least 8")]
    pub fn len(self) -> usize {
        let units = usize::from(self.header[1]);
        match self.number {
            FRAGMENT => 8,
            AUTHENTICATION => (units + 2) * 4,
            _ => (units + 1) * 8,
        }
    }

    /// The flags and offset of a fragment header in IPv4's format (0x2000 for "more", offset / 8),
    /// and its identification.
    pub fn fragment(self) -> Option<(u16, u32)> {
        let [_, _, a, b, id @ ..] = *self.header;
        let field = u16::from_be_bytes([a, b]);
        let more = if field & 1 == 0 { 0 } else { 0x2000 };
        (self.number == FRAGMENT).then_some((more | (field >> 3), u32::from_be_bytes(id)))
    }
}

/// A packet's extension headers, as far as the walk reads them.
#[derive(Clone, Copy, Debug)]
pub struct Extensions<'a> {
    next: u8,
    rest: Option<&'a [u8]>,
    left: usize,
}

impl<'a> Extensions<'a> {
    /// The extension headers after a header that announces `next`.
    pub(crate) fn of(next: u8, rest: &'a [u8]) -> Self {
        Self {
            next,
            rest: Some(rest),
            left: EXTENSIONS_MAX,
        }
    }

    /// The last next-header number, and the bytes after the last extension header. `None` instead
    /// of the bytes if the walk may not read them.
    pub(crate) fn end(self) -> (u8, Option<&'a [u8]>) {
        (self.next, self.rest.filter(|_| self.left > 0))
    }
}

impl<'a> Iterator for Extensions<'a> {
    type Item = Extension<'a>;

    fn next(&mut self) -> Option<Extension<'a>> {
        if self.left == 0 || !is_extension(self.next) {
            return None;
        }
        let captured = self.rest.take()?;
        let extension = Extension {
            number: self.next,
            header: captured.first_chunk()?,
        };
        self.left -= 1;
        self.next = extension.next_header();
        let later = extension
            .fragment()
            .is_some_and(|(field, _)| field & 0x1fff != 0);
        self.rest = captured.get(extension.len()..).filter(|_| !later);
        Some(extension)
    }
}

fn is_extension(number: u8) -> bool {
    matches!(
        number,
        HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION_OPTIONS
    )
}
