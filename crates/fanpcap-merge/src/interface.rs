//! An interface of a capture: link type, snapshot length, and the unit of its timestamps.

use pcap_file::pcap::PcapHeader;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, TsResolution};

/// An interface of a source; a pcap file has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    /// Link type.
    pub(crate) link: DataLink,
    /// Maximum bytes of a packet; 0 means no limit.
    pub(crate) snaplen: u32,
    /// Name and other options, except those for the timestamps' unit.
    pub(crate) options: Vec<InterfaceDescriptionOption<'static>>,
    unit: Unit,
}

/// The unit of a timestamp: its nanoseconds as a fraction, and the nanoseconds to add to each
/// timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unit {
    nanoseconds: u128,
    divisor: u128,
    offset: i128,
}

impl Interface {
    /// The interface of a pcap file.
    pub(crate) fn of_pcap(header: &PcapHeader) -> Self {
        let exponent = match header.ts_resolution {
            TsResolution::MicroSecond => 6,
            TsResolution::NanoSecond => 9,
        };
        Self {
            link: header.datalink,
            snaplen: header.snaplen,
            options: Vec::new(),
            unit: Unit::new(exponent, 0),
        }
    }

    pub(crate) fn of_pcapng(block: &InterfaceDescriptionBlock<'static>) -> Self {
        // Without these options, the unit is a microsecond and the offset is 0.
        let (mut resolution, mut offset) = (6, 0);
        let mut options = Vec::new();
        for option in &block.options {
            #[allow(clippy::wildcard_enum_match_arm, reason = "all others are kept")]
            match option {
                InterfaceDescriptionOption::IfTsResol(found) => resolution = *found,
                InterfaceDescriptionOption::IfTsOffset(found) => offset = *found,
                other => options.push(other.clone()),
            }
        }
        Self {
            link: block.linktype,
            snaplen: block.snaplen,
            options,
            unit: Unit::new(resolution, offset),
        }
    }

    /// Nanoseconds since 1970, limited to the range of 64 bits.
    pub(crate) fn stamp(&self, units: u64) -> u64 {
        let Unit {
            nanoseconds,
            divisor,
            offset,
        } = self.unit;
        let since = u128::from(units) * nanoseconds / divisor;
        let stamp = i128::try_from(since)
            .unwrap_or(i128::MAX)
            .saturating_add(offset);
        u64::try_from(stamp.max(0)).unwrap_or(u64::MAX)
    }

    /// pcapng's `if_name`.
    pub(crate) fn name(&self) -> Option<&str> {
        self.options.iter().find_map(|option| {
            let InterfaceDescriptionOption::IfName(name) = option else {
                return None;
            };
            Some(&**name)
        })
    }

    /// pcapng's `if_description`.
    pub(crate) fn description(&self) -> Option<&str> {
        self.options.iter().find_map(|option| {
            let InterfaceDescriptionOption::IfDescription(text) = option else {
                return None;
            };
            Some(&**text)
        })
    }

    /// Whether the timestamps are finer than microseconds.
    pub(crate) fn is_fine(&self) -> bool {
        self.unit.nanoseconds < self.unit.divisor.saturating_mul(1000)
    }

    /// Whether the merged file can describe both interfaces as one: only the snapshot length and
    /// the unit of the timestamps may differ.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.link == other.link && self.options == other.options
    }
}

impl Unit {
    /// The unit from pcapng's `if_tsresol` (a negative power of 10, or of 2 if the highest bit is
    /// set) and `if_tsoffset` (signed seconds).
    fn new(resolution: u8, offset: u64) -> Self {
        const SECOND: u128 = 1_000_000_000;
        let exponent = u32::from(resolution & 0x7f);
        let (nanoseconds, divisor) = if resolution & 0x80 != 0 {
            (SECOND, 1 << exponent)
        } else if exponent <= 9 {
            (10_u128.pow(9 - exponent), 1)
        } else {
            // A smaller unit counts as 10^-37 ns: in such units, every 64-bit timestamp is 0 ns.
            (1, 10_u128.pow((exponent - 9).min(37)))
        };
        Self {
            nanoseconds,
            divisor,
            offset: i128::from(i64::from_ne_bytes(offset.to_ne_bytes())) * 1_000_000_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(resolution: u8, offset: u64) -> Interface {
        let options = vec![
            InterfaceDescriptionOption::IfTsResol(resolution),
            InterfaceDescriptionOption::IfTsOffset(offset),
        ];
        let (linktype, snaplen) = (DataLink::ETHERNET, 0);
        let block = InterfaceDescriptionBlock {
            linktype,
            snaplen,
            options,
        };
        let interface = Interface::of_pcapng(&block);
        assert!(interface.options.is_empty());
        interface
    }

    fn stamp(resolution: u8, offset: u64, units: u64) -> u64 {
        interface(resolution, offset).stamp(units)
    }

    #[test]
    fn finer_than_microseconds_is_told_of_every_unit() {
        let is_fine = |resolution| interface(resolution, 0).is_fine();
        let coarse = [0, 6, 0x80, 0x80 | 19];
        let fine = [7, 9, 0x7f, 0x80 | 20, 0xff];
        assert!(!coarse.into_iter().any(is_fine) && fine.into_iter().all(is_fine));
    }

    #[test]
    fn stamps_count_as_the_interface_says() {
        assert_eq!(stamp(6, 0, 1_500_000), 1_500_000_000);
        assert_eq!(stamp(9, 0, 1_500_000), 1_500_000);
        assert_eq!(stamp(0, 0, 3), 3_000_000_000);
        assert_eq!(stamp(12, 0, 1_999), 1);
        assert_eq!(stamp(0x80 | 10, 0, 1536), 1_500_000_000);
        assert_eq!(stamp(6, 10, 1), 10_000_001_000);
        assert_eq!(stamp(0, u64::MAX - 1, 3), 1_000_000_000);
        assert_eq!(stamp(0, u64::MAX - 3, 3), 0);
        assert_eq!(stamp(0, 0, u64::MAX), u64::MAX);
        assert_eq!(stamp(0x7f, 0, u64::MAX), 0);
        assert_eq!(stamp(0xff, 0, u64::MAX), 0);
    }
}
