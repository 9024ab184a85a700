//! The device that frames are sent on: whether it can take any, and how long they may be.

use anyhow::{Context, Result, anyhow, bail, ensure};
use fanpcap_linux::interface;
use fanpcap_linux::netlink::link;

use crate::pool::Pool;

/// A device of the calling thread's network namespace, found to be up, with a carrier, and of
/// Ethernet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name, or the alternative one that it was asked for by.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Its kind, such as `veth`; empty for most hardware.
    pub kind: String,
    /// The longest packet in bytes, without Ethernet's header.
    pub mtu: u32,
}

impl Device {
    /// Looks for `name`.
    ///
    /// # Errors
    /// When there is none, or it takes no frames of Ethernet.
    pub fn find(name: &str) -> Result<Self> {
        let found =
            interface::find(name).map_err(|error| anyhow!("looking for the device: {error}"))?;
        let index = found.with_context(|| format!("there is no device {name} here"))?;
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
            "{name} is no Ethernet device (its type is {kind}): it would take Ethernet's header for data"
        );
        Ok(Self {
            name: name.to_owned(),
            index,
            kind: link.kind,
            mtu: link.mtu,
        })
    }

    /// The longest that a frame which begins like this one may be, in bytes without the check
    /// sequence: the kernel does not count Ethernet's header nor one tag of 802.1Q, if that is the
    /// first (net/packet/af_packet.c, `packet_extra_vlan_len_allowed`).
    pub fn longest(&self, frame: &[u8]) -> usize {
        let tagged = frame.get(12..14) == Some(&[0x81, 0x00]);
        self.mtu as usize + 14 + if tagged { 4 } else { 0 }
    }

    /// That it refuses live frames, and what can be done.
    pub(crate) fn refuses(&self) -> String {
        let advice = if self.kind == "veth" {
            " (a veth takes them when its other end has an XDP program or GRO)"
        } else {
            ""
        };
        format!("{} refuses them{advice}", self.name)
    }

    /// Whether it takes frames of such lengths, all of them.
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
    /// It can.
    Up,
    /// It was set down.
    Down,
    /// It is up, and nothing is at the other end.
    NoCarrier,
}

/// What its flags say.
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
/// Its frames begin as Ethernet's do.
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
