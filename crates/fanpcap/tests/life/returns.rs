//! Handles that wait when their device is gone (`gone = wait`).

use super::fake::World;
use fanpcap::activate::activate;
use fanpcap::gone::{NotBack, come_back};
use fanpcap::handle::Life;
use fanpcap_group::join::JoinError;

#[test]
fn a_handle_leaves_its_group_and_joins_it_again() {
    for (config, joins) in [
        ("gone@lo = wait\n", "0 bind"),
        ("gone@lo = wait\ngroup = 7\n", "0 join"),
    ] {
        let world = World::default();
        let p = world.open("lo", Some(config));
        p.change(|state| state.is_served = true);
        assert_eq!(activate(p), 0);
        assert!(p.is_read_by_us());
        assert_eq!(
            world.calls().last().map(String::as_str),
            Some("0 expect return")
        );
        p.change(|state| state.is_gone = true);
        let _before = world.calls();
        assert!(matches!(come_back(p), Err(NotBack::Left)));
        assert!(matches!(come_back(p), Err(NotBack::Gone)));
        assert_eq!(world.calls(), ["0 leave", "0 let go"]);
        p.change(|state| state.is_gone = false);
        let _before = world.calls();
        assert!(come_back(p).is_ok());
        let calls = [
            "0 let go",
            "0 bind silently",
            joins,
            "0 renew",
            "0 truncate",
            "0 publish",
        ];
        assert_eq!(world.calls(), calls);
    }
}

#[test]
fn a_group_that_is_still_on_the_old_device_is_tried_again() {
    let world = World::default();
    let p = world.open("lo", Some("gone@lo = wait\ngroup = 7\n"));
    p.change(|state| state.is_served = true);
    assert_eq!(activate(p), 0);
    p.change(|state| state.refused = Some(|| JoinError::Full(7)));
    let refused = come_back(p);
    assert!(
        matches!(&refused, Err(NotBack::Refused(why)) if why.contains("group 7")),
        "{refused:?}"
    );
    p.change(|state| state.refused = None);
    assert!(come_back(p).is_ok());
}

#[test]
fn without_the_setting_no_handle_waits() {
    let world = World::default();
    for config in [
        "group = 7\n",
        "group = 7\ngone@lo = error\n",
        "group = 7\ngone@other = wait\n",
    ] {
        let p = world.open("lo", Some(config));
        p.change(|state| state.is_served = true);
        assert_eq!(activate(p), 0);
    }
    assert!(
        !world
            .calls()
            .iter()
            .any(|call| call.contains("expect return"))
    );
}

#[test]
fn a_handle_on_several_devices_can_not_wait() {
    let world = World::default();
    let p = world.open("fx0^fx1", Some("gone@fx1 = wait\n"));
    assert!(activate(p) < 0);
    let error = p.change(|state| state.error.clone());
    assert!(
        error.contains("'gone@fx1' is for handles on one device"),
        "{error}"
    );
}
