//! Tests of values, and of the manual page's keys against the table of keys.

use super::*;
use crate::driver::Driver;
use crate::settings::{Steal, file};

const PAGE: &str = include_str!("../../../../../docs/man/pcap.conf.5");

fn value(key: Key, text: &str) -> Result<Value, Fault> {
    key.value(Source::new("test", text))
}

fn refusal(key: Key, text: &str) -> (&'static str, usize) {
    let fault = value(key, text).unwrap_err();
    (fault.slug, fault.offset)
}

/// The part of the page between two headings.
fn section(from: &str, to: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(from).unwrap();
    rest.split_once(to).unwrap().0
}

/// Whether a text has this word. `*` stands for any end of a word.
fn has(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_*".contains(c);
    text.split(|c| !is_part(c)).any(|found| {
        found == word
            || found
                .strip_suffix('*')
                .is_some_and(|start| word.starts_with(start))
    })
}

#[test]
fn rows_stand_in_the_order_of_the_keys() {
    for row in &KEYS {
        assert_eq!(row.key.row().key, row.key);
    }
}

#[test]
fn the_manual_page_has_every_key_and_its_range() {
    let page = section(".SH KEYS", ".SH MODES");
    for row in &KEYS {
        for name in row.names {
            assert!(has(page, name), "{name}");
        }
        if let (Takes::Number(_, max), [_, ..]) = (row.takes, row.names) {
            assert!(has(page, &max.to_string()), "{:?}: {max}", row.key);
        }
    }
    for engine in Driver::all() {
        assert!(has(page, engine.name()), "{engine}");
    }
}

#[test]
fn the_manual_page_has_no_other_key() {
    let page = section(".SH KEYS", ".SH MODES");
    let rows = page
        .lines()
        .filter_map(|line| line.split_once(" = ").map(|(key, _)| key));
    let rows = rows.map(|key| key.trim_start_matches(".BI ").trim_end_matches(" \""));
    let mut count = 0;
    for key in rows {
        let (name, target) = key
            .split_once('@')
            .map_or((key, ""), |(name, target)| (name, target));
        let is_known = KEYS.iter().any(|row| row.names.contains(&name));
        assert!(is_known || key == "group_ DEVICE", "{name} @ {target}");
        count += 1;
    }
    assert!(count > 10, "{count} keys");
}

#[test]
fn the_manual_page_has_every_variable_and_no_other() {
    let page = section(".SH ENVIRONMENT", ".SH PRECEDENCE");
    let variables = || KEYS.iter().flat_map(|row| row.variables);
    for name in variables() {
        assert!(page.contains(&format!("\nPCAP_{name}\t")), "PCAP_{name}");
    }
    for family in KEYS.iter().filter_map(|row| row.family) {
        assert!(page.contains(&format!("PCAP_{family}_")), "PCAP_{family}_");
    }
    let rows = page.lines().filter_map(|line| line.strip_prefix("PCAP_"));
    for name in rows.filter_map(|line| line.split('\t').next()) {
        let is_family = |row: &Row| {
            row.family
                .is_some_and(|it| name == format!("{it}_\\fIdev\\fP"))
        };
        let is_known = variables().any(|it| *it == name) || KEYS.iter().any(is_family);
        assert!(is_known || ["CONFIG", "HUB"].contains(&name), "PCAP_{name}");
    }
}

#[test]
fn the_manual_page_has_every_old_key() {
    let page = section(".SH OLD NAMES", ".SH EXAMPLES");
    for (name, _) in OLD_KEYS {
        assert!(has(page, name), "{name}");
        assert_eq!(
            file::parse(&format!("{name} = 1"), "").unwrap_err().slug,
            "key-old"
        );
    }
}

#[test]
fn numbers_keep_their_ranges() {
    for (key, min, max) in [
        (Key::Group, 0, 65_535),
        (Key::Caplen, 1, 262_144),
        (Key::CombinedChannels, 1, 65_535),
        (Key::Napi, 0, 8191),
    ] {
        assert_eq!(value(key, &min.to_string()), Ok(Value::Number(min)));
        assert_eq!(value(key, &max.to_string()), Ok(Value::Number(max)));
        assert_eq!(refusal(key, &(max + 1).to_string()), ("out-of-range", 0));
    }
    assert_eq!(refusal(Key::Caplen, "0"), ("out-of-range", 0));
    assert_eq!(
        refusal(Key::Group, "99999999999999999999"),
        ("out-of-range", 0)
    );
    for text in ["", "-1", "+1", "0x10", "1 2", "1,2", "eleven", "١"] {
        assert_eq!(refusal(Key::Group, text), ("not-a-number", 0), "{text}");
    }
}

#[test]
fn sizes_of_rings_have_units_and_limits() {
    for (text, bytes) in [
        ("1M", 1 << 20),
        ("1024k", 1 << 20),
        ("1048576", 1 << 20),
        ("64M", 64 << 20),
        ("1g", 1 << 30),
        ("1024M", 1 << 30),
    ] {
        assert_eq!(value(Key::Ring, text), Ok(Value::Size(bytes)), "{text}");
    }
    for text in [
        "",
        "M",
        "0",
        "1023k",
        "65536",
        "1025M",
        "2G",
        "4294967295G",
        "99999999999G",
        "+64M",
        "-1M",
        "64MM",
        "2GB",
        "64B",
        "64T",
        "0x10M",
        "1.5G",
        "large",
    ] {
        let fault = value(Key::Ring, text).unwrap_err();
        assert_eq!((fault.slug, fault.offset), ("ring-size-bad", 0), "{text}");
        assert_eq!(fault.hint.as_deref(), Some("write 1M to 1G, such as 64M"));
    }
    for (text, near) in [
        ("32MB", "32M"),
        ("32mib", "32m"),
        ("32 M", "32M"),
        ("1 GiB", "1G"),
        ("2048kB", "2048k"),
        ("67108864B", "67108864"),
    ] {
        let fault = value(Key::Ring, text).unwrap_err();
        let hint = format!("did you mean '{near}'?");
        assert_eq!(
            (fault.slug, fault.hint),
            ("ring-size-bad", Some(hint)),
            "{text}"
        );
        assert!(value(Key::Ring, near).is_ok());
    }
}

#[test]
fn the_hint_for_an_unknown_driver_names_a_near_one_or_all() {
    let hint = |text: &str| value(Key::Driver, text).unwrap_err().hint.unwrap();
    let all = "the drivers are tpacket, xdp, packet, afxdp, dpdk, netmap, pfring, zc, pfq";
    assert_eq!(hint("dpkd"), "did you mean 'dpdk'?");
    assert_eq!(hint("sparc"), all);
    assert_eq!(hint("xpd"), "did you mean 'xdp'?");
}

#[test]
fn cpu_lists() {
    let list = Value::Cpus(vec![(0, 0), (2, 3), (8191, 8191)]);
    assert_eq!(value(Key::Irq, "0, 2 - 3 ,8191"), Ok(list));
    assert_eq!(refusal(Key::Irq, "0,8192"), ("out-of-range", 2));
    assert_eq!(refusal(Key::Irq, "0,"), ("not-a-number", 2));
    assert_eq!(refusal(Key::Irq, "0-x"), ("not-a-number", 2));
    assert_eq!(refusal(Key::Irq, "1, 3-2"), ("cpu-range-backwards", 3));
}

#[test]
fn words() {
    assert_eq!(value(Key::Keep, "Yes"), Ok(Value::YesNo(true)));
    assert_eq!(value(Key::Keep, "no"), Ok(Value::YesNo(false)));
    assert_eq!(refusal(Key::Keep, "true"), ("not-yes-or-no", 0));
    assert_eq!(value(Key::Steal, "no"), Ok(Value::Steal(Steal::No)));
    assert_eq!(value(Key::Steal, "Force"), Ok(Value::Steal(Steal::Force)));
    assert_eq!(refusal(Key::Steal, "all"), ("not-yes-or-no", 0));
    assert_eq!(refusal(Key::Outgoing, "force"), ("not-yes-or-no", 0));
    assert_eq!(value(Key::Gone, "Wait"), Ok(Value::Waits(true)));
    assert_eq!(value(Key::Gone, "error"), Ok(Value::Waits(false)));
    assert_eq!(refusal(Key::Gone, "yes"), ("not-wait-or-error", 0));
    let name = "east.1_b-2".to_owned();
    assert_eq!(value(Key::Member, &name), Ok(Value::Name(name)));
    let longest = "x".repeat(64);
    assert!(value(Key::Member, &longest).is_ok());
    for text in ["", "a b", "a/b", "ä", &(longest + "x")] {
        assert_eq!(refusal(Key::Member, text), ("member-name-bad", 0), "{text}");
    }
    assert_eq!(
        value(Key::Driver, "XDP"),
        Ok(Value::Driver(Driver::named("xdp").unwrap()))
    );
    let fault = value(Key::Driver, "tpaket").unwrap_err();
    assert_eq!(fault.hint.as_deref(), Some("did you mean 'tpacket'?"));
}
