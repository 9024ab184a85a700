//! Shared by tests and the demo: network namespaces, veth pairs, traffic, captures, members.

pub mod await_for;
pub mod conversation;
pub mod calls;
pub mod errors_page;
pub mod flow;
pub mod frames;
pub mod needs;
pub mod library;
pub mod loopback;
pub mod mounts;
pub mod scratch;
pub mod pipe;
pub mod traffic;
pub mod capture;
pub mod member;
pub mod veth;
pub mod netns;
pub mod etcd;
pub mod hosts;
pub mod mirror;

pub use await_for::await_for;
pub use capture::Capture;
pub use etcd::Etcd;
pub use flow::{Direction, Flow, FlowKey, Transport};
pub use member::{Member, Program};
pub use mirror::Mirror;
pub use scratch::Scratch;
pub use veth::Veth;

pub use fanpcap_linux::packet::inject::Injector;
pub use fanpcap_linux::process::cpu::{cpus, pin};
