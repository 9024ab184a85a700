//! Compares the packets that the copies took with the packets in their captures.

use std::ffi::OsString;

use super::copy::Copy;
use super::options;

/// The message about `more` packets that the copies took and that their captures lack, with the
/// likely reason.
pub(crate) fn lack(more: u64, command: &[OsString], copies: &[Copy]) -> String {
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
            lack(37, &words(line), &copies)
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
}
