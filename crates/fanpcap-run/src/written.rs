//! Compares the packets that the copies took with the packets in their captures.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use fanpcap_merge as merge;

use super::arguments;
use super::copy::Copy;
use super::options;
use super::summary::Summary;

/// Captures of more bytes than this are not counted: reading them would delay the command's end.
const BYTES_MAX: u64 = 2 << 30;

/// Why the packets in captures were not counted.
pub(crate) type Uncounted = String;

/// Counts the packets in each of the copies' captures, for copies without --merge. `None` if no
/// copy was killed, or if the copies write no captures: then no packets are missing.
pub(crate) fn count(
    command: &[OsString],
    copies: &[Copy],
    captures: &[PathBuf],
) -> Option<Result<Vec<u64>, Uncounted>> {
    if !copies.iter().any(Copy::was_killed) {
        return None;
    }
    let (known, rest) = options::known_program(command).unzip();
    let known = known.filter(|known| known.captures).zip(rest);
    let file = known.and_then(|(known, rest)| known.output(rest));
    if file.is_some_and(arguments::is_shared) {
        return Some(Err("the name of its capture has no %i".to_owned()));
    }
    // A program that was killed early has written nothing to its file.
    if captures.is_empty() && !file.is_some_and(arguments::is_numbered) {
        return None;
    }
    Some(
        match known.and_then(|(known, rest)| known.leaves_out(rest)) {
            Some(why) => Err(why.to_owned()),
            None => packets(captures),
        },
    )
}

fn packets(captures: &[PathBuf]) -> Result<Vec<u64>, Uncounted> {
    let lengths = captures.iter().filter_map(|path| fs::metadata(path).ok());
    if lengths.map(|found| found.len()).sum::<u64>() > BYTES_MAX {
        return Err("the captures have more than 2 GiB, and only --merge reads so much".to_owned());
    }
    let packets = |path: &PathBuf| match merge::read(path, &mut |_| Ok(())) {
        Ok(part) => Ok(part.packets),
        Err(error) => Err(format!("{}: {error:#}", path.display())),
    };
    captures.iter().map(packets).collect()
}

/// The message about packets that the copies took and that their captures lack; `None` if they lack
/// none. `counted` is the result of [`count`].
pub(crate) fn lack(
    summary: &Summary,
    command: &[OsString],
    copies: &[Copy],
    counted: Option<&Result<Vec<u64>, Uncounted>>,
) -> Option<String> {
    let why = match (summary.taken_not_written, counted) {
        (Some(more @ 1..), _) => return Some(of(more.unsigned_abs(), command, copies)),
        (_, Some(Err(why))) => why,
        (None, Some(Ok(_))) => "how many packets the copies took is unknown",
        (Some(_), Some(Ok(_))) | (_, None) => return None,
    };
    let killed = names(copies, Copy::was_killed)?;
    Some(format!(
        "what {killed} had taken and not written is not known: {why}"
    ))
}

/// The message about `more` packets that the captures lack, with the likely reason.
fn of(more: u64, command: &[OsString], copies: &[Copy]) -> String {
    let known = options::known_program(command);
    let by_program = known.and_then(|(known, arguments)| known.leaves_out(arguments));
    let killed = names(copies, Copy::was_killed).map(|names| {
        format!(
            "{names} was killed, and a program that is killed loses what it has not written to its file (tcpdump -U writes each packet at once)"
        )
    });
    let mut reasons: Vec<String> = by_program.into_iter().map(str::to_owned).collect();
    reasons.extend(killed);
    if reasons.is_empty() {
        reasons.push("the program did not write them, or its files were overwritten".to_owned());
    }
    format!(
        "{more} packets that the copies took are not in their captures: {}",
        reasons.join("; ")
    )
}

/// The copies for which `is` holds, as text; `None` if there are none.
fn names(copies: &[Copy], is: impl Fn(&Copy) -> bool) -> Option<String> {
    let numbers = copies.iter().filter(|copy| is(copy));
    let numbers: Vec<String> = numbers.map(|copy| copy.number.to_string()).collect();
    match &numbers[..] {
        [] => None,
        [number] => Some(format!("copy {number}")),
        numbers => Some(format!("each of copies {}", numbers.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::End;
    use fanpcap_testkit::Scratch;
    use std::fs::File;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    /// A copy whose process has ended with this wait status.
    fn ended(number: usize, status: i32) -> Copy {
        let mut copy = Copy::new(number, None, &[]);
        copy.ends.push(End {
            status: ExitStatus::from_raw(status),
            told: false,
            again: false,
        });
        copy
    }

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn each_lack_has_its_own_reason() {
        let said = |line: &str, statuses: &[i32]| {
            let copies = statuses.iter().enumerate();
            let copies: Vec<Copy> = copies.map(|(at, status)| ended(at, *status)).collect();
            of(37, &words(line), &copies)
        };
        let begin = "37 packets that the copies took are not in their captures: ";
        let plain = "tcpdump -i eth0 -w %i.pcap";
        let killed = said(plain, &[0, 9]);
        assert!(
            killed.starts_with(&format!("{begin}copy 1 was killed, and")),
            "{killed}"
        );
        let both = said(plain, &[9, 9]);
        assert!(both.contains("each of copies 0, 1 was killed"), "{both}");

        let ring = "tcpdump -i eth0 -C 1 -W 5 -w %i.pcap";
        let overwritten = format!("{begin}tcpdump -C -W overwrites its older files");
        assert_eq!(said(ring, &[0, 0]), overwritten);
        let also = said(ring, &[9, 0]);
        assert!(
            also.starts_with(&format!("{overwritten}; copy 0 was killed")),
            "{also}"
        );

        let other = said(plain, &[0, 256]);
        assert!(
            other.contains("did not write them") && !other.contains("kill"),
            "{other}"
        );
    }

    /// A pcap file in little-endian byte order with packets of one byte.
    fn pcap(packets: usize) -> Vec<u8> {
        let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
        file.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0]);
        for _ in 0..packets {
            file.extend([0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 7]);
        }
        file
    }

    #[test]
    fn captures_are_counted_if_a_copy_was_killed() {
        let scratch = Scratch::new().unwrap();
        let captures = [(5, "0.pcap"), (3, "1.pcap")].map(|(packets, name)| {
            let mut bytes = pcap(packets);
            // The last packet of the first file is cut.
            bytes.truncate(24 + 5 * 17 - 1);
            fs::write(scratch.file(name), bytes).unwrap();
            scratch.file(name)
        });
        let counted = |line: &str, status: i32, captures: &[PathBuf]| {
            count(&words(line), &[ended(0, 0), ended(1, status)], captures)
        };
        let plain = "tcpdump -i eth0 -w %i.pcap";
        assert_eq!(counted(plain, 9, &captures), Some(Ok(vec![4, 3])));
        assert_eq!(
            counted("other -o %i.pcap", 9, &captures),
            Some(Ok(vec![4, 3]))
        );
        assert_eq!(counted(plain, 0, &captures), None);
        let mut stopped = ended(0, 2);
        stopped.ends[0].told = true;
        assert_eq!(count(&words(plain), &[stopped], &captures), None);
        assert_eq!(counted(plain, 9, &[]), Some(Ok(Vec::new())));
        for line in ["tcpdump -n", "tcpdump -w /dev/null", "p0f -o %i.log", "cat"] {
            assert_eq!(counted(line, 9, &[]), None, "{line}");
        }
        let why = |line: &str| counted(line, 9, &captures).unwrap().unwrap_err();
        assert!(why("tcpdump -C 1 -W 5 -w %i.pcap").contains("overwrites"));
        assert!(why("env -C d%i tcpdump -w all.pcap").contains("has no %i"));
        let file = File::options().write(true).open(&captures[0]).unwrap();
        file.set_len(BYTES_MAX).unwrap();
        assert!(why(plain).contains("2 GiB"), "{}", why(plain));
    }
}
