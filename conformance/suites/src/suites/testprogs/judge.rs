//! Decides whether a program had the expected result.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::Capture;

use super::cases::{Case, Wants};
use crate::variant::Variant;

/// Checks the result of a program that ended with `code`, printed `said` and left its files in
/// `dir`.
pub(super) fn judge(
    case: &Case,
    variant: Variant,
    code: Option<i32>,
    said: &str,
    dir: &Path,
) -> Result<()> {
    let code = code.context("ended by a signal")?;
    ensure!(code == case.code, "exit code {code}, not {}", case.code);
    let warns = case.warns_on_xdp.filter(|_| variant == Variant::Xdp);
    let says = warns.unwrap_or(case.says);
    ensure!(said.contains(says), "does not say '{says}'");
    match case.wants {
        Wants::Nothing => Ok(()),
        Wants::Packets => packets(said),
        Wants::Complaints(wanted) => {
            // Each of valgrind's reports ends with an empty line.
            let ends = |line: &&str| line.starts_with("==") && line.trim_end().ends_with("==");
            let found = said.lines().filter(ends).count();
            ensure!(found == wanted, "{found} complaints, not {wanted}");
            Ok(())
        }
        Wants::File(name) => {
            let packets = Capture::read(&dir.join(name))?.packets.len();
            ensure!(packets > 0, "no packet in {name}");
            Ok(())
        }
    }
}

fn packets(said: &str) -> Result<()> {
    let mut sum = 0;
    // The interrupt may have left the last line incomplete: ignore such a line.
    for line in said.lines().filter(|line| line.ends_with(" returns")) {
        let Some((seen, rest)) = line.split_once(" packets seen, ") else {
            continue;
        };
        let counted = rest.split(' ').next().unwrap_or_default();
        ensure!(seen == counted, "{line}");
        sum += seen.parse::<usize>()?;
    }
    ensure!(sum > 0, "no packet");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::testprogs::cases::{CASES, Stop};
    use crate::wire::DEVICE;

    #[test]
    fn what_is_seen_must_be_counted() {
        let line = |seen, counted| {
            format!("{seen} packets seen, {counted} packets counted after pcap_dispatch returns\n")
        };
        assert!(packets(&(line(3, 3) + &line(0, 0) + "7 packets se")).is_ok());
        assert!(packets(&line(0, 0)).is_err());
        assert!(packets(&(line(3, 3) + &line(4, 3))).is_err());
        assert!(packets("").is_err());
    }

    #[test]
    fn code_and_text_are_compared() {
        let case = CASES
            .iter()
            .find(|case| case.line == "opentest -i wire0")
            .unwrap();
        let said = "wire0 opened successfully\n";
        assert!(judge(case, Variant::Staged, Some(0), said, Path::new("/")).is_ok());
        for (code, said) in [(Some(1), said), (None, said), (Some(0), "wire0\n")] {
            assert!(judge(case, Variant::Staged, code, said, Path::new("/")).is_err());
        }
    }

    #[test]
    fn who_asks_for_xdp_is_warned_where_there_is_none() {
        let case = CASES
            .iter()
            .find(|case| case.line == "opentest -i any")
            .unwrap();
        let is_right = |variant, said| judge(case, variant, Some(0), said, Path::new("/")).is_ok();
        let warning =
            "WARNING: packet sockets are read, not the engine xdp: the device any has no driver\n";
        assert!(is_right(Variant::Xdp, warning));
        assert!(!is_right(Variant::Tpacket, warning));
        assert!(!is_right(Variant::Xdp, "any opened successfully\n"));
        assert!(is_right(Variant::System, "any opened successfully\n"));
    }

    #[test]
    fn complaints_are_counted() {
        let case = CASES
            .iter()
            .find(|case| case.line.starts_with("valgrindtest"))
            .unwrap();
        let said =
            "==7== Syscall param points to uninitialised byte(s)\n==7==    by main\n==7== \n";
        let run = |times| {
            judge(
                case,
                Variant::Staged,
                Some(99),
                &said.repeat(times),
                Path::new("/"),
            )
        };
        assert!(run(3).is_ok());
        assert!(run(4).is_err());
    }

    #[test]
    fn lines_are_unique_and_name_the_device() {
        let mut lines: Vec<&str> = CASES.iter().map(|case| case.line).collect();
        assert!(lines.iter().any(|line| line.contains(DEVICE)));
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), CASES.len());
        let waits = CASES.iter().filter(|case| case.stop == Stop::AfterAMinute);
        assert_eq!(waits.count(), 3);
    }
}
