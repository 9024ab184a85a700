//! Made-up settings: errors with their places, and groups that are in use.

use super::*;
use crate::doctor::groups::Member;
use fanpcap_config::report::Place;

fn wanted() -> GroupSetting {
    GroupSetting {
        device: "eth0".to_owned(),
        ifindex: 3,
        group: 7,
        origin: "PCAP_GROUP=7".to_owned(),
        other_mode: None,
    }
}

fn group(ifindex: u32, number: u16, is_ours: bool) -> Group {
    let member = Member {
        is_ours,
        ..Member::default()
    };
    Group {
        ifindex,
        device: format!("eth{}", ifindex - 3),
        number,
        members: vec![member],
        ..Group::default()
    }
}

fn names(wanted: &GroupSetting, groups: &[Group]) -> Vec<&'static str> {
    wanted.findings(groups).iter().map(|it| it.name).collect()
}

#[test]
fn a_group_that_can_be_joined_has_no_findings() {
    assert!(names(&wanted(), &[]).is_empty());
    assert!(names(&wanted(), &[group(3, 7, true), group(4, 8, true)]).is_empty());
}

#[test]
fn a_group_on_another_device_is_refused_and_a_free_one_named() {
    let groups = [group(4, 7, true), group(4, 1, true), group(3, 2, false)];
    let found = wanted().findings(&groups).remove(0);
    assert_eq!(
        (found.name, found.effect),
        ("group-elsewhere", Effect::Refuses)
    );
    assert!(found.what.contains("already on eth1"), "{found:?}");
    assert_eq!(found.fix, "export PCAP_GROUP_eth0=3");
    let mut virtual_device = wanted();
    virtual_device.device = "eth0:1".to_owned();
    let found = virtual_device.findings(&groups).remove(0);
    assert_eq!(found.fix, "export PCAP_GROUP_eth0_1=3");
}

#[test]
fn a_group_of_strangers_or_with_another_mode_is_found() {
    assert_eq!(names(&wanted(), &[group(3, 7, false)]), ["group-taken"]);
    let mut wanted = wanted();
    wanted.other_mode = Some(("lb".to_owned(), "main = tcp >-> steer_flow".to_owned()));
    let found = wanted.findings(&[group(3, 7, true)]).remove(0);
    assert_eq!((found.name, found.effect), ("group-mode", Effect::Refuses));
    assert_eq!(
        found.fix,
        "export PCAP_FANOUT_eth0='main = tcp >-> steer_flow'"
    );
}

#[test]
fn errors_have_their_place_and_a_command_that_takes_them_back() {
    let report = |source: &str, line, text: &str, at| Report {
        slug: "unknown-mode",
        message: "unknown mode 'hsah'".to_owned(),
        place: Some(Box::new(Place::new(source, line, text, at))),
        hint: Some("the modes are hash and lb".to_owned()),
    };
    let found = error(&report("/etc/pcap.conf", 3, "fanout = hsah", 9));
    assert_eq!(
        (found.place.as_str(), found.effect),
        ("/etc/pcap.conf:3:10", Effect::Refuses)
    );
    assert_eq!(found.what, "unknown mode 'hsah'; the modes are hash and lb");
    assert!(
        found.fix.starts_with("sed -i '3s/^/# /' /etc/pcap.conf "),
        "{found:?}"
    );
    let found = error(&report("a b", 4, "  > main = tpc", 9));
    assert!(
        found.fix.starts_with("sed -i '/^ *>/s/^/# /' 'a b' "),
        "{found:?}"
    );
    let found = error(&report("environment", 1, "PCAP_FANOUT=hsah", 12));
    assert_eq!(found.fix, "unset PCAP_FANOUT");
    let mut nowhere = report("environment", 1, "", 0);
    nowhere.place = None;
    assert_eq!(error(&nowhere).fix, "fanpcap config");
}

#[test]
fn what_is_set_in_vain_is_found_unless_another_setting_comes_first() {
    let ignored = |reason, place: &str| Ignored {
        setting: "PCAP_GROUP_ethO=5".to_owned(),
        key: Some(Key::Group),
        place: place.to_owned(),
        reason,
        why: "no device has this name".to_owned(),
        hint: None,
    };
    let settings = |reason, place| Settings {
        vain: vec![ignored(reason, place)],
        ..Settings::default()
    };
    assert!(
        settings(Reason::Overridden, "environment")
            .findings()
            .is_empty()
    );
    let found = settings(Reason::NoSuchDevice, "environment").findings();
    assert_eq!(
        (found[0].name, found[0].fix.as_str()),
        ("set-in-vain", "unset PCAP_GROUP_ethO")
    );
    let found = settings(Reason::NobodysGroup, "/etc/pcap.conf:4").findings();
    assert!(
        found[0].fix.starts_with("sed -i '4s/^/# /' /etc/pcap.conf"),
        "{found:?}"
    );
}

#[test]
fn what_is_set_in_vain_has_the_consequence_of_its_key() {
    let why = |key, setting: &str| {
        let found = in_vain(&Ignored {
            setting: setting.to_owned(),
            key: Some(key),
            place: "/etc/pcap.conf:2".to_owned(),
            reason: Reason::NoSuchDevice,
            why: String::new(),
            hint: None,
        });
        (found.effect, found.why)
    };
    let (effect, text) = why(Key::Ring, "ring@eht0 = 2M");
    assert_eq!(
        (effect, text.contains("another size")),
        (Effect::Costs, true)
    );
    let (effect, text) = why(Key::Group, "group_eht0 = 2");
    assert_eq!(
        (effect, text.contains("every packet")),
        (Effect::Distorts, true)
    );
    // Only the group decides whether an application gets every packet.
    for key in [
        Key::Fanout,
        Key::Steal,
        Key::Gone,
        Key::Driver,
        Key::Irq,
        Key::RxChannels,
    ] {
        assert!(!why(key, "").1.contains("every packet"), "{key:?}");
    }
}
