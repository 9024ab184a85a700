//! pcap_fanout() before activation, after activation, and on a handle that is in a group already.

use super::fake::World;
use fanpcap::activate::activate;
use fanpcap::fanout::fanout;
use fanpcap::handle::Member;

fn mode(mode: &str) -> Option<String> {
    Some(mode.to_owned())
}

#[test]
fn before_activation_the_call_is_remembered() {
    let world = World::default();
    let p = world.open("fx0", None);
    assert_eq!(fanout(p, 9, mode("lb")), Ok(()));
    assert_eq!(world.calls(), ["0 publish"]);
    assert_eq!(activate(p), 0);
    assert_eq!(p.group().unwrap().group, 9);
}

#[test]
fn after_activation_the_handle_joins_at_once() {
    let world = World::default();
    let p = world.open("fx0", None);
    assert_eq!(activate(p), 0);
    world.calls();
    assert_eq!(fanout(p, 9, mode("lb")), Ok(()));
    assert_eq!(world.calls(), ["0 join", "0 publish"]);
}

#[test]
fn what_is_wrong_is_not_remembered() {
    let world = World::default();
    let p = world.open("fx0", None);
    let out_of_range = "pcap_fanout: group 65536 is out of range: 0 to 65535, or PCAP_FANOUT_NEW";
    assert_eq!(fanout(p, 65_536, None), Err(out_of_range.to_owned()));
    let refused = fanout(p, 9, mode("lbb")).unwrap_err();
    assert!(refused.starts_with("pcap_fanout():1:1: "), "{refused}");
    let refused = fanout(p, 9, mode("main = filter \"tcp\"")).unwrap_err();
    assert!(refused.starts_with("pcap_fanout():1:"), "{refused}");
    world.calls();
    assert_eq!((activate(p), p.group().is_none()), (0, true));
    assert_eq!(world.calls(), ["0 activate"]);
}

#[test]
fn a_member_stays_what_it_is() {
    let world = World::default();
    let p = world.open("fx0", None);
    assert_eq!(fanout(p, 9, mode("lb")), Ok(()));
    assert_eq!(activate(p), 0);
    assert_eq!(fanout(p, 9, mode("lb")), Ok(()));
    let other_group = "the handle is in fan-out group 9 already; close it to leave";
    assert_eq!(fanout(p, 8, mode("lb")), Err(other_group.to_owned()));
    let other_mode = fanout(p, 9, mode("hash")).unwrap_err();
    let text = "the handle is in fan-out group 9 already, as lb, not hash";
    assert!(other_mode.starts_with(text), "{other_mode}");
}

#[test]
fn a_members_steering_program_is_replaced() {
    let world = World::default();
    let p = world.open("fx0", None);
    assert_eq!(fanout(p, 9, mode("main = steer_flow")), Ok(()));
    assert_eq!(activate(p), 0);
    world.calls();
    assert_eq!(fanout(p, 9, mode("main = steer_rnd")), Ok(()));
    assert_eq!(world.calls(), ["0 replace", "0 publish"]);
}

#[test]
fn a_member_keeps_its_weight() {
    let world = World::default();
    let p = world.open("fx0", None);
    assert_eq!(fanout(p, 9, mode("flow+weight=3")), Ok(()));
    assert_eq!(activate(p), 0);
    assert_eq!(p.group().unwrap().weight, Some(3));
    assert_eq!(fanout(p, 9, mode("flow+weight=3")), Ok(()));
    let other = fanout(p, 9, mode("flow+weight=2")).unwrap_err();
    let text =
        "the handle is in fan-out group 9 already, as a member of weight 3, not one of weight 2";
    assert!(other.starts_with(text), "{other}");
    // A call without a weight concerns only the steering program.
    assert_eq!(fanout(p, 9, mode("main = steer_rnd")), Ok(()));
}

#[test]
fn several_devices_get_a_new_group_each_of_a_kernels_mode() {
    let world = World::default();
    let p = world.open_several("fx0^fx1", "");
    let refused = fanout(p, 9, mode("lb")).unwrap_err();
    assert!(refused.contains("has several: use mode flow"), "{refused}");
    assert_eq!(fanout(p, -1, mode("lb")), Ok(()));
    assert_eq!(activate(p), 0);
    assert!(p.group().is_some() && p.after(1).group().is_some());
}

#[test]
fn several_devices_are_in_one_steered_group() {
    let world = World::default();
    let p = world.open_several("fx0^fx1", "");
    assert_eq!(activate(p), 0);
    world.calls();
    assert_eq!(fanout(p, 9, mode("flow")), Ok(()));
    assert_eq!(
        world.calls(),
        ["0 join 0 of 2", "1 join 1 of 2", "0 publish"]
    );
}

/// A balanced group counts the packets of only one device, so a group on several devices can't
/// become balanced.
#[test]
fn the_steering_program_of_several_devices_stays_one_for_several() {
    let world = World::default();
    let p = world.open_several("fx0^fx1", "");
    assert_eq!(activate(p), 0);
    assert_eq!(fanout(p, 9, mode("flow")), Ok(()));
    for option in ["+balance", "+sticky"] {
        world.calls();
        let refused = fanout(p, 9, mode(&format!("flow{option}"))).unwrap_err();
        let text = format!("fan-out group 9, of mode flow{option}, is of one device");
        assert!(refused.contains(&text), "{refused}");
        assert_eq!(world.calls(), ["0 publish"]);
    }
    assert_eq!(fanout(p, 9, mode("main = steer_ip")), Ok(()));
    assert_eq!(world.calls(), ["0 replace", "1 replace", "0 publish"]);
}
