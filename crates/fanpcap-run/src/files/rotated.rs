//! The names that capture applications derive from a given name when they start a new file.
//! tcpdump's -C and -G and dumpcap's -b start a new file after a size or a time.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The patterns of the names that are derived from one given name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    directory: PathBuf,
    /// One pattern for tcpdump's names and one for dumpcap's names.
    forms: Vec<Vec<Piece>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    Byte(u8),
    /// Exactly this many digits.
    Digits(usize),
    /// Any number of digits, or none.
    Number,
    /// Any text.
    Text,
}

impl Pattern {
    /// The patterns for `path`. A `%` in the name is a conversion of strftime(3), as in tcpdump -G.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.as_bytes();
        // tcpdump -C: NAME, NAME1, NAME2; with -W: NAME00.
        let mut counted = pieces(name);
        counted.push(Piece::Number);
        // dumpcap -b: STEM_00001_20261120203000.EXT.
        let dot = name
            .iter()
            .rposition(|&byte| byte == b'.')
            .filter(|&at| at > 0);
        let (stem, extension) = name.split_at(dot.unwrap_or(name.len()));
        let mut numbered = pieces(stem);
        let (under, digits) = (Piece::Byte(b'_'), |count| Piece::Digits(count));
        numbered.extend([under, digits(5), Piece::Number, under, digits(14)]);
        numbered.extend(pieces(extension));
        Some(Self {
            directory: path.parent()?.to_owned(),
            forms: vec![counted, numbered],
        })
    }

    /// The existing files that match the pattern.
    pub(super) fn found(&self) -> Vec<PathBuf> {
        let here = Path::new(".");
        let directory = match self.directory.as_path() {
            empty if empty == Path::new("") => here,
            directory => directory,
        };
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name());
        names
            .filter(|name| {
                let matches = |form: &Vec<Piece>| matches(form, name.as_bytes());
                self.forms.iter().any(matches)
            })
            .map(|name| self.directory.join(name))
            .collect()
    }
}

fn pieces(name: &[u8]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut bytes = name.iter();
    while let Some(&byte) = bytes.next() {
        if byte != b'%' {
            pieces.push(Piece::Byte(byte));
            continue;
        }
        let digits = |counts: &[usize], between: u8| {
            let counts = counts.iter().map(|&count| Piece::Digits(count));
            let with = counts.flat_map(|piece| [Piece::Byte(between), piece]);
            with.skip(1).collect::<Vec<_>>()
        };
        match bytes.next() {
            Some(b'Y' | b'G') => pieces.extend(digits(&[4], 0)),
            Some(
                b'm' | b'd' | b'H' | b'I' | b'M' | b'S' | b'y' | b'g' | b'C' | b'U' | b'V' | b'W',
            ) => {
                pieces.extend(digits(&[2], 0));
            }
            Some(b'j') => pieces.extend(digits(&[3], 0)),
            Some(b's') => pieces.extend([Piece::Digits(1), Piece::Number]),
            Some(b'F') => pieces.extend(digits(&[4, 2, 2], b'-')),
            Some(b'T') => pieces.extend(digits(&[2, 2, 2], b':')),
            Some(b'R') => pieces.extend(digits(&[2, 2], b':')),
            Some(b'%') | None => pieces.push(Piece::Byte(b'%')),
            Some(_) => pieces.push(Piece::Text),
        }
    }
    pieces
}

fn matches(pieces: &[Piece], name: &[u8]) -> bool {
    let digits = || name.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let Some((&piece, rest)) = pieces.split_first() else {
        return name.is_empty();
    };
    match piece {
        Piece::Byte(byte) => name.first() == Some(&byte) && matches(rest, &name[1..]),
        Piece::Digits(count) => digits() >= count && matches(rest, &name[count..]),
        Piece::Number => (0..=digits()).any(|len| matches(rest, &name[len..])),
        Piece::Text => (1..=name.len()).any(|len| matches(rest, &name[len..])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_tcpdump_and_dumpcap_are_known_and_no_others() {
        for (given, name, expected) in [
            ("0.pcap", "0.pcap", true),
            ("0.pcap", "0.pcap1", true),
            ("0.pcap", "0.pcap.1", false),
            ("0.pcap", "10.pcap", false),
            ("0.pcapng", "0_00001_20261120203000.pcapng", true),
            ("0.pcapng", "0_00001_20261120203000.pcap", false),
            ("x0", "x0_100001_20261120203000", true),
            ("0-%H%M%S.pcap", "0-203000.pcap", true),
            ("0-%H%M%S.pcap", "0-203000.pcap12", true),
            ("0-%H%M%S.pcap", "0-2030.pcap", false),
            ("%H0.pcap", "1310.pcap", false),
            ("0-%s", "0-1795206600", true),
            ("%F_0.pcap", "2026-11-20_0.pcap", true),
            ("0-%b.pcap", "0-Nov.pcap", true),
        ] {
            let pattern = Pattern::of(Path::new(given)).unwrap();
            let is = |form: &Vec<Piece>| matches(form, name.as_bytes());
            assert_eq!(pattern.forms.iter().any(is), expected, "{given} {name}");
        }
    }
}
