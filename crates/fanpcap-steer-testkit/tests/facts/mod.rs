//! Collects all facts that the walk (`Layers`) finds about a frame, by name. A header that the
//! frame does not have gives no fact.

use std::collections::BTreeMap;
use std::fmt::Debug;

use fanpcap_wire::{Frame, Ip, Layers};

pub(crate) type Facts = BTreeMap<String, String>;

/// The facts about the frame, about packets that it carries, and about packets that it quotes.
pub(crate) fn of(frame: &Frame<'_>) -> Facts {
    let mut facts = Facts::new();
    of_layers(&mut facts, "frame", &Layers::of(frame));
    facts
}

fn say(facts: &mut Facts, of: &str, name: &str, fact: Option<impl Debug>) {
    if let Some(fact) = fact {
        facts.insert(format!("{of} {name}"), format!("{fact:?}"));
    }
}

fn of_layers(facts: &mut Facts, of: &str, layers: &Layers<'_>) {
    if let Some(link) = layers.link() {
        say(
            facts,
            of,
            "links",
            Some((link.source(), link.destination())),
        );
        for (at, tag) in link.tags().enumerate() {
            say(facts, of, &format!("tag {at}"), Some(tag));
        }
        for (at, label) in link.labels().into_iter().flatten().enumerate() {
            say(facts, of, &format!("label {at}"), Some(label));
        }
        let session = link
            .pppoe()
            .map(|pppoe| (pppoe.session(), pppoe.protocol()));
        say(facts, of, "PPPoE", session);
    }
    say(facts, of, "type", layers.ether_type());
    say(facts, of, "outermost", layers.tag());
    let arp = layers
        .arp()
        .map(|arp| (arp.operation(), arp.sender(), arp.target()));
    say(facts, of, "ARP", arp);
    if let Some(ip) = layers.ip() {
        of_ip(facts, of, ip);
        if let Some(quoted) = ip.quoted() {
            of_ip(facts, &format!("{of} quoted"), &quoted);
        }
    }
    if let Some(inner) = layers.inner() {
        of_layers(facts, &format!("{of} inner"), &inner);
    }
}

fn of_ip(facts: &mut Facts, of: &str, ip: &Ip<'_>) {
    say(
        facts,
        of,
        "addresses",
        Some((ip.source(), ip.destination())),
    );
    say(
        facts,
        of,
        "header",
        Some((ip.tos(), ip.ttl(), ip.total_len())),
    );
    for (at, extension) in ip.extensions().enumerate() {
        let said = (extension.number(), extension.len(), extension.fragment());
        say(facts, of, &format!("extension {at}"), Some(said));
    }
    // The upper protocol of an IPv6 packet is known only if the frame contains all extension
    // headers.
    let is_told = ip.ipv4().is_some() || ip.transport().is_some();
    say(facts, of, "protocol", is_told.then_some(ip.protocol));
    say(facts, of, "id", ip.id.filter(|_| is_told));
    say(
        facts,
        of,
        "fragment",
        is_told.then_some(ip.flags_and_offset),
    );
    say(facts, of, "ports", ip.ports());
    let tcp = ip
        .tcp()
        .map(|tcp| (tcp.sequence(), tcp.header_len(), tcp.flags()));
    say(facts, of, "TCP", tcp);
    if let Some(udp) = ip.udp() {
        say(facts, of, "UDP", Some(udp.datagram_len()));
        say(
            facts,
            of,
            "RTP",
            udp.rtp().map(fanpcap_wire::Rtp::payload_type),
        );
        say(
            facts,
            of,
            "RTCP",
            udp.rtcp().map(fanpcap_wire::Rtcp::packet_type),
        );
    }
    say(
        facts,
        of,
        "SCTP",
        ip.sctp().map(fanpcap_wire::Sctp::verification_tag),
    );
    say(
        facts,
        of,
        "ICMP",
        ip.icmp().map(|icmp| (icmp.kind, icmp.code)),
    );
    if let Some(gre) = ip.gre() {
        say(
            facts,
            of,
            "GRE",
            Some((gre.protocol, gre.key, gre.sequence)),
        );
        let session = gre.erspan().and_then(fanpcap_wire::Erspan::session);
        say(facts, of, "ERSPAN", session);
    }
}
