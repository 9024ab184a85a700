//! The examples of the manual pages of section 1: tests parse and run them.

/// What each is for, and the line, by page.
pub(super) const EXAMPLES: [(&str, &[(&str, &str)]); 15] = [
    (
        "fanpcap",
        &[
            (
                "Four copies of a program share the packets of a device",
                "fanpcap run -n 4 -- tcpdump -n -i eth0 -w %i.pcap",
            ),
            ("Who gets what, and who loses what", "fanpcap top --once"),
        ],
    ),
    (
        "fanpcap-run",
        &[
            (
                "Four copies, and one capture file in the end",
                "fanpcap run -n 4 --merge all.pcapng -- tcpdump -n -i eth0 -w %i.pcap",
            ),
            (
                "Two copies in group 7, whose members get packets in turn",
                "fanpcap run -n 2 --group 7 --fanout lb -- tcpdump -n -i eth0 -w %i.pcap",
            ),
        ],
    ),
    (
        "fanpcap-top",
        &[
            ("One table of all devices", "fanpcap top --once"),
            (
                "Group 7 on one device, for another program",
                "fanpcap top eth0 --once --json --filter 'group 7'",
            ),
        ],
    ),
    (
        "fanpcap-config",
        &[
            (
                "What every application gets on each device",
                "fanpcap config",
            ),
            (
                "Whether a variable does what it is set for",
                "PCAP_GROUP_eth0=5 PCAP_FANOUT_eth0=lb fanpcap config eth0",
            ),
        ],
    ),
    (
        "fanpcap-metrics",
        &[
            ("Once, on standard output", "fanpcap metrics eth0"),
            (
                "For node_exporter's textfile collector",
                "fanpcap metrics --write fanpcap.prom",
            ),
        ],
    ),
    (
        "fanpcap-capture",
        &[
            (
                "Count what comes in two seconds, in two threads that share it",
                "fanpcap capture -i eth0 --threads 2 --seconds 2",
            ),
            (
                "Write a thousand UDP packets",
                "fanpcap capture -i eth0 --count 1000 --write udp.pcap udp",
            ),
        ],
    ),
    (
        "fanpcap-gen",
        &[
            (
                "20000 frames, ten thousand a second",
                "fanpcap gen -i eth1 --rate 10k --count 20000",
            ),
            (
                "The packets of a file, twice as fast as they came",
                "fanpcap gen -i eth1 --replay traffic.pcap --speed 2",
            ),
        ],
    ),
    (
        "fanpcap-bench",
        &[
            ("What there is to measure", "fanpcap bench list"),
            (
                "One row, to see that it works",
                "fanpcap bench steering --quick --shared",
            ),
        ],
    ),
    (
        "fanpcap-bench-list",
        &[("All rows with their goals", "fanpcap bench list")],
    ),
    (
        "fanpcap-bench-compare",
        &[(
            "Two runs of the benchmarks",
            "fanpcap bench compare before after",
        )],
    ),
    (
        "fanpcap-lang",
        &[(
            "Check a program, see what it costs, and try it on a capture",
            "fanpcap lang check steer.pfq && fanpcap lang explain steer.pfq && fanpcap lang try steer.pfq traffic.pcap",
        )],
    ),
    (
        "fanpcap-lang-check",
        &[("A program in a file", "fanpcap lang check steer.pfq")],
    ),
    (
        "fanpcap-lang-explain",
        &[(
            "What runs a program, and what it costs",
            "fanpcap lang explain steer.pfq",
        )],
    ),
    (
        "fanpcap-lang-try",
        &[(
            "Which member gets each packet of a capture",
            "fanpcap lang try steer.pfq traffic.pcap",
        )],
    ),
    (
        "fanpcap-enable",
        &[
            ("For this shell", "eval \"$(fanpcap enable)\""),
            (
                "For every program of this machine",
                "fanpcap enable --system",
            ),
        ],
    ),
];

/// The section of a page; `disable` takes back what `enable` does.
pub(super) fn section(page: &str) -> Option<String> {
    let page_of = if page == "fanpcap-disable" {
        "fanpcap-enable"
    } else {
        page
    };
    let (_, examples) = EXAMPLES.iter().find(|(name, _)| *name == page_of)?;
    let mut text = ".SH EXAMPLES\n".to_owned();
    for (what, line) in *examples {
        let line = match page == page_of {
            true => (*line).to_owned(),
            false => line.replace("enable", "disable"),
        };
        let line = line
            .replace('\\', "\\e")
            .replace('-', "\\-")
            .replace('\'', "\\(aq");
        let line = line.replace(" && ", "\n");
        text += &format!("{what}:\n.PP\n.RS 4\n.EX\n{line}\n.EE\n.RE\n.PP\n");
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_example_is_of_its_page_and_is_understood() {
        for (page, examples) in EXAMPLES {
            for (_, line) in examples {
                for command in line.split(" && ") {
                    let shown = command.replace("eval \"$(", "").replace(")\"", "");
                    // A quoted word of two, and variables before the command.
                    let words = shown.replace("'group 7'", "group_7");
                    let words = words.split(' ').skip_while(|word| word.contains("PCAP_"));
                    let words: Vec<&str> = words.collect();
                    crate::command()
                        .try_get_matches_from(&words)
                        .unwrap_or_else(|error| panic!("{error}"));
                    let name = page.replace('-', " ");
                    let is_own = page == "fanpcap" || words.join(" ").starts_with(&name);
                    assert!(is_own, "{page}: {command}");
                }
            }
        }
    }
}
