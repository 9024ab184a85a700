//! Tests which settings pcap.conf(5) allows for which handles, and the place of each refusal.

use super::*;
use crate::driver::Driver;
use crate::mode::{Mode, ModeKind};
use crate::settings::Steal;

fn value(text: &str) -> (String, Key, Target, Value) {
    let mut entries = parse(text, "pcap.conf").unwrap();
    assert_eq!(entries.len(), 1, "{text}");
    let entry = entries.remove(0);
    (entry.name, entry.key, entry.target, entry.value)
}

fn refusal(text: &str) -> (&'static str, usize, usize) {
    let report = parse(text, "pcap.conf").unwrap_err();
    let place = report.place.unwrap();
    assert_eq!(place.text, text.lines().nth(place.line - 1).unwrap());
    (report.slug, place.line, place.column)
}

fn device(name: &str) -> Target {
    Target::Device(name.to_owned())
}

#[test]
fn keys_of_handles_and_groups() {
    let of_group = Target::Group(23);
    let [hash, rnd] =
        [ModeKind::Hash, ModeKind::Rnd].map(|kind| Value::Fanout(Fanout::Mode(kind.into())));
    for (line, key, target, expected) in [
        ("def_group = 11", Key::Group, Target::All, Value::Number(11)),
        ("GROUP=11", Key::Group, Target::All, Value::Number(11)),
        (
            "group_eth0 = 11",
            Key::Group,
            device("eth0"),
            Value::Number(11),
        ),
        (
            "Group_eth0:1 = 23",
            Key::Group,
            device("eth0:1"),
            Value::Number(23),
        ),
        ("caplen = 64", Key::Caplen, Target::All, Value::Number(64)),
        ("fanout = hash", Key::Fanout, Target::All, hash),
        ("fanout@23 = rnd", Key::Fanout, of_group, rnd),
    ] {
        let name = line.split('=').next().unwrap().trim().to_owned();
        assert_eq!(value(line), (name, key, target, expected), "{line}");
    }
}

#[test]
fn keys_of_devices_and_channels() {
    let channel = |name: &str| Target::Channel(name.to_owned(), 0);
    let (no, two) = (Value::YesNo(false), Value::Number(2));
    let steal = Value::Steal(Steal::Yes);
    let cpus = Value::Cpus(vec![(0, 0), (2, 3)]);
    for (line, key, target, expected) in [
        (
            "driver@e = xdp",
            Key::Driver,
            device("e"),
            Value::Driver(Driver::named("xdp").unwrap()),
        ),
        (
            "ring@e:1 = 64M",
            Key::Ring,
            device("e:1"),
            Value::Size(64 << 20),
        ),
        ("steal@e = yes", Key::Steal, device("e"), steal),
        ("outgoing@e = no", Key::Outgoing, device("e"), no.clone()),
        ("keep@E:1 = no", Key::Keep, device("E:1"), no),
        (
            "rx_channels@e = 2",
            Key::RxChannels,
            device("e"),
            two.clone(),
        ),
        (
            "tx_channels@e = 2",
            Key::TxChannels,
            device("e"),
            two.clone(),
        ),
        (
            "other_channels@e=2",
            Key::OtherChannels,
            device("e"),
            two.clone(),
        ),
        (
            "combined_channels@e = 2",
            Key::CombinedChannels,
            device("e"),
            two.clone(),
        ),
        ("irq@e.5.0 = 0, 2-3", Key::Irq, channel("e.5"), cpus),
        ("napi@e.0 = 2", Key::Napi, channel("e"), two),
    ] {
        let name = line.split('=').next().unwrap().trim().to_owned();
        assert_eq!(value(line), (name, key, target, expected), "{line}");
    }
}

#[test]
fn blanks_comments_and_line_ends() {
    let mode = Mode {
        defrag: true,
        ..ModeKind::Hash.into()
    };
    for text in [
        "# all of it\r\n\r\n  fanout @ 3  =  hash +defrag   # and why\r\n",
        "fanout@3=hash+defrag#x",
        "\u{feff}fanout@3=hash+defrag",
        "\tfanout@ 3\t=\thash + defrag",
    ] {
        let (_, key, target, found) = value(text);
        assert_eq!(
            (key, target, found),
            (
                Key::Fanout,
                Target::Group(3),
                Value::Fanout(Fanout::Mode(mode))
            )
        );
    }
    assert_eq!(parse("\n # nothing\n\t\n#", "pcap.conf"), Ok(Vec::new()));
    assert_eq!(without_comment("a = \"b # c\" # d"), "a = \"b # c\" ");
}

#[test]
fn program_lines_in_a_row_are_one_program() {
    let program = |text: &str| {
        let text = Source::new("another place", text);
        Value::Fanout(Fanout::Program(Script::of_text(text)))
    };
    let text = "> main = do\r\n  >   tcp # no comment\n>\n> steer_flow";
    let (_, key, target, found) = value(text);
    assert_eq!((key, target), (Key::Program, Target::All));
    assert_eq!(
        found,
        program(" main = do\n   tcp # no comment\n\n steer_flow\n")
    );
    assert_eq!(
        value("> a\n\n> a").3,
        program(" a\n"),
        "the same program twice"
    );
    assert_eq!(
        refusal("> a\ncaplen = 1\n > b"),
        ("settings-disagree", 3, 2)
    );
    assert_eq!(refusal("fanout = hash\n> a"), ("settings-disagree", 2, 1));
}

#[test]
fn the_same_twice_is_no_harm_but_another_value_is() {
    assert_eq!(value("group = 7\ndef_group = 007").1, Key::Group);
    let report = parse("\ngroup = 7\ndef_group = 8", "pcap.conf").unwrap_err();
    assert_eq!(report.message, "'def_group' disagrees with line 2");
    assert_eq!(
        refusal("fanout@3 = lb\nfanout@03 = hash"),
        ("settings-disagree", 2, 1)
    );
    assert_eq!(
        parse("group_a = 1\ngroup_b = 2", "pcap.conf")
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn each_refusal_has_its_place() {
    for (text, slug, column) in [
        ("caplen", "value-missing", 7),
        ("caplen =", "value-missing", 9),
        (" caplen =   # none", "value-missing", 10),
        ("= 5", "key-missing", 1),
        ("gruop = 5", "key-unknown", 1),
        ("  pfq_vlan@3 = 5", "key-old", 3),
        ("lang = x", "key-old", 1),
        ("caplen@eth0 = 5", "target-unwanted", 8),
        ("group_eth0@3 = 5", "target-unwanted", 12),
        ("steal = yes", "target-missing", 6),
        ("irq = 0", "target-missing", 4),
        ("irq@eth0 = 0", "channel-missing", 5),
        ("irq@eth0.x = 0", "not-a-number", 10),
        ("irq@eth0.0 = 0, x", "not-a-number", 17),
        ("group_ = 5", "device-name-bad", 7),
        ("steal@ = yes", "device-name-bad", 7),
        ("steal@eth 0 = yes", "device-name-bad", 7),
        ("fanout@ = hash", "not-a-number", 8),
        ("fanout@65536 = hash", "out-of-range", 8),
        ("fanout@3 = hash + defarg", "option-unknown", 19),
        ("group = 65536", "out-of-range", 9),
        ("group = 1, 2", "not-a-number", 9),
    ] {
        assert_eq!(refusal(text), (slug, 1, column), "{text}");
    }
}

#[test]
fn what_to_write_instead_is_what_was_meant() {
    for (text, column, hint) in [
        ("group@eth0 = 5", 7, "write 'group_eth0 = NUMBER'"),
        ("def_group@eth0:1 = 5", 11, "write 'group_eth0:1 = NUMBER'"),
        ("caplen@eth0 = 5", 8, "remove '@' and what follows"),
        ("group@ = 5", 7, "remove '@' and what follows"),
        ("group_eth0: 5", 11, "write 'group_eth0 = 5'"),
        ("group_eth0 5", 11, "write 'group_eth0 = 5'"),
        (" group_eth0:1: 5 # why", 14, "write 'group_eth0:1 = 5'"),
        (
            "fanout@7 : hash + defrag",
            9,
            "write 'fanout@7 = hash + defrag'",
        ),
        ("group_eth0:5", 13, "write 'key = value'"),
        ("gruop_eth0: 5", 1, "did you mean 'group_eth0: 5'?"),
    ] {
        let report = parse(text, "pcap.conf").unwrap_err();
        assert_eq!(report.hint.as_deref(), Some(hint), "{text}");
        assert_eq!(report.place.unwrap().column, column, "{text}");
    }
}

#[test]
fn unknown_keys_get_the_nearest_one() {
    for (text, near) in [
        ("gruop = 5", "did you mean 'group'?"),
        ("Gruop_eth0:1 = 5", "did you mean 'group_eth0:1'?"),
        (
            "combined_chanels@eth0 = 5",
            "did you mean 'combined_channels'?",
        ),
        ("def group = 5", "did you mean 'def_group'?"),
        ("rx_chanels@eth0 = 5", "did you mean 'rx_channels'?"),
        ("verbosity = 5", "see pcap.conf(5) for the keys"),
    ] {
        let report = parse(text, "pcap.conf").unwrap_err();
        assert_eq!(report.hint.as_deref(), Some(near), "{text}");
    }
}

#[test]
fn a_target_behind_an_underscore_is_moved_behind_an_at() {
    for (key, near) in [
        ("ring_eth0", "ring@eth0"),
        ("Gone_Eth_0", "gone@Eth_0"),
        ("rign_eth0:1", "ring@eth0:1"),
        ("rx_channels_eth0", "rx_channels@eth0"),
        ("irq_eth0_1", "irq@eth0.1"),
        ("napi_eth0.1", "napi@eth0.1"),
        ("fanout_5", "fanout@5"),
        ("def_group_eth0", "group_eth0"),
        ("caplen_eth0", "caplen"),
    ] {
        let report = parse(&format!("{key} = 1"), "pcap.conf").unwrap_err();
        assert_eq!(report.slug, "key-unknown");
        assert_eq!(report.hint, Some(format!("did you mean '{near}'?")));
        let value = match near.split(['@', '_']).next().unwrap() {
            "ring" => "1M",
            "gone" => "wait",
            "fanout" => "lb",
            _ => "1",
        };
        let meant = parse(&format!("{near} = {value}"), "pcap.conf");
        assert_eq!(meant.map(|it| it.len()), Ok(1), "{near}");
    }
}

#[test]
fn a_mode_is_of_a_group_and_not_of_a_device() {
    for (text, slug, column) in [
        ("fanout@eth0 = flow", "not-a-number", 8),
        ("fanout@ = flow", "not-a-number", 8),
        ("fanout_eth0 = flow", "key-unknown", 1),
    ] {
        let report = parse(text, "pcap.conf").unwrap_err();
        let hint = report.hint.as_deref();
        assert_eq!(hint, Some("write the group's number, as in fanout@5"));
        assert_eq!(refusal(text), (slug, 1, column));
    }
    let report = parse("fanout@65536 = flow", "pcap.conf").unwrap_err();
    let range = "write a number from 0 to 65535";
    assert_eq!(report.hint.as_deref(), Some(range));
}

#[test]
fn size_is_bounded() {
    let groups = |count: u32| {
        (0..count)
            .map(|n| format!("group_e{n} = 1\n"))
            .collect::<String>()
    };
    assert_eq!(parse(&groups(4096), "pcap.conf").unwrap().len(), 4096);
    assert_eq!(refusal(&groups(4097)), ("too-many-settings", 4097, 1));
    let program = |count| format!("> {}\n", "x".repeat(62)).repeat(count);
    assert_eq!(parse(&program(1024), "pcap.conf").unwrap().len(), 1);
    assert_eq!(refusal(&program(1025)), ("program-too-long", 1025, 1));
}
