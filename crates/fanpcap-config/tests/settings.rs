//! Property tests of settings with generated files and variables. PROPTEST_CASES sets the number of
//! cases.

use fanpcap_config::device::Device;
use fanpcap_config::driver::Driver;
use fanpcap_config::fanout::Fanout;
use fanpcap_config::fanout::Script;
use fanpcap_config::mode::{Mode, ModeKind};
use fanpcap_config::report::Report;
use fanpcap_config::settings::{Environment, Key, Settings, Target, Value, environment, file};
use fanpcap_config::steering::Steering;
use proptest::collection::vec;
use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SOURCE: &str = "/etc/pcap.conf";
const INTERFACES: [&str; 4] = ["eth0", "wan-1", "wan_1", "eth0.5"];
const DEVICES: [&str; 8] = [
    "eth0",
    "eth0:1",
    "wan-1",
    "any",
    "pfq:eth0",
    "eth0^wan_1",
    "nflog:5",
    "",
];

const KEYS: [&str; 28] = [
    "def_group",
    "group",
    "caplen",
    "ring@eth0",
    "pfq_rx_slots",
    "group_eth0",
    "group_eth0:1",
    "fanout",
    "fanout@3",
    "driver@eth0",
    "steal@eth0",
    "outgoing@eth0",
    "keep@wan-1",
    "rx_channels@eth0",
    "tx_channels@eth0",
    "other_channels@eth0",
    "combined_channels@eth0",
    "irq@eth0.0",
    "napi@eth0.5.1",
    "pfq_tx_slots",
    "vlan@3",
    "lang",
    "irq@eth0",
    "keep",
    "caplen@eth0",
    "",
    "> main",
    "# note",
];
const VALUES: [&str; 21] = [
    "7",
    "65535",
    "65536",
    "0",
    "262144",
    "yes",
    "no",
    "0,2-3",
    "3-2",
    "64M",
    "xdp",
    "hash",
    "lb +defrag",
    "rr+rollover # x",
    "flow",
    "hash+sticky",
    "main = tcp >-> steer_flow",
    "file:/x",
    "\"#\"",
    "",
    "99999999999999999999",
];
const NAMES: [&str; 19] = [
    "PCAP_RING",
    "PCAP_GROUP",
    "PCAP_DEF_GROUP",
    "PCAP_GROUP_eth0",
    "PCAP_GROUP_wan_1",
    "PCAP_FANOUT",
    "PCAP_FANOUT_eth0",
    "PCAP_CAPLEN",
    "PCAP_DRIVER",
    "PCAP_CHANNEL_eth0",
    "PCAP_IRQ_eth0_0",
    "PCAP_HUB",
    "PCAP_CONFIG",
    "PCAP_PF_RING_CLUSTER_ID",
    "PFQ_GROUP",
    "PFQ_LANG_SRC",
    "PCAP_FANOUT_ID",
    "PCAP_IRQ_eth0",
    "PCAP_GROUP_",
];
const ODD: [char; 20] = [
    '=',
    '@',
    '>',
    '#',
    '"',
    '+',
    ',',
    '-',
    '_',
    '.',
    ':',
    ' ',
    '\t',
    '\n',
    '\r',
    '\0',
    '\u{1b}',
    'é',
    '\u{202e}',
    '\u{1f980}',
];

/// A random change of a valid text, and its place. Most texts stay unchanged.
type Change = (u8, usize, usize);

fn change() -> impl Strategy<Value = Change> {
    (0..10u8, 0..40usize, 0..ODD.len())
}

/// The text with one character removed, doubled, swapped with the next, or inserted.
fn changed(text: &str, (change, at, odd): Change) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    let at = at % (chars.len() + 1);
    match change {
        0 if at < chars.len() => drop(chars.remove(at)),
        1 if at < chars.len() => chars.insert(at, chars[at]),
        2 if at + 1 < chars.len() => chars.swap(at, at + 1),
        3 => chars.insert(at, ODD[odd]),
        4 => chars.iter_mut().for_each(|c| c.make_ascii_uppercase()),
        _ => {}
    }
    chars.into_iter().collect()
}

fn near_valid_file() -> impl Strategy<Value = String> {
    let line = (0..KEYS.len(), 0..VALUES.len(), 0..3usize, change());
    vec(line, 0..5).prop_map(|lines| {
        let line = |(key, value, sign, change): (usize, usize, usize, Change)| {
            let sign = [" = ", "=", "\t=  "][sign];
            changed(&format!("{}{sign}{}", KEYS[key], VALUES[value]), change) + "\n"
        };
        lines.into_iter().map(line).collect()
    })
}

fn near_valid_variables() -> impl Strategy<Value = Vec<(String, String)>> {
    let variable = (0..NAMES.len(), 0..VALUES.len(), change());
    vec(variable, 0..4).prop_map(|variables| {
        let variable = |(name, value, change): (usize, usize, Change)| {
            let name = changed(NAMES[name], change).replace(['=', '\0'], "_");
            (name, VALUES[value].to_owned())
        };
        variables.into_iter().map(variable).collect()
    })
}

fn surroundings(variables: &[(String, String)]) -> Environment {
    let owned = |(name, value): &(String, String)| (name.into(), value.into());
    let variables = variables.iter().map(owned).collect();
    Environment {
        variables,
        secure: false,
        system_config: PathBuf::new(),
    }
}

/// Checks that a refusal has a place within its line, and that its text fits the buffer, with the
/// caret under the place.
fn check(report: &Report) -> Result<(), TestCaseError> {
    let place = report.place.as_ref().expect("a rejection has a place");
    let length = place.text.chars().count();
    prop_assert!(
        place.line >= 1 && (1..=length + 1).contains(&place.column),
        "{report:?}"
    );
    let rendered = report.render(255);
    prop_assert!(rendered.len() <= 255, "{rendered}");
    let position = format!("{}:{}:{}: ", place.source, place.line, place.column);
    prop_assert!(rendered.starts_with(&position), "{rendered}");
    prop_assert!(
        !rendered.contains(['\0', '\r', '\t', '\u{1b}', '\u{202e}']),
        "{rendered:?}"
    );
    let lines: Vec<&str> = rendered.split('\n').collect();
    if let [_, shown, caret] = lines[..] {
        let under = shown.chars().nth(caret.chars().count() - 1);
        let meant = place.text.chars().nth(place.column - 1);
        if let Some(plain) = meant.filter(char::is_ascii_graphic) {
            prop_assert_eq!(under, Some(plain), "{}", rendered);
        }
        prop_assert_eq!(under.is_none(), meant.is_none(), "{}", rendered);
    }
    Ok(())
}

/// Checks that a refusal, if there is one, shows the line of the text that it names.
fn check_file(text: &str) -> Result<(), TestCaseError> {
    if let Err(report) = file::parse(text, SOURCE) {
        check(&report)?;
        let place = report.place.expect("checked");
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        prop_assert_eq!(text.lines().nth(place.line - 1), Some(place.text.as_str()));
    }
    Ok(())
}

/// A valid assignment, as text and as the entry that parsing must return.
fn valid() -> impl Strategy<Value = (String, Key, Target, Value)> {
    let device = |n: u16| format!("veth{}.{}", n % 50, n % 3);
    (0..8u8, any::<u16>(), 0..24u8).prop_map(move |(key, n, mode)| {
        let (number, mode) = (Value::Number(u32::from(n)), numbered(mode));
        let on = Target::Device(device(n));
        match key {
            0 => (format!("group_{} = {n}", device(n)), Key::Group, on, number),
            1 => (
                format!("FANOUT @ {n}={mode}"),
                Key::Fanout,
                Target::Group(n),
                Value::Fanout(Fanout::Mode(mode)),
            ),
            2 => (
                format!("fanout = {mode} # x"),
                Key::Fanout,
                Target::All,
                Value::Fanout(Fanout::Mode(mode)),
            ),
            3 => (
                format!("\tdef_group = 0{n}"),
                Key::Group,
                Target::All,
                number,
            ),
            4 => {
                let (text, flag) = if n & 1 == 0 {
                    ("Yes", true)
                } else {
                    ("no", false)
                };
                (
                    format!("keep@{}={text}", device(n)),
                    Key::Keep,
                    on,
                    Value::YesNo(flag),
                )
            }
            5 => {
                let cpu = u32::from(n % 4096);
                let list = Value::Cpus(vec![(cpu, cpu), (cpu, cpu * 2)]);
                let on = Target::Channel(device(n), n);
                (
                    format!("irq@{}.{n} = {cpu}, {cpu}-{}", device(n), cpu * 2),
                    Key::Irq,
                    on,
                    list,
                )
            }
            6 => {
                let caplen = Value::Number(u32::from(n) + 1);
                (
                    format!("caplen={}", u32::from(n) + 1),
                    Key::Caplen,
                    Target::All,
                    caplen,
                )
            }
            _ => (
                format!("driver@{}=xdp", device(n)),
                Key::Driver,
                on,
                Value::Driver(Driver::named("xdp").expect("a row")),
            ),
        }
    })
}

/// All modes, by number. The options that `rollover` does not have are left out.
fn numbered(n: u8) -> Mode {
    let kind = ModeKind::ALL[usize::from(n % 6)];
    Mode {
        kind,
        defrag: (n / 6) & 1 == 1,
        rollover: (n / 12) & 1 == 1 && kind != ModeKind::Rollover,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_read_or_refused_with_a_place(bytes in vec(any::<u8>(), 0..120)) {
        check_file(&String::from_utf8_lossy(&bytes))?;
    }

    #[test]
    fn any_text_is_read_or_refused_with_a_place(text in vec(any::<char>(), 0..60)) {
        check_file(&text.into_iter().collect::<String>())?;
    }

    #[test]
    fn near_valid_files_are_read_or_refused_with_a_place(text in near_valid_file()) {
        check_file(&text)?;
    }

    #[test]
    fn near_valid_variables_are_read_or_refused_with_a_place(variables in near_valid_variables()) {
        if let Err(report) = environment::parse(&surroundings(&variables)) {
            check(&report)?;
            let place = report.place.expect("checked");
            let shown = |(name, value): &(String, String)| format!("{name}={value}") == place.text;
            prop_assert!(variables.iter().any(shown));
        }
    }

    #[test]
    fn any_variable_is_read_or_refused_with_a_place(
        name in vec(any::<char>(), 0..12),
        value in vec(any::<char>(), 0..20),
    ) {
        let name = format!("PCAP_{}", name.into_iter().collect::<String>());
        let value: String = value.into_iter().collect();
        for name in [name, "PCAP_FANOUT".to_owned(), "PCAP_IRQ_eth0_0".to_owned()] {
            if let Err(report) = environment::parse(&surroundings(&[(name, value.clone())])) {
                check(&report)?;
            }
        }
    }

    #[test]
    fn plans_are_made_or_refused_with_a_place(
        text in near_valid_file(),
        variables in near_valid_variables(),
        device in 0..DEVICES.len(),
    ) {
        let interfaces = INTERFACES.map(str::to_owned);
        let device = Device::classify(DEVICES[device], |name| INTERFACES.contains(&name));
        let settings = Settings::parse(&surroundings(&variables), &text, SOURCE);
        let pcap = |_: &str| Err("no libpcap here".to_owned());
        let compile = |script: &Script| Steering::compile(script, &pcap).map(Arc::new);
        let plan = settings
            .and_then(|settings| settings.plan(&device, None, &interfaces, &compile));
        if let Err(report) = plan {
            check(&report)?;
        }
    }

    #[test]
    fn a_valid_file_gives_what_it_says(lines in vec(valid(), 0..12)) {
        let mut expected: Vec<(Key, Target, Value)> = Vec::new();
        let mut text = String::new();
        for (line, key, target, value) in lines {
            let first = expected.iter().find(|(k, t, _)| (*k, t) == (key, &target));
            match first {
                None => expected.push((key, target, value)),
                Some((_, _, first)) if *first == value => {}
                Some(_) => continue,
            }
            text.push_str(&line);
            text.push_str("\n\n");
        }
        let entries = file::parse(&text, SOURCE).unwrap();
        let found: Vec<_> = entries.into_iter().map(|e| (e.key, e.target, e.value)).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn valid_variables_give_what_they_say(group in any::<u16>(), mode in 0..24u8, n in 0..50u8) {
        let mode = numbered(mode);
        let variables = [
            (format!("PCAP_GROUP_veth{n}"), group.to_string()),
            ("PCAP_FANOUT".to_owned(), format!(" {} ", mode.to_string().to_uppercase())),
        ];
        let entries = environment::parse(&surroundings(&variables)).unwrap();
        let found: Vec<_> = entries.into_iter().map(|e| (e.key, e.target, e.value)).collect();
        prop_assert_eq!(found, vec![
            (Key::Group, Target::Device(format!("veth{n}")), Value::Number(group.into())),
            (Key::Fanout, Target::All, Value::Fanout(Fanout::Mode(mode))),
        ]);
    }

    #[test]
    fn modes_survive_text_and_kernel_numbers(n in 0..24u8) {
        let mode = numbered(n);
        prop_assert_eq!(Mode::parse(&mode.to_string()), Ok(mode));
        let back = Mode::from_kernel(mode.kind.kernel_type(), mode.kernel_flags());
        prop_assert_eq!(back, Some(mode));
    }
}

/// The examples that users copy have no mistake. In one of them all settings are comments, which
/// must have no mistake either.
#[test]
fn the_examples_have_no_mistake() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/examples");
    let environment = Environment {
        variables: vec![],
        secure: false,
        system_config: PathBuf::from(SOURCE),
    };
    for name in ["pcap.conf", "pcap-sockets.conf", "pcap-xdp.conf"] {
        let text = fs::read_to_string(examples.join(name)).expect(name);
        let set = text.lines().map(|line| match line.strip_prefix('#') {
            Some(setting) if setting.starts_with(|it: char| it.is_ascii_lowercase()) => setting,
            _ => line,
        });
        let text = set.collect::<Vec<_>>().join("\n");
        let parsed = Settings::parse(&environment, &text, name);
        assert!(parsed.is_ok(), "{name}: {:?}", parsed.err());
    }
}
