//! The commands that correct settings: they put in the name that was meant, or else remove the
//! setting.

use std::{env, fs};

use fanpcap_config::report::{Place, Report, proposed};
use fanpcap_config::settings::file::without_comment;
use fanpcap_config::settings::{Ignored, Reason};

use crate::doctor::finding::word;

/// The command that corrects an error in the settings.
pub(super) fn of_error(report: &Report) -> String {
    let Some(place) = report.place.as_deref() else {
        return "fanpcap config".to_owned();
    };
    renamed(report, place).unwrap_or_else(|| without(place))
}

/// The command that corrects a setting without effect.
pub(super) fn of_vain(ignored: &Ignored) -> String {
    if ignored.reason == Reason::LaterSteering {
        return "fanpcap config    # shows where; then write the program with 'if p then f else g'"
            .to_owned();
    }
    let name = ignored.setting.split('=').next().unwrap_or_default().trim();
    let hint = ignored.hint.as_deref().filter(|_| !name.is_empty());
    let sure = hint.and_then(proposed);
    let near = hint.and_then(near);
    let (file, line) = ignored.place.rsplit_once(':').unwrap_or_default();
    let (corrected, removed) = match line.parse::<usize>() {
        Ok(line) => (
            sure.or(near)
                .filter(|meant| !has(file, meant))
                .map(|meant| substitute(file, line, name, meant)),
            remove(file, line),
        ),
        Err(_) => (
            sure.or(near).and_then(|meant| rename(name, meant)),
            format!("unset {}", word(name)),
        ),
    };
    match (corrected, near) {
        (Some(command), Some(near)) => {
            // The device may be absent, and the setting right.
            let removed = removed.split("    #").next().unwrap_or_default();
            format!("{removed}    # or, if {near} is meant: {command}")
        }
        (corrected, _) => corrected.unwrap_or(removed),
    }
}

/// The name of the nearest device's setting, which is not certainly the one that was meant.
fn near(hint: &str) -> Option<&str> {
    let rest = hint.strip_prefix("did you mean '")?;
    let (near, rest) = rest.split_once("', ")?;
    rest.starts_with("or a device with another ")
        .then_some(near)
}

/// The command that writes the proposed text in the place of the wrong one; `None` if the error has
/// no certain proposal.
fn renamed(report: &Report, place: &Place) -> Option<String> {
    if report.message.starts_with("no '=' behind ") {
        let (old, new) = (without_comment(&place.text).trim(), written(report)?);
        return (!old.is_empty()).then(|| substitute(&place.source, place.line, old, new));
    }
    let meant = meant(report)?;
    let mut quoted = report.message.split('\'');
    let wrong = quoted.nth(1)?;
    // With more quotes, it is not clear where the wrong name ends.
    quoted.next().filter(|_| quoted.next().is_none())?;
    let (name, value) = place.text.split_once('=').unwrap_or_default();
    let is_variable = place.source == "environment";
    if is_variable && name == wrong {
        return rename(name, meant);
    }
    let before = place.text.chars().take(place.column - 1);
    let column: usize = before.map(char::len_utf8).sum();
    // The column of an option is that of its name, behind the `+`.
    let at = place.text.find(wrong)?;
    if !(at..at + wrong.len()).contains(&column) {
        return None;
    }
    if !is_variable {
        return Some(substitute(&place.source, place.line, wrong, meant));
    }
    // A longer value, such as a steering program, may have lines that the place lacks.
    let is_whole = value == wrong || env::var(name).is_ok_and(|it| it == value);
    let right = value.replacen(wrong, meant, 1);
    (is_whole && at > name.len()).then(|| format!("export {name}={}", word(&right)))
}

/// The text that was certainly meant in the place of the wrong one.
fn meant(report: &Report) -> Option<&str> {
    let hint = report.hint.as_ref()?;
    let flow = || {
        let rest = hint.strip_prefix("did you mean '")?;
        rest.strip_suffix("', or 'hash' (without CAP_BPF)?")
    };
    let option = || written(report).filter(|_| report.slug == "option-with-value");
    proposed(hint).or_else(flow).or_else(option)
}

/// The text that a hint says to write.
fn written(report: &Report) -> Option<&str> {
    let hint = report.hint.as_ref()?;
    hint.strip_prefix("write '")?.strip_suffix('\'')
}

/// The command that replaces the first `old` in a line of a file by `new`.
fn substitute(file: &str, line: usize, old: &str, new: &str) -> String {
    let escaped = |text: &str, special: &str| {
        let mut escaped = String::new();
        for c in text.chars() {
            if special.contains(c) {
                escaped.push('\\');
            }
            escaped.push(c);
        }
        escaped
    };
    let (old, new) = (escaped(old, r"\/.[]*^$"), escaped(new, r"\/&"));
    let script = format!("{line}s/{old}/{new}/").replace('\'', r"'\''");
    format!("sed -i '{script}' {}", word(file))
}

/// Whether a line of a file sets `name`.
fn has(file: &str, name: &str) -> bool {
    let text = fs::read_to_string(file).unwrap_or_default();
    let mut settings = text.lines().filter_map(|line| line.split_once('='));
    settings.any(|(found, _)| found.trim() == name)
}

/// The command that gives a variable another name; `None` if a shell can't name one of both, if
/// `new` is no whole name, or if `new` is set already.
fn rename(old: &str, new: &str) -> Option<String> {
    let is_name = |name: &&str| {
        name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !name.contains("_dev")
    };
    let is_free = env::var_os(new).is_none();
    (is_free && [old, new].iter().all(is_name))
        .then(|| format!("export {new}=\"${old}\"; unset {old}"))
}

/// The command that makes the setting ineffective: it turns the setting's lines into comments, or
/// unsets the variable.
fn without(place: &Place) -> String {
    if place.source != "environment" {
        return match place.text.trim_start().starts_with('>') {
            // The lines of a steering program are one setting.
            true => format!(
                "sed -i '/^ *>/s/^/# /' {}    # removes the steering program; or edit the line",
                word(&place.source)
            ),
            false => remove(&place.source, place.line),
        };
    }
    match place.text.split_once('=') {
        Some((name, _)) if !name.is_empty() => format!("unset {}", word(name)),
        _ => "fanpcap config".to_owned(),
    }
}

fn remove(file: &str, line: usize) -> String {
    format!(
        "sed -i '{line}s/^/# /' {}    # removes the line; or edit it",
        word(file)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_config::settings::{Environment, Settings};
    use std::process::Command;

    fn report(text: &str, wrong: &str, line: usize, hint: &str) -> Report {
        let source = if line == 0 {
            "environment"
        } else {
            "/etc/pcap.conf"
        };
        let at = text.find(wrong).unwrap();
        Report {
            slug: "",
            message: format!("unknown '{wrong}'"),
            place: Some(Box::new(Place::new(source, line.max(1), text, at))),
            hint: Some(hint.to_owned()),
        }
    }

    /// The lines of a file after the fix, which replaces the file's path by another one.
    fn mended(text: &str, fix: &str) -> String {
        let scratch = fanpcap_testkit::Scratch::new().unwrap();
        let file = scratch.write("pcap.conf", text).unwrap();
        let fix = fix.replace("/etc/pcap.conf", &file.display().to_string());
        let done = Command::new("sh").args(["-c", &fix]).status().unwrap();
        assert!(done.success(), "{fix}");
        std::fs::read_to_string(file).unwrap()
    }

    #[test]
    fn an_error_with_a_proposed_name_is_corrected_in_its_line() {
        for (line, wrong, meant, right) in [
            (
                "ring_eth0.5 = 1M",
                "ring_eth0.5",
                "ring@eth0.5",
                "ring@eth0.5 = 1M",
            ),
            ("fanout@5 = hsah", "hsah", "hash", "fanout@5 = hash"),
            ("ring@a = 32MB # 32MB", "32MB", "32M", "ring@a = 32M # 32MB"),
        ] {
            let hint = format!("did you mean '{meant}'?");
            let mut found = report(line, wrong, 2, &hint);
            let fix = of_error(&found);
            assert_eq!(
                mended(&format!("#\n{line}\n"), &fix),
                format!("#\n{right}\n"),
                "{fix}"
            );
            found.hint = Some("see pcap.conf(5) for the keys".to_owned());
            assert_eq!(of_error(&found), remove("/etc/pcap.conf", 2));
        }
        let mut later = report("hash = hash", "hash", 2, "did you mean 'lb'?");
        later.place.as_mut().unwrap().column = 8;
        assert_eq!(of_error(&later), remove("/etc/pcap.conf", 2));
    }

    /// The line of a config file after the fix of the library's own error in this line.
    fn corrected(line: &str) -> String {
        let scratch = fanpcap_testkit::Scratch::new().unwrap();
        let text = format!("def_group = 7\n{line}\n");
        let file = scratch.write("pcap.conf", &text).unwrap();
        let environment = Environment {
            variables: Vec::new(),
            secure: false,
            system_config: file.clone(),
        };
        let error = Settings::load(&environment).unwrap_err();
        let fix = of_error(&error);
        let done = Command::new("sh").args(["-c", &fix]).status().unwrap();
        assert!(done.success(), "{fix}");
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(Settings::load(&environment).is_ok(), "{text}");
        text.lines().nth(1).unwrap().to_owned()
    }

    #[test]
    fn the_text_that_the_library_proposes_is_written() {
        for (line, right) in [
            ("fanout@7 = flow +stikcy", "fanout@7 = flow +sticky"),
            ("fanout@7 = flow+stikcy=2048", "fanout@7 = flow+sticky=2048"),
            ("fanout@7 = hash+defarg", "fanout@7 = hash+defrag"),
            ("fanout@7 = hash+defrag=1", "fanout@7 = hash+defrag"),
            ("fanout@7 = flwo # mine", "fanout@7 = flow # mine"),
            (" group_eth0 : 7 # a: b", " group_eth0 = 7 # a: b"),
            ("group_eth0: 7", "group_eth0 = 7"),
            ("ring@eth0 32M", "ring@eth0 = 32M"),
        ] {
            assert_eq!(corrected(line), right);
        }
        assert_eq!(corrected("group_eth0"), "# group_eth0");
        assert_eq!(
            corrected("fanout@7 = flow defrag"),
            "# fanout@7 = flow defrag"
        );
    }

    #[test]
    fn odd_letters_are_neither_seds_nor_the_shells() {
        let (line, wrong, meant) = ("> main = x'/*^$.[", "x'/*^$.[", r"a&'\/$(id)");
        let found = report(line, wrong, 2, &format!("did you mean '{meant}'?"));
        assert!(of_error(&found).starts_with("sed -i '/^ *>/s/^/# /' "));
        let fix = substitute("/etc/pcap.conf", 1, wrong, meant);
        assert_eq!(
            mended(&format!("{line}\n"), &fix),
            format!("> main = {meant}\n")
        );
    }

    #[test]
    fn a_variable_with_a_proposed_name_is_renamed() {
        let fix = |text: &str, wrong: &str, hint: &str| of_error(&report(text, wrong, 0, hint));
        assert_eq!(
            fix("PCAP_GRUOP=7", "PCAP_GRUOP", "did you mean 'PCAP_GROUP'?"),
            "export PCAP_GROUP=\"$PCAP_GRUOP\"; unset PCAP_GRUOP"
        );
        assert_eq!(
            fix("PCAP_FANOUT=hsah", "hsah", "did you mean 'hash'?"),
            "export PCAP_FANOUT=hash"
        );
        assert_eq!(
            fix(
                "PCAP_FANOUT=hash+defarg",
                "defarg",
                "did you mean 'defrag'?"
            ),
            "unset PCAP_FANOUT"
        );
        // A variable of this process has no more lines than the place.
        let path = std::env::var("PATH").unwrap();
        assert_eq!(
            fix(&format!("PATH={path}"), &path, "did you mean 'it s'?"),
            "export PATH='it s'"
        );
        assert_eq!(
            fix("PCAP_IRQ=7", "PCAP_IRQ", "did you mean 'PCAP_IRQ_dev_N'?"),
            "unset PCAP_IRQ"
        );
    }

    #[test]
    fn a_setting_without_effect_gets_the_proposed_name() {
        let ignored = |setting: &str, place: &str, meant: &str| Ignored {
            setting: setting.to_owned(),
            key: None,
            place: place.to_owned(),
            reason: Reason::NoSuchDevice,
            why: String::new(),
            hint: Some(format!("did you mean '{meant}'?")),
        };
        let fix = of_vain(&ignored("ring@eht0 = 2M", "/etc/pcap.conf:1", "ring@eth0"));
        assert_eq!(fix, "sed -i '1s/ring@eht0/ring@eth0/' /etc/pcap.conf");
        assert_eq!(mended(" ring@eht0 = 2M\n", &fix), " ring@eth0 = 2M\n");
        let fix = of_vain(&ignored("PCAP_GROUP_e1=5", "environment", "PCAP_GROUP_e0"));
        assert_eq!(
            fix,
            "export PCAP_GROUP_e0=\"$PCAP_GROUP_e1\"; unset PCAP_GROUP_e1"
        );
        let scratch = fanpcap_testkit::Scratch::new().unwrap();
        let file = scratch.write("pcap.conf", "ring@eth0 = 1M\n").unwrap();
        let twice = format!("{}:2", file.display());
        let fix = of_vain(&ignored("ring@eht0 = 2M", &twice, "ring@eth0"));
        assert_eq!(fix, remove(&file.display().to_string(), 2));
        let uncertain = Ignored {
            hint: Some(
                "did you mean 'ring@eth0', or a device with another similar name?".to_owned(),
            ),
            ..ignored("ring@eth7 = 2M", "/etc/pcap.conf:1", "")
        };
        let fix = of_vain(&uncertain);
        let removed = "sed -i '1s/^/# /' /etc/pcap.conf";
        let (command, other) = fix.split_once("    # or, if ring@eth0 is meant: ").unwrap();
        assert_eq!(command, removed);
        assert_eq!(mended("ring@eth7 = 2M\n", other), "ring@eth0 = 2M\n");
        let fix = of_vain(&Ignored {
            hint: Some("the devices here are: lo".to_owned()),
            ..uncertain
        });
        assert_eq!(fix, remove("/etc/pcap.conf", 1));
        let hidden = of_vain(&ignored("", "/etc/pcap.conf:1", "ring@eth0"));
        assert_eq!(hidden, remove("/etc/pcap.conf", 1));
    }
}
