//! `fanpcap capture`: counts packets in several threads of one group.

mod link;
mod handles;
mod quantity;
mod interval;
mod slots;
mod summary;
mod session;
mod witnessed;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use fanpcap_install::library;
use fanpcap_nic::cpus::Pinning;
use fanpcap_pcap::Library;
use fanpcap_terminal::{at_least_one, group_number};

use crate::THREAD;
pub use witnessed::{Task, Witnessed, witnessed};

/// Captures and counts packets, in several threads that share them
#[derive(Args, Debug)]
#[command(after_long_help = FIGURES)]
pub struct Arguments {
    /// The device; several with ^ between them, which are read in order of time
    #[arg(value_name = "DEV", required_unless_present_any = ["interface", "read"])]
    device: Option<String>,
    /// The device, written as for tcpdump: then only the filter follows the options
    #[arg(short = 'i', long, alias = "device", value_name = "DEV")]
    interface: Option<String>,
    /// Read a savefile instead of a device
    #[arg(short, long, value_name = "FILE", conflicts_with_all = LIVE)]
    read: Option<PathBuf>,
    /// How many threads share the packets, each with a handle and a ring of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// The CPUs that the threads run on: none (the kernel chooses), auto (near the device, but not
    /// its receiving CPUs), or a list such as 2,4-7
    #[arg(long, value_name = "LIST", default_value = "none", value_parser = Pinning::parse)]
    cpus: Pinning,
    /// How the packets are shared: flow, hash, lb, rnd, cpu, rollover or qm, with +defrag or
    /// +rollover added; a steering program, or file:PATH of one [default: from the settings, else
    /// the group's own, else flow]
    #[arg(long, value_name = "MODE")]
    fanout: Option<String>,
    /// The group, 0 to 65535; other programs may be in it too [default: from the settings, else a
    /// new group]
    #[arg(short, long, value_name = "NUMBER", value_parser = group_number)]
    group: Option<u16>,
    /// Bytes kept of each packet
    #[arg(short, long, value_name = "BYTES", default_value_t = 262_144, value_parser = clap::value_parser!(i32).range(1..))]
    snaplen: i32,
    /// The size of each ring, in KiB, or with a unit K, M or G; ring@DEV in pcap.conf overrides it
    /// [default: the library's]
    #[arg(short = 'B', long, value_name = "SIZE", value_parser = quantity::ring_bytes)]
    buffer: Option<i32>,
    /// The longest time in milliseconds until packets are delivered
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(i32).range(1..))]
    timeout: i32,
    /// Deliver each packet at once
    #[arg(long)]
    immediate: bool,
    /// No promiscuous mode: receive only packets for this host
    #[arg(long)]
    no_promisc: bool,
    /// End after this many packets, of all threads together
    #[arg(short, long, value_name = "PACKETS", value_parser = at_least_one::<u64>)]
    count: Option<u64>,
    /// End after this time
    #[arg(short = 't', long, value_name = "SECONDS", value_parser = quantity::seconds)]
    seconds: Option<Duration>,
    /// Nanoseconds of CPU time to spend on each packet, to try fan-out with a busy application.
    /// Measuring needs a clock, so times below about a microsecond can't be kept
    #[arg(long, value_name = "NANOSECONDS", default_value_t = 0)]
    work: u64,
    /// Write the packets to a savefile; with several threads, each writes its own file, and %i in
    /// FILE stands for the thread's number
    #[arg(short, long, value_name = "FILE")]
    write: Option<String>,
    /// Print JSON: one object a line, each second and at the end
    #[arg(long)]
    json: bool,
    /// Print nothing but the summary
    #[arg(short, long)]
    quiet: bool,
    /// The libpcap to use [default: fanpcap's own]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Only packets that match, pcap-filter(7)
    #[arg(trailing_var_arg = true)]
    filter: Vec<String>,
    /// Whether the threads take a new group, even if the settings name a group.
    #[arg(skip)]
    is_apart: bool,
}

/// Options that have no meaning for a savefile.
const LIVE: [&str; 11] = [
    "interface",
    "threads",
    "cpus",
    "fanout",
    "group",
    "snaplen",
    "buffer",
    "timeout",
    "immediate",
    "no_promisc",
    "seconds",
];

const FIGURES: &str = "\
Figures:
  Each second the program prints the packets captured so far. It also prints, per second, the packets and \
bits captured, and the packets that the kernel dropped because a ring was full. For the device it prints, \
per second, the packets that the device received and dropped.
  Each thread begins to capture when its handle is open. The rates and --seconds begin when all handles \
are open. The totals and the time of the summary begin when the first handle was opened.
  At the end the program prints exact figures for each thread. `received by filter` is the number of \
packets that the kernel received for the thread's ring. It must be the sum of `captured`, `dropped by \
kernel` and `filtered late`; otherwise the program fails. `filtered late` is the number of packets that \
came before the filter was set, and that libpcap rejected afterwards. If the kernel can't run the filter \
at all, `filtered late` is the number of all rejected packets. `dropped by interface` is a counter of the \
device, so it is the same for all threads.
  Before it ends, the program reads the packets in its rings. That may take up to a second, or longer with \
--work. A second signal ends the program at once. With --count it does not read these packets. The program \
prints how many packets it has left unread. With a --timeout above 333 there may be some, because the \
kernel may hold packets back for longer than a second.
  With --write, `written` is the number of packets in the savefiles. If the disk is full, `written` is \
less than `captured`.
  `link received` is the number of all packets that the device received while the program ran. It is \
greater than the threads' `received by filter` if a filter rejects packets, or if other members of the \
group get some. It is less if the host sends packets, because these are captured too.
  If there are several threads, under `hash` one thread gets all packets of a flow, from the time when the \
last thread has joined.

JSON:
  One object a line; `kind` is `interval` or `summary`. `threads` is the list of the threads, in order, and \
`total` is their sum. The fields are named like the figures above. A figure that is unknown is null, such \
as the kernel's figures for a savefile. `left` is the number of packets that were received, but neither \
captured, nor dropped, nor filtered late. `adds_up` is true if `left` is 0 for each thread.";

/// Runs `fanpcap capture`.
///
/// # Errors
/// The library can't be loaded, a handle can't be opened or read, or the figures don't add up.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    check_write(arguments.write.as_deref(), arguments.threads)?;
    session::run(arguments, &open(arguments.library.as_deref())?)
}

/// The library at `path`, or our own.
fn open(path: Option<&Path>) -> Result<Library> {
    let path = match path {
        Some(path) => path.to_owned(),
        None => library::directory()?.join(library::NAME),
    };
    Library::open(&path).context("loading libpcap")
}

impl Arguments {
    /// Whether options name what is captured, so that all other words are the filter.
    fn is_named_by_option(&self) -> bool {
        self.interface.is_some() || self.read.is_some()
    }

    /// The device; `None` for a savefile.
    fn device(&self) -> Option<&str> {
        let first = self.device.as_ref().filter(|_| !self.is_named_by_option());
        self.interface.as_ref().or(first).map(String::as_str)
    }

    /// The words of the filter as one expression.
    fn expression(&self) -> String {
        let first = self.device.as_ref().filter(|_| self.is_named_by_option());
        let words = first.into_iter().chain(&self.filter).map(String::as_str);
        words.collect::<Vec<_>>().join(" ")
    }
}

fn check_write(write: Option<&str>, threads: u16) -> Result<()> {
    let Some(file) = write else { return Ok(()) };
    ensure!(
        file != "-",
        "--write -: savefiles can't be written to standard output; name a file"
    );
    ensure!(
        threads == 1 || file.contains(THREAD),
        "--write {file}: each of the {threads} threads writes a separate file; put %i, the thread's number, in the name"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        let words = std::iter::once("capture").chain(line.split_whitespace());
        Command::try_parse_from(words).map(|command| command.arguments)
    }

    #[test]
    fn the_filter_is_what_follows_the_options() {
        let arguments = parse("-i eth0 --threads 4 -B 2M -c 10 udp and not port 53").unwrap();
        assert_eq!(arguments.expression(), "udp and not port 53");
        assert_eq!(arguments.buffer, Some(2 << 20));
        assert_eq!((arguments.threads, arguments.count), (4, Some(10)));
    }

    #[test]
    fn the_device_is_the_first_word_or_an_option() {
        for (line, device, filter) in [
            ("eth0", Some("eth0"), ""),
            ("eth0 -c 10 udp port 53", Some("eth0"), "udp port 53"),
            ("-i eth0", Some("eth0"), ""),
            ("-i eth0 udp -c 10", Some("eth0"), "udp"),
            ("--interface=eth0 udp port 53", Some("eth0"), "udp port 53"),
            ("-r a.pcap udp port 53", None, "udp port 53"),
        ] {
            let arguments = parse(line).unwrap();
            assert_eq!(arguments.device(), device, "{line}");
            assert_eq!(arguments.expression(), filter, "{line}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let wrong = [
            "",
            "-i a -r b",
            "-r b --threads 2",
            "-i a --threads 0",
            "-i a --threads 257",
            "-i a -g 65536",
            "-i a -c 0",
            "-i a -B 0",
            "-i a --cpus 3-",
            "-i a --seconds -1",
            "-i a -s 0",
        ];
        for line in wrong {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn several_threads_write_several_files() {
        assert!(check_write(Some("a.pcap"), 1).is_ok());
        assert!(check_write(Some("a%i.pcap"), 2).is_ok());
        let error = check_write(Some("a.pcap"), 2).unwrap_err();
        assert!(error.to_string().contains("%i"), "{error}");
        assert!(check_write(Some("-"), 1).is_err());
    }
}
