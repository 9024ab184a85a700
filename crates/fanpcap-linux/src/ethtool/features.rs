//! A device's features by the kernel's names, such as `rx-gro` and `rx-vlan-hw-parse`
//! (net/ethtool/common.c, `netdev_features_strings`).

use super::{Device, text, words};
use std::io;

/// One of a device's features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// The kernel's name.
    pub name: String,
    /// Whether the feature is in use.
    pub is_on: bool,
    /// Whether the driver can't change the feature.
    pub is_fixed: bool,
}

impl Device {
    /// The features for which this kernel has a name.
    ///
    /// # Errors
    /// `EOPNOTSUPP` on old kernels.
    pub fn features(&self) -> io::Result<Vec<Feature>> {
        let names = self.feature_names()?;
        let blocks = names.len().div_ceil(32);
        let mut all = vec![0; 2 + 4 * blocks];
        (all[0], all[1]) = (ETHTOOL_GFEATURES, size(blocks)?);
        // SAFETY: struct ethtool_gfeatures has two words, and four more for each block that it
        // announces.
        unsafe { self.ask(&mut all) }?;
        let has = |bit: usize, word: usize| {
            let block = all.get(2 + 4 * (bit / 32) + word);
            block.is_some_and(|block| (block >> (bit % 32)) & 1 == 1)
        };
        // A block has four words, with a bit for each of 32 features: whether it can be changed,
        // whether it is requested, whether it is active, and whether it never changes.
        let feature = |(bit, name): (usize, String)| Feature {
            name,
            is_on: has(bit, 2),
            is_fixed: !has(bit, 0) || has(bit, 3),
        };
        let named = |feature: &Feature| !feature.name.is_empty();
        Ok(names
            .into_iter()
            .enumerate()
            .map(feature)
            .filter(named)
            .collect())
    }

    /// Sets whether the device uses the feature with this name.
    ///
    /// # Errors
    /// `NotFound` when this kernel has no such feature, `EPERM` without `CAP_NET_ADMIN`.
    /// `Unsupported` when the driver can't change the feature, or other features exclude it.
    pub fn set_feature(&self, name: &str, is_on: bool) -> io::Result<()> {
        let names = self.feature_names()?;
        let bit = names.iter().position(|it| it == name);
        let bit = bit.ok_or(io::ErrorKind::NotFound)?;
        let blocks = names.len().div_ceil(32);
        let mut all = vec![0; 2 + 2 * blocks];
        (all[0], all[1]) = (ETHTOOL_SFEATURES, size(blocks)?);
        let at = 2 + 2 * (bit / 32);
        all[at] = 1 << (bit % 32);
        all[at + 1] = u32::from(is_on) << (bit % 32);
        // SAFETY: struct ethtool_sfeatures has two words, and two more for each block that it
        // announces.
        match unsafe { self.ask(&mut all) }? {
            0 => Ok(()),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn feature_names(&self) -> io::Result<Vec<String>> {
        let mut asked: Vec<u32> = vec![ETHTOOL_GSSET_INFO, 0];
        asked.extend(words(&(1_u64 << ETH_SS_FEATURES).to_ne_bytes()));
        asked.push(0);
        // SAFETY: struct ethtool_sset_info has four words, and one more for each requested set.
        unsafe { self.ask(&mut asked) }?;
        let count = asked[4] as usize;
        if count > FEATURES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut all = vec![0; 3 + NAME * count];
        (all[0], all[1], all[2]) = (ETHTOOL_GSTRINGS, ETH_SS_FEATURES, size(count)?);
        // SAFETY: struct ethtool_gstrings has three words, and eight more for each name. The number
        // of features is a constant of the kernel, and the kernel has just returned it.
        unsafe { self.ask(&mut all) }?;
        Ok(all[3..].chunks(NAME).map(text).collect())
    }
}

fn size(count: usize) -> io::Result<u32> {
    u32::try_from(count).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// `ETH_GSTRING_LEN` in words.
const NAME: usize = 8;
/// An answer with more features than this number is refused. No kernel has so many.
const FEATURES_MAX: usize = 1024;

const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETH_SS_FEATURES: u32 = 4;
