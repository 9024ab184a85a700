//! `fanpcap node` on real packets: nodes in namespaces behind a mirror port.

mod stage;
mod program;
mod doctor;
mod distribution;
mod behind;
mod refusals;
mod capture;
mod embedded;
mod beacons;
mod in_turn;

mod wires;
mod collectors;
mod legs;
