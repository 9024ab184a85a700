//! Code that tests and demos share: the testbed, traffic on it, conversations, etcd, and C
//! programs.

pub mod conversation;
pub mod calls;
pub mod dpdk;
pub mod errors_page;
pub mod frames;
pub mod needs;
pub mod library;
pub mod loopback;
pub mod mounts;
pub mod pipe;
mod stand_in;
pub mod netmap;
pub mod pfring;
pub mod traffic;
pub mod etcd;
pub mod hosts;

pub use etcd::Etcd;
pub use traffic::{Direction, Flow};

pub use fanpcap_linux::packet::inject::Injector;
pub use fanpcap_linux::process::cpu::{cpus, pin};
pub use fanpcap_testbed::{
    Capture, FlowKey, Member, Mirror, Program, Scratch, Transport, Veth, await_for, capture, flow,
    member, mirror, netns, scratch, veth,
};
