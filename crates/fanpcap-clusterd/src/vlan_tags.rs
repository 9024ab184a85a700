//! VLAN tags that a cluster's filter does not see, because a device removes the tags from frames.

use fanpcap_linux::netlink::link::{self, Link};
use fanpcap_select::Filter;
use fanpcap_xdp::takes_tags;

/// Warns once of each filter that does not see VLAN tags.
#[derive(Debug, Default)]
pub(crate) struct TagWarnings {
    /// The filter of the last call of [`TagWarnings::warnings`].
    filter: Option<Filter>,
}

impl TagWarnings {
    /// Warnings about this filter for the operator; none if the last call had the same filter.
    pub(crate) fn warnings(
        &mut self,
        filter: Option<&Filter>,
        takers: impl FnOnce() -> Vec<String>,
    ) -> Vec<String> {
        if self.filter.as_ref() == filter {
            return Vec::new();
        }
        self.filter = filter.cloned();
        let takers = filter.map(|_| takers()).unwrap_or_default();
        takers.iter().map(|it| warning(it)).collect()
    }
}

fn warning(taker: &str) -> String {
    format!(
        "{taker} takes VLAN tags out of frames, so the cluster's filter does not see them: after \
         '{}' the tags stay in the frames",
        command(taker)
    )
}

/// The devices that remove VLAN tags from the frames that a device receives: the device itself, or
/// the ports if the device is a bond. Empty if the devices can't be listed.
pub(crate) fn takers(ifindex: u32) -> Vec<String> {
    takers_of(ifindex, &link::links().unwrap_or_default(), takes_tags)
}

/// The command that makes a device leave the tags in its frames.
pub(crate) fn command(taker: &str) -> String {
    format!("ethtool -K {taker} rxvlan off")
}

fn takers_of(ifindex: u32, links: &[Link], takes_tags: impl Fn(&Link) -> bool) -> Vec<String> {
    let is_port = |it: &&Link| it.master == Some(ifindex);
    let has_ports = links.iter().any(|it| is_port(&it));
    let is_own = |it: &&Link| it.index == ifindex;
    let asked = links.iter().filter(|it| match has_ports {
        true => is_port(it),
        false => is_own(it),
    });
    let takers = asked.filter(|it| takes_tags(it));
    takers.map(|it| it.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_filter_is_warned_of_once() {
        let mut tags = TagWarnings::default();
        let mut count = |text: Option<&str>| {
            let filter = text.map(|text| Filter {
                text: text.to_owned(),
                code: Vec::new(),
            });
            let warnings = tags.warnings(filter.as_ref(), || vec!["eth1".to_owned()]);
            let command = |it: &String| it.contains("'ethtool -K eth1 rxvlan off'");
            assert!(warnings.iter().all(command), "{warnings:?}");
            warnings.len()
        };
        let filters = [None, Some("ip"), Some("ip"), Some("udp"), None, Some("udp")];
        assert_eq!(filters.map(&mut count), [0, 1, 0, 1, 0, 1]);
        let none = TagWarnings::default().warnings(None, || unreachable!("no filter"));
        assert_eq!(none.len(), 0);
    }

    #[test]
    fn a_bonds_ports_take_the_tags() {
        let link = |index: u32, master| Link {
            index,
            name: format!("eth{index}"),
            master,
            ..Link::default()
        };
        let links = [
            link(1, None),
            link(2, None),
            link(3, Some(2)),
            link(4, Some(2)),
        ];
        let of = |ifindex, taking: &[u32]| {
            takers_of(ifindex, &links, |it| taking.contains(&it.index)).join(" ")
        };
        assert_eq!(of(1, &[1, 3]), "eth1");
        assert_eq!(of(1, &[2, 3]), "");
        // The setting of the bond itself has no effect.
        assert_eq!(of(2, &[2, 4]), "eth4");
        assert_eq!(of(9, &[1, 2, 3, 4]), "");
        assert_eq!(command("eth4"), "ethtool -K eth4 rxvlan off");
    }
}
