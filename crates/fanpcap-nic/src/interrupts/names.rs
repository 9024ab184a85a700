//! Finds a device's interrupts in `/proc/interrupts`, and the channel that each interrupt serves.
//! Uses the names that drivers give to interrupts.

use super::{Interrupt, Serves};

/// Facts by which a device's interrupts are found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known<'a> {
    /// The device's name.
    pub device: &'a str,
    /// The name of the device on its bus, such as `virtio3`.
    pub bus: Option<&'a str>,
    /// The numbers of the device's interrupts (`msi_irqs` in sysfs); empty if sysfs has none.
    pub numbers: &'a [u32],
}

/// The interrupts of a device in the text of `/proc/interrupts`, in the order of their numbers.
pub fn find(table: &str, known: Known<'_>) -> Vec<Interrupt> {
    let mut found: Vec<Interrupt> = table
        .lines()
        .filter_map(|line| interrupt(line, known))
        .collect();
    found.sort_unstable_by_key(|interrupt| interrupt.number);
    // A driver with only one interrupt names it after the device.
    if let [only] = found.as_mut_slice() {
        if only.serves == Serves::Other {
            only.serves = Serves::Both(0);
        }
    }
    found
}

/// Parses a line of `/proc/interrupts`; `None` if the device does not have this interrupt. A line
/// has a number, a count for each CPU, the controller, and names.
fn interrupt(line: &str, known: Known<'_>) -> Option<Interrupt> {
    let (number, rest) = line.split_once(':')?;
    let number: u32 = number.trim().parse().ok()?;
    // The last word is a name. The word before a name is also a name if it ends with a comma.
    let mut names = rest.split_whitespace().rev();
    let mut name = names.next()?;
    let is_own = |name: &str| match known.numbers {
        [] => is_of(name, known.device) || known.bus.is_some_and(|bus| is_of(name, bus)),
        numbers => numbers.contains(&number),
    };
    while !is_own(name) {
        name = names.next()?.strip_suffix(',')?;
    }
    Some(Interrupt {
        number,
        name: name.to_owned(),
        serves: serves(name, known.device),
    })
}

/// Whether a name contains `part` between separators: `i40e-eth1-TxRx-3` belongs to `eth1`, not
/// `eth`.
fn is_of(name: &str, part: &str) -> bool {
    let is_inside = |sign: Option<char>| sign.is_some_and(|sign| sign.is_ascii_alphanumeric());
    name.match_indices(part).any(|(at, _)| {
        let (before, after) = (&name[..at], &name[at + part.len()..]);
        !part.is_empty()
            && !is_inside(before.chars().next_back())
            && !is_inside(after.chars().next())
    })
}

/// The part of the device that the interrupt with this name serves.
pub(crate) fn serves(name: &str, device: &str) -> Serves {
    // A name may be like mlx5_comp3@pci:0000:01:00.0.
    let name = name.split('@').next().unwrap_or(name);
    let own = match is_of(name, device) {
        true => name.rsplit(device).next().unwrap_or(name),
        false => name,
    };
    let label = own.trim_end_matches(|sign: char| sign.is_ascii_digit());
    let Ok(channel) = own[label.len()..].parse() else {
        return Serves::Other;
    };
    // Compare only the letters, because Tx-Rx, TxRx and txrx mean the same.
    let letters: String = (label.chars())
        .filter(char::is_ascii_alphabetic)
        .map(|letter| letter.to_ascii_lowercase())
        .collect();
    let ends = |with: &[&str]| with.iter().any(|end| letters.ends_with(end));
    if ends(&["txrx", "rxtx", "comp", "fp", "block", "blk"]) {
        Serves::Both(channel)
    } else if ends(&["rx", "input", "rxq"]) {
        Serves::Rx(channel)
    } else if ends(&["tx", "output", "txq"]) {
        Serves::Tx(channel)
    } else if label.ends_with(['-', '.', ':', ' ']) && !ends(&OTHERS) {
        // The name is like eth0-3, with the device's present or former name.
        Serves::Both(channel)
    } else {
        Serves::Other
    }
}

/// Ends of the names of interrupts that serve no channel, but link changes, commands or errors.
const OTHERS: [&str; 8] = [
    "event", "async", "misc", "mgmnt", "config", "ctrl", "control", "lsc",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> Serves {
        serves(name, "eth0")
    }

    #[test]
    fn names_of_drivers_say_which_channel() {
        for name in [
            "eth0-TxRx-3",      // ixgbe, igb, igc, bnxt
            "i40e-eth0-TxRx-3", // i40e, iavf
            "ice-eth0-TxRx-3",  // ice
            "eth0-Tx-Rx-3",     // ena
            "eth0-rxtx-3",      // vmxnet3, nfp
            "eth0-fp-3",        // bnx2x, qede
            "eth0-3",           // sfc, atlantic
            "oldname-3",        // sfc, atlantic, renamed while it was up
            "oldname-TxRx-3",   // ixgbe, renamed while it was up
            "mlx5_comp3@pci:0000:01:00.0",
            "mlx5_comp3",
            "eth0-ntfy-block.3", // gve
        ] {
            assert_eq!(of(name), Serves::Both(3), "{name}");
        }
        for name in ["eth0-rx-3", "virtio3-input.3", "eth0:rx-3", "eth0-Rx3"] {
            assert_eq!(of(name), Serves::Rx(3), "{name}");
        }
        for name in ["eth0-tx-3", "virtio3-output.3", "eth0:tx-3"] {
            assert_eq!(of(name), Serves::Tx(3), "{name}");
        }
    }

    #[test]
    fn names_of_other_purposes_are_no_channels() {
        for name in [
            "eth0",
            "i40e-0000:01:00.0:misc",
            "mlx5_async0@pci:0000:01:00.0",
            "ena-mgmnt@pci:0000:00:05.0",
            "virtio3-config",
            "ens192-event-8",
            "eth0:mac",
            "",
        ] {
            assert_eq!(of(name), Serves::Other, "{name}");
        }
    }

    const TABLE: &str = "           CPU0       CPU1
  24:          1          0  IO-APIC   5-edge      ACPI:Ged
  40:          0          0 PCI-MSIX-0000:00:04.0   0-edge      eth1
  41:      20911          0 PCI-MSIX-0000:00:04.0   1-edge      eth1-TxRx-0
  42:          0      65882 PCI-MSIX-0000:00:04.0   2-edge      eth1-TxRx-1
  43:          1          0 PCI-MSIX-0000:00:05.0   1-edge      eth10-TxRx-0
  44:          1          0 IR-PCI-MSI 524288-edge      eth2
  45:          1          0 IO-APIC  18-fasteoi   ehci_hcd:usb1, eth3, uhci
  46:          0          0 PCI-MSIX-0000:00:06.0   1-edge      virtio1-input.0
  47:          0          0 PCI-MSIX-0000:00:07.0   1-edge      virtio10-input.0
NMI:          0          0   Non-maskable interrupts
";

    fn numbers(known: Known<'_>) -> Vec<(u32, Serves)> {
        let found = find(TABLE, known).into_iter();
        found.map(|it| (it.number, it.serves)).collect()
    }

    #[test]
    fn eth1_is_not_eth10() {
        let by_name = |device| Known {
            device,
            ..Known::default()
        };
        let both = |irq, channel| (irq, Serves::Both(channel));
        let of_eth1 = [(40, Serves::Other), both(41, 0), both(42, 1)];
        assert_eq!(numbers(by_name("eth1")), of_eth1);
        assert_eq!(numbers(by_name("eth10")), [both(43, 0)]);
        // These devices have one interrupt for all queues.
        assert_eq!(numbers(by_name("eth2")), [both(44, 0)]);
        assert_eq!(numbers(by_name("eth3")), [both(45, 0)]);
        assert!(numbers(by_name("eth")).is_empty() && numbers(by_name("")).is_empty());
    }

    #[test]
    fn the_bus_and_the_numbers_say_whose_interrupts_they_are() {
        let virtio = Known {
            device: "eth9",
            bus: Some("virtio1"),
            numbers: &[],
        };
        assert_eq!(numbers(virtio), [(46, Serves::Rx(0))]);
        let by_number = Known {
            device: "renamed",
            bus: None,
            numbers: &[40, 41, 42],
        };
        let expected = [
            (40, Serves::Other),
            (41, Serves::Both(0)),
            (42, Serves::Both(1)),
        ];
        assert_eq!(numbers(by_number), expected);
    }
}
