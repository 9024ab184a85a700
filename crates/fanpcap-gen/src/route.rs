//! The default route: which device has it, and so must not be flooded by mistake.

use std::fs;
use std::io;

/// Whether a default route of IPv4 or IPv6 of the calling thread's network namespace leads through
/// `device` (proc_net(5): `route`, `ipv6_route`).
///
/// # Errors
/// When the routes of IPv4 can't be read; a kernel without IPv6 has no table of these.
pub fn carries_default_route(device: &str) -> io::Result<bool> {
    let v4 = fs::read_to_string("/proc/thread-self/net/route")?;
    let v6 = fs::read_to_string("/proc/thread-self/net/ipv6_route").unwrap_or_default();
    Ok(v4.lines().any(|line| is_default4(line, device))
        || v6.lines().any(|line| is_default6(line, device)))
}

/// Interface, destination, gateway, flags, reference count, use, metric, mask.
fn is_default4(line: &str, device: &str) -> bool {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let field = |place: usize| fields.get(place).copied();
    field(0) == Some(device) && field(1) == Some(NOWHERE4) && field(7) == Some(NOWHERE4)
}

/// Destination and its prefix, source and its prefix, next hop, metric, counts, flags, interface.
fn is_default6(line: &str, device: &str) -> bool {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let field = |place: usize| fields.get(place).copied();
    let nowhere = field(0).is_some_and(|address| address.bytes().all(|digit| digit == b'0'));
    let flags = field(8).and_then(|flags| u32::from_str_radix(flags, 16).ok());
    // Where there is no default route, the kernel lists one on lo that rejects.
    let leads = flags.is_none_or(|flags| flags & RTF_REJECT == 0);
    field(9) == Some(device) && nowhere && field(1) == Some("00") && leads
}

/// linux/ipv6_route.h and linux/route.h.
const RTF_REJECT: u32 = 0x0200;

const NOWHERE4: &str = "00000000";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_routes_are_known_by_their_empty_mask() {
        let default = "eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0";
        let subnet = "eth0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0";
        let half = "eth0\t00000000\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0";
        assert!(is_default4(default, "eth0"));
        assert!(!is_default4(default, "eth1"));
        assert!(!is_default4(subnet, "eth0") && !is_default4(half, "eth0"));

        let zeros = "0".repeat(32);
        let default = format!(
            "{zeros} 00 {zeros} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eth0"
        );
        assert!(is_default6(&default, "eth0") && !is_default6(&default, "lo"));
        let rejects = default.replace("00000003", "00200200");
        assert!(!is_default6(&rejects, "eth0"));
        assert!(!is_default6(&default.replacen(" 00 ", " 40 ", 1), "eth0"));
    }

    #[test]
    fn no_device_has_no_default_route() {
        assert!(!carries_default_route("no such device").unwrap());
    }
}
