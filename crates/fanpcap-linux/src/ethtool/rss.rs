//! Receive-side scaling: the indirection table, the key of the hash, and the hashed fields.

use super::{Device, bytes, words};
use std::io;

/// How a device chooses the receive queue of a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rss {
    /// The indirection table (RETA): the queue of each entry. Empty if the driver has none.
    pub table: Vec<u32>,
    /// The key of the hash. Empty if the driver does not show it.
    pub key: Vec<u8>,
    /// How the device changes a packet's fields before it hashes them.
    pub transform: Transform,
}

/// How a device changes a packet's fields before it hashes them (`RXH_XFRM_*`, Linux 6.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transform {
    /// The fields are not changed.
    #[default]
    None,
    /// Source and destination are combined by XOR, so that both directions of a flow have one hash.
    SymmetricXor,
    /// Source and destination are combined by OR and by XOR, so that both directions have one hash.
    SymmetricOrXor,
    /// Another transform, by the kernel's number.
    Other(u8),
}

/// Kinds of flows (`*_FLOW` in linux/ethtool.h).
pub mod flow {
    /// TCP over IPv4.
    pub const TCP4: u32 = 1;
    /// UDP over IPv4.
    pub const UDP4: u32 = 2;
    /// TCP over IPv6.
    pub const TCP6: u32 = 5;
    /// UDP over IPv6.
    pub const UDP6: u32 = 6;
}

impl Device {
    /// Returns how the device chooses receive queues.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for drivers without RSS.
    pub fn rss(&self) -> io::Result<Rss> {
        // If the request has no room for table and key, the kernel writes only their sizes.
        let mut head = [ETHTOOL_GRSSH, 0, 0, 0, 0, 0];
        // SAFETY: struct ethtool_rxfh has six words. Its sizes declare that no table and no key
        // follow.
        unsafe { self.ask(&mut head) }?;
        let (entries, key) = (head[2] as usize, head[3] as usize);
        if entries > ENTRIES_MAX || key > KEY_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut asked = vec![0; HEAD + entries + key.div_ceil(4)];
        asked[..HEAD].copy_from_slice(&head);
        asked[0] = ETHTOOL_GRSSH;
        // SAFETY: struct ethtool_rxfh has six words. The table and the key follow, with the sizes
        // that the six words declare. The kernel refuses sizes other than the driver's.
        unsafe { self.ask(&mut asked) }?;
        let rest = asked.split_off(HEAD);
        let mut key_bytes = bytes(&rest[entries..]);
        key_bytes.truncate(key);
        Ok(Rss {
            table: rest[..entries].to_vec(),
            key: key_bytes,
            transform: Transform::of(asked[4].to_ne_bytes()[1]),
        })
    }

    /// Sets the indirection table. An empty table restores the driver's default.
    ///
    /// # Errors
    /// `EINVAL` for a length other than the driver's, and for queues that do not exist. `EPERM`
    /// without `CAP_NET_ADMIN`. `EOPNOTSUPP` for drivers without RSS.
    pub fn set_rss_table(&self, table: &[u32]) -> io::Result<()> {
        self.set_rss(table, &[], None)
    }

    /// Sets the key of the hash.
    ///
    /// # Errors
    /// `EINVAL` for a length other than the driver's; otherwise as [`Device::set_rss_table`].
    pub fn set_rss_key(&self, key: &[u8]) -> io::Result<()> {
        self.set_rss(&NO_CHANGE, key, None)
    }

    /// Sets how the device changes a packet's fields before it hashes them.
    ///
    /// # Errors
    /// `EINVAL` before Linux 6.8; otherwise as [`Device::set_rss_table`].
    pub fn set_rss_transform(&self, to: Transform) -> io::Result<()> {
        self.set_rss(&NO_CHANGE, &[], Some(to))
    }

    fn set_rss(&self, table: &[u32], key: &[u8], to: Option<Transform>) -> io::Result<()> {
        let transform = match to {
            Some(to) => to,
            // Old kernels have no value for "no change", so this code sends the present value.
            None => self.rss()?.transform,
        };
        let size = |len: usize| u32::try_from(len).map_err(|_| io::ErrorKind::InvalidInput);
        let is_table = table != NO_CHANGE;
        let entries = match is_table {
            true => size(table.len())?,
            false => NO_CHANGE[0],
        };
        let method = u32::from_ne_bytes([0, transform.number(), 0, 0]);
        let mut all = vec![ETHTOOL_SRSSH, 0, entries, size(key.len())?, method, 0];
        all.extend(table.iter().filter(|_| is_table));
        all.extend(words(key));
        // SAFETY: struct ethtool_rxfh has six words. The table and the key follow, with the sizes
        // that the six words declare.
        unsafe { self.ask(&mut all) }.map(drop)
    }

    /// Returns the fields that are hashed for a kind of flow: bits `RXH_*` of linux/ethtool.h.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for drivers without this command, and `EINVAL` for kinds that the driver does
    /// not hash.
    pub fn flow_hash(&self, flow: u32) -> io::Result<u64> {
        let mut words = [ETHTOOL_GRXFH, flow, 0, 0];
        // SAFETY: for this command the kernel copies four words of struct ethtool_rxnfc
        // (net/ethtool/ioctl.c, `ethtool_rxnfc_copy_struct`).
        unsafe { self.ask(&mut words) }?;
        let mut fields = [0; 8];
        fields.copy_from_slice(&bytes(&words[2..]));
        Ok(u64::from_ne_bytes(fields))
    }

    /// Sets the fields that are hashed for a kind of flow.
    ///
    /// # Errors
    /// As [`Device::flow_hash`]; also `EPERM` without `CAP_NET_ADMIN`.
    pub fn set_flow_hash(&self, flow: u32, fields: u64) -> io::Result<()> {
        let mut all = vec![ETHTOOL_SRXFH, flow];
        all.extend(words(&fields.to_ne_bytes()));
        // SAFETY: as in `flow_hash`.
        unsafe { self.ask(&mut all) }.map(drop)
    }
}

impl Transform {
    fn of(number: u8) -> Self {
        match number {
            0 => Self::None,
            1 => Self::SymmetricXor,
            2 => Self::SymmetricOrXor,
            other => Self::Other(other),
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::SymmetricXor => 1,
            Self::SymmetricOrXor => 2,
            Self::Other(number) => number,
        }
    }
}

/// `ETH_RXFH_INDIR_NO_CHANGE`, which is sent in place of a table if the table stays as it is.
const NO_CHANGE: [u32; 1] = [u32::MAX];

/// Words of struct ethtool_rxfh before the table.
const HEAD: usize = 6;

/// The most entries and the longest key that this code accepts. No driver has more.
const ENTRIES_MAX: usize = 65_536;
const KEY_MAX: usize = 4096;

const ETHTOOL_GRXFH: u32 = 0x29;
const ETHTOOL_SRXFH: u32 = 0x2a;
const ETHTOOL_GRSSH: u32 = 0x46;
const ETHTOOL_SRSSH: u32 = 0x47;
