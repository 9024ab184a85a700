//! The device that sends frames: whether it can send, and how long frames may be.

use anyhow::{Context, Result, anyhow, bail, ensure};
use fanpcap_linux::interface;
use fanpcap_linux::netlink::link;

use crate::pool::Pool;

/// An Ethernet device of the calling thread's network namespace, up and with a carrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The device's name, or the alternative name by which it was found.
    pub name: String,
    /// The device's index.
    pub index: u32,
    /// The device's kind, such as `veth`; empty for most hardware.
    pub kind: String,
    /// The longest packet in bytes, without the Ethernet header.
    pub mtu: u32,
}

impl Device {
    /// Finds the device `name`.
    ///
    /// # Errors
    /// The device does not exist, or does not accept Ethernet frames.
    pub fn find(name: &str) -> Result<Self> {
        let found =
            interface::find(name).map_err(|error| anyhow!("looking for the device: {error}"))?;
        let index = found.with_context(|| interface::missing(name))?;
        let link = link::get(index).map_err(|error| anyhow!("asking for the device: {error}"))?;
        match state(link.flags) {
            State::Down => bail!("{name} is down: ip link set {name} up"),
            State::NoCarrier => {
                bail!("{name} has no carrier: nothing is plugged in, or its other end is down")
            }
            State::Up => {}
        }
        let kind = link.hardware;
        ensure!(
            [ARPHRD_ETHER, ARPHRD_LOOPBACK].contains(&kind),
            "{name} is no Ethernet device (its type is {kind}): it would send the Ethernet header as data"
        );
        Ok(Self {
            name: name.to_owned(),
            index,
            kind: link.kind,
            mtu: link.mtu,
        })
    }

    /// The greatest length of a frame that begins like `frame`, without the check sequence. The
    /// kernel's limit counts neither the Ethernet header nor one 802.1Q tag directly after it
    /// (net/packet/af_packet.c, `packet_extra_vlan_len_allowed`).
    pub fn longest(&self, frame: &[u8]) -> usize {
        let tagged = frame.get(12..14) == Some(&[0x81, 0x00]);
        self.mtu as usize + 14 + if tagged { 4 } else { 0 }
    }

    /// The message which says that the device refuses live frames, with advice.
    pub(crate) fn refuses(&self) -> String {
        let advice = if self.kind == "veth" {
            " (a veth takes them when its other end has an XDP program or GRO)"
        } else {
            ""
        };
        format!("{} refuses them{advice}", self.name)
    }

    /// Checks that the device accepts frames of all lengths in the pool.
    pub(crate) fn check(&self, pool: &Pool) -> Result<()> {
        ensure!(!pool.is_empty(), "there is no frame to send");
        if pool.longest() <= self.longest(&[]) {
            return Ok(());
        }
        let mut frame = Vec::new();
        for number in 0..pool.len() as u64 {
            if pool.frame_len(number) <= self.longest(&[]) {
                continue;
            }
            pool.write_frame(number, &mut frame);
            let (len, most) = (frame.len(), self.longest(&frame));
            ensure!(
                len <= most,
                "a frame of {len} bytes: the device takes {most} at most; raise its MTU"
            );
        }
        Ok(())
    }
}

/// Whether a device can send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The device can send.
    Up,
    /// The device is down.
    Down,
    /// The device is up, but has no carrier.
    NoCarrier,
}

/// The state according to the device's flags.
pub(crate) fn state(flags: u32) -> State {
    if flags & IFF_UP == 0 {
        State::Down
    } else if flags & IFF_LOWER_UP == 0 {
        State::NoCarrier
    } else {
        State::Up
    }
}

/// linux/if.h and linux/if_arp.h.
const IFF_UP: u32 = 1;
const IFF_LOWER_UP: u32 = 1 << 16;
const ARPHRD_ETHER: u16 = 1;
/// The type of a loopback device, whose frames also begin with an Ethernet header.
const ARPHRD_LOOPBACK: u16 = 772;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Description, Lengths};

    fn fits(len: u16, vlans: &[u16]) -> bool {
        let device = Device {
            name: "x".to_owned(),
            index: 1,
            kind: String::new(),
            mtu: 1500,
        };
        let description = Description {
            lengths: Lengths::Fixed(len),
            vlans: vlans.to_vec(),
            ..Description::default()
        };
        device.check(&description.pool().unwrap()).is_ok()
    }

    #[test]
    fn one_tag_does_not_count_as_the_kernel_has_it() {
        assert!(fits(1514, &[]) && !fits(1515, &[]));
        assert!(fits(1518, &[5]) && !fits(1519, &[5]));
        assert!(fits(1514, &[5, 6]) && !fits(1515, &[5, 6]));
    }

    #[test]
    fn flags_say_whether_it_can_send() {
        assert_eq!(state(IFF_UP | IFF_LOWER_UP), State::Up);
        assert_eq!(state(IFF_UP), State::NoCarrier);
        assert_eq!(state(IFF_LOWER_UP), State::Down);
    }
}
