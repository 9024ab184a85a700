//! Reads any text, and lines that are chosen from valid ones, as a poller's policy file, and any
//! text as a filter there. The parser refuses the text and names a place that exists in it, or the
//! settings, written as a file, are read as the same settings.
#![no_main]

use fanpcap_bpf::Classic;
use fanpcap_config::report::Report;
use fanpcap_poller::access::file::{Devices, Expression, Named, PolicyFile};
use libfuzzer_sys::fuzz_target;

const SOURCE: &str = "poller.conf";

/// Lines of valid files.
const LINES: [&str; 15] = [
    "others = no",
    "others=yes # of the socket's group",
    "[user ada]",
    "[ group 100 ]",
    "[user 7]",
    "devices = packet:eth0, afxdp:veth:1",
    "devices = none",
    "devices = all",
    "memory = 512M",
    "memory = 2G",
    "groups = 0",
    "connections = 1024",
    "filter = not host 10.0.0.1",
    "filter=tcp[13] & 2 != 0 # SYN",
    "\tfilter = vlan 7 and \"#\" ",
];

/// A compiler that refuses some texts, and makes long filters of others.
fn compile(expression: &str) -> Result<Vec<Classic>, String> {
    match expression.len() {
        len if len % 5 == 1 => Err(format!("no filter of {len} bytes")),
        len if len % 5 == 2 => Ok(vec![Classic::keep(1); 4000 + len]),
        _ => Ok(vec![Classic::keep(262_144)]),
    }
}

fn check(text: &str) {
    let file = match PolicyFile::parse(text, SOURCE) {
        Ok(file) => file,
        Err(report) => return check_report(text, &report),
    };
    let again = PolicyFile::parse(&written(&file), SOURCE).expect("settings written as read");
    assert_eq!(written(&again), written(&file));
    assert_eq!(again.others, file.others);
    let sections = again.sections.iter().zip(&file.sections);
    for (again, section) in sections {
        assert_eq!(again.who, section.who);
        assert_eq!(
            (&again.devices, &again.gives),
            (&section.devices, &section.gives)
        );
        let filters = [again, section].map(|it| it.filter.as_ref().map(|it| &*it.text));
        assert_eq!(filters[0], filters[1]);
        if let Some(filter) = &section.filter {
            check_expression(text, filter);
        }
    }
    let number = |name: &str| name.parse().ok();
    if let Err(report) = file.resolve(number, number, &compile) {
        check_report(text, &report);
    }
}

/// The expression is in the text where its place says.
fn check_expression(text: &str, filter: &Expression) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let line = text.lines().nth(filter.place.line - 1).expect("the line");
    let from: String = line.chars().skip(filter.place.column - 1).collect();
    assert!(!filter.text.is_empty() && from.starts_with(&filter.text));
    let is_bad = |letter: char| letter.is_control() && letter != '\t';
    assert!(filter.text.len() <= 4096 && !filter.text.contains(is_bad));
}

fn check_report(text: &str, report: &Report) {
    let _ = report.render(255);
    let place = report.place.as_ref().expect("a place");
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let line = text.lines().nth(place.line.checked_sub(1).expect("from 1"));
    assert_eq!(line, Some(place.text.as_str()));
    assert!((1..=place.text.chars().count() + 1).contains(&place.column));
}

/// The text of a file with these settings.
fn written(file: &PolicyFile) -> String {
    let mut text = format!("others = {}\n", if file.others { "yes" } else { "no" });
    for section in &file.sections {
        text += &match &section.who {
            Named::User(name) => format!("[user {name}]\n"),
            Named::Group(name) => format!("[group {name}]\n"),
        };
        text += &match &section.devices {
            Devices::All => "devices = all\n".to_owned(),
            Devices::These(these) if these.is_empty() => "devices = none\n".to_owned(),
            Devices::These(these) => format!("devices = {}\n", these.join(",")),
        };
        let gives = &section.gives;
        let memory = gives.bytes.map(|it| format!("memory = {}M\n", it >> 20));
        let groups = gives.groups.map(|it| format!("groups = {it}\n"));
        let connections = gives.connections.map(|it| format!("connections = {it}\n"));
        let filter = section.filter.as_ref();
        let filter = filter.map(|it| format!("filter = {}\n", it.text));
        text.extend([memory, groups, connections, filter].into_iter().flatten());
    }
    text
}

// Tries the bytes as the text, as a filter, and as the numbers of lines.
fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    check(&text);
    check(&format!("[user 7]\nfilter = {text}"));
    let lines = bytes.iter().map(|it| LINES[usize::from(*it) % LINES.len()]);
    check(&lines.collect::<Vec<_>>().join("\n"));
});
