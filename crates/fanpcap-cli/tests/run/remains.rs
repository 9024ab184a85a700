//! What stays in /run after the command's end.

use std::fs;

use anyhow::ensure;

use crate::captures::on_wire;
use crate::{FAR, Running};

/// Runs the command with a /run of its own, and lists what is there at the end.
const ALONE: &str =
    "mount -t tmpfs -o mode=0755 run /run && { \"$@\"; find /run -mindepth 1 >left; }";

/// Members that are killed can't remove their pages.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn no_page_and_no_journal_stays() {
    for mode in ["hash", "flow"] {
        on_wire(|_| {
            let through = ["unshare", "-m", "sh", "-c", ALONE, "sh"];
            let tcpdump = "timeout --foreground -s KILL 2 tcpdump -n -Z root -w %i.pcap -i";
            let line = ["-n", "2", "--cpus", "none", "--fanout", mode, "--"];
            let command: Vec<&str> = tcpdump.split(' ').chain([FAR]).collect();
            let running = Running::start_by(&through, &[&line[..], &command].concat(), None)?;
            let ended = running.wait()?;
            let said = ended.said();
            ensure!(said.contains(&format!(", on {FAR}: 2 copies")), "{said}");
            let left = fs::read_to_string(ended.scratch.file("left"))?;
            let is_of_all = |line: &str| {
                let version = line.strip_prefix("/run/fanpcap/v");
                let rest = version.map(|it| it.trim_start_matches(|it: char| it.is_ascii_digit()));
                line == "/run/fanpcap" || rest.is_some_and(|it| it.is_empty() || it == "/turns")
            };
            ensure!(left.contains("/run/fanpcap\n"), "{left}");
            ensure!(left.lines().all(is_of_all), "{mode}: {left}");
            Ok(())
        })
        .unwrap();
    }
}
