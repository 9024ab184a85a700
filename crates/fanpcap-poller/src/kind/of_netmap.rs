//! How a device is opened by netmap, and what its errors mean.

use super::{EOPNOTSUPP, OpenError, Opened, ensure_few, ensure_receives, refused};
use crate::netmap;
use crate::source::Source;
use fanpcap_linux::netlink::link::Link;
use fanpcap_linux::netmap::{DEVICE, receive_rings};
use fanpcap_linux::wait::ENXIO;
use std::io;

/// Checks whether netmap serves a device. Changes nothing. Returns the number of receive rings.
pub(super) fn check(link: &Link) -> Result<u16, OpenError> {
    ensure_receives(link)?;
    let rings = receive_rings(&link.name).map_err(|error| told(&link.name, error))?;
    ensure_few(link, rings.into())
}

pub(super) fn open(link: &Link) -> Result<Opened, OpenError> {
    let rings = check(link)?;
    let sources = netmap::open(link.index, &link.name, rings);
    let sources = sources.map_err(|error| told(&link.name, error))?;
    // When the last descriptor of an emulated ring is closed, netmap replaces its own queueing
    // discipline of the device, if the thread has CAP_NET_ADMIN. Otherwise the discipline stays,
    // and the module is in use for ever.
    let descriptors = sources.iter().filter_map(Source::waits_on);
    let last: io::Result<_> = descriptors.map(|it| it.try_clone_to_owned()).collect();
    Ok(Opened {
        last: last.map_err(|error| told(&link.name, error))?,
        sources: sources
            .into_iter()
            .map(|it| -> Box<dyn Source + Send> { Box::new(it) })
            .collect(),
        way: "netmap",
    })
}

fn told(device: &str, error: io::Error) -> OpenError {
    let text = match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::NotFound, _) => format!(
            "this machine has no {DEVICE}: build netmap's module for this kernel \
             (https://github.com/luigirizzo/netmap), and load it: 'modprobe netmap'"
        ),
        (io::ErrorKind::PermissionDenied, _) => {
            return OpenError::Privilege {
                capabilities: "root's rights on /dev/netmap, and CAP_NET_RAW",
                error,
            };
        }
        (_, Some(ENXIO)) => return OpenError::Gone,
        (io::ErrorKind::ResourceBusy, _) => {
            format!("another process has {device} in netmap: end that process")
        }
        (io::ErrorKind::OutOfMemory, _) => format!(
            "netmap has no memory for the rings of {device}: load its module with larger \
             parameters buf_num and ring_num"
        ),
        (io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported, _)
        | (_, Some(ENOTTY | EOPNOTSUPP)) => {
            format!(
                "netmap does not serve {device} ({error}): its module must have version 14 of \
                 netmap's interface, and buffers for the device's MTU ('echo 9216 > \
                 /sys/module/netmap/parameters/buf_size'), and the driver of the device must have \
                 netmap, or the module must emulate it ('echo 0 > \
                 /sys/module/netmap/parameters/admode')"
            )
        }
        (io::ErrorKind::InvalidData, _) => {
            format!("netmap's memory does not have the rings of {device}: it has another layout")
        }
        _ => return refused(error),
    };
    OpenError::Told(text)
}

/// errno(3).
const ENOTTY: i32 = 25;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_netmap_lacks_is_told() {
        let said = |number| told("eth3", io::Error::from_raw_os_error(number)).to_string();
        for (number, expected) in [
            (2, "no /dev/netmap: build netmap's module"),
            (13, "without root's rights on /dev/netmap"),
            (6, "the device was removed"),
            (16, "another process has eth3"),
            (12, "parameters buf_num and ring_num"),
            (22, "version 14 of netmap's interface"),
            (22, "buffers for the device's MTU ('echo 9216"),
            (95, "version 14 of netmap's interface"),
            (25, "version 14 of netmap's interface"),
            (19, "the device was removed"),
            (100, "the device is down"),
        ] {
            assert!(
                said(number).contains(expected),
                "{number}: {}",
                said(number)
            );
        }
        let layout = told("eth3", io::ErrorKind::InvalidData.into());
        assert!(layout.to_string().contains("another layout"));
    }

    #[test]
    fn a_device_that_nobody_drives_is_refused_first() {
        let link = Link {
            flags: 1 | super::super::IFF_LOOPBACK,
            ..Link::default()
        };
        assert!(matches!(check(&link), Err(OpenError::Loopback)));
    }
}
