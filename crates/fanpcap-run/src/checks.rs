//! Checks the device, the files and the group's present members before any copy starts.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use anyhow::{Result, bail, ensure};
use fanpcap_config::device::ANY;
use fanpcap_config::driver::Driver;
use fanpcap_group::roster::{self, RosterEntry};
use fanpcap_linux::interface;
use fanpcap_poll::place;

use super::arguments;
use super::founding;
use super::group::GroupMode;
use super::options::{self, Known};

/// Prefixes of libpcap's capture sources that are not network devices.
const NO_DEVICES: [&str; 7] = [
    "usbmon",
    "nflog",
    "nfqueue",
    "bluetooth",
    "dbus",
    "netmap",
    "dag",
];

/// The device on which the copies capture, if known: `given`, the value of -i, or else the
/// device that the copies' `command` names.
///
/// # Errors
/// This network namespace has no such device. The message lists its devices.
pub(crate) fn device(given: Option<&str>, command: &[OsString]) -> Result<Option<String>> {
    let polled = place::names();
    let exists =
        |name: &str| name == ANY || interface::index(name).is_some() || is_served(&polled, name);
    let there_are = || interface::names().join(", ");
    if let Some(given) = given {
        let name = arguments::plain(given).unwrap_or_default();
        ensure!(
            exists(&name),
            "-i {given}: there is no such device here{}; the devices here are: {}",
            unserved(engine_of(given), &name),
            there_are()
        );
        let (program, _) = command.split_at(1.min(command.len()));
        let other = options::known_program(program)
            .and_then(|_| arguments::device(command, exists))
            .filter(|other| *other != name && exists(other));
        if let Some(other) = other {
            bail!("-i {given}: the program captures on {other}: name one of them, once");
        }
        return Ok(Some(name));
    }
    let device = arguments::device(command, exists);
    if let Some(name) = device.as_deref().filter(|name| !exists(name)) {
        let (program, rest) = command.split_at(1.min(command.len()));
        // An unknown program, such as ip netns exec or ssh, may run the command in another
        // namespace or on another machine, so its device need not exist here.
        let is_here = options::known_program(program).is_some_and(|(known, _)| known.needs_device);
        let is_device = name.bytes().any(|byte| !byte.is_ascii_digit())
            && !NO_DEVICES.iter().any(|other| name.starts_with(other))
            && !rest.iter().any(|word| word == "-r");
        ensure!(
            !(is_here && is_device),
            "the copies would capture on {name}, but there is no device {name} here{}; the devices here are: {}",
            unserved(arguments::named_engine(command, name), name),
            there_are()
        );
    }
    Ok(device)
}

/// The engine before the device.
fn engine_of(device: &str) -> Option<Driver> {
    Driver::named(device.split_once(':')?.0)
}

/// For the message about a device that does not exist: an engine's poller could serve it.
fn unserved(engine: Option<Driver>, device: &str) -> String {
    let engine = engine.filter(|it| it.has_poller());
    let text = |it| {
        format!(
            ", and no poller serves {it}:{device} (start one as root: 'fanpcap poller \
             {it}:{device}')"
        )
    };
    engine.map_or_else(String::new, text)
}

/// Whether one of the pollers, such as `dpdk:net_ring0`, serves the device. Such a device need not
/// be an interface.
fn is_served(polled: &[OsString], device: &str) -> bool {
    let of_poller = |it: &OsString| it.to_str()?.split_once(':').map(|(_, its)| its == device);
    polled.iter().any(|it| of_poller(it) == Some(true))
}

/// Checks that each copy writes its own file, and that --merge has captures to merge.
///
/// # Errors
/// The message says what to write instead.
pub(crate) fn files(command: &[OsString], copies: usize, is_merged: bool) -> Result<()> {
    let Some((known, arguments)) = options::known_program(command) else {
        return Ok(());
    };
    let Some(option) = known.file else {
        return Ok(());
    };
    // A wrapper may give each copy its own directory: env -C copy%i, chroot copy%i.
    let before = &command[..command.len() - arguments.len()];
    if before.iter().any(|word| arguments::is_numbered(word)) {
        return Ok(());
    }
    let file = known.output(arguments);
    let letter = char::from(option);
    if let Some(file) = file.filter(|file| arguments::is_shared(file)) {
        let (name, own) = (Path::new(file).display(), numbered(file));
        ensure!(
            copies == 1,
            "all {copies} copies would write {name}, and each would overwrite what the others wrote: write -{letter} {own}, where %i is the copy's number"
        );
        ensure!(
            !is_merged,
            "--merge: nothing would be merged: write -{letter} {own} instead of -{letter} {name}, where %i is the copy's number"
        );
    }
    ensure_merged(known, file.filter(|file| *file != "/dev/null"), is_merged)
}

fn ensure_merged(known: Known, file: Option<&OsStr>, is_merged: bool) -> Result<()> {
    let (name, letter) = (known.name, char::from(known.file.unwrap_or(b'w')));
    ensure!(
        !is_merged || !known.captures || file.is_some(),
        "--merge: nothing would be merged: {name} writes no capture here; write -{letter} %i.pcap, or -{letter} - for standard output"
    );
    Ok(())
}

/// The file's name with the copy's number added.
fn numbered(file: &OsStr) -> String {
    let path = Path::new(file);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let own = match path.extension() {
        Some(extension) => path.with_extension(format!("%i.{}", extension.to_string_lossy())),
        None => path.with_file_name(format!("{name}.%i")),
    };
    own.display().to_string()
}

/// Checks that the copies can join the group, as far as the kernel's list of sockets and the
/// member pages show.
///
/// # Errors
/// The message describes the group and says what to do.
pub(crate) fn group(group: u16, wanted: &GroupMode, device: Option<&str>) -> Result<()> {
    let seen = roster::entries().unwrap_or_default().into_iter();
    let here = device.and_then(interface::index);
    for RosterEntry { socket, page, .. } in seen {
        let Some(has) = socket.fanout.filter(|has| has.id == group) else {
            continue;
        };
        let elsewhere = "leave out --group to get a free group, or name another group";
        if here.is_some_and(|here| here != socket.ifindex) {
            let on = interface::name(socket.ifindex).unwrap_or_else(|| "other devices".to_owned());
            bail!("--group {group}: the group is on {on} already: {elsewhere}");
        }
        // No mode was asked for: the copies join in the group's mode.
        let Some(asked) = &wanted.asked else {
            continue;
        };
        let runs = page.as_ref().map(|page| page.shown_mode());
        let is_same_kind = has.mode == asked.mode.kind.kernel_type();
        let is_same = page.is_none_or(|page| asked.is_of(&page));
        if !is_same_kind || !is_same {
            let runs = runs.unwrap_or_else(|| format!("another mode (number {})", has.mode));
            bail!(
                "--group {group}: the group has {runs} already, not {}: {elsewhere}, or give --fanout the mode of the group",
                wanted.text
            );
        }
    }
    Ok(())
}

/// The engine of the copies, if their packets come from a poller. `named` is the engine that the
/// copies' command names.
pub(crate) fn poller(
    group: u16,
    named: Option<Driver>,
    device: Option<&str>,
    fanout: Option<&str>,
) -> Option<Driver> {
    let is_named = named.is_some();
    let named = named.filter(|engine| engine.is_polled());
    let asked = || founding::asked_poller(group, device, fanout).filter(|_| !is_named);
    named.or_else(asked)
}

/// Checks that this command can account for the packets of the copies.
///
/// # Errors
/// A kernel module of others shares the packets.
pub(crate) fn ensure_accounted(engine: Option<Driver>) -> Result<()> {
    let of_others = engine.filter(|engine| !engine.has_poller());
    if let Some(engine) = of_others {
        bail!(
            "copies on the engine {engine}: fanpcap run can't see what its kernel module counts for \
             a copy that ends; start the copies by another program"
        );
    }
    Ok(())
}

/// Variables of the calling environment that have no effect here, because this command sets the
/// copies' group and, with --fanout, also their mode.
pub(crate) fn ignored(has_fanout: bool) -> Vec<String> {
    let names = env::vars_os().map(|(name, _)| name);
    let names = names.filter(|name| founding::is_replaced(name, has_fanout));
    let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_a_module_of_others_are_not_accounted_for() {
        let check = |name| ensure_accounted(Driver::named(name)).is_ok();
        assert_eq!(
            ["packet", "netmap", "pfring"].map(check),
            [true, true, false]
        );
        assert!(ensure_accounted(None).is_ok());
    }

    #[test]
    fn a_device_of_a_poller_need_not_be_an_interface() {
        let polled = ["packet:eth0", "dpdk:0000:3b:00.0"].map(OsString::from);
        let is_here = |device| is_served(&polled, device);
        assert!(is_here("eth0") && is_here("0000:3b:00.0"));
        assert!(!is_here("eth1") && !is_here("00.0") && !is_served(&[], "eth0"));
    }

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    fn refused(line: &str, copies: usize, is_merged: bool) -> String {
        let result = files(&words(line), copies, is_merged);
        result.err().map_or_else(String::new, |it| it.to_string())
    }

    #[test]
    fn one_file_for_all_copies_is_refused_with_the_name_to_write() {
        for (line, own) in [
            ("tcpdump -nUw all.pcap -i eth0", "-w all.%i.pcap"),
            ("dumpcap -i eth0 -wd/x.y/all", "-w d/x.y/all.%i"),
            ("ngrep -O all.pcap -w word", "-O all.%i.pcap"),
            ("p0f -i eth0 -o p0f.log", "-o p0f.%i.log"),
        ] {
            let said = refused(line, 2, false);
            assert!(
                said.contains("all 2 copies would write") && said.contains(own),
                "{said}"
            );
            assert_eq!(refused(line, 1, false), "", "{line}");
        }
        for line in [
            "tcpdump -w %i.pcap",
            "tcpdump -w /dev/null",
            "tcpdump -w /dev/stdout",
            "argus -i eth0 -w argus-udp://224.0.20.21:561",
            "env -C copy%i tcpdump -w all.pcap",
            "tcpdump -w a -w -",
            "ngrep -w word",
            "other -w all.pcap",
        ] {
            assert_eq!(refused(line, 2, false), "", "{line}");
        }
    }

    #[test]
    fn a_merge_of_nothing_is_refused() {
        for line in ["tcpdump -ni eth0", "tshark -n", "tcpdump -w /dev/null"] {
            let said = refused(line, 2, true);
            assert!(
                said.contains("writes no capture here; write -w %i.pcap"),
                "{said}"
            );
        }
        let said = refused("tcpdump -w all.pcap", 1, true);
        assert!(said.contains("write -w all.%i.pcap instead of"), "{said}");
        for line in ["tcpdump -w -", "tcpdump -w%i.pcap", "argus -i eth0", "cat"] {
            assert_eq!(refused(line, 2, true), "", "{line}");
        }
    }

    #[test]
    fn the_poller_of_the_copies_is_known() {
        let named = |line: &str| arguments::named_engine(&words(line), "lo");
        let poller = |line: &str| poller(7, named(line), Some("lo"), None);
        let found = poller("tcpdump -n -i packet:lo").map(Driver::name);
        assert_eq!(found, Some("packet"));
        for line in ["tcpdump -n -i xdp:lo", "tcpdump -n -i lo"] {
            assert!(poller(line).is_none(), "{line}");
        }
    }

    #[test]
    fn devices_that_are_not_there_are_refused_where_that_is_sure() {
        let device = |given, line: &str| device(given, &words(line));
        let error = device(Some("nosuch"), "true").unwrap_err().to_string();
        assert!(
            error.starts_with("-i nosuch: there is no such device"),
            "{error}"
        );
        assert!(
            error.contains("the devices here are: ") && error.contains("lo"),
            "{error}"
        );
        assert_eq!(device(Some("lo"), "true").unwrap().as_deref(), Some("lo"));
        let error = device(None, "tcpdump -nni nosuch").unwrap_err().to_string();
        assert!(error.contains("no device nosuch here"), "{error}");
        for line in [
            "tcpdump -i 1",
            "tcpdump -i usbmon1",
            "tcpdump -i any",
            "ip netns exec a tcpdump -i nosuch",
            "tshark -i nosuch",
            "other -i nosuch",
        ] {
            assert!(device(None, line).is_ok(), "{line}");
        }
    }
}
