//! What the kernel shows of huge pages and PCI devices in /sys. DPDK's own errors do not name the
//! reason.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{fmt, fs};

/// Bytes of huge pages that no process has. `sys` is where sysfs is mounted.
pub fn free_huge_bytes(sys: &Path) -> u64 {
    let sizes = fs::read_dir(sys.join("kernel/mm/hugepages"));
    let bytes = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let name = name.to_str()?.strip_prefix("hugepages-")?;
        let size: u64 = name.strip_suffix("kB")?.parse().ok()?;
        let free = fs::read_to_string(entry.path().join("free_hugepages")).ok()?;
        Some(free.trim().parse::<u64>().ok()?.saturating_mul(size << 10))
    };
    let entries = sizes.into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(bytes).fold(0, u64::saturating_add)
}

/// The number of huge pages of 2 MiB that the machine must have (`vm.nr_hugepages`) so that `mib`
/// MiB more are free. `sys` is where sysfs is mounted.
pub fn huge_pages_for(sys: &Path, mib: u32) -> u64 {
    let reserved =
        fs::read_to_string(sys.join("kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"));
    let reserved = reserved.ok().and_then(|it| it.trim().parse::<u64>().ok());
    reserved.unwrap_or(0).saturating_add(u64::from(mib / 2))
}

/// Why DPDK can't have a PCI device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PciError {
    /// There is no such device.
    Missing(String),
    /// The device has no driver: its address.
    NoDriver(String),
    /// The device has a driver of the kernel's: its address, and the driver's name.
    Kernel(String, String),
}

impl fmt::Display for PciError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(address) => write!(
                f,
                "there is no PCI device {address}: 'dpdk-devbind.py --status' lists all devices"
            ),
            Self::NoDriver(address) => write!(
                f,
                "the device has no driver: give it to DPDK by 'dpdk-devbind.py --bind=vfio-pci \
                 {address}', or by --bind=uio_pci_generic where vfio-pci refuses it because there \
                 is no IOMMU"
            ),
            Self::Kernel(address, driver) => write!(
                f,
                "the device is bound to the kernel's driver {driver}: give it to DPDK by \
                 'dpdk-devbind.py --bind=vfio-pci {address}', which takes it from the host"
            ),
        }
    }
}

impl Error for PciError {}

/// Drivers that give a device to a process, and drivers with which DPDK shares the device.
const DRIVERS: [&str; 7] = [
    "vfio-pci",
    "uio_pci_generic",
    "igb_uio",
    "uio_hv_generic",
    "mlx4_core",
    "mlx5_core",
    "mana",
];

/// Checks that a PCI device has a driver with which DPDK can use it. `sys` is where sysfs is
/// mounted.
///
/// # Errors
/// See [`PciError`].
pub fn check_pci(sys: &Path, address: &str) -> Result<(), PciError> {
    let device = sys.join("bus/pci/devices").join(address);
    if !device.exists() {
        return Err(PciError::Missing(address.to_owned()));
    }
    let Some(driver) = driver_of(&device) else {
        return Err(PciError::NoDriver(address.to_owned()));
    };
    match DRIVERS.contains(&&*driver) {
        true => Ok(()),
        false => Err(PciError::Kernel(address.to_owned(), driver)),
    }
}

/// The name of the driver to which a device is bound. `device` is the device's directory.
fn driver_of(device: &Path) -> Option<String> {
    let driver = fs::read_link(device.join("driver")).ok()?;
    Some(driver.file_name()?.to_string_lossy().into_owned())
}

/// A PCI device and the driver that it had. DPDK says that a device was removed only if the driver
/// is vfio-pci.
#[derive(Clone, Debug)]
pub struct Bound {
    device: PathBuf,
    driver: String,
}

impl Bound {
    /// Notes the driver of the device with this address; `None` if the device has no driver. `sys`
    /// is where sysfs is mounted.
    pub fn new(sys: &Path, address: &str) -> Option<Self> {
        let device = sys.join("bus/pci/devices").join(address);
        let driver = driver_of(&device)?;
        Some(Self { device, driver })
    }

    /// Whether the device was removed, or taken from the driver.
    pub fn is_gone(&self) -> bool {
        driver_of(&self.device).as_ref() != Some(&self.driver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn free_huge_pages_of_all_sizes_count() {
        let scratch = fanpcap_testkit::Scratch::new().unwrap();
        let sys = scratch.file("sys");
        assert_eq!(free_huge_bytes(&sys), 0);
        for (size, free) in [("2048kB", "3"), ("1048576kB", "1"), ("64kB", "no number")] {
            let dir = sys.join(format!("kernel/mm/hugepages/hugepages-{size}"));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("free_hugepages"), format!("{free}\n")).unwrap();
        }
        assert_eq!(free_huge_bytes(&sys), (3 << 21) + (1 << 30));
        assert_eq!(huge_pages_for(&sys, 100), 50);
        let reserved = sys.join("kernel/mm/hugepages/hugepages-2048kB/nr_hugepages");
        fs::write(reserved, "128\n").unwrap();
        assert_eq!(huge_pages_for(&sys, 100), 178);
    }

    #[test]
    fn a_device_needs_a_driver_for_processes() {
        let scratch = fanpcap_testkit::Scratch::new().unwrap();
        let sys = scratch.file("sys");
        let device = |address: &str, driver: Option<&str>| {
            let path = sys.join("bus/pci/devices").join(address);
            fs::create_dir_all(&path).unwrap();
            if let Some(driver) = driver {
                symlink(format!("../drivers/{driver}"), path.join("driver")).unwrap();
            }
            check_pci(&sys, address)
        };
        assert_eq!(device("0000:01:00.0", Some("vfio-pci")), Ok(()));
        assert_eq!(device("0000:02:00.0", Some("mlx5_core")), Ok(()));
        let error = device("0000:03:00.0", Some("ixgbe"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("driver ixgbe"), "{error}");
        assert!(
            error.contains("'dpdk-devbind.py --bind=vfio-pci 0000:03:00.0'"),
            "{error}"
        );
        let error = device("0000:04:00.0", None).unwrap_err().to_string();
        assert!(
            error.contains("has no driver") && error.contains("dpdk-devbind.py"),
            "{error}"
        );
        assert!(error.contains("uio_pci_generic"), "{error}");
        let error = check_pci(&sys, "0000:05:00.0").unwrap_err().to_string();
        assert!(error.contains("no PCI device 0000:05:00.0"), "{error}");
    }

    #[test]
    fn a_device_that_loses_its_driver_is_gone() {
        let scratch = fanpcap_testkit::Scratch::new().unwrap();
        let sys = scratch.file("sys");
        let device = sys.join("bus/pci/devices/0000:01:00.0");
        fs::create_dir_all(&device).unwrap();
        assert!(Bound::new(&sys, "0000:01:00.0").is_none());
        let bind = |driver: &str| symlink(format!("../{driver}"), device.join("driver")).unwrap();
        bind("uio_pci_generic");
        let bound = Bound::new(&sys, "0000:01:00.0").unwrap();
        assert!(!bound.is_gone());
        fs::remove_file(device.join("driver")).unwrap();
        assert!(bound.is_gone());
        bind("e1000e");
        assert!(bound.is_gone(), "the host has the device");
        fs::remove_file(device.join("driver")).unwrap();
        bind("uio_pci_generic");
        assert!(!bound.is_gone());
        fs::remove_dir_all(&device).unwrap();
        assert!(bound.is_gone());
    }
}
