//! Tests that explanations agree with the plan, and that each setting without effect has a reason.

use super::*;
use crate::steering::Steering;
use std::path::PathBuf;
use std::sync::Arc;

const INTERFACES: [&str; 3] = ["ux0", "ux1", "wan-1"];

fn surroundings(variables: &[(&str, &str)]) -> Environment {
    let owned = |(name, value): &(&str, &str)| (name.into(), value.into());
    Environment {
        variables: variables.iter().map(owned).collect(),
        secure: false,
        system_config: PathBuf::new(),
    }
}

fn interfaces() -> Vec<String> {
    INTERFACES.map(str::to_owned).to_vec()
}

fn explained(variables: &[(&str, &str)], config: &str, device: &str) -> Explained {
    let settings = Settings::parse(&surroundings(variables), config, "pcap.conf").unwrap();
    let device = Device::classify(device, |name| INTERFACES.contains(&name));
    let pcap = |_: &str| Err("no libpcap here".to_owned());
    let compile = |script: &crate::fanout::Script| Steering::compile(script, &pcap).map(Arc::new);
    settings.explain(&device, &interfaces(), &compile)
}

fn nobodys(variables: &[(&str, &str)], config: &str) -> Vec<(String, &'static str, String)> {
    let environment = surroundings(variables);
    let settings = Settings::parse(&environment, config, "pcap.conf").unwrap();
    let ignored = settings.without_effect(&environment, &interfaces());
    let row = |it: Ignored| (it.setting, it.reason.name(), it.hint.unwrap_or_default());
    ignored.into_iter().map(row).collect()
}

#[test]
fn each_value_has_the_place_that_it_is_from() {
    let config = "def_group = 4\ngroup_ux0 = 3\nfanout@3 = lb\ncaplen = 96\ndriver@ux0 = tpacket\nring@ux0 = 2M\n";
    let told = explained(&[], config, "ux0");
    let of = |line: u32| Some(format!("pcap.conf:{line}"));
    assert_eq!((told.origins.group, told.origins.mode), (of(2), of(3)));
    assert_eq!(told.origins.caplen, of(4));
    assert_eq!(told.origins.ring, of(6));
    assert_eq!(
        told.origins.driver,
        of(5).map(|place| (place, Driver::named("tpacket").unwrap()))
    );
    let joined = told.plan.unwrap().choice.unwrap();
    assert_eq!(joined.origin, "pcap.conf:2");
    // The environment takes precedence, and the overridden setting is listed.
    let variables = [
        ("PCAP_GROUP", "7"),
        ("PCAP_CAPLEN", "64"),
        ("PCAP_RING", "1M"),
    ];
    let told = explained(&variables, config, "ux0");
    assert_eq!(told.origins.group.as_deref(), Some("PCAP_GROUP=7"));
    assert_eq!((told.origins.mode, told.device.as_str()), (None, "ux0"));
    let hidden = |it: &Ignored| (it.setting.clone(), it.why.clone());
    let hidden: Vec<_> = told.ignored.iter().map(hidden).collect();
    let first = |setting: &str, by: &str| (setting.to_owned(), format!("{by} has precedence"));
    assert_eq!(
        hidden,
        [
            first("def_group = 4", "PCAP_GROUP=7"),
            first("group_ux0 = 3", "PCAP_GROUP=7"),
            first("caplen = 96", "PCAP_CAPLEN=64"),
            first("ring@ux0 = 2M", "PCAP_RING=1M"),
        ]
    );
}

#[test]
fn a_mode_of_a_device_without_group_is_told() {
    let variables = [("PCAP_GROUP_ux1", "5"), ("PCAP_FANOUT", "lb")];
    let told = explained(&variables, "", "ux0");
    assert_eq!(told.plan, Ok(Plan::default()));
    assert_eq!(told.ignored.len(), 1);
    assert_eq!(told.ignored[0].reason, Reason::NoGroup);
    assert!(explained(&variables, "", "ux1").ignored.is_empty());
}

#[test]
fn a_refusal_is_that_of_the_plan() {
    let told = explained(&[("PCAP_FANOUT", "lb")], "", "ux0");
    assert_eq!(told.plan.unwrap_err().slug, "mode-without-group");
}

#[test]
fn what_names_no_device_has_the_nearest() {
    let variables = [
        ("PCAP_GROUP_uxO", "5"),
        ("PCAP_FANOUT_MODE", "lb"),
        ("PCAP_GROUP_wan_1", "5"),
        ("PCAP_GROUP_ux0_1", "5"),
        ("PCAP_GROUP_any", "5"),
    ];
    let row = |setting: &str, reason, hint: &str| (setting.to_owned(), reason, hint.to_owned());
    assert_eq!(
        nobodys(
            &variables,
            "group_ux2 = 1\ngroup_ux0:1 = 2\ngroup_any = 3\nring@ux = 1M\nirq@ux2.0 = 1\ngone@wan1 = wait\ngone@wan-2 = wait"
        ),
        [
            row(
                "PCAP_GROUP_uxO=5",
                "no-such-device",
                "did you mean 'PCAP_GROUP_ux0', or a device with another similar name?"
            ),
            row(
                "PCAP_FANOUT_MODE=lb",
                "no-such-device",
                "for every device it is PCAP_FANOUT"
            ),
            row(
                "group_ux2 = 1",
                "no-such-device",
                "did you mean 'group_ux0', or a device with another similar name?"
            ),
            row(
                "ring@ux = 1M",
                "no-such-device",
                "did you mean 'ring@ux0', or a device with another similar name?"
            ),
            row(
                "irq@ux2.0 = 1",
                "no-such-device",
                "did you mean 'irq@ux0.0', or a device with another similar name?"
            ),
            row(
                "gone@wan1 = wait",
                "no-such-device",
                "did you mean 'gone@wan-1'?"
            ),
            row(
                "gone@wan-2 = wait",
                "no-such-device",
                "did you mean 'gone@wan-1', or a device with another similar name?"
            ),
        ]
    );
}

#[test]
fn what_is_near_no_device_has_the_choices() {
    let told = nobodys(&[], "ring@enp7s0 = 2M");
    assert_eq!(told[0].2, "the devices here are: ux0, ux1, wan-1");
    assert_eq!(choices(&[]), None);
    let many = vec!["ux0".to_owned(); CHOICES_SHOWN + 1];
    assert_eq!(
        choices(&many).unwrap(),
        "'ip -brief link' lists the devices"
    );
}

#[test]
fn a_mode_of_nobodys_group_and_names_that_are_none_are_told() {
    let variables = [
        ("PCAP_CLUSTER", "5"),
        ("pcap_group", "5"),
        ("PCAP_SNAPLEN", "5"),
        ("PCAP_WHATEVER_ELSE", "5"),
        ("PCAP_CONFIG", "/dev/null"),
        ("PCAP_PF_RING_X", "1"),
        ("PCAP_HUB", "off"),
        ("HOME", "/root"),
    ];
    let told = nobodys(&variables, "def_group = 5\nfanout@6 = lb\nfanout@5 = lb");
    let reasons: Vec<_> = told.iter().map(|it| (it.0.as_str(), it.1)).collect();
    assert_eq!(
        reasons,
        [
            ("fanout@6 = lb", "nobodys-group"),
            ("PCAP_CLUSTER=5", "unknown-name"),
            ("pcap_group=5", "unknown-name"),
            ("PCAP_SNAPLEN=5", "unknown-name"),
            ("PCAP_WHATEVER_ELSE=5", "unknown-name"),
        ]
    );
    let hints: Vec<_> = told.into_iter().map(|it| it.2).collect();
    assert_eq!(hints[1], "did you mean 'PCAP_GROUP'?");
    assert_eq!(hints[2], "did you mean 'PCAP_GROUP'?");
    assert_eq!(hints[3], "did you mean 'PCAP_CAPLEN'?");
    assert!(
        hints[4].contains("PCAP_GROUP, PCAP_DEF_GROUP"),
        "{}",
        hints[4]
    );
}

#[test]
fn a_mode_of_nobodys_group_names_the_only_group_without_a_mode() {
    let hint = |variables: &[(&str, &str)], config: &str| {
        let mut told = nobodys(variables, config);
        assert_eq!(told.len(), 1, "{config}");
        let (_, reason, hint) = told.remove(0);
        assert_eq!(reason, "nobodys-group");
        hint
    };
    let meant = "did you mean 'fanout@5'?";
    assert_eq!(hint(&[], "fanout@6 = lb\ngroup_ux0 = 5"), meant);
    let twice = "group_ux0 = 5\ngroup_ux1 = 7\nfanout@7 = lb\nfanout@6 = lb\ngroup_any = 5";
    assert_eq!(hint(&[], twice), meant);
    assert_eq!(hint(&[("PCAP_GROUP", "5")], "fanout@6 = lb"), meant);
    // Either of two groups, no group, and groups that have a mode.
    assert_eq!(hint(&[], "group_ux0 = 5\ngroup_ux1 = 7\nfanout@6 = lb"), "");
    assert_eq!(hint(&[], "fanout@6 = lb"), "");
    let own = "group_ux0 = 5\nfanout@5 = rnd\nfanout@6 = lb";
    assert_eq!(hint(&[], own), "");
    let default = "def_group = 5\nfanout = rnd\nfanout@6 = lb";
    assert_eq!(hint(&[], default), "");
}

#[test]
fn a_mode_variable_of_a_group_is_a_line_of_the_file() {
    let told = nobodys(&[("PCAP_FANOUT_5", "lb"), ("PCAP_GROUP", "5")], "");
    let hint = "for group 5 write 'fanout@5 = MODE' into pcap.conf".to_owned();
    let row = ("PCAP_FANOUT_5=lb".to_owned(), "no-such-device", hint);
    assert_eq!(told, [row]);
}
