//! The engines of this build that have their own rings: those that attach to devices, and those
//! whose packets come from a poller. To add an engine of the first kind, add its crate, and an
//! entry in the first two arrays below. To add one of the second kind, add an entry in the third
//! array.
#![forbid(unsafe_code)]

use fanpcap_engine::{Engine, Polled, Watcher};
use fanpcap_linux::netlink::diag::PacketSocket;
use fanpcap_polled::OfPoller;
use fanpcap_polled::pfring::PfRing;
use fanpcap_reader::Input;
use fanpcap_ring::{Position, Remains};
use std::io;
use std::os::fd::BorrowedFd;

/// All engines that attach to devices.
pub static ENGINES: [&dyn Engine; 1] = [&fanpcap_xdp::Xdp];

/// The watchers of these engines, for processes that are not members but read a group's counters.
static WATCHERS: [&dyn Watcher; 1] = [&fanpcap_xdp::Xdp];

/// All engines whose packets come from a poller, or from a kernel module of others.
static POLLED: [&dyn Polled; 6] = [
    &OfPoller::PACKET,
    &OfPoller::AFXDP,
    &OfPoller::DPDK,
    &OfPoller::NETMAP,
    &PfRing,
    &OfPoller::ZC,
];

/// Returns the engine with this name whose packets come from a poller or such a module.
pub fn polled(name: &str) -> Option<&'static dyn Polled> {
    POLLED.into_iter().find(|engine| engine.name() == name)
}

/// The devices that pollers serve for this process, each with its engine: `packet:eth0`.
pub fn polled_devices() -> Vec<String> {
    let of = |engine: &'static dyn Polled| {
        let devices = engine.devices().into_iter();
        devices.map(|device| format!("{}:{device}", engine.name()))
    };
    POLLED.into_iter().flat_map(of).collect()
}

/// Returns the watcher of the engine with this number.
pub fn watcher(id: u64) -> Option<&'static dyn Watcher> {
    let mut all = WATCHERS.into_iter();
    all.find(|watcher| u64::from(watcher.id()) == id)
}

/// Returns the engine with this number. A group's table has the number of the group's engine.
pub fn numbered(id: u64) -> Option<&'static dyn Engine> {
    let mut all = ENGINES.into_iter();
    all.find(|engine| u64::from(engine.id()) == id)
}

/// Returns the engine with this name.
pub fn named(name: &str) -> Option<&'static dyn Engine> {
    ENGINES.into_iter().find(|engine| engine.name() == name)
}

/// Returns the input from a packet socket's own ring.
///
/// # Errors
/// As [`fanpcap_tpacket::open`].
pub fn of_socket(socket: BorrowedFd<'static>) -> io::Result<Input> {
    fanpcap_tpacket::open(socket)
}

/// Returns the unread packets in the ring of a member's packet socket. `told` is the socket's entry
/// in packet diag.
///
/// # Errors
/// As [`fanpcap_tpacket::take_over`].
pub fn remains_of_socket(
    socket: BorrowedFd<'_>,
    told: &PacketSocket,
    position: Position,
) -> io::Result<Remains> {
    fanpcap_tpacket::take_over(socket, told, position)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_config::driver::Driver;

    #[test]
    fn settings_name_the_engines_that_there_are() {
        let of_settings = Driver::all().filter(|driver| driver.takes_devices());
        let of_settings = of_settings.filter(|driver| driver.engine() == *driver);
        let names: Vec<&str> = of_settings.map(Driver::name).collect();
        assert_eq!(names, ENGINES.map(|engine| engine.name()));
        for (engine, watcher) in ENGINES.into_iter().zip(WATCHERS) {
            let id = engine.id();
            assert_eq!(named(engine.name()).map(|it| it.id()), Some(id));
            assert_eq!(numbered(id.into()).map(|it| it.name()), Some(engine.name()));
            assert_eq!(watcher.id(), id);
        }
        let with_poller = Driver::all().filter(|driver| driver.is_polled());
        let names: Vec<&str> = with_poller.map(Driver::name).collect();
        assert_eq!(names, POLLED.map(|engine| engine.name()));
        assert!(names.iter().all(|name| polled(name).is_some()));
    }
}
