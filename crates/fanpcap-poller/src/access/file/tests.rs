//! Policy files that are read, and mistakes with their places.

use super::*;
use fanpcap_bpf::Classic;
use fanpcap_testkit::errors_page;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn error(text: &str) -> Report {
    let parsed = PolicyFile::parse(text, "poller.conf");
    parsed.and_then(resolve).unwrap_err()
}

/// Users and groups with the numbers 1 to 9 exist, and the user ada has the number 7.
fn resolve(file: PolicyFile) -> Result<Resolved, Report> {
    let number = |name: &str| name.parse().ok().filter(|it| (1..10).contains(it));
    let user = |name: &str| number(name).or((name == "ada").then_some(7));
    file.resolve(user, number, &compile)
}

/// A compiler that knows two expressions.
fn compile(expression: &str) -> Result<Vec<Classic>, String> {
    match expression {
        "ip" | "tcp[13] & 2 != 0" => Ok(vec![Classic::keep(1)]),
        "long" => Ok(vec![Classic::keep(1); CODE_MAX + 1]),
        _ => Err("can't parse filter expression: syntax error".to_owned()),
    }
}

#[test]
fn sections_become_rules_of_each_device() {
    let text = "\
\u{feff}# Who captures on the office's ports.
others = no

[user ada]                       # a comment
devices = packet:eth0, afxdp:eth1
memory  = 2G
[group 4]
groups      = 0
connections = 16
filter = tcp[13] & 2 != 0      # SYN
  [ user 9 ]
devices=none
";
    let file = resolve(PolicyFile::parse(text, "poller.conf").unwrap()).unwrap();
    let ada = Grant {
        bytes: Some(2 << 30),
        ..Grant::default()
    };
    let four = Grant {
        groups: Some(0),
        connections: Some(16),
        filter: Some(Arc::new(Filter {
            text: "tcp[13] & 2 != 0".to_owned(),
            code: vec![Classic::keep(1)],
        })),
        ..Grant::default()
    };
    for (device, of_ada) in [
        ("packet:eth0", Some(ada.clone())),
        ("afxdp:eth1", Some(ada)),
        ("packet:eth1", None),
    ] {
        let rule = |who, gives| Rule { who, gives };
        let rules = vec![
            rule(Who::User(7), of_ada),
            rule(Who::Group(4), Some(four.clone())),
            rule(Who::User(9), None),
        ];
        let expected = Access::new(rules, Others::Nobody);
        assert_eq!(file.access(device, Some(5)), expected, "{device}");
    }
    let empty = resolve(PolicyFile::parse("", "poller.conf").unwrap()).unwrap();
    let expected = Access::new(Vec::new(), Others::RootAnd(Some(5)));
    assert_eq!(empty.access("packet:eth0", Some(5)), expected);
}

#[test]
fn the_documented_file_is_read() {
    let page = include_str!("../../../../../docs/poller.md");
    let (_, after) = page.split_once("## A policy file\n").unwrap();
    let (text, _) = after.split_once("| key |").unwrap();
    let lines: Vec<&str> = text
        .lines()
        .filter_map(|it| it.strip_prefix("    "))
        .collect();
    let file = PolicyFile::parse(&lines.join("\n"), "poller.md").unwrap();
    assert!(!file.others && file.sections.len() == 2, "{file:?}");
}

/// The mistakes of docs/errors.md, and others.
const MISTAKES: [(&str, &str, &str); 21] = [
    ("policy-section", "[usr ada]", ":1:1: '[usr ada]' is no"),
    ("policy-section", "\n [user]", ":2:2: '[user]' is no"),
    ("policy-section", "[user a b]", ":1:1: '[user a b]' is no"),
    ("policy-section", "[user ada", ":1:1: '[user ada' is no"),
    ("policy-section", "[group -x]", ":1:1: '[group -x]' is no"),
    (
        "policy-key",
        "[user ada]\nmemroy = 512M",
        ":2:1: unknown key 'memroy'; did you mean 'memory'?",
    ),
    (
        "policy-key",
        "memory = 2G",
        ":1:1: unknown key 'memory'; before the first section",
    ),
    (
        "policy-key",
        "[user ada]\nothers = no",
        ":2:1: unknown key 'others'; a section has devices, memory, groups, connections, \
         filter",
    ),
    (
        "policy-value",
        "[user ada]\nmemory = 512",
        ":2:10: '512' can't be the value; write a size such as 512M or 2G",
    ),
    ("policy-value", "others =", ":1:9: 'others' has no value"),
    ("policy-value", "others = maybe", ":1:10: 'maybe' can't be"),
    (
        "policy-value",
        "[user ada]\ndevices = packet:eth0, eth1",
        ":2:24: 'eth1' can't be",
    ),
    (
        "not-a-number",
        "[user ada]\nmemory = 5MM",
        ":2:10: '5M' is not a number",
    ),
    (
        "out-of-range",
        "[user ada]\ngroups = 65",
        ":2:10: '65' is out of range",
    ),
    (
        "policy-twice",
        "[user ada]\n[group 7]\n[user ada]",
        ":3:1: this section is in line 1 already",
    ),
    (
        "policy-twice",
        "[user ada]\n[user 7]",
        ":2:1: the section in line 1 is for the same",
    ),
    ("policy-twice", "others = no\nothers = no", ":2:1: 'others'"),
    (
        "policy-twice",
        "[user ada]\nfilter = ip\n\nfilter = ip",
        ":4:1: 'filter'",
    ),
    (
        "policy-filter",
        "[user ada]\nfilter = ip\n[user 8]\n filter =  not prot 9100 # no",
        ":4:12: filter 'not prot 9100': can't parse filter expression: syntax error; write an",
    ),
    (
        "policy-filter",
        "[user ada]\nfilter = ip \u{b} or arp",
        ":2:13: filter 'ip ? or arp': it has a control character",
    ),
    (
        "policy-filter",
        "[user ada]\nfilter = long",
        ":2:10: filter 'long': it has 4097 instructions, more than 4096",
    ),
];

#[test]
fn a_filter_that_is_too_long_is_refused() {
    let text = format!("[user ada]\nfilter = {}", "ip or ".repeat(683));
    let said = error(&text).to_string();
    assert!(
        said.starts_with("poller.conf:2:10: filter 'ip or ip"),
        "{said}"
    );
    assert!(said.contains("it is longer than 4096 bytes"), "{said}");
}

#[test]
fn mistakes_have_their_place() {
    for (slug, text, start) in MISTAKES {
        let error = error(text);
        let said = error.to_string();
        assert_eq!(error.slug, slug, "{text}: {said}");
        assert!(said.starts_with(&format!("poller.conf{start}")), "{said}");
    }
}

#[test]
fn docs_list_the_mistakes() {
    let texts = [
        "[usr ada]",
        "[user ada]\nmemroy = 512M",
        "[user ada]\nmemory = 512",
        "[user ada]\ngroups = 2\n[user ada]",
        "[user bob]",
        "[user ada]\nfilter = not prot 9100",
    ];
    let produced = texts.map(|text| {
        let error = error(text);
        (error.slug.to_owned(), error.render(255))
    });
    errors_page::check("In a poller's policy", &BTreeMap::from(produced)).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]
    #[test]
    fn no_text_makes_it_panic(
        text in "(\\[?(user|group|ada|devices|memory|filter|ip|others| |=|,|:|#|M|G|[0-9]|\u{e9})?\\]?\n?){0,24}",
    ) {
        if let Err(report) = PolicyFile::parse(&text, "x").and_then(resolve) {
            let place = report.place.unwrap();
            let line = text.lines().nth(place.line - 1).unwrap();
            prop_assert_eq!(line, place.text.as_str());
            prop_assert!(place.column <= line.chars().count() + 1);
        }
    }
}
