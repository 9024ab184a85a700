//! The grammar of cluster.conf: parses the text into entries.

use fanpcap_config::report::{Fault, Place, Report, offset_in, quote};
use fanpcap_config::settings::file::without_comment;
use fanpcap_steer::nearest::nearest;

use super::keys::{KEYS, Row};
use super::value::Value;

/// One setting, and its place in the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) row: &'static Row,
    pub(crate) value: Value,
    /// Where the key is in the file.
    pub(crate) place: Place,
    /// Where the value is in the file.
    pub(crate) at: Place,
}

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Row {}

/// Parses the text of a file that errors call `source`. The error is the text's first mistake.
pub(crate) fn parse(text: &str, source: &str) -> Result<Vec<Entry>, Report> {
    let mut entries: Vec<Entry> = Vec::new();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (number, line) in (1..).zip(text.lines()) {
        let placed = |fault: Fault| fault.at(source, number, line);
        let Some((row, value, at, value_at)) = entry(line).map_err(placed)? else {
            continue;
        };
        let entry = Entry {
            row,
            value,
            place: Place::new(source, number, line, at),
            at: Place::new(source, number, line, value_at),
        };
        add(&mut entries, entry).map_err(|fault| placed(fault.shift(at)))?;
    }
    Ok(entries)
}

/// Adds an entry, unless the file already has it. A setting may be repeated, but not contradicted.
fn add(entries: &mut Vec<Entry>, entry: Entry) -> Result<(), Fault> {
    let others: Vec<&Entry> = entries.iter().filter(|it| it.row == entry.row).collect();
    if others.iter().any(|it| it.value == entry.value) {
        return Ok(());
    }
    match others.last() {
        Some(last) if others.len() == entry.row.times => {
            let (name, line) = (entry.row.name, last.place.line);
            let message = format!("{} disagrees with line {line}", quote(name));
            Err(Fault::new("settings-disagree", message).hint("keep one of them"))
        }
        _ => {
            entries.push(entry);
            Ok(())
        }
    }
}

/// A line's row, its value, and the offsets in bytes of key and value; `None` for a blank line.
type Line = Option<(&'static Row, Value, usize, usize)>;

fn entry(line: &str) -> Result<Line, Fault> {
    let written = without_comment(line).trim();
    if written.is_empty() {
        return Ok(None);
    }
    let start = offset_in(line, written);
    let Some((name, value)) = written.split_once('=') else {
        let word = written.split_whitespace().next().unwrap_or(written);
        row(word).map_err(|fault| fault.shift(start))?;
        let message = format!("no '=' behind {}", quote(word));
        let fault = Fault::new("value-missing", message).hint("write 'key = value'");
        return Err(fault.shift(start + word.len()));
    };
    let row = row(name.trim_end()).map_err(|fault| fault.shift(start))?;
    let value = value.trim();
    if value.is_empty() {
        let message = format!("{} has no value", quote(row.name));
        let fault = Fault::new("value-missing", message).hint("write 'key = value'");
        return Err(fault.shift(start + written.len()));
    }
    let at = offset_in(line, value);
    let value = row.takes.value(value).map_err(|fault| fault.shift(at))?;
    Ok(Some((row, value, start, at)))
}

fn row(name: &str) -> Result<&'static Row, Fault> {
    if name.is_empty() {
        let fault = Fault::new("key-missing", "no key before '='");
        return Err(fault.hint("write 'key = value'"));
    }
    let lower = name.to_ascii_lowercase();
    if let Some(row) = KEYS.iter().find(|row| row.name == lower) {
        return Ok(row);
    }
    let near = nearest(&lower, KEYS.iter().map(|row| row.name)).map(str::to_owned);
    let fault = Fault::new("key-unknown", format!("unknown key {}", quote(name)));
    Err(fault.nearest(near, "see cluster.conf(5) for the keys"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        parse(text, "cluster.conf").unwrap_err().to_string()
    }

    #[test]
    fn mistakes_have_their_place() {
        let rows = [
            (
                "\nengnie = etcd",
                ":2:1: unknown key 'engnie'; did you mean 'engine'?",
            ),
            ("  = 5", ":1:3: no key before '='"),
            ("weight", ":1:7: no '=' behind 'weight'"),
            ("weight =  # 5", ":1:9: 'weight' has no value"),
            (
                "weight = 0",
                ":1:10: '0' is out of range; write a number from 1 to 1000",
            ),
            (
                "weight = 2\nweight = 3",
                ":2:1: 'weight' disagrees with line 1",
            ),
            ("nodes = 1, 2*x", ":1:14: 'x' is not a number"),
        ];
        for (text, start) in rows {
            let said = said(text);
            assert!(said.starts_with(&format!("cluster.conf{start}")), "{said}");
        }
        let key = "key_file = /k";
        assert_eq!(
            parse(&format!("{key}1\n{key}2\n{key}1"), "").unwrap().len(),
            2
        );
        assert!(said(&format!("{key}1\n{key}2\n{key}3")).contains(":3:1: "));
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(20_000))]
        #[test]
        fn no_text_makes_it_panic(text in "([a-z_ ]{0,9}[=#\u{e9}\n,*:/. 0-9a-f]{0,12}){0,6}") {
            let _ = parse(&text, "x");
        }

        #[test]
        fn no_value_makes_it_panic(row in 0..KEYS.len(), value in ".{0,40}") {
            if let Err(report) = parse(&format!("{} = {value}", KEYS[row].name), "x") {
                assert!(report.place.is_some());
            }
        }
    }
}
