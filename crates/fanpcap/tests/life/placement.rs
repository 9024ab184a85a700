//! Channels, interrupts and threads of a device: all are set before activation, or nothing is
//! activated.

use super::fake::World;
use fanpcap::activate::activate;
use fanpcap::handle::{ERROR, PERM_DENIED};
use fanpcap_nic::error::DeviceError;
use fanpcap_nic::placing::PlaceError;
use std::io;

const SETTINGS: Option<&str> = Some("irq@fx0.0 = 1,3-4\nrx_channels@fx0 = 2\nkeep@fx0 = yes\n");

#[test]
fn a_device_is_set_before_the_handle_is_activated() {
    let world = World::default();
    assert_eq!(activate(world.open("fx0", SETTINGS)), 0);
    let rx = "Channels(Wanted { rx: Some(2), tx: None, other: None, combined: None })";
    let irq = "Irq { channel: 0, cpus: [1, 3, 4] }";
    let placed = format!("0 place fx0 [{rx}, {irq}] Restored");
    assert_eq!(world.calls(), [placed.as_str(), "0 activate"]);
}

#[test]
fn a_device_whose_poller_has_it_is_not_set() {
    let world = World::default();
    assert_eq!(activate(world.open("packet:fx0", SETTINGS)), 0);
    let calls = world.calls();
    assert!(calls.contains(&"0 enter packet".to_owned()), "{calls:?}");
    assert!(
        !calls.iter().any(|call| call.contains("place")),
        "{calls:?}"
    );
}

#[test]
fn a_device_that_cannot_be_set_is_not_activated() {
    let disagrees = || PlaceError {
        want: Some(0),
        error: DeviceError::Disagrees {
            pid: 71,
            value: "rx=4".to_owned(),
        },
    };
    let absent = || DeviceError::Unknown { name: "fx0".into() }.into();
    let forbidden = || DeviceError::Journal(io::Error::from_raw_os_error(13)).into();
    let cases: [(fn() -> PlaceError, _, _); 3] = [
        (disagrees, ERROR, "process 71 wants the value rx=4"),
        (absent, ERROR, "no device 'fx0'"),
        (forbidden, PERM_DENIED, "Permission denied"),
    ];
    for (refused, status, text) in cases {
        let world = World::default();
        let p = world.open("fx0", SETTINGS);
        p.change(|state| state.refused_place = Some(refused));
        assert_eq!(activate(p), status);
        let error = p.change(|state| state.error.clone());
        // The number of channels, on line 2, is set first.
        assert!(error.starts_with("/etc/pcap.conf:2:1: "), "{error}");
        assert!(error.contains(text), "{error}");
        assert_eq!(world.calls().len(), 1);
    }
}
