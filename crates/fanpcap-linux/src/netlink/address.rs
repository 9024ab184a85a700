//! Addresses of devices by rtnetlink (linux/if_addr.h).

use crate::bytes::u32_at;
use crate::netlink::Question;
use std::io;

const ADDRESSES: Question = Question {
    protocol: libc::NETLINK_ROUTE,
    asks: 22,    // RTM_GETADDR
    answers: 20, // RTM_NEWADDR
};

/// Whether a device has an IP address. Link-local addresses do not count, because every device that
/// is up has such an address, unless IPv6 is off.
///
/// # Errors
/// The errors of the socket calls.
pub fn has_address(ifindex: u32) -> io::Result<bool> {
    let mut found = false;
    // ifaddrmsg: family, prefix length, flags, scope, index.
    ADDRESSES.list(&[0; 8], &mut |payload| {
        let is_local = *payload.get(3)? == RT_SCOPE_LINK;
        found |= u32_at(payload, 4)? == ifindex && !is_local;
        Some(())
    })?;
    Ok(found)
}

const RT_SCOPE_LINK: u8 = 253;

#[cfg(test)]
mod tests {
    #[test]
    fn the_loopback_device_has_an_address_and_none_has_not() {
        let index = crate::interface::index("lo").unwrap();
        assert!(super::has_address(index).unwrap());
        assert!(!super::has_address(u32::MAX).unwrap());
    }
}
