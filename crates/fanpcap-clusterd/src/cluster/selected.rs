//! What each node of a cluster gets, in words.

use fanpcap_select::Key;

/// What each node gets, and for whom that is right.
pub(super) fn gets(key: Key) -> &'static str {
    match key {
        Key::Flow => "each connection whole at one node, as Suricata and Zeek need it",
        Key::Packet => "packets spread alone: connections are split among nodes",
        Key::RoundRobin => "packets in turn: connections are split among nodes",
        Key::Identification => {
            "packets by IPv4's identification: connections are split among nodes"
        }
    }
}
