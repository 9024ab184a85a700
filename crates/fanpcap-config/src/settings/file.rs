//! The config file: its grammar, from text to entries.

use super::keys::{self, Entries, Entry, KEYS, Key, OLD_KEYS, Scope, Target, Value};
use crate::fanout::{Script, too_long};
use crate::report::{Fault, Place, Report, offset_in, quote};
use crate::source::{PROGRAM_MAX, Source};
use fanpcap_steer::nearest::nearest;

/// Reads the text of a config file; `source` is the name that errors give it.
pub fn parse(text: &str, source: &str) -> Result<Vec<Entry>, Report> {
    let mut entries = Entries::default();
    let mut program = None;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (number, line) in (1..).zip(text.lines()) {
        let placed = |fault: Fault| fault.at(source, number, line);
        if let Some(code) = line.trim_start().strip_prefix('>') {
            let begun = program.get_or_insert_with(|| Program::new(source, number, line));
            begun.push(line, offset_in(line, code)).map_err(placed)?;
            continue;
        }
        add(&mut entries, program.take())?;
        if let Some(entry) = entry(line, source, number).map_err(placed)? {
            entries.add(entry)?;
        }
    }
    add(&mut entries, program)?;
    Ok(entries.into_list())
}

/// The `>` lines in a row, read so far.
struct Program {
    text: Source,
    place: Place,
}

impl Program {
    /// None of them yet; the first is line `number`.
    fn new(source: &str, number: usize, line: &str) -> Self {
        let at = line.len() - line.trim_start().len();
        Self {
            text: Source::lines_from(source, number),
            place: Place::new(source, number, line, at),
        }
    }

    /// Adds a line, in which the program's part begins at byte `at`.
    fn push(&mut self, line: &str, at: usize) -> Result<(), Fault> {
        self.text.push_line(line, at);
        match self.text.text().len() {
            0..=PROGRAM_MAX => Ok(()),
            _ => Err(too_long()),
        }
    }
}

fn add(entries: &mut Entries, program: Option<Program>) -> Result<(), Report> {
    let Some(Program { text, place }) = program else {
        return Ok(());
    };
    entries.add(Entry {
        name: ">".to_owned(),
        key: Key::Program,
        target: Target::All,
        value: Value::Program(Script::of_text(text)),
        place,
    })
}

/// Reads a line that is not of a program; `None`: blank or comment.
fn entry(line: &str, source: &str, number: usize) -> Result<Option<Entry>, Fault> {
    let written = without_comment(line).trim();
    if written.is_empty() {
        return Ok(None);
    }
    let start = offset_in(line, written);
    let Some((name, value)) = written.split_once('=') else {
        return Err(without_equals(written).shift(start));
    };
    let name = name.trim_end();
    let (key, target) = key(name).map_err(|fault| fault.shift(start))?;
    if value.is_empty() {
        let message = format!("{} has no value", quote(name));
        return Err(Fault::new("value-missing", message)
            .hint("write 'key = value'")
            .shift(start + written.len()));
    }
    let value = value.trim_start();
    let at = offset_in(line, value);
    let value = Source::within(source, number, line, at, value.len());
    let value = key.value(value).map_err(|fault| fault.shift(at))?;
    Ok(Some(Entry {
        name: name.to_owned(),
        key,
        target,
        value,
        place: Place::new(source, number, line, start),
    }))
}

/// What is wrong with a line that has no `=`: there is another sign in its place, or no value.
fn without_equals(written: &str) -> Fault {
    let (name, value) =
        written.split_at(written.find(char::is_whitespace).unwrap_or(written.len()));
    // A virtual device's name has a ':' of its own.
    let name = name.trim_end_matches(':');
    let value = value.trim_start_matches(|c: char| c == ':' || c.is_whitespace());
    match (key(name), value) {
        (Ok(_), value) if !value.is_empty() => {
            let fault = Fault::new("value-missing", format!("no '=' behind {}", quote(name)));
            let hint = format!("write '{name} = {value}'");
            fault.hint(hint).shift(name.len())
        }
        _ => key(written).map_or_else(
            |fault| fault,
            |_| {
                let message = format!("{} has no value", quote(written));
                let fault = Fault::new("value-missing", message);
                fault.hint("write 'key = value'").shift(written.len())
            },
        ),
    }
}

/// The line up to a `#` that is not inside double quotes.
fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    let is_comment = |c| {
        quoted ^= c == '"';
        c == '#' && !quoted
    };
    line.find(is_comment).map_or(line, |end| &line[..end])
}

/// Reads `key[@target]`.
fn key(written: &str) -> Result<(Key, Target), Fault> {
    let (name, target) = match written.split_once('@') {
        Some((name, target)) => (name.trim_end(), Some(target.trim_start())),
        None => (written, None),
    };
    let lower = name.to_ascii_lowercase();
    if let Some(row) = KEYS.iter().find(|row| row.0 == lower) {
        let at = target.map_or(written.len(), |target| offset_in(written, target));
        let target = scoped(row.2, &lower, target).map_err(|fault| fault.shift(at))?;
        return Ok((row.1, target));
    }
    if let Some(instead) = OLD_KEYS.iter().find(|old| old.0 == lower).map(|old| old.1) {
        let message = format!("key {} is no longer known", quote(name));
        return Err(Fault::new("key-old", message).hint(instead));
    }
    if lower.starts_with(GROUP_OF) {
        return group_of(written).map(|device| (Key::Group, Target::Device(device)));
    }
    Err(unknown(name, &lower))
}

/// Reads the device of `group_DEV`.
fn group_of(written: &str) -> Result<String, Fault> {
    if let Some(at) = written.find('@') {
        return Err(target_unwanted(written).shift(at + 1));
    }
    keys::device(&written[GROUP_OF.len()..]).map_err(|fault| fault.shift(GROUP_OF.len()))
}

fn scoped(scope: Scope, key: &str, target: Option<&str>) -> Result<Target, Fault> {
    match (scope, target) {
        (Scope::All | Scope::AllOrGroup, None) => Ok(Target::All),
        (Scope::AllOrGroup, Some(target)) => keys::group(target).map(Target::Group),
        (Scope::Device, Some(target)) => keys::device(target).map(Target::Device),
        (Scope::Channel, Some(target)) => {
            keys::device(target).and_then(|_| keys::channel(target, '.'))
        }
        (Scope::All, Some(target)) => Err(match (keys::device(target), key) {
            (Ok(device), "group" | "def_group") => {
                target_unwanted(key).hint(format!("write '{GROUP_OF}{device} = NUMBER'"))
            }
            _ => target_unwanted(key),
        }),
        (Scope::Device | Scope::Channel, None) => {
            let channel = if scope == Scope::Channel { ".0" } else { "" };
            let message = format!("key '{key}' needs a device");
            let hint = format!("write it as in {key}@eth0{channel}");
            Err(Fault::new("target-missing", message).hint(hint))
        }
    }
}

fn target_unwanted(key: &str) -> Fault {
    Fault::new(
        "target-unwanted",
        format!("key {} takes no '@'", quote(key)),
    )
    .hint("remove '@' and what follows")
}

fn unknown(name: &str, lower: &str) -> Fault {
    if name.is_empty() {
        return Fault::new("key-missing", "no key before '='").hint("write 'key = value'");
    }
    let near = nearest(lower, KEYS.map(|row| row.0))
        .map(str::to_owned)
        .or_else(|| {
            let (family, _) = lower.split_once('_')?;
            nearest(family, ["group"])?;
            Some(format!("{GROUP_OF}{}", name.get(family.len() + 1..)?))
        });
    Fault::new("key-unknown", format!("unknown key {}", quote(name)))
        .nearest(near, "see pcap.conf(5) for the keys")
}

const GROUP_OF: &str = "group_";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mode::{Kind, Mode};

    fn value(text: &str) -> (String, Key, Target, Value) {
        let mut entries = parse(text, "pcap.conf").unwrap();
        assert_eq!(entries.len(), 1, "{text}");
        let entry = entries.remove(0);
        (entry.name, entry.key, entry.target, entry.value)
    }

    fn refusal(text: &str) -> (&'static str, usize, usize) {
        let report = parse(text, "pcap.conf").unwrap_err();
        let place = report.place.unwrap();
        assert_eq!(place.text, text.lines().nth(place.line - 1).unwrap());
        (report.slug, place.line, place.column)
    }

    fn device(name: &str) -> Target {
        Target::Device(name.to_owned())
    }

    #[test]
    fn keys_of_handles_and_groups() {
        let of_group = Target::Group(23);
        let [hash, rnd] = [Kind::Hash, Kind::Rnd].map(|kind| Value::Mode(kind.into()));
        for (line, key, target, expected) in [
            ("def_group = 11", Key::Group, Target::All, Value::Number(11)),
            ("GROUP=11", Key::Group, Target::All, Value::Number(11)),
            (
                "group_eth0 = 11",
                Key::Group,
                device("eth0"),
                Value::Number(11),
            ),
            (
                "Group_eth0:1 = 23",
                Key::Group,
                device("eth0:1"),
                Value::Number(23),
            ),
            ("caplen = 64", Key::Caplen, Target::All, Value::Number(64)),
            (
                "rx_slots = 131072",
                Key::RxSlots,
                Target::All,
                Value::Number(131_072),
            ),
            (
                "pfq_rx_slots = 1",
                Key::RxSlots,
                Target::All,
                Value::Number(1),
            ),
            ("fanout = hash", Key::Fanout, Target::All, hash),
            ("fanout@23 = rnd", Key::Fanout, of_group, rnd),
        ] {
            let name = line.split('=').next().unwrap().trim().to_owned();
            assert_eq!(value(line), (name, key, target, expected), "{line}");
        }
    }

    #[test]
    fn keys_of_devices_and_channels() {
        let channel = |name: &str| Target::Channel(name.to_owned(), 0);
        let (yes, no, two) = (Value::YesNo(true), Value::YesNo(false), Value::Number(2));
        let cpus = Value::Cpus(vec![(0, 0), (2, 3)]);
        for (line, key, target, expected) in [
            (
                "driver@e = xdp",
                Key::Driver,
                device("e"),
                Value::Engine("xdp"),
            ),
            ("steal@e = yes", Key::Steal, device("e"), yes),
            ("outgoing@e = no", Key::Outgoing, device("e"), no.clone()),
            ("keep@E:1 = no", Key::Keep, device("E:1"), no),
            (
                "rx_channels@e = 2",
                Key::RxChannels,
                device("e"),
                two.clone(),
            ),
            (
                "tx_channels@e = 2",
                Key::TxChannels,
                device("e"),
                two.clone(),
            ),
            (
                "other_channels@e=2",
                Key::OtherChannels,
                device("e"),
                two.clone(),
            ),
            (
                "combined_channels@e = 2",
                Key::CombinedChannels,
                device("e"),
                two.clone(),
            ),
            ("irq@e.5.0 = 0, 2-3", Key::Irq, channel("e.5"), cpus),
            ("napi@e.0 = 2", Key::Napi, channel("e"), two),
        ] {
            let name = line.split('=').next().unwrap().trim().to_owned();
            assert_eq!(value(line), (name, key, target, expected), "{line}");
        }
    }

    #[test]
    fn blanks_comments_and_line_ends() {
        let mode = Mode {
            defrag: true,
            ..Kind::Hash.into()
        };
        for text in [
            "# all of it\r\n\r\n  fanout @ 3  =  hash +defrag   # and why\r\n",
            "fanout@3=hash+defrag#x",
            "\u{feff}fanout@3=hash+defrag",
            "\tfanout@ 3\t=\thash + defrag",
        ] {
            let (_, key, target, found) = value(text);
            assert_eq!(
                (key, target, found),
                (Key::Fanout, Target::Group(3), Value::Mode(mode))
            );
        }
        assert_eq!(parse("\n # nothing\n\t\n#", "pcap.conf"), Ok(Vec::new()));
        assert_eq!(without_comment("a = \"b # c\" # d"), "a = \"b # c\" ");
    }

    #[test]
    fn program_lines_in_a_row_are_one_program() {
        let program = |text: &str| {
            let text = Source::new("another place", text);
            Value::Program(Script::of_text(text))
        };
        let text = "> main = do\r\n  >   tcp # no comment\n>\n> steer_flow";
        let (_, key, target, found) = value(text);
        assert_eq!((key, target), (Key::Program, Target::All));
        assert_eq!(
            found,
            program(" main = do\n   tcp # no comment\n\n steer_flow\n")
        );
        assert_eq!(
            value("> a\n\n> a").3,
            program(" a\n"),
            "the same program twice"
        );
        assert_eq!(
            refusal("> a\ncaplen = 1\n > b"),
            ("settings-disagree", 3, 2)
        );
        assert_eq!(refusal("fanout = hash\n> a"), ("settings-disagree", 2, 1));
    }

    #[test]
    fn the_same_twice_is_no_harm_but_another_value_is() {
        assert_eq!(value("group = 7\ndef_group = 007").1, Key::Group);
        let report = parse("\ngroup = 7\ndef_group = 8", "pcap.conf").unwrap_err();
        assert_eq!(report.message, "'def_group' disagrees with line 2");
        assert_eq!(
            refusal("fanout@3 = lb\nfanout@03 = hash"),
            ("settings-disagree", 2, 1)
        );
        assert_eq!(
            parse("group_a = 1\ngroup_b = 2", "pcap.conf")
                .unwrap()
                .len(),
            2
        );
    }

    #[test]
    fn each_refusal_has_its_place() {
        for (text, slug, column) in [
            ("caplen", "value-missing", 7),
            ("caplen =", "value-missing", 9),
            (" caplen =   # none", "value-missing", 10),
            ("= 5", "key-missing", 1),
            ("gruop = 5", "key-unknown", 1),
            ("  pfq_vlan@3 = 5", "key-old", 3),
            ("lang = x", "key-old", 1),
            ("caplen@eth0 = 5", "target-unwanted", 8),
            ("group_eth0@3 = 5", "target-unwanted", 12),
            ("steal = yes", "target-missing", 6),
            ("irq = 0", "target-missing", 4),
            ("irq@eth0 = 0", "channel-missing", 5),
            ("irq@eth0.x = 0", "not-a-number", 10),
            ("irq@eth0.0 = 0, x", "not-a-number", 17),
            ("group_ = 5", "device-name-bad", 7),
            ("steal@ = yes", "device-name-bad", 7),
            ("steal@eth 0 = yes", "device-name-bad", 7),
            ("fanout@ = hash", "not-a-number", 8),
            ("fanout@65536 = hash", "out-of-range", 8),
            ("fanout@3 = hash + defarg", "option-unknown", 19),
            ("group = 65536", "out-of-range", 9),
            ("group = 1, 2", "not-a-number", 9),
        ] {
            assert_eq!(refusal(text), (slug, 1, column), "{text}");
        }
    }

    #[test]
    fn what_to_write_instead_is_what_was_meant() {
        for (text, column, hint) in [
            ("group@eth0 = 5", 7, "write 'group_eth0 = NUMBER'"),
            ("def_group@eth0:1 = 5", 11, "write 'group_eth0:1 = NUMBER'"),
            ("caplen@eth0 = 5", 8, "remove '@' and what follows"),
            ("group@ = 5", 7, "remove '@' and what follows"),
            ("group_eth0: 5", 11, "write 'group_eth0 = 5'"),
            ("group_eth0 5", 11, "write 'group_eth0 = 5'"),
            (" group_eth0:1: 5 # why", 14, "write 'group_eth0:1 = 5'"),
            (
                "fanout@7 : hash + defrag",
                9,
                "write 'fanout@7 = hash + defrag'",
            ),
            ("group_eth0:5", 13, "write 'key = value'"),
            ("gruop_eth0: 5", 1, "did you mean 'group_eth0: 5'?"),
        ] {
            let report = parse(text, "pcap.conf").unwrap_err();
            assert_eq!(report.hint.as_deref(), Some(hint), "{text}");
            assert_eq!(report.place.unwrap().column, column, "{text}");
        }
    }

    #[test]
    fn unknown_keys_get_the_nearest_one() {
        for (text, near) in [
            ("gruop = 5", "did you mean 'group'?"),
            ("Gruop_eth0:1 = 5", "did you mean 'group_eth0:1'?"),
            (
                "combined_chanels@eth0 = 5",
                "did you mean 'combined_channels'?",
            ),
            ("def group = 5", "did you mean 'def_group'?"),
            ("verbosity = 5", "see pcap.conf(5) for the keys"),
        ] {
            let report = parse(text, "pcap.conf").unwrap_err();
            assert_eq!(report.hint.as_deref(), Some(near), "{text}");
        }
    }

    #[test]
    fn size_is_bounded() {
        let groups = |count: u32| {
            (0..count)
                .map(|n| format!("group_e{n} = 1\n"))
                .collect::<String>()
        };
        assert_eq!(parse(&groups(4096), "pcap.conf").unwrap().len(), 4096);
        assert_eq!(refusal(&groups(4097)), ("too-many-settings", 4097, 1));
        let program = |count| format!("> {}\n", "x".repeat(62)).repeat(count);
        assert_eq!(parse(&program(1024), "pcap.conf").unwrap().len(), 1);
        assert_eq!(refusal(&program(1025)), ("program-too-long", 1025, 1));
    }
}
