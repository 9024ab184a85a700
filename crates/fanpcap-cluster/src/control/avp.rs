//! Attribute-value pairs (DiCAP, Fig. 3): an 8-bit code and a 32-bit value.

use std::net::{IpAddr, SocketAddr};

/// Codes of AVPs. DiCAP has the first seven, but gives them no numbers.
///
/// A value of 64 bits is two AVPs of one code, the upper half first. An IPv6 address is four AVPs
/// of one code. A receiver skips codes that it does not know, so a later version can add codes.
pub(super) mod code {
    /// A node: the sender of a join, the receiver of an accept, or a node of a topology.
    pub(in super::super) const NODE_ID: u8 = 1;
    /// IPv4 address of a coordinator.
    pub(in super::super) const COORDINATOR_IP: u8 = 2;
    /// UDP port of a coordinator, after its address.
    pub(in super::super) const COORDINATOR_PORT: u8 = 3;
    /// IPv4 address of an analyzer.
    pub(in super::super) const ANALYZER_IP: u8 = 4;
    /// Port of an analyzer, after its address.
    pub(in super::super) const ANALYZER_PORT: u8 = 5;
    /// The selection key: DiCAP's 0 (round robin) and 1 (hash), and fanpcap's own from 16 on. A
    /// topology has the cluster's selection key. A node's message has the key in its settings.
    pub(in super::super) const SELECTION_TYPE: u8 = 6;
    /// The lower half of a revision, whose upper half is `TERM`. In DiCAP, this AVP carries a time.
    pub(in super::super) const VALIDITY_START: u8 = 7;

    /// A coordinator's term: the upper half of the revisions that it gives.
    pub(in super::super) const TERM: u8 = 64;
    /// The number of a part and the count of parts, 16 bits each.
    pub(in super::super) const PART: u8 = 65;
    /// The number of the list that a part belongs to.
    pub(in super::super) const TRANSFER: u8 = 66;
    /// A topology's epoch, 64 bits.
    pub(in super::super) const EPOCH: u8 = 67;
    /// A topology's stage: 0 stable, 1 union.
    pub(in super::super) const PHASE: u8 = 68;
    /// Four bytes of a topology's encoding, or of a note. `LENGTH` says how many bytes there are.
    pub(in super::super) const BYTES: u8 = 69;
    /// How many bytes all `BYTES` AVPs carry together. The last one may carry fewer than four
    /// bytes.
    pub(in super::super) const LENGTH: u8 = 70;
    /// The initial value of the selection's hash.
    pub(in super::super) const INITIAL: u8 = 71;
    /// A coordinator's IPv6 address.
    pub(in super::super) const COORDINATOR_IP6: u8 = 72;
    /// An analyzer's IPv6 address.
    pub(in super::super) const ANALYZER_IP6: u8 = 73;
    /// A node's IPv4 address on the control network.
    pub(in super::super) const NODE_IP: u8 = 74;
    /// A node's IPv6 address on the control network.
    pub(in super::super) const NODE_IP6: u8 = 75;
    /// A node's port, after its address.
    pub(in super::super) const NODE_PORT: u8 = 76;
    /// A random number, made when the node's machine booted, 64 bits.
    pub(in super::super) const BOOT: u8 = 77;
    /// A node's weight: its share of the buckets, compared with the other nodes' weights.
    pub(in super::super) const WEIGHT: u8 = 78;
    /// The revision of the newest topology that a node captures by, 64 bits.
    pub(in super::super) const FOLLOWS: u8 = 79;
    /// Why a node is refused: 1 for a taken id, 2 for a full cluster, 3 for its version.
    pub(in super::super) const REFUSAL: u8 = 80;
    /// How often the state for standbys has changed.
    pub(in super::super) const STATE: u8 = 81;
    /// A node that gets no buckets.
    pub(in super::super) const DRAINED: u8 = 82;
    /// Two AVPs: a node, and the weight that replaces the node's announced weight.
    pub(in super::super) const WEIGHTED: u8 = 83;
    /// A node to which the weight that it announced applies again.
    pub(in super::super) const UNWEIGHTED: u8 = 84;
    /// A node that gets buckets again.
    pub(in super::super) const RESTORED: u8 = 85;
    /// Number of a coordinator.
    pub(in super::super) const COORDINATOR_ID: u8 = 86;
    /// Begins a section of a state: 1 the coordinator, 2 its topology, 3 the operator's settings, 4
    /// a node, 5 refusals, 6 a note to the operator.
    pub(in super::super) const SECTION: u8 = 87;
    // The codes 88 to 91 and 94 stood for a node's counts, and must not be used again.
    /// Milliseconds since a node's last message.
    pub(in super::super) const AGE: u8 = 92;
    /// Two AVPs: a cause, and how many control messages were refused because of this cause.
    pub(in super::super) const REFUSED: u8 = 93;
    /// Session and sequence of the message that a challenge answers, 64 bits each.
    pub(in super::super) const CHALLENGED: u8 = 95;
    /// A node's version of fanpcap: 0, major, minor and patch, 8 bits each.
    pub(in super::super) const VERSION: u8 = 96;
    /// A node's mode: 0 for distribution, else how many bytes of each packet it sends.
    pub(in super::super) const HEADER: u8 = 97;
    /// The number of devices that a node monitors.
    pub(in super::super) const DEVICES: u8 = 98;
}

/// An attribute-value pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Avp {
    /// The meaning of the value.
    pub code: u8,
    /// The value.
    pub value: u32,
}

impl Avp {
    /// Bytes of an AVP.
    pub(super) const BYTES: usize = 5;

    pub(super) fn write(self, to: &mut Vec<u8>) {
        to.push(self.code);
        to.extend(self.value.to_be_bytes());
    }

    /// Reads the complete AVPs in `bytes`.
    pub(super) fn read_all(bytes: &[u8]) -> impl Iterator<Item = Self> + '_ {
        bytes.chunks_exact(Self::BYTES).map(|avp| Self {
            code: avp[0],
            value: word(&avp[1..]),
        })
    }
}

/// The codes of one kind of address.
#[derive(Clone, Copy, Debug)]
pub(super) struct AddressCodes {
    pub(super) ip: u8,
    pub(super) ip6: u8,
    pub(super) port: u8,
}

pub(super) const COORDINATOR: AddressCodes = AddressCodes {
    ip: code::COORDINATOR_IP,
    ip6: code::COORDINATOR_IP6,
    port: code::COORDINATOR_PORT,
};

pub(super) const ANALYZER: AddressCodes = AddressCodes {
    ip: code::ANALYZER_IP,
    ip6: code::ANALYZER_IP6,
    port: code::ANALYZER_PORT,
};

pub(super) const NODE: AddressCodes = AddressCodes {
    ip: code::NODE_IP,
    ip6: code::NODE_IP6,
    port: code::NODE_PORT,
};

/// A list of AVPs that is being written.
#[derive(Debug, Default)]
pub(super) struct List(pub(super) Vec<Avp>);

impl List {
    pub(super) fn put(&mut self, code: u8, value: u32) -> &mut Self {
        self.0.push(Avp { code, value });
        self
    }

    pub(super) fn put_wide(&mut self, code: u8, value: u64) -> &mut Self {
        let [upper, lower] = halves(value);
        self.put(code, upper).put(code, lower)
    }

    /// Writes the number of bytes, then the bytes, four in each value.
    pub(super) fn put_bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.put(code::LENGTH, u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        for four in bytes.chunks(4) {
            self.put(code::BYTES, word(four) << (8 * (4 - four.len())));
        }
        self
    }

    /// Writes an address without its scope (`fe80::1%eth0`), which only this machine knows.
    pub(super) fn put_address(&mut self, codes: AddressCodes, address: SocketAddr) -> &mut Self {
        match address.ip() {
            IpAddr::V4(ip) => {
                self.put(codes.ip, ip.to_bits());
            }
            IpAddr::V6(ip) => {
                for four in ip.octets().chunks_exact(4) {
                    self.put(codes.ip6, word(four));
                }
            }
        }
        self.put(codes.port, u32::from(address.port()))
    }
}

/// The upper and the lower 32 bits.
pub(super) fn halves(value: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = value.to_be_bytes();
    [
        u32::from_be_bytes([a, b, c, d]),
        u32::from_be_bytes([e, f, g, h]),
    ]
}

/// The value with these upper and lower halves.
pub(super) fn joined(upper: u32, lower: u32) -> u64 {
    (u64::from(upper) << 32) | u64::from(lower)
}

/// Up to four bytes as a number. The first byte has the highest bits.
pub(super) fn word(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0, |word, byte| (word << 8) | u32::from(*byte))
}
