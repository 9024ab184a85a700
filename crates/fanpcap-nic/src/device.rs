//! A network device and the interfaces to read and set it: ethtool and sysfs.

use crate::error::DeviceError;
use fanpcap_linux::ethtool;
use fanpcap_linux::file::sysfs::DeviceDirectory;
use fanpcap_linux::interface;
use fanpcap_linux::netlink::link;
use std::path::PathBuf;
use std::{fs, io};

/// A device of a network namespace: the namespace in which the calling thread was when it opened
/// the device.
#[derive(Debug)]
pub struct Device {
    /// Interface index.
    pub ifindex: u32,
    /// The device's name.
    pub name: String,
    /// The hardware address; empty if the device has none.
    pub address: String,
    /// The driver's name; empty if the kernel does not give it.
    pub driver: String,
    /// Commands to the driver.
    pub(crate) ethtool: ethtool::Device,
    sysfs: Option<DeviceDirectory>,
}

impl Device {
    /// The device with this name.
    ///
    /// # Errors
    /// [`DeviceError::Unknown`] and [`DeviceError::Failed`].
    pub fn open(name: &str) -> Result<Self, DeviceError> {
        let unknown = || DeviceError::Unknown {
            name: name.to_owned(),
        };
        let failed = |error| DeviceError::Failed(UNLISTED, error);
        let ifindex = interface::find(name).map_err(failed)?;
        let ifindex = ifindex.ok_or_else(unknown)?;
        let link = link::get(ifindex).map_err(failed)?;
        let ethtool = ethtool::Device::find(ifindex).map_err(failed)?;
        Ok(Self {
            ifindex,
            // A device without a driver has no settings. This is no error here, because each read
            // of a setting reports it.
            driver: ethtool.driver().unwrap_or_default(),
            sysfs: DeviceDirectory::open(ifindex, &link.name).ok(),
            name: link.name,
            address: link.address,
            ethtool,
        })
    }

    /// A path below the device's directory in sysfs.
    ///
    /// # Errors
    /// The sysfs of the device's network namespace is not mounted.
    pub(crate) fn sysfs(&self, path: &str) -> io::Result<PathBuf> {
        let directory = self.sysfs.as_ref();
        let none = || io::Error::other("no sysfs of this network namespace");
        Ok(directory.ok_or_else(none)?.path().join(path))
    }

    /// The names in a directory below the device's directory in sysfs; no names if the directory
    /// can't be read.
    pub(crate) fn names(&self, path: &str) -> impl Iterator<Item = String> + use<> {
        let entries = self.sysfs(path).and_then(fs::read_dir);
        let entries = entries.into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok())
    }

    /// The numbers of the queues whose directories in sysfs begin with `prefix`.
    pub(crate) fn queues(&self, prefix: &'static str) -> impl Iterator<Item = u32> + use<> {
        let number = |name: String| name.strip_prefix(prefix)?.parse().ok();
        let mut numbers: Vec<u32> = self.names("queues").filter_map(number).collect();
        numbers.sort_unstable();
        numbers.into_iter()
    }

    /// The text of a file below the device's directory in sysfs, without white space at its ends.
    ///
    /// # Errors
    /// As [`Device::sysfs`], and the error of reading the file.
    pub(crate) fn read(&self, path: &str) -> io::Result<String> {
        let text = fs::read_to_string(self.sysfs(path)?)?;
        Ok(text.trim().to_owned())
    }

    /// Writes a file below the device's directory in sysfs.
    ///
    /// # Errors
    /// As [`Device::sysfs`], and the error of writing the file.
    pub(crate) fn write(&self, path: &str, text: &str) -> io::Result<()> {
        let path = self.sysfs(path)?;
        // Open the file without O_CREAT: only the kernel creates files in sysfs.
        let mut file = fs::OpenOptions::new().write(true).open(path)?;
        io::Write::write_all(&mut file, text.as_bytes())
    }
}

const UNLISTED: &str = "devices can't be listed";
