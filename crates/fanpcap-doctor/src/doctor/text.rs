//! The findings as text.

use std::fmt::Write;

use fanpcap_config::report::harmless_text;

use super::finding::{Effect, Finding};

/// The whole text. `facts` are sentences that precede the findings, and `advice` follows them.
pub(super) fn page(facts: &[String], findings: &[Finding], advice: Option<&str>) -> String {
    let mut page = String::new();
    for fact in facts {
        let _ = writeln!(page, "{}", harmless_text(fact));
    }
    for finding in findings {
        let Finding {
            name,
            place,
            what,
            why,
            fix,
            ..
        } = finding;
        let effect = finding.effect.name();
        let head = harmless_text(&format!("{effect:<9} {place}: {what}  [{name}]"));
        let _ = write!(page, "\n{head}\n{:10}{}\n", "", harmless_text(why));
        let _ = writeln!(page, "{:10}Fix: {}", "", harmless_text(fix));
    }
    let _ = write!(page, "\n{}\n", sum(findings));
    if let Some(advice) = advice {
        let _ = writeln!(page, "{}", harmless_text(advice));
    }
    page
}

fn sum(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return "doctor found no problem.".to_owned();
    }
    let of = |effect: Effect| {
        let count = findings.iter().filter(|it| it.effect == effect).count();
        (count > 0).then(|| format!("{count} {}", effect.name()))
    };
    let counts: Vec<String> = Effect::ALL.into_iter().filter_map(of).collect();
    let findings = match findings.len() {
        1 => "1 finding".to_owned(),
        count => format!("{count} findings"),
    };
    format!("{findings}: {}.", counts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(effect: Effect, what: &str) -> Finding {
        Finding {
            name: "down",
            effect,
            place: "eth0".to_owned(),
            what: what.to_owned(),
            why: "no packet arrives".to_owned(),
            fix: "ip link set dev eth0 up".to_owned(),
        }
    }

    #[test]
    fn each_finding_has_its_effect_and_its_fix() {
        let all = [
            finding(Effect::Loses, "the device is down"),
            finding(Effect::Costs, "\u{1b}[2Jhostile\u{202e}"),
        ];
        let looked_at = ["Looked at eth0.".to_owned()];
        let text = page(&looked_at, &all, None);
        let expected = "\
Looked at eth0.

loses     eth0: the device is down  [down]
          no packet arrives
          Fix: ip link set dev eth0 up

costs     eth0: ?[2Jhostile?  [down]
          no packet arrives
          Fix: ip link set dev eth0 up

2 findings: 1 loses, 1 costs.
";
        assert_eq!(text, expected);
        let text = page(&looked_at, &[], Some("no group"));
        assert!(text.ends_with("\n\ndoctor found no problem.\nno group\n"));
    }
}
