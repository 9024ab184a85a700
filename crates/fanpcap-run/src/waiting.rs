//! Warns of copies that would not wait for their device, although a setting asks for it
//! (`gone = wait`): tcpdump gives up the privilege when root starts it.

use std::ffi::{OsStr, OsString};

use fanpcap_linux::process::effective_user;

use super::founding;
use super::options;

/// The warning about copies on `device` in `group`; `None` if they can wait, or need not. `fanout`
/// is the mode that an argument of the command gives.
pub(crate) fn warning(
    command: &[OsString],
    group: u16,
    device: Option<&str>,
    fanout: Option<&str>,
) -> Option<String> {
    let gives_up = effective_user() == 0 && gives_up_root(command);
    let device = device.filter(|_| gives_up)?;
    let plan = founding::explained(group, device, fanout)?.plan.ok()?;
    let origin = plan.waits_if_gone?;
    Some(format!(
        "{origin}: the copies can't wait for {device}, because tcpdump gives up CAP_NET_RAW: \
         start it with -Z root, or use --restart"
    ))
}

/// Whether the program is tcpdump, as root starts it: without the option -Z root, most
/// distributions' tcpdump changes to a user of its own.
fn gives_up_root(command: &[OsString]) -> bool {
    let known = options::known_program(command).filter(|(known, _)| known.name == "tcpdump");
    let Some((tcpdump, arguments)) = known else {
        return false;
    };
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
            gives_up_root(&words)
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
            "tshark -i eth0",
            "other",
        ] {
            assert!(!gives_up(line), "{line}");
        }
    }
}
