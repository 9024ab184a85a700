//! Reads and sets the numbers of a device's channels, by kind.

use crate::device::Device;
pub use fanpcap_linux::ethtool::Channels;
use std::{fmt, io};

/// Requested numbers of channels. A kind that is `None` keeps its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Channels that only receive.
    pub rx: Option<u32>,
    /// Channels that only send.
    pub tx: Option<u32>,
    /// Channels for other purposes.
    pub other: Option<u32>,
    /// Channels that receive and send.
    pub combined: Option<u32>,
}

/// Why channels can't be read or set.
#[derive(Debug)]
pub enum ChannelError {
    /// The driver has no channels to set.
    None,
    /// More channels of a kind than the device has.
    TooMany {
        /// The kind: rx, tx, other or combined.
        kind: &'static str,
        /// The requested number.
        asked: u32,
        /// The driver's limit.
        most: u32,
    },
    /// No channel would receive, or no channel would send.
    Nothing,
    /// The process may not set them.
    Forbidden(io::Error),
    /// The driver refused.
    Refused(io::Error),
}

const KINDS: [&str; 4] = ["rx", "tx", "other", "combined"];

/// The channels of a device.
///
/// # Errors
/// [`ChannelError`].
pub fn read(device: &Device) -> Result<Channels, ChannelError> {
    let channels = device.ethtool.channels().map_err(refused)?;
    match channels.most {
        [0, 0, 0, 0] => Err(ChannelError::None),
        _ => Ok(channels),
    }
}

/// The device's channels after `wanted` is applied.
///
/// # Errors
/// [`ChannelError::TooMany`] and [`ChannelError::Nothing`].
pub fn with(now: Channels, wanted: Wanted) -> Result<Channels, ChannelError> {
    let to = Channels {
        rx: wanted.rx.unwrap_or(now.rx),
        tx: wanted.tx.unwrap_or(now.tx),
        other: wanted.other.unwrap_or(now.other),
        combined: wanted.combined.unwrap_or(now.combined),
        most: now.most,
    };
    let asked = [to.rx, to.tx, to.other, to.combined];
    for ((kind, asked), most) in KINDS.into_iter().zip(asked).zip(now.most) {
        if asked > most {
            return Err(ChannelError::TooMany { kind, asked, most });
        }
    }
    let is_nothing = to.combined == 0 && (to.rx == 0 || to.tx == 0);
    match is_nothing {
        true => Err(ChannelError::Nothing),
        false => Ok(to),
    }
}

/// Sets the channels. The device may lose its link meanwhile.
///
/// # Errors
/// [`ChannelError`].
pub fn set(device: &Device, to: Channels) -> Result<(), ChannelError> {
    device.ethtool.set_channels(to).map_err(refused)
}

/// The numbers of channels as text, such as `rx=0,tx=0,other=1,combined=8`.
pub fn text(channels: Channels) -> String {
    let Channels {
        rx,
        tx,
        other,
        combined,
        ..
    } = channels;
    format!("rx={rx},tx={tx},other={other},combined={combined}")
}

/// Reads such a text; `None` for any other text.
pub fn parse(text: &str) -> Option<Wanted> {
    let mut wanted = Wanted::default();
    for part in text.split(',') {
        let (kind, number) = part.split_once('=')?;
        let number = Some(number.parse().ok()?);
        match kind {
            "rx" => wanted.rx = number,
            "tx" => wanted.tx = number,
            "other" => wanted.other = number,
            "combined" => wanted.combined = number,
            _ => return None,
        }
    }
    Some(wanted)
}

fn refused(error: io::Error) -> ChannelError {
    match error.raw_os_error() {
        Some(EOPNOTSUPP) => ChannelError::None,
        Some(EPERM) => ChannelError::Forbidden(error),
        _ => ChannelError::Refused(error),
    }
}

impl ChannelError {
    /// The number for errno.
    pub fn errno(&self) -> i32 {
        match self {
            Self::None => EOPNOTSUPP,
            Self::TooMany { .. } | Self::Nothing => EINVAL,
            Self::Forbidden(error) | Self::Refused(error) => error.raw_os_error().unwrap_or(EIO),
        }
    }
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("its driver has no channels to set"),
            Self::TooMany { kind, asked, most } => {
                write!(f, "{asked} {kind} channels, but it takes {most} at most")
            }
            Self::Nothing => f.write_str("one channel at least must receive, and one send"),
            Self::Forbidden(error) => {
                write!(f, "setting channels needs CAP_NET_ADMIN: {error}")
            }
            Self::Refused(error) => write!(
                f,
                "its driver refuses these channels ({error}); the indirection table ('ethtool -x') \
                 or AF_XDP sockets may use those that would go"
            ),
        }
    }
}

impl std::error::Error for ChannelError {}

const EPERM: i32 = 1;
const EIO: i32 = 5;
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Channels = Channels {
        rx: 0,
        tx: 0,
        other: 1,
        combined: 8,
        most: [0, 0, 1, 8],
    };

    #[test]
    fn only_what_is_named_changes() {
        let wanted = parse("combined=2").unwrap();
        let to = with(NOW, wanted).unwrap();
        assert_eq!(text(to), "rx=0,tx=0,other=1,combined=2");
        assert_eq!(with(NOW, parse(&text(NOW)).unwrap()).unwrap(), NOW);
        for wrong in ["", "rx", "rx=", "rx=-1", "all=2", "rx=1,"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn numbers_out_of_range_say_what_the_range_is() {
        let error = |text| with(NOW, parse(text).unwrap()).unwrap_err();
        let many = error("combined=9");
        assert_eq!(
            many.to_string(),
            "9 combined channels, but it takes 8 at most"
        );
        assert_eq!(many.errno(), EINVAL);
        assert!(matches!(error("combined=0"), ChannelError::Nothing));
        assert!(matches!(
            error("rx=1"),
            ChannelError::TooMany { most: 0, .. }
        ));
    }

    #[test]
    fn a_device_without_channels_says_so() {
        let lo = Device::open("lo").unwrap();
        assert_eq!(read(&lo).unwrap_err().errno(), EOPNOTSUPP);
        assert_eq!(Device::open("no such device").unwrap_err().errno(), 19);
    }
}
