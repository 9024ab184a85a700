//! Findings about the devices that a node monitors.

use anyhow::Result;
use fanpcap_linux::netlink::{address, link, route};

use super::Finding;
use crate::{pins, vlan_tags};

/// A device that the settings name.
#[derive(Debug, Default)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) is_there: bool,
    pub(super) has_address: bool,
    pub(super) leads_out: bool,
    pub(super) has_agent: bool,
    /// The devices that remove VLAN tags from this device's frames.
    pub(super) tag_takers: Vec<String>,
    /// Why the device gets no packets; `None` if it can get packets.
    pub(super) silence: Option<&'static str>,
}

impl Device {
    pub(super) fn read(name: &str) -> Result<Self> {
        let links = link::links()?;
        let found = links.iter().find(|link| link.name == name);
        let mut device = Self {
            name: name.to_owned(),
            is_there: found.is_some(),
            ..Self::default()
        };
        if let Some(link) = found {
            device.has_address = address::has_address(link.index)?;
            device.leads_out = route::leads_through(link.index)?;
            device.tag_takers = vlan_tags::takers(link.index);
            device.silence = link.silence();
            // If the agent's lock can't be read, assumes that the device has no agent.
            device.has_agent = pins::has_agent(link.index).unwrap_or(false);
        }
        Ok(device)
    }

    pub(super) fn finding(&self) -> Option<Finding> {
        let name = &self.name;
        let (what, why, fix) = if !self.is_there {
            (
                "the settings name this device, but it does not exist",
                "'fanpcap node' does not start",
                "ip link    # shows the devices; mend 'device' in cluster.conf".to_owned(),
            )
        } else if self.leads_out {
            (
                "the monitored device carries the default route",
                "'fanpcap node' refuses it: a selection would drop this machine's own packets",
                "ip link    # the mirror port needs a device of its own: mend 'device' in \
                 cluster.conf"
                    .to_owned(),
            )
        } else if self.has_address {
            (
                "the monitored device has an IP address",
                "'fanpcap node' refuses it: a selection would drop packets for this machine",
                format!("ip address flush dev {name}"),
            )
        } else {
            return self.silence.map(|why| silent(name, why));
        };
        Some(Finding {
            name: "monitored-device",
            effect: "refuses",
            place: name.clone(),
            what: what.to_owned(),
            why,
            fix,
        })
    }
}

/// The finding for a device that removes VLAN tags from frames, in a cluster with a filter.
pub(super) fn tag_taker(device: &str) -> Finding {
    Finding {
        name: "filter-misses-tags",
        effect: "loses",
        place: device.to_owned(),
        what: "it takes VLAN tags out of frames, and the cluster has a filter".to_owned(),
        why: "the filter reads tagged packets as if they had no tag: it drops or passes other \
              packets than on nodes whose devices leave the tags in",
        fix: vlan_tags::command(device),
    }
}

/// The finding for a monitored device that is down or has no link.
fn silent(device: &str, silence: &str) -> Finding {
    let fix = match silence {
        "is down" => format!("ip link set {device} up"),
        _ => {
            format!("ethtool {device}    # shows the link; check its other end: tap, switch, cable")
        }
    };
    Finding {
        name: "silent-device",
        effect: "loses",
        place: device.to_owned(),
        what: format!("the monitored device {silence}"),
        why: "this node misses the device's packets, and no other node captures its share of them",
        fix,
    }
}
