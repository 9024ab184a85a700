//! Why a device of DPDK can't be opened, and what to do.

use crate::eal::error;
use std::error::Error;
use std::{fmt, io};

/// Why a device can't be opened.
#[derive(Debug)]
pub enum OpenError {
    /// The device has fewer receive queues: how many.
    Queues(u32),
    /// The process may not open the device: DPDK's words.
    Permission(String),
    /// There is no memory for the packets: DPDK's words.
    Memory(String),
    /// DPDK's error and words.
    Failed(io::Error, String),
    /// The device has no IOMMU, and the process does not know physical addresses: DPDK's words.
    Addresses(String),
}

impl OpenError {
    /// The error of a plugin's result, with DPDK's words. `most_queues` is the device's number.
    pub(crate) fn new(rc: i32, words: String, most_queues: u32) -> Self {
        // DPDK's error for this is EINVAL (pci_common.c: rte_pci_probe_one_driver()).
        if words.contains("Expecting 'PA' IOVA mode") {
            return OpenError::Addresses(words);
        }
        match rc.saturating_neg() {
            E2BIG => OpenError::Queues(most_queues),
            EPERM | EACCES if rc != -1 || words.contains("ermission") => {
                OpenError::Permission(words)
            }
            ENOMEM => OpenError::Memory(words),
            _ => OpenError::Failed(error(rc), words),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, words) = match self {
            Self::Queues(most) => {
                return write!(
                    f,
                    "the device has {most} receive queues at most: --queues {most}"
                );
            }
            Self::Permission(words) => ("this process may not open the device".to_owned(), words),
            Self::Memory(words) => (NO_MEMORY.to_owned(), words),
            Self::Failed(error, words) => (format!("DPDK can't open the device: {error}"), words),
            Self::Addresses(words) => (NO_ADDRESSES.to_owned(), words),
        };
        match words.is_empty() {
            true => f.write_str(&text),
            false => write!(f, "{text} ({words})"),
        }
    }
}

impl Error for OpenError {}

const NO_MEMORY: &str = "there is no memory for packets: reserve more huge pages, 64 MiB and 36 \
                         MiB for each receive queue (vm.nr_hugepages), or ask for fewer queues";

const NO_ADDRESSES: &str = "without vfio-pci and an IOMMU, the device needs physical addresses: run \
                            as root with CAP_SYS_ADMIN, and with huge pages in the place of \
                            --no-huge";

// errno(3).
const EPERM: i32 = 1;
const E2BIG: i32 = 7;
const ENOMEM: i32 = 12;
const EACCES: i32 = 13;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_what_to_do() {
        let text = |rc, words: &str| OpenError::new(rc, words.to_owned(), 4).to_string();
        assert!(text(-E2BIG, "").contains("4 receive queues at most: --queues 4"));
        assert!(text(-EACCES, "VFIO").contains("may not open the device (VFIO)"));
        assert!(text(-ENOMEM, "").contains("vm.nr_hugepages"));
        let failed = text(-1, "EAL: no such driver");
        assert!(failed.contains("DPDK can't open the device"), "{failed}");
        assert!(failed.contains("(EAL: no such driver)"), "{failed}");
        assert!(text(-1, "Permission denied").contains("may not open"));
        let words = "EAL:   Expecting 'PA' IOVA mode but current mode is 'VA', not initializing";
        let addresses = text(-22, words);
        assert!(addresses.contains("CAP_SYS_ADMIN") && addresses.contains("--no-huge"));
        assert!(addresses.contains(words), "{addresses}");
    }
}
