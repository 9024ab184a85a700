//! The name of a device of DPDK: a PCI address, or a virtual device with its arguments.

use std::error::Error;
use std::fmt;

/// A bus of DPDK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bus {
    /// PCI.
    Pci,
    /// Virtual devices.
    Vdev,
}

/// A device that DPDK can find: `0000:3b:00.0`, or `net_af_packet0,iface=eth1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceName {
    bus: Bus,
    name: String,
    arguments: String,
}

/// Why a text names no device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// It is neither a PCI address nor the name of a virtual network device.
    Unknown,
    /// It is too long, or has a character that no name of a device has.
    Wrong,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => {
                "write a PCI address such as 0000:3b:00.0 ('dpdk-devbind.py --status' lists them), \
                 or a virtual device of DPDK such as net_af_packet0,iface=eth0"
            }
            Self::Wrong => {
                "a name of DPDK has at most 63 letters, digits, '_', '-', '.' and ':' before its \
                 first comma"
            }
        })
    }
}

impl Error for NameError {}

/// The most bytes of a name (`RTE_DEV_NAME_MAX_LEN`, with its end).
const LONGEST: usize = 63;

/// How the names of virtual network devices begin.
const VIRTUAL: [&str; 3] = ["net_", "eth_", "virtio_user"];

impl DeviceName {
    /// Reads a name, and its arguments after the first comma. A PCI address without a domain gets
    /// the domain 0000.
    ///
    /// # Errors
    /// See [`NameError`].
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let (name, arguments) = text.split_once(',').unwrap_or((text, ""));
        let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte);
        if name.len() > LONGEST || !name.bytes().all(is_usual) || arguments.contains('\0') {
            return Err(NameError::Wrong);
        }
        let (bus, name) = match pci(name) {
            Some(address) => (Bus::Pci, address),
            None if VIRTUAL.iter().any(|it| name.starts_with(it)) && !name.contains(':') => {
                (Bus::Vdev, name.to_owned())
            }
            None => return Err(NameError::Unknown),
        };
        Ok(Self {
            bus,
            name,
            arguments: arguments.to_owned(),
        })
    }

    /// The name without arguments. Members use this name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What follows the name's comma; empty if nothing does.
    pub fn arguments(&self) -> &str {
        &self.arguments
    }

    /// The bus of the device.
    pub fn bus(&self) -> Bus {
        self.bus
    }

    /// The network interface on which the virtual device is, if its arguments name one.
    pub fn interface(&self) -> Option<&str> {
        self.argument("iface=")
    }

    /// The longest frame that the virtual device takes whole; `None` if its arguments do not limit
    /// it. The driver does not tell that it has cut a frame.
    pub fn longest_whole(&self) -> Option<u32> {
        if !CUTTING.iter().any(|it| self.name.starts_with(it)) {
            return None;
        }
        let size = self
            .argument("framesz=")
            .map_or(Some(FRAME_SIZE), |it| it.parse().ok());
        size.map(|it| it.saturating_sub(BEFORE_FRAME))
    }

    fn argument(&self, key: &str) -> Option<&str> {
        let mut words = self.arguments.split(',');
        words.find_map(|word| word.strip_prefix(key))
    }
}

/// The arguments with which such a virtual device takes frames of this length whole, or as many of
/// their bytes as fit into a buffer. Returns also how many bytes fit.
pub fn arguments_for(longest: u32) -> (String, u32) {
    // The kernel wants whole pages for blocks, and 16 bytes for frames.
    let size = longest.saturating_add(BEFORE_FRAME).clamp(PAGE, LARGEST);
    let size = size.next_power_of_two();
    (
        format!("framesz={size},blocksz={size}"),
        size - BEFORE_FRAME,
    )
}

/// How the names of virtual devices on packet sockets begin.
const CUTTING: [&str; 2] = ["net_af_packet", "eth_af_packet"];

/// The bytes that a ring of such a device has for each frame (rte_eth_af_packet.c:
/// `DFLT_FRAME_SIZE`).
const FRAME_SIZE: u32 = 2048;

/// The bytes before a frame's first byte (linux/net/packet/af_packet.c: `tpacket_rcv()` with
/// TPACKET_V2).
const BEFORE_FRAME: u32 = 66;

const PAGE: u32 = 4096;

/// The driver wants buffers of this size, and the plugin has no larger ones.
const LARGEST: u32 = 16_384;

/// The PCI address, with its domain.
fn pci(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase();
    let parts: Vec<&str> = text.split([':', '.']).collect();
    let lens: Vec<usize> = parts.iter().map(|it| it.len()).collect();
    let is_hex = |part: &&str| part.bytes().all(|it| it.is_ascii_hexdigit());
    if !parts.iter().all(is_hex) {
        return None;
    }
    let whole = match lens[..] {
        [4 | 8, 2, 2, 1] => text,
        [2, 2, 1] => format!("0000:{text}"),
        _ => return None,
    };
    let seps: String = whole.chars().filter(|it| !it.is_ascii_hexdigit()).collect();
    let function = whole.bytes().last();
    (seps == "::." && function.is_some_and(|it| it <= b'7')).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_pci_address_or_a_virtual_device() {
        for (text, bus, name, arguments) in [
            ("0000:3b:00.0", Bus::Pci, "0000:3b:00.0", ""),
            ("3B:00.1", Bus::Pci, "0000:3b:00.1", ""),
            (
                "0001:3b:1f.7,mprq_en=1",
                Bus::Pci,
                "0001:3b:1f.7",
                "mprq_en=1",
            ),
            ("net_null0", Bus::Vdev, "net_null0", ""),
            (
                "net_af_packet0,iface=eth1,qpairs=2",
                Bus::Vdev,
                "net_af_packet0",
                "iface=eth1,qpairs=2",
            ),
            (
                "net_pcap0,rx_pcap=/a b/c.pcap",
                Bus::Vdev,
                "net_pcap0",
                "rx_pcap=/a b/c.pcap",
            ),
        ] {
            let parsed = DeviceName::parse(text).unwrap();
            assert_eq!(
                (parsed.bus(), parsed.name(), parsed.arguments()),
                (bus, name, arguments),
                "{text}"
            );
        }
        let on = |text| {
            DeviceName::parse(text)
                .unwrap()
                .interface()
                .map(str::to_owned)
        };
        assert_eq!(
            on("net_af_packet0,qpairs=2,iface=eth1").as_deref(),
            Some("eth1")
        );
        assert_eq!(on("net_null0,size=60"), None);
    }

    #[test]
    fn a_device_on_packet_sockets_cuts_long_frames() {
        let longest = |text| DeviceName::parse(text).unwrap().longest_whole();
        assert_eq!(longest("net_af_packet0,iface=eth1"), Some(1982));
        assert_eq!(
            longest("net_af_packet0,framesz=16384,iface=eth1"),
            Some(16_318)
        );
        assert_eq!(longest("net_af_packet0,framesz=x"), None);
        assert_eq!(longest("net_pcap0,iface=eth1"), None);
        for (longest, size, whole) in [
            (1983, 4096, 4030),
            (9014, 16_384, 16_318),
            (65_550, 16_384, 16_318),
        ] {
            let expected = format!("framesz={size},blocksz={size}");
            assert_eq!(arguments_for(longest), (expected, whole));
        }
    }

    #[test]
    fn other_names_are_refused() {
        for text in [
            "",
            "eth0",
            "0",
            "0000:3b:00",
            "00003b:00.0",
            "3b:00.8",
            "3b.00:0",
            "net:0",
        ] {
            assert_eq!(DeviceName::parse(text), Err(NameError::Unknown), "{text}");
        }
        let long = format!("net_{}", "x".repeat(60));
        for text in ["net_pcap/0", "net_null 0", &long, "net_null0,\0"] {
            assert_eq!(DeviceName::parse(text), Err(NameError::Wrong), "{text}");
        }
        assert!(NameError::Unknown.to_string().contains("dpdk-devbind.py"));
    }
}
