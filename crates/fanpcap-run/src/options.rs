//! The options of programs that users often run in copies, as getopt(3) reads them. For example,
//! `tcpdump -nni eth0` names a device, but `ngrep -i` does not.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A known program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) name: &'static str,
    /// Options that have a value.
    valued: &'static str,
    /// The option that names the device.
    pub(super) device: u8,
    /// The option that names the output file. `None` if a second copy with the same file name
    /// would overwrite nothing.
    pub(super) file: Option<u8>,
    /// The program captures on network devices only.
    pub(super) needs_device: bool,
    /// The output file is a capture.
    pub(super) captures: bool,
}

const fn known(name: &'static str, valued: &'static str, device: u8) -> Known {
    Known {
        name,
        valued,
        device,
        file: None,
        needs_device: true,
        captures: false,
    }
}

const fn writing(known: Known, file: u8, captures: bool) -> Known {
    Known {
        file: Some(file),
        captures,
        ..known
    }
}

/// A program whose device option also accepts pipes and other sources.
const fn elsewhere(known: Known) -> Known {
    Known {
        needs_device: false,
        ..known
    }
}

/// The options, from the programs' manual pages and sources.
const KNOWN: [Known; 11] = [
    writing(known("tcpdump", "BcCEFGijmMQrsTVwWyzZ", b'i'), b'w', true),
    elsewhere(writing(
        known("tshark", "abBcCdeEfFHijJKmMNoOrRsStTuUwWXyYz", b'i'),
        b'w',
        true,
    )),
    elsewhere(writing(
        known("dumpcap", "abBcCfFikNswWyZ", b'i'),
        b'w',
        true,
    )),
    writing(known("ngrep", "AcdFIKnOPsSuW", b'd'), b'O', true),
    writing(known("tcpflow", "AbdEeFfiLmoRrSTwXx", b'i'), b'w', true),
    elsewhere(writing(
        known("argus", "BcDeFgiMPrsStTuUw", b'i'),
        b'w',
        false,
    )),
    writing(known("p0f", "fimorsStu", b'i'), b'o', false),
    known("softflowd", "AbBcCefiLmnpPrRstTv", b'i'),
    known("pmacctd", "bcEfFiIKLmnoOpPrRsSTvY", b'i'),
    known("nfpcapd", "BbDefgijlMmopPrsStuw", b'i'),
    known("snort", "ABcFghijkKlLmnPQrRsStuzZG", b'i'),
];

/// The known program that a command line runs, and its arguments. Other programs, such as nice(1),
/// may precede the known program.
pub(super) fn known_program(command: &[OsString]) -> Option<(Known, &[OsString])> {
    let name = |word: &OsString| {
        let name = Path::new(word).file_name()?.to_str()?;
        KNOWN.iter().find(|known| known.name == name).copied()
    };
    let at = command.iter().position(|word| name(word).is_some())?;
    Some((name(&command[at])?, &command[at + 1..]))
}

impl Known {
    pub(super) fn values<'a>(&self, option: u8, arguments: &'a [OsString]) -> Vec<&'a OsStr> {
        let mut values = Vec::new();
        let mut words = arguments.iter().map(OsString::as_os_str);
        while let Some(word) = words.next().filter(|word| *word != "--") {
            let Some(letters) = word.as_bytes().strip_prefix(b"-") else {
                continue;
            };
            if letters.starts_with(b"-") {
                continue;
            }
            let is_valued = |letter: &u8| self.valued.as_bytes().contains(letter);
            let Some(at) = letters.iter().position(is_valued) else {
                continue;
            };
            let value = match &letters[at + 1..] {
                [] => words.next(),
                rest => Some(OsStr::from_bytes(rest)),
            };
            values.extend(value.filter(|_| letters[at] == option));
        }
        values
    }

    /// The name of the output file. The last option counts.
    pub(super) fn output<'a>(&self, arguments: &'a [OsString]) -> Option<&'a OsStr> {
        self.values(self.file?, arguments).into_iter().next_back()
    }

    /// Why the program's captures may lack packets that it took, even if it ended by itself: it
    /// reuses its files, or writes only some of the packets.
    pub(super) fn leaves_out(&self, arguments: &[OsString]) -> Option<&'static str> {
        let values = |option| self.values(option, arguments);
        let has = |option| !values(option).is_empty();
        // Without the copy's number, a percent sign begins a date (strftime(3)).
        let is_dated = |name: &OsStr| name.to_string_lossy().replace("%i", "").contains('%');
        let has_date = || self.output(arguments).is_some_and(is_dated);
        match self.name {
            // With -C and -G, -W only gives the number of digits in the names.
            "tcpdump" if has(b'C') && has(b'W') && !has(b'G') => {
                Some("tcpdump -C -W overwrites its older files")
            }
            "tcpdump" if has(b'G') && !has_date() => {
                Some("tcpdump -G overwrites its file if the name has no date (-w %i-%s.pcap)")
            }
            "tcpdump" if has(b'z') => Some("tcpdump -z gives its files to a command"),
            "dumpcap" | "tshark" => {
                let is_ring = |value: &&OsStr| value.as_bytes().starts_with(b"files:");
                // The value of the long option --ring-buffer is a word of its own, or behind '='.
                let is_long = |word: &OsString| {
                    let word = word.as_bytes();
                    word.starts_with(b"--ring-buffer=files:") || word.starts_with(b"files:")
                };
                let has_ring = values(b'b').iter().any(is_ring) || arguments.iter().any(is_long);
                has_ring.then_some("-b files:N removes the older files")
            }
            "ngrep" => Some("ngrep writes only the packets that match"),
            "tcpflow" => Some("tcpflow -w writes only the packets that it does not process"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn devices_are_found_as_the_programs_find_them() {
        for (line, found) in [
            ("tcpdump -ni eth0", &["eth0"][..]),
            ("/usr/sbin/tcpdump -nnei eth0 tcp", &["eth0"]),
            ("tcpdump -niux0", &["ux0"]),
            ("tcpdump -s96 -i eth0", &["eth0"]),
            ("tcpdump -wi.pcap -i eth0", &["eth0"]),
            ("tcpdump -w -i eth0", &[]),
            ("nice -n 5 tcpdump -nUi eth0 -c5", &["eth0"]),
            ("ngrep -qid eth0 password", &["eth0"]),
            ("dumpcap -i eth0 -Pqi eth1", &["eth0", "eth1"]),
            ("tcpdump -n -- -i eth0", &[]),
            ("tcpdump --immediate-mode -ni", &[]),
        ] {
            let words = words(line);
            let (known, arguments) = known_program(&words).unwrap();
            assert_eq!(known.values(known.device, arguments), found, "{line}");
        }
        assert_eq!(known_program(&words("cat -i eth0")), None);
    }

    #[test]
    fn programs_that_drop_packets_or_files_are_known() {
        for (line, why) in [
            ("tcpdump -C 1 -W 5 -w %i.pcap", Some("-C -W overwrites")),
            ("tcpdump -nC1 -W5 -w%i.pcap", Some("-C -W overwrites")),
            ("tcpdump -C 1 -w %i.pcap", None),
            ("tcpdump -W 5 -w %i.pcap", None),
            ("tcpdump -G 60 -C 1 -W 5 -w %i-%s.pcap", None),
            ("tcpdump -G 60 -w %i.pcap", Some("-G overwrites")),
            ("tcpdump -G 60 -w %i-%F.pcap", None),
            ("dumpcap -b filesize:100 -b files:5 -w %i", Some("removes")),
            ("tshark -b filesize:100 -w %i", None),
            ("dumpcap --ring-buffer files:5 -w %i", Some("removes")),
            ("dumpcap --ring-buffer=files:5 -w %i", Some("removes")),
            ("tcpdump -C 1 -z gzip -w %i.pcap", Some("to a command")),
            ("ngrep -O %i.pcap word", Some("that match")),
            ("tcpdump -w %i.pcap", None),
        ] {
            let words = words(line);
            let (known, arguments) = known_program(&words).unwrap();
            let said = known.leaves_out(arguments);
            assert_eq!(said.is_some(), why.is_some(), "{line}: {said:?}");
            assert!(
                said.unwrap_or("").contains(why.unwrap_or("")),
                "{line}: {said:?}"
            );
        }
    }

    /// Options of a program with their values, and a command line with these options. An option may
    /// follow flags in the same word, and its value may be in the same word or in the next.
    fn line(known: Known) -> impl Strategy<Value = (Vec<(u8, String)>, Vec<OsString>)> {
        let valued: Vec<u8> = known.valued.bytes().collect();
        let flags: Vec<u8> = (b'a'..=b'z').filter(|it| !valued.contains(it)).collect();
        let option = (
            proptest::collection::vec(proptest::sample::select(flags), 0..4),
            proptest::sample::select(valued),
            "[a-z0-9.%-]{1,6}",
            any::<bool>(),
            proptest::option::of("[a-z0-9]{1,4}"),
        );
        proptest::collection::vec(option, 0..6).prop_map(|options| {
            let (mut expected, mut line) = (Vec::new(), Vec::new());
            for (flags, letter, value, joined, operand) in options {
                expected.push((letter, value.clone()));
                let mut word = [b"-", &flags[..], &[letter]].concat();
                if joined {
                    word.extend(value.bytes());
                }
                line.push(OsStr::from_bytes(&word).to_owned());
                line.extend((!joined).then(|| value.into()));
                line.extend(operand.map(OsString::from));
            }
            (expected, line)
        })
    }

    proptest! {
        #[test]
        fn every_form_of_a_line_has_the_same_values(
            (known, (expected, line)) in proptest::sample::select(KNOWN.to_vec())
                .prop_flat_map(|known| (Just(known), line(known)))
        ) {
            for option in known.valued.bytes() {
                let wanted: Vec<&str> = expected.iter()
                    .filter(|(letter, _)| *letter == option)
                    .map(|(_, value)| value.as_str())
                    .collect();
                prop_assert_eq!(known.values(option, &line), wanted);
            }
        }
    }
}
