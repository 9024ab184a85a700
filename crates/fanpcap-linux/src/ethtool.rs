//! Settings of a device's driver (`SIOCETHTOOL`, linux/ethtool.h).

mod counts;
mod rss;
mod features;

pub use counts::{Channels, Pause, Rings};
pub use features::Feature;
pub use rss::{Rss, Transform, flow};

use crate::errno::owned;
use crate::interface;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::{mem, ptr};

/// A device of the network namespace in which it was found.
#[derive(Debug)]
pub struct Device {
    socket: OwnedFd,
    name: [libc::c_char; libc::IFNAMSIZ],
}

impl Device {
    /// Finds the device with this index. Later commands address the device by the name that it has
    /// now.
    ///
    /// # Errors
    /// `ENODEV` when no device has this index.
    pub fn find(ifindex: u32) -> io::Result<Self> {
        let gone = || io::Error::from_raw_os_error(libc::ENODEV);
        let found = interface::find_name(ifindex)?.ok_or_else(gone)?;
        let mut name = [0; libc::IFNAMSIZ];
        for (to, from) in name[..libc::IFNAMSIZ - 1].iter_mut().zip(found.bytes()) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        // SAFETY: socket(2) takes plain numbers.
        let socket = unsafe { libc::socket(libc::AF_INET, SOCKET_KIND, 0) };
        Ok(Self {
            socket: owned(socket)?,
            name,
        })
    }

    /// The number of receive queues in use; `None` if the driver does not report it.
    pub fn receive_queues(&self) -> Option<u32> {
        let channels = self.channels().ok()?;
        let queues = channels.rx.saturating_add(channels.combined);
        Some(queues).filter(|&queues| queues > 0)
    }

    /// Whether the device removes the VLAN tag from received frames (`rx-vlan-hw-parse`).
    ///
    /// # Errors
    /// `EOPNOTSUPP` on kernels that do not know the command.
    pub fn takes_vlan_tags(&self) -> io::Result<bool> {
        Ok(self.flags()? & ETH_FLAG_RXVLAN != 0)
    }

    /// The driver's name.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for devices without a driver of their own.
    pub fn driver(&self) -> io::Result<String> {
        let mut words = [0; DRIVER_INFO_WORDS];
        words[0] = ETHTOOL_GDRVINFO;
        // SAFETY: struct ethtool_drvinfo has 49 words.
        unsafe { self.ask(&mut words) }?;
        Ok(text(&words[1..9]))
    }

    fn flags(&self) -> io::Result<u32> {
        let mut words = [ETHTOOL_GFLAGS, 0];
        // SAFETY: struct ethtool_value has two words.
        unsafe { self.ask(&mut words) }?;
        Ok(words[1])
    }

    /// Sends the command whose number is the first of `words`. The kernel writes its answer into
    /// `words`. Returns the result of the ioctl.
    ///
    /// # Safety
    /// For this command, the kernel must read and write no memory beyond `words`.
    unsafe fn ask(&self, words: &mut [u32]) -> io::Result<u32> {
        // SAFETY: an ifreq is plain data; zeros are valid.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        request.ifr_name = self.name;
        request.ifr_ifru.ifru_data = ptr::from_mut(words).cast();
        let fd = self.socket.as_raw_fd();
        // SAFETY: the request is live for the call. It points to `words`, and the caller guarantees
        // that the command needs no more words.
        let done = unsafe { libc::ioctl(fd, libc::SIOCETHTOOL, &raw mut request) };
        u32::try_from(done).map_err(|_| io::Error::last_os_error())
    }
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The words of `bytes`, padded with zeros.
fn words(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks(4).map(|chunk| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        u32::from_ne_bytes(word)
    })
}

/// Returns a text, which ends at its first zero byte.
fn text(words: &[u32]) -> String {
    crate::bytes::text(&bytes(words))
}

const SOCKET_KIND: libc::c_int = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
const DRIVER_INFO_WORDS: usize = 49;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_has_flags_and_no_choice() {
        let device = Device::find(interface::index("lo").unwrap()).unwrap();
        assert!(!device.takes_vlan_tags().unwrap());
        assert_eq!(device.receive_queues(), None);
        let gone = Device::find(u32::MAX / 2).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn the_loopback_device_has_features_and_nothing_to_set() {
        let device = Device::find(interface::index("lo").unwrap()).unwrap();
        let features = device.features().unwrap();
        let of = |name: &str| features.iter().find(|it| it.name == name).unwrap();
        assert!(of("loopback").is_on && of("loopback").is_fixed);
        assert!(!of("rx-gro-list").is_fixed);
        let unknown = device.set_feature("no such feature", true).unwrap_err();
        assert_eq!(unknown.kind(), io::ErrorKind::NotFound);
        for refused in [
            device.channels().map(drop),
            device.rings().map(drop),
            device.pause().map(drop),
            device.rss().map(drop),
            device.flow_hash(flow::TCP4).map(drop),
        ] {
            assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EOPNOTSUPP));
        }
    }

    #[test]
    fn bytes_and_words_are_the_same() {
        assert_eq!(
            bytes(&words(b"driver\0x").collect::<Vec<_>>()),
            b"driver\0x"
        );
        assert_eq!(text(&words(b"driver\0x").collect::<Vec<_>>()), "driver");
        assert_eq!(words(b"12345").count(), 2);
    }
}
