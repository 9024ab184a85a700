//! Opens a device of the poller, of any kind: a network interface, or a device of DPDK.

use anyhow::{Context, Result, anyhow, ensure};
use fanpcap_linux::interface;
use fanpcap_linux::netlink::link;
use fanpcap_poller::kind::{Opened, SourceKind};
use fanpcap_poller::{Sender, Source};
use std::os::fd::OwnedFd;

use super::options::Options;
use super::place::Place;
use super::socket::Name;
use super::tags::KeptTags;

/// A device whose packets come from now on.
pub(super) struct Taken {
    pub(super) name: Name,
    pub(super) tags: Option<KeptTags>,
    /// The device's index; 0 if it is no network interface.
    pub(super) ifindex: u32,
    /// The device's hardware type.
    pub(super) hardware: u16,
    pub(super) sources: Vec<Box<dyn Source + Send>>,
    /// Sends the frames of members, if the poller may.
    pub(super) sender: Option<Sender>,
    /// How packets come into the memory of this process, in words.
    pub(super) way: String,
    /// To be closed after the sources.
    pub(super) last: Vec<OwnedFd>,
}

/// Takes the device's name for this process, and opens the device.
///
/// # Errors
/// Why the device can't be served, and what to do.
pub(super) fn take(place: &Place, options: &Options) -> Result<Taken> {
    match &place.of_dpdk {
        Some(name) => {
            let own = Name::take(place)?;
            let dpdk = options.dpdk.as_ref();
            let dpdk = dpdk.context("DPDK has not been started")?;
            let opened = dpdk.open(name, options.sockets);
            let opened = opened.map_err(|error| anyhow!("{place}: {error}"))?;
            let sources = opened.sources.into_iter();
            Ok(Taken {
                name: own,
                tags: None,
                ifindex: 0,
                hardware: ETHERNET,
                sources: sources
                    .map(|it| -> Box<dyn Source + Send> { Box::new(it) })
                    .collect(),
                sender: options.sends.then_some(opened.sender),
                way: opened.way,
                last: Vec::new(),
            })
        }
        None => take_interface(place, options),
    }
}

/// linux/if_arp.h: `ARPHRD_ETHER`.
const ETHERNET: u16 = 1;

fn take_interface(place: &Place, options: &Options) -> Result<Taken> {
    let found = interface::find(&place.device).with_context(|| place.to_string())?;
    let ifindex = found.with_context(|| interface::missing(&place.device))?;
    let link = link::get(ifindex).with_context(|| place.to_string())?;
    let name = Name::take(place)?;
    options.ensure_not_the_hosts(place, ifindex)?;
    ensure!(
        !(options.sends && place.kind == SourceKind::Zc),
        "{place}: --send: the host can't send on a device of PF_RING ZC"
    );
    let unusable = |error| anyhow!("{place}: {error}");
    place.kind.check(&link).map_err(unusable)?;
    let tags = match place.kind.steals() {
        true => KeptTags::on(place)?,
        false => None,
    };
    let opened = place.kind.open(&link, options.sockets);
    let Opened { sources, way, last } = opened.map_err(unusable)?;
    let sender = options.sends.then(|| Sender::open(ifindex)).transpose();
    Ok(Taken {
        name,
        tags,
        ifindex,
        hardware: link.hardware,
        sources,
        sender: sender.with_context(|| format!("{place}: the socket of --send"))?,
        way: way.to_owned(),
        last,
    })
}
