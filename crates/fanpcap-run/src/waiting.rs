//! Warns of copies that would not wait for their device, although a setting asks for it
//! (`gone = wait`): the program gives up the privilege when it has opened its device.

use std::ffi::{OsStr, OsString};

use fanpcap_linux::process::effective_user;

use super::founding;
use super::options::{self, Known};

/// The warning about copies on `device` in `group`; `None` if they can wait, or need not. `fanout`
/// is the mode that an argument of the command gives.
pub(crate) fn warning(
    command: &[OsString],
    group: u16,
    device: Option<&str>,
    fanout: Option<&str>,
) -> Option<String> {
    let (program, advice) = gives_up(command)?;
    let device = device?;
    let plan = founding::explained(group, device, fanout)?.plan.ok()?;
    let origin = plan.waits_if_gone?;
    Some(format!(
        "{origin}: the copies can't wait for {device}, because {program} gives up CAP_NET_RAW: \
         {advice}"
    ))
}

/// The program if it gives up CAP_NET_RAW, and what helps. Dumpcap, which tshark starts, always
/// does. Tcpdump does when root starts it: without the option -Z root, most distributions' tcpdump
/// changes to a user of its own.
fn gives_up(command: &[OsString]) -> Option<(&'static str, &'static str)> {
    let (known, arguments) = options::known_program(command)?;
    match known.name {
        "dumpcap" | "tshark" => Some(("dumpcap", "use --restart")),
        "tcpdump" if effective_user() == 0 && changes_user(&known, arguments) => {
            Some(("tcpdump", "start it with -Z root, or use --restart"))
        }
        _ => None,
    }
}

fn changes_user(tcpdump: &Known, arguments: &[OsString]) -> bool {
    let short = tcpdump.values(b'Z', arguments).into_iter().next_back();
    let user = relinquishes(arguments).map(OsStr::new).or(short);
    user.is_none_or(|user| user != "root")
}

/// The value of tcpdump's long option for -Z, which may be abbreviated.
fn relinquishes(arguments: &[OsString]) -> Option<&str> {
    let mut words = arguments.iter().filter_map(|word| word.to_str());
    while let Some(word) = words.next() {
        let (option, value) = word.split_once('=').unwrap_or((word, ""));
        if option.len() > "--".len() && LONG.starts_with(option) {
            return match word.contains('=') {
                true => Some(value),
                false => words.next(),
            };
        }
    }
    None
}

/// The long form of tcpdump's -Z.
const LONG: &str = "--relinquish-privileges";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcpdump_keeps_root_only_if_it_is_told() {
        let gives_up = |line: &str| {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            let (tcpdump, arguments) = options::known_program(&words).unwrap();
            changes_user(&tcpdump, arguments)
        };
        for line in [
            "tcpdump -ni eth0",
            "nice tcpdump -i eth0 -Z nobody",
            "/usr/bin/tcpdump -Zroot -Z tcpdump",
            "tcpdump -w -Zroot",
            "tcpdump --relinquish-privileges=nobody",
        ] {
            assert!(gives_up(line), "{line}");
        }
        for line in [
            "tcpdump -ni eth0 -Z root",
            "tcpdump -nZroot -i eth0",
            "tcpdump --relinquish-privileges root",
            "tcpdump --relinquish=root -i eth0",
        ] {
            assert!(!gives_up(line), "{line}");
        }
    }

    #[test]
    fn dumpcap_never_keeps_the_privilege() {
        for line in ["dumpcap -i eth0", "nice tshark -ni eth0"] {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            assert_eq!(
                gives_up(&words),
                Some(("dumpcap", "use --restart")),
                "{line}"
            );
        }
        assert_eq!(gives_up(&["other".into()]), None);
    }
}
