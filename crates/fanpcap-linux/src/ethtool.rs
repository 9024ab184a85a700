//! Settings of a device's driver (`SIOCETHTOOL`, linux/ethtool.h).

use crate::errno::{check, owned};
use crate::interface;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::{mem, ptr};

/// A device of the network namespace in which the calling thread was.
#[derive(Debug)]
pub struct Device {
    socket: OwnedFd,
    name: [libc::c_char; libc::IFNAMSIZ],
}

impl Device {
    /// The device with this index, by its present name.
    ///
    /// # Errors
    /// `ENODEV` when there is none.
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

    /// The number of receive queues in use; `None` when the driver does not tell.
    pub fn receive_queues(&self) -> Option<u32> {
        let mut channels = Channels {
            command: ETHTOOL_GCHANNELS,
            ..Channels::default()
        };
        self.ask(&mut channels).ok()?;
        let queues = channels.receive.saturating_add(channels.combined);
        Some(queues).filter(|&queues| queues > 0)
    }

    /// Whether the device takes the VLAN tag out of received frames (`rx-vlan-hw-parse`).
    ///
    /// # Errors
    /// `EOPNOTSUPP` on old kernels.
    pub fn takes_vlan_tags(&self) -> io::Result<bool> {
        Ok(self.flags()? & ETH_FLAG_RXVLAN != 0)
    }

    /// Sets whether the device takes the VLAN tag out of received frames.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`, `EINVAL` or `EOPNOTSUPP` when the driver has no choice.
    pub fn take_vlan_tags(&self, takes: bool) -> io::Result<()> {
        let flags = self.flags()?;
        let wanted = match takes {
            true => flags | ETH_FLAG_RXVLAN,
            false => flags & !ETH_FLAG_RXVLAN,
        };
        let mut value = Value {
            command: ETHTOOL_SFLAGS,
            data: wanted,
        };
        if wanted == flags {
            return Ok(());
        }
        self.ask(&mut value)
    }

    fn flags(&self) -> io::Result<u32> {
        let mut value = Value {
            command: ETHTOOL_GFLAGS,
            data: 0,
        };
        self.ask(&mut value)?;
        Ok(value.data)
    }

    fn ask<C: Command>(&self, command: &mut C) -> io::Result<()> {
        // SAFETY: an ifreq is plain data, for which zeros are a value.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        request.ifr_name = self.name;
        request.ifr_ifru.ifru_data = ptr::from_mut(command).cast();
        let fd = self.socket.as_raw_fd();
        // SAFETY: the request is live for the call. It points to a command that is as large as the
        // kernel expects (`Command`), and in which any bits are a value.
        check(unsafe { libc::ioctl(fd, libc::SIOCETHTOOL, &raw mut request) })
    }
}

/// A command.
///
/// # Safety
/// The struct is `repr(C)`, of integers alone, begins with the command's number, and is as large as
/// the kernel's struct for it.
unsafe trait Command {}
// SAFETY: struct ethtool_value.
unsafe impl Command for Value {}
// SAFETY: struct ethtool_channels.
unsafe impl Command for Channels {}

#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

#[repr(C)]
#[derive(Default)]
struct Channels {
    command: u32,
    most: [u32; 4],
    receive: u32,
    send: u32,
    other: u32,
    combined: u32,
}

const SOCKET_KIND: libc::c_int = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_has_flags_and_no_choice() {
        let device = Device::find(interface::index("lo").unwrap()).unwrap();
        assert!(!device.takes_vlan_tags().unwrap());
        device.take_vlan_tags(false).unwrap();
        assert!(device.take_vlan_tags(true).is_err());
        assert_eq!(device.receive_queues(), None);
        let gone = Device::find(u32::MAX / 2).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ENODEV));
    }
}
