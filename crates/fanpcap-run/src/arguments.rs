//! The copies' arguments: replaces `%i` by the copy's number, and finds names of files and devices.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use fanpcap_config::driver::Driver;

use super::options;

/// An argument of copy `number`: `%i` is the number, `%%` is `%`, and any other `%` stays (as in
/// strftime's `%H`).
pub(crate) fn expand(argument: &OsStr, number: usize) -> OsString {
    let mut expanded = Vec::new();
    let mut bytes = argument.as_bytes().iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match (byte, bytes.peek()) {
            (b'%', Some(b'i')) => expanded.extend(number.to_string().bytes()),
            (b'%', Some(b'%')) => expanded.push(b'%'),
            _ => {
                expanded.push(byte);
                continue;
            }
        }
        bytes.next();
    }
    OsString::from_vec(expanded)
}

/// Whether the argument contains `%i`, so that it differs between copies.
pub(crate) fn is_numbered(argument: &OsStr) -> bool {
    expand(argument, 0) != expand(argument, 1)
}

/// The files that copy `number` may write, according to the arguments. An argument with `%i` may
/// contain a path in three ways: as the whole argument, after `=`, or after an option letter, as
/// in `-w%i.pcap`. All these paths are returned.
pub(crate) fn files(arguments: &[OsString], number: usize) -> Vec<PathBuf> {
    let numbered = arguments.iter().filter(|argument| is_numbered(argument));
    numbered
        .flat_map(|argument| {
            let parts = parts(argument).into_iter().filter(|part| is_numbered(part));
            parts.map(|part| PathBuf::from(expand(part, number)))
        })
        .collect()
}

fn parts(argument: &OsStr) -> Vec<&OsStr> {
    let bytes = argument.as_bytes();
    let mut parts = vec![argument];
    let equals = bytes.iter().enumerate().filter(|&(_, &byte)| byte == b'=');
    parts.extend(equals.map(|(at, _)| OsStr::from_bytes(&bytes[at + 1..])));
    if bytes.starts_with(b"-") && !bytes.starts_with(b"--") && bytes.len() > 2 {
        parts.push(OsStr::from_bytes(&bytes[2..]));
    }
    parts
}

/// The device that a command line names. For a known program, reads the options as that program
/// does. For other programs, takes the value of `-i` or `--interface`. If the command line has
/// neither option, takes the value of `-d` or `--pcap` (Suricata), or of a bundle of options that
/// ends with `i`. These options may mean something else, so their value must be a device that
/// `exists` finds. If the command line names several devices, returns the first. Returns the plain
/// name: `eth0` for `xdp:eth0`, `eth0:1` and `eth0^eth1`.
pub(crate) fn device(command: &[OsString], exists: impl Fn(&str) -> bool) -> Option<String> {
    let [certain, perhaps] = named(command);
    let first = certain.iter().find_map(|text| plain(text));
    let mut perhaps = perhaps.iter().filter_map(|text| plain(text));
    first.or_else(|| perhaps.find(|device| exists(device)))
}

/// The engine other than packet sockets that the command line names before this device.
pub(crate) fn named_engine(command: &[OsString], device: &str) -> Option<Driver> {
    let named = named(command).concat();
    let text = named
        .iter()
        .find(|text| plain(text).as_deref() == Some(device))?;
    let mut engines = Driver::all().filter(|it| it.takes_devices() || it.is_polled());
    let found = engines.find(|engine| text.starts_with(&format!("{engine}:")));
    found.map(Driver::engine)
}

/// The values of the options that name a device, and the values of those that may name one.
fn named(command: &[OsString]) -> [Vec<String>; 2] {
    let known = options::known_program(command);
    let of_known = known.map(|(known, arguments)| known.values(known.device, arguments));
    let of_known = of_known.into_iter().flatten().filter_map(OsStr::to_str);
    let mut certain: Vec<String> = of_known.map(str::to_owned).collect();
    let texts: Vec<&str> = command.iter().filter_map(|text| text.to_str()).collect();
    let of = |short, long| values(&texts, short, long);
    let short = if known.is_some() { "--interface" } else { "-i" };
    certain.extend(of(short, "--interface"));
    [certain, [of("-d", "--pcap"), bundled(&texts)].concat()]
}

/// The values of an option, in its forms: `-i eth0`, `-ieth0`, `--interface eth0`,
/// `--interface=eth0`.
fn values(texts: &[&str], short: &str, long: &str) -> Vec<String> {
    let value = |(at, text): (usize, &&str)| {
        if *text == short || *text == long {
            return texts.get(at + 1).map(|next| (*next).to_owned());
        }
        let after = |start: &str, end: &str| text.strip_prefix(start)?.strip_prefix(end);
        let joined =
            after(long, "=").or_else(|| after(short, "").filter(|_| !text.starts_with("--")));
        joined.filter(|rest| !rest.is_empty()).map(str::to_owned)
    };
    texts.iter().enumerate().filter_map(value).collect()
}

/// Possible values of an option `i` that is bundled with others: `-ni eth0`, `-nieth0`.
fn bundled(texts: &[&str]) -> Vec<String> {
    let mut values = Vec::new();
    for (at, text) in texts.iter().enumerate() {
        let Some(letters) = text.strip_prefix('-').filter(|rest| !rest.starts_with('-')) else {
            continue;
        };
        for (end, _) in letters.match_indices('i') {
            let rest = &letters[end + 1..];
            let next = texts.get(at + 1).copied().filter(|_| rest.is_empty());
            values.push(next.unwrap_or(rest).to_owned());
        }
    }
    values
}

/// The plain name of the first device in `name`, without the engine (`xdp:`) or a number (`:1`).
pub(crate) fn plain(name: &str) -> Option<String> {
    let first = name.split('^').next()?;
    let parts: Vec<&str> = first.split(':').collect();
    let plain = match parts[..] {
        [device] => device,
        [device, number] if is_number(number) => device,
        [_, device] => device,
        [_, device, number] if is_number(number) => device,
        // The names of DPDK's devices on the PCI bus have colons.
        [engine, ..] if Driver::named(engine).is_some() => {
            first[engine.len()..].trim_start_matches(':')
        }
        _ => first,
    };
    (!plain.is_empty()).then(|| plain.to_owned())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The one file that all copies of an unknown program would write: `-w` with a name that is not
/// numbered.
pub(crate) fn shared_file(arguments: &[OsString]) -> Option<&OsStr> {
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let name = match argument.as_bytes() {
            b"-w" => arguments.next()?.as_os_str(),
            [b'-', b'w', name @ ..] => OsStr::from_bytes(name),
            _ => continue,
        };
        if is_shared(name) {
            return Some(name);
        }
    }
    None
}

/// Whether all copies would write the same file if their arguments contain this name. `/dev/stdout`
/// differs for each copy, and a URL, which argus(8) accepts, is not a file.
pub(crate) fn is_shared(name: &OsStr) -> bool {
    let text = name.to_string_lossy();
    let is_file = name != "-" && !text.starts_with("/dev/") && !text.contains("://");
    is_file && !is_numbered(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn numbers_and_percent_signs() {
        for (argument, expanded) in [
            ("%i.pcap", "7.pcap"),
            ("a%%i", "a%i"),
            ("%%%i%", "%7%"),
            ("%H%i%M", "%H7%M"),
            ("", ""),
        ] {
            assert_eq!(expand(OsStr::new(argument), 7), expanded, "{argument}");
        }
        assert!(is_numbered(OsStr::new("x%i")) && !is_numbered(OsStr::new("x%%i")));
        let foreign = OsStr::from_bytes(b"\xff%i");
        assert_eq!(expand(foreign, 12).as_bytes(), b"\xff12");
    }

    #[test]
    fn files_are_found_in_every_form_of_option() {
        let expected = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(
            files(&words("-i eth0 -w %i.pcap tcp"), 1),
            expected(&["1.pcap"])
        );
        assert_eq!(
            files(&words("-w%i.pcap"), 0),
            expected(&["-w0.pcap", "0.pcap"])
        );
        assert_eq!(
            files(&words("--write=d=/%i.pcap"), 0),
            expected(&["--write=d=/0.pcap", "d=/0.pcap", "/0.pcap"])
        );
        assert_eq!(files(&words("--name%i=x %%i"), 0), expected(&["--name0=x"]));
    }

    #[test]
    fn engines_are_found_in_devices() {
        let names = |line: &str| named_engine(&words(line), "eth0").is_some();
        assert!(names("tcpdump -i xdp:eth0") && names("tcpdump -nixdp:eth0^eth1"));
        assert!(names("snort -q --interface=xdp:eth0") && names("capture -dxdp:eth0"));
        assert!(names("tcpdump -i pfq:eth0 -w xdp.pcap"));
        assert!(!names("tcpdump -i eth0 -w /data/xdp:1.pcap"));
        assert!(!names("capture -i eth0 -wxdp:1.pcap") && !names("capture xdp:eth0"));
        assert!(!names("dumpcap -i eth0 -i xdp:eth1") && names("dumpcap -i eth1 -i xdp:eth0"));
    }

    #[test]
    fn devices_are_found_in_every_form_of_option() {
        for (arguments, found) in [
            ("-n -i eth0", Some("eth0")),
            ("-ieth0", Some("eth0")),
            ("--interface=eth0:1", Some("eth0")),
            ("--interface xdp:eth0", Some("eth0")),
            ("--interface xdp:eth0:1", Some("eth0")),
            ("-i dpdk:net_ring0", Some("net_ring0")),
            ("-i dpdk:0000:3b:00.0", Some("0000:3b:00.0")),
            ("-i 0000:3b:00.0", Some("0000:3b:00.0")),
            ("-i dpdk:3b:00.0", Some("3b:00.0")),
            ("-i pfq:eth0:2^eth1 -i eth5", Some("eth0")),
            ("-i", None),
            ("-i pfq:", None),
            ("-n tcp", None),
            ("-q -d eth0 password", Some("eth0")),
            ("-deth0", Some("eth0")),
            ("-d -d eth7 --pcap=eth0 -l x", Some("eth0")),
            ("-d eth0 -i eth5", Some("eth5")),
            ("-dd --pcap", None),
            ("-qi eth0 -l x", Some("eth0")),
            ("-qieth0", Some("eth0")),
            ("-qi nosuch --ignore", None),
            ("tcpdump -nnei eth5 -s96", Some("eth5")),
            ("tcpdump -niux0:1", Some("ux0")),
            ("tcpdump -n --interface=eth5", Some("eth5")),
            ("ngrep -i -d eth5 password", Some("eth5")),
            ("ngrep -qi password", None),
        ] {
            let device = device(&words(arguments), |name| name == "eth0");
            assert_eq!(device.as_deref(), found, "{arguments}");
        }
    }

    #[test]
    fn one_file_for_all_is_noticed() {
        for (arguments, found) in [
            ("-w all.pcap", Some("all.pcap")),
            ("-wall.pcap", Some("all.pcap")),
            ("-w - -w %i.pcap -n", None),
            ("-w /dev/null", None),
            ("-w /dev/stdout", None),
        ] {
            let arguments = words(arguments);
            assert_eq!(
                shared_file(&arguments),
                found.map(OsStr::new),
                "{arguments:?}"
            );
        }
    }
}
