//! Tests of every variable with its target, and of misspelled names with the name that was meant.

use super::super::Value;
use super::*;
use crate::driver::Driver;
use crate::fanout::Fanout;
use crate::mode::ModeKind;

fn environment(variables: &[(&str, &str)]) -> Environment {
    let owned = |(name, value): &(&str, &str)| (name.into(), value.into());
    let variables = variables.iter().map(owned).collect();
    Environment {
        variables,
        secure: false,
        system_config: PathBuf::new(),
    }
}

fn refusal(name: &str, value: &str) -> (&'static str, usize, String) {
    let report = parse(&environment(&[(name, value)])).unwrap_err();
    let place = report.place.unwrap();
    assert_eq!(place.text, format!("{name}={value}"));
    (report.slug, place.column, report.hint.unwrap_or_default())
}

#[test]
fn every_variable_with_its_target() {
    let device = |name: &str| Target::Device(name.to_owned());
    for (name, value, key, target, expected) in [
        ("PCAP_GROUP", "7", Key::Group, Target::All, Value::Number(7)),
        (
            "PCAP_DEF_GROUP",
            " 7 ",
            Key::Group,
            Target::All,
            Value::Number(7),
        ),
        (
            "PCAP_GROUP_eth0_1",
            "7",
            Key::Group,
            device("eth0_1"),
            Value::Number(7),
        ),
        (
            "PCAP_FANOUT",
            "rr",
            Key::Fanout,
            Target::All,
            Value::Fanout(Fanout::Mode(ModeKind::Lb.into())),
        ),
        (
            "PCAP_FANOUT_a",
            "qm",
            Key::Fanout,
            device("a"),
            Value::Fanout(Fanout::Mode(ModeKind::Qm.into())),
        ),
        (
            "PCAP_CAPLEN",
            "64",
            Key::Caplen,
            Target::All,
            Value::Number(64),
        ),
        (
            "PCAP_DRIVER",
            "pfq",
            Key::Driver,
            Target::All,
            Value::Driver(Driver::named("pfq").unwrap()),
        ),
        (
            "PCAP_CHANNEL_eth0",
            "2",
            Key::Channels,
            device("eth0"),
            Value::Number(2),
        ),
        (
            "PCAP_IRQ_eth0_1",
            "0,2-3",
            Key::Irq,
            Target::Channel("eth0".to_owned(), 1),
            Value::Cpus(vec![(0, 0), (2, 3)]),
        ),
    ] {
        let mut entries = parse(&environment(&[(name, value)])).unwrap();
        let entry = entries.remove(0);
        let found = (entry.key, entry.target, entry.value);
        assert_eq!(found, (key, target, expected), "{name}");
        assert_eq!((entry.name.as_str(), entries.len()), (name, 0));
    }
}

#[test]
fn what_is_not_ours_or_sets_nothing_is_left_alone() {
    let variables = [
        ("PCAP_GROUP", ""),
        ("PFQ_GROUP", ""),
        ("PCAP_PF_RING_CLUSTER_ID", "5"),
        ("PCAP_PF_RING", "x"),
        ("PCAP_CONFIG", "/dev/null"),
        ("PCAP_HUB", "off"),
        ("PCAP_SNAPLEN", "x"),
        ("PCAP_TEMPDIR", "x"),
        ("PCAP_INTERFACE_NAME", "x"),
        ("HOME", "/root"),
        ("GROUP", "x"),
    ];
    assert_eq!(parse(&environment(&variables)), Ok(Vec::new()));
}

#[test]
fn with_raised_privileges_nothing_counts() {
    let wrong = environment(&[("PCAP_GROUP", "wrong")]);
    assert_eq!(parse(&wrong).unwrap_err().slug, "not-a-number");
    assert_eq!(
        parse(&Environment {
            secure: true,
            ..wrong
        }),
        Ok(Vec::new())
    );
}

#[test]
fn near_misses_are_refused_with_the_right_name() {
    for (name, near) in [
        ("PCAP_GRUOP", "PCAP_GROUP"),
        ("PCAP_group", "PCAP_GROUP"),
        ("PCAP_DEFGROUP", "PCAP_DEF_GROUP"),
        ("PCAP_FAN_OUT", "PCAP_FANOUT"),
        ("PCAP_CONFG", "PCAP_CONFIG"),
        ("PCAP_HUBS", "PCAP_HUB"),
        ("PCAP_CHANNEL", "PCAP_CHANNEL_dev"),
        ("PCAP_IRQ", "PCAP_IRQ_dev_N"),
        ("PCAP_GROUPS_eth0", "PCAP_GROUP_eth0"),
        ("PCAP_FANUOT_eth0_1", "PCAP_FANOUT_eth0_1"),
        ("PCAP_CAPLEN_eth0", "PCAP_CAPLEN"),
        ("PCAP_DEF_GROUP_eth0", "PCAP_DEF_GROUP"),
    ] {
        let hint = format!("did you mean '{near}'?");
        assert_eq!(refusal(name, "1"), ("variable-unknown", 1, hint));
    }
    for (name, line) in [
        ("PCAP_STEAL", "steal@DEV"),
        ("PCAP_STEAL_eth0", "steal@eth0"),
        ("PCAP_OUTGOING", "outgoing@DEV"),
        ("PCAP_RX_CHANNELS_eth0", "rx_channels@eth0"),
        ("PCAP_RX_CHANNELS", "rx_channels@DEV"),
        ("PCAP_NAPI_eth0_1", "napi@eth0.1"),
    ] {
        let hint = format!("write '{line} = VALUE' into pcap.conf");
        assert_eq!(refusal(name, "1"), ("variable-unknown", 1, hint));
    }
    for key in ["RING", "GONE", "DRIVER"] {
        let name = format!("PCAP_{key}_eth_0");
        let line = format!("{}@eth_0", key.to_ascii_lowercase());
        let hint =
            format!("set PCAP_{key} for every device, or write '{line} = VALUE' into pcap.conf");
        assert_eq!(refusal(&name, "1"), ("variable-unknown", 1, hint));
    }
    assert_eq!(refusal("PCAP_RING", "32MB").2, "did you mean '32M'?");
}

#[test]
fn old_variables_say_what_to_write_instead() {
    for (name, instead) in [
        ("PFQ_GROUP", "set PCAP_GROUP"),
        ("PCAP_FANOUT_ID", "set PCAP_GROUP"),
        ("PFQ_GROUP_eth0", "set PCAP_GROUP_eth0"),
        ("PFQ_LANG_SRC", "set PCAP_FANOUT=file:PATH"),
        ("PFQ_TX_HW_QUEUE", SENDING),
        ("PFQ_VLAN", VLAN),
        ("PFQ_FORCE_ALL", "unset it: it has no effect any more"),
    ] {
        assert_eq!(refusal(name, "1"), ("variable-old", 1, instead.to_owned()));
    }
}

#[test]
fn each_refusal_has_its_place() {
    for (name, value, slug, column) in [
        ("PCAP_GROUP", "65536", "out-of-range", 12),
        ("PCAP_FANOUT", "hash+defarg", "option-unknown", 18),
        ("PCAP_GROUP_", "5", "device-name-bad", 12),
        ("PCAP_IRQ_eth0", "5", "channel-missing", 10),
        ("PCAP_IRQ_eth0_x", "5", "not-a-number", 15),
        ("PCAP_HUB", "/run/hub", "hub-not-in-version", 10),
    ] {
        let (found, at, _) = refusal(name, value);
        assert_eq!((found, at), (slug, column), "{name}");
    }
    let both = environment(&[("PCAP_GROUP", "7"), ("PCAP_DEF_GROUP", "8")]);
    let report = parse(&both).unwrap_err();
    assert_eq!(
        report.message,
        "'PCAP_DEF_GROUP' disagrees with 'PCAP_GROUP=7'"
    );
    let both = environment(&[("PCAP_GROUP", "7"), ("PCAP_DEF_GROUP", "7")]);
    assert_eq!(parse(&both).unwrap().len(), 1);
}

#[test]
fn a_stranger_that_means_a_setting_has_its_name_and_key() {
    for (name, near, key) in [
        ("pcap_group_eth0", "PCAP_GROUP_eth0", Key::Group),
        ("Pcap_Ring", "PCAP_RING", Key::Ring),
        ("PCAP_SNAPLEN", "PCAP_CAPLEN", Key::Caplen),
        ("pcap_irq", "PCAP_IRQ_dev_N", Key::Irq),
    ] {
        let (_, hint, found) = stranger(name).unwrap();
        assert_eq!((hint, found), (did_you_mean(near), Some(key)));
    }
    assert_eq!(stranger("PCAP_WHATEVER_ELSE").unwrap().2, None);
}
