//! Describes which packets each node of a cluster gets.

use fanpcap_select::Key;

/// Which packets each node gets, and for which applications this is suitable.
pub(super) fn gets(key: Key) -> &'static str {
    match key {
        Key::Flow => "whole connections, as Suricata and Zeek need them",
        Key::Packet => {
            "packets by a hash of each packet: a connection's packets go to several nodes"
        }
        Key::RoundRobin => "packets in turn: a connection's packets go to several nodes",
        Key::Identification => {
            "packets by IPv4's identification field: a connection's packets go to several nodes"
        }
    }
}
