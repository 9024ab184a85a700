//! Reads and sets the numbers of a device's channels, by kind.

use crate::device::Device;
use crate::error::DeviceError;
pub use fanpcap_linux::ethtool::Channels;
use std::fmt::Display;
use std::io;

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

/// The message for a process that lacks the right to set the channels.
const NEEDS: &str = "setting channels needs CAP_NET_ADMIN";

/// The kinds, in the order of [`Channels::most`].
pub(crate) const KINDS: [&str; 4] = ["rx", "tx", "other", "combined"];

/// The channels of a device.
///
/// # Errors
/// [`DeviceError`].
pub fn read(device: &Device) -> Result<Channels, DeviceError> {
    let channels = device.ethtool.channels().map_err(refused)?;
    match channels.most {
        [0, 0, 0, 0] => Err(DeviceError::NoChannels),
        _ => Ok(channels),
    }
}

/// The device's channels after `wanted` is applied.
///
/// # Errors
/// [`DeviceError::TooManyChannels`] and [`DeviceError::NoDirection`].
pub fn with(now: Channels, wanted: Wanted) -> Result<Channels, DeviceError> {
    let to = Channels {
        rx: wanted.rx.unwrap_or(now.rx),
        tx: wanted.tx.unwrap_or(now.tx),
        other: wanted.other.unwrap_or(now.other),
        combined: wanted.combined.unwrap_or(now.combined),
        most: now.most,
    };
    for ((kind, asked), most) in KINDS.into_iter().zip(counts(to)).zip(now.most) {
        if asked > most {
            return Err(DeviceError::TooManyChannels { kind, asked, most });
        }
    }
    let is_nothing = to.combined == 0 && (to.rx == 0 || to.tx == 0);
    match is_nothing {
        true => Err(DeviceError::NoDirection),
        false => Ok(to),
    }
}

/// Sets the channels. The device may lose its link while the driver makes the change.
///
/// # Errors
/// [`DeviceError`].
pub fn set(device: &Device, to: Channels) -> Result<(), DeviceError> {
    device.ethtool.set_channels(to).map_err(refused)
}

/// The numbers of channels as text, such as `rx=0,tx=0,other=1,combined=8`.
pub fn text(channels: Channels) -> String {
    list_text(KINDS, counts(channels))
}

/// Parses the text that [`text`] writes; `None` for any other text.
pub fn parse(text: &str) -> Option<Wanted> {
    let [rx, tx, other, combined] = list(text, KINDS, |number| number.parse().ok())?;
    Some(Wanted {
        rx,
        tx,
        other,
        combined,
    })
}

pub(crate) fn counts(channels: Channels) -> [u32; 4] {
    [channels.rx, channels.tx, channels.other, channels.combined]
}

/// Values with their names as text, such as `rx=512,tx=512`.
pub(crate) fn list_text<T: Display, const N: usize>(names: [&str; N], values: [T; N]) -> String {
    let pairs = names.into_iter().zip(values);
    let pairs: Vec<String> = pairs
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    pairs.join(",")
}

/// Parses the text that [`list_text`] writes. Names may be left out. `None` for any other text.
pub(crate) fn list<T: Copy, const N: usize>(
    text: &str,
    names: [&str; N],
    value: impl Fn(&str) -> Option<T>,
) -> Option<[Option<T>; N]> {
    let mut found = [None; N];
    for part in text.split(',') {
        let (name, written) = part.split_once('=')?;
        let at = names.iter().position(|it| *it == name)?;
        found[at] = Some(value(written)?);
    }
    Some(found)
}

fn refused(error: io::Error) -> DeviceError {
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => DeviceError::NoChannels,
        Some(libc::EPERM) => DeviceError::Failed(NEEDS, error),
        _ => DeviceError::Refused(error),
    }
}

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
        assert_eq!(many.errno(), libc::EINVAL);
        assert!(matches!(error("combined=0"), DeviceError::NoDirection));
        assert!(matches!(
            error("rx=1"),
            DeviceError::TooManyChannels { most: 0, .. }
        ));
    }

    #[test]
    fn a_device_without_channels_says_so() {
        let lo = Device::open("lo").unwrap();
        assert_eq!(read(&lo).unwrap_err().errno(), libc::EOPNOTSUPP);
        assert_eq!(Device::open("no such device").unwrap_err().errno(), 19);
    }
}
