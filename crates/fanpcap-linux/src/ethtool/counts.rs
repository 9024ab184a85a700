//! How many channels a device has, how long its rings are, and whether it sends pause frames.

use super::Device;
use std::io;

/// Numbers of channels. A channel is an interrupt with its queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// Channels that only receive.
    pub rx: u32,
    /// Channels that only send.
    pub tx: u32,
    /// Channels for other purposes, such as link changes.
    pub other: u32,
    /// Channels that receive and send.
    pub combined: u32,
    /// The driver's maximum numbers of channels: of rx, tx, other and combined channels.
    pub most: [u32; 4],
}

/// Lengths of a device's rings in descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rings {
    /// Length of each receive ring.
    pub rx: u32,
    /// Length of each transmit ring.
    pub tx: u32,
    /// The driver's maximum lengths of the receive ring and of the transmit ring.
    pub most: [u32; 2],
}

/// How a device uses pause frames (IEEE 802.3 annex 31B).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    /// Whether the two ends of the link negotiate pause frames.
    pub autoneg: bool,
    /// Whether the device stops sending when it receives a pause frame.
    pub rx: bool,
    /// Whether the device sends pause frames when its receive rings are full.
    pub tx: bool,
}

impl Device {
    /// The numbers of channels.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for drivers without channels.
    pub fn channels(&self) -> io::Result<Channels> {
        let [_, a, b, c, d, rx, tx, other, combined] = self.nine(ETHTOOL_GCHANNELS)?;
        Ok(Channels {
            rx,
            tx,
            other,
            combined,
            most: [a, b, c, d],
        })
    }

    /// Sets the numbers of channels. Ignores `most`. The device may lose its link during the
    /// change.
    ///
    /// # Errors
    /// `EINVAL` for numbers that the driver refuses, `EPERM` without `CAP_NET_ADMIN`, `EOPNOTSUPP`
    /// for drivers without channels.
    pub fn set_channels(&self, to: Channels) -> io::Result<()> {
        let [a, b, c, d] = to.most;
        let (number, counts) = (ETHTOOL_SCHANNELS, [to.rx, to.tx, to.other, to.combined]);
        let [rx, tx, other, combined] = counts;
        let mut words = [number, a, b, c, d, rx, tx, other, combined];
        // SAFETY: struct ethtool_channels has nine words.
        unsafe { self.ask(&mut words) }.map(drop)
    }

    /// The lengths of the rings.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for drivers that do not report their lengths.
    pub fn rings(&self) -> io::Result<Rings> {
        let [_, rx_most, _, _, tx_most, rx, _, _, tx] = self.nine(ETHTOOL_GRINGPARAM)?;
        let most = [rx_most, tx_most];
        Ok(Rings { rx, tx, most })
    }

    /// Sets the lengths of the rings. Ignores `most`. The device may lose its link during the
    /// change.
    ///
    /// # Errors
    /// As [`Device::set_channels`].
    pub fn set_rings(&self, to: Rings) -> io::Result<()> {
        let mut words = self.nine(ETHTOOL_GRINGPARAM)?;
        (words[0], words[5], words[8]) = (ETHTOOL_SRINGPARAM, to.rx, to.tx);
        // SAFETY: struct ethtool_ringparam has nine words.
        unsafe { self.ask(&mut words) }.map(drop)
    }

    /// Returns how the device uses pause frames.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for drivers that do not report pause frames.
    pub fn pause(&self) -> io::Result<Pause> {
        let mut words = [ETHTOOL_GPAUSEPARAM, 0, 0, 0];
        // SAFETY: struct ethtool_pauseparam has four words.
        unsafe { self.ask(&mut words) }?;
        let [autoneg, rx, tx] = [words[1], words[2], words[3]].map(|word| word != 0);
        Ok(Pause { autoneg, rx, tx })
    }

    /// Sets how the device uses pause frames. The device may lose its link during the change.
    ///
    /// # Errors
    /// As [`Device::set_channels`].
    pub fn set_pause(&self, to: Pause) -> io::Result<()> {
        let [autoneg, rx, tx] = [to.autoneg, to.rx, to.tx].map(u32::from);
        // SAFETY: struct ethtool_pauseparam has four words.
        unsafe { self.ask(&mut [ETHTOOL_SPAUSEPARAM, autoneg, rx, tx]) }.map(drop)
    }

    /// Reads the channels or the rings. Both structs have nine words.
    fn nine(&self, command: u32) -> io::Result<[u32; 9]> {
        let mut words = [command, 0, 0, 0, 0, 0, 0, 0, 0];
        // SAFETY: struct ethtool_channels and struct ethtool_ringparam have nine words each.
        unsafe { self.ask(&mut words) }?;
        Ok(words)
    }
}

const ETHTOOL_GRINGPARAM: u32 = 0x10;
const ETHTOOL_SRINGPARAM: u32 = 0x11;
const ETHTOOL_GPAUSEPARAM: u32 = 0x12;
const ETHTOOL_SPAUSEPARAM: u32 = 0x13;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_SCHANNELS: u32 = 0x3d;
