//! The applications that the tests run, and the command line of each.

use std::process::Command;

use anyhow::Result;

use crate::Output;
use crate::readers::{self, Flows};

/// A program of the table.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    /// The name of Debian's package.
    pub(crate) package: &'static str,
    /// The text that the program prints once it captures. If it is empty, the test waits only until
    /// the program is in its group.
    pub(crate) ready: &'static str,
    /// The program's command line; `@` stands for the path of its output.
    pub(crate) command: &'static str,
    /// The part of the traffic that the program reports.
    pub(crate) sees: Sees,
    /// The facts that the program reports about a conversation.
    pub(crate) tells: Tells,
    /// Reads the conversations that the program found, from its output after its end.
    pub(crate) read: fn(&Output) -> Result<Flows>,
    /// A command that prints the program's findings while it runs. The command's output replaces
    /// the program's output.
    pub(crate) ask: Option<&'static str>,
    /// The program still has CAP_BPF when it opens the device, if it was started with CAP_BPF.
    pub(crate) keeps_bpf: bool,
}

impl Subject {
    /// The reason why the program can't be tried on this machine.
    pub(crate) fn hindrance(&self) -> Option<String> {
        let name = self.name;
        // Without -X before -h, argus first searches for the machine's identifier.
        let options: &[&str] = if name == "argus" {
            &["-X", "-h"]
        } else {
            &["-h"]
        };
        let Ok(help) = Command::new(name).args(options).output() else {
            return Some(format!("no {name} here"));
        };
        let help = [help.stdout, help.stderr].concat();
        let is_argus_5 = String::from_utf8_lossy(&help).contains("Argus Version 5");
        is_argus_5.then(|| "argus 5 does not end when told to, whatever its libpcap".to_owned())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sees {
    All,
    Tcp,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tells {
    /// The program reports only that the conversation occurred.
    Conversations,
    /// The program also reports the number of packets.
    Packets,
}

pub(crate) static SUBJECTS: [Subject; 9] = [
    Subject {
        name: "tcpdump",
        package: "tcpdump",
        ready: "listening on",
        command: "tcpdump -n -U -Z root -i DEV -w @",
        sees: Sees::All,
        tells: Tells::Packets,
        read: readers::savefile,
        ask: None,
        keeps_bpf: true,
    },
    Subject {
        name: "dumpcap",
        package: "wireshark-common",
        ready: "File:",
        command: "dumpcap -q -P -i DEV -w @",
        sees: Sees::All,
        tells: Tells::Packets,
        read: readers::savefile,
        ask: None,
        keeps_bpf: false,
    },
    Subject {
        name: "tshark",
        package: "tshark",
        ready: "Capturing on",
        command: "tshark -q -F pcap -i DEV -w @",
        sees: Sees::All,
        tells: Tells::Packets,
        read: readers::savefile,
        ask: None,
        keeps_bpf: false,
    },
    Subject {
        name: "ngrep",
        package: "ngrep",
        ready: "output:",
        command: "stdbuf -oL ngrep -q -e -d DEV -O @",
        sees: Sees::All,
        tells: Tells::Packets,
        read: readers::savefile,
        ask: None,
        keeps_bpf: true,
    },
    Subject {
        name: "p0f",
        package: "p0f",
        ready: "Entered main event loop",
        command: "stdbuf -oL p0f -i DEV -o @",
        sees: Sees::Tcp,
        tells: Tells::Conversations,
        read: readers::p0f,
        ask: None,
        keeps_bpf: true,
    },
    Subject {
        name: "softflowd",
        package: "softflowd",
        ready: "Exporting flows",
        command: "softflowd -D -i DEV -n 127.0.0.1:9 -c @ -p @.pid",
        sees: Sees::All,
        tells: Tells::Packets,
        read: readers::softflowd,
        ask: Some("softflowctl -c @ dump-flows"),
        keeps_bpf: true,
    },
    Subject {
        name: "pmacctd",
        package: "pmacct",
        ready: "cache entries",
        command: "pmacctd -i DEV -c src_host,dst_host,src_port,dst_port,proto -P print -O csv -r 3600",
        sees: Sees::All,
        tells: Tells::Packets,
        read: readers::pmacctd,
        ask: None,
        keeps_bpf: true,
    },
    Subject {
        name: "argus",
        package: "argus-server",
        ready: "",
        command: "argus -X -e 1 -i DEV -w @",
        sees: Sees::All,
        tells: Tells::Packets,
        read: readers::argus,
        ask: None,
        keeps_bpf: true,
    },
    Subject {
        name: "tcpflow",
        package: "tcpflow",
        ready: "listening on",
        command: "tcpflow -i DEV -o @",
        sees: Sees::Tcp,
        tells: Tells::Conversations,
        read: readers::tcpflow,
        ask: None,
        keeps_bpf: true,
    },
];
