//! The suites, in the order of the results.

mod gopacket;
mod net_pcap;
mod pcap4j;
mod pcapy;
mod rust_pcap;
mod scapy;
mod tcpdump;
mod testprogs;

use crate::suite::Suite;

/// All suites.
pub(crate) static ALL: [&Suite; 8] = [
    &testprogs::SUITE,
    &tcpdump::SUITE,
    &net_pcap::SUITE,
    &pcapy::SUITE,
    &scapy::SUITE,
    &gopacket::SUITE,
    &rust_pcap::SUITE,
    &pcap4j::SUITE,
];
