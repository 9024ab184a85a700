//! The demo: unmodified tcpdump processes share real flows between two namespaces. The demo counts
//! the packets and flows, and checks the counts.

mod coming;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::thread;

use anyhow::{Context, Result, ensure};
use fanpcap_linux::process;
use fanpcap_testkit::hosts::{DEVICE, Hosts};
use fanpcap_testkit::{Capture, FlowKey, Member, Program, Scratch, capture, library, member};

/// Runs the demo on a thread of its own, because the thread moves between network namespaces.
pub(crate) fn run() -> Result<()> {
    ensure!(
        process::effective_user() == 0,
        "the demo makes network namespaces: run it as root"
    );
    let library = library::library_dir()?;
    thread::scope(|scope| scope.spawn(show).join()).expect("the demo does not panic")?;
    println!(
        "\nEvery check passed. The same on an interface of yours, in two terminals or more:\n\n  \
         LD_LIBRARY_PATH={} PCAP_GROUP={GROUP} tcpdump -ni eth0",
        library.display()
    );
    Ok(())
}

fn show() -> Result<()> {
    let scene = Scene {
        hosts: Hosts::new()?,
        scratch: Scratch::new()?,
    };
    println!(
        "A wire between two network namespaces. {FLOWS} conversations over real sockets at a time:\n\
         TCP and UDP, IPv4 and IPv6. Unmodified tcpdump listens at {DEVICE} through fanpcap."
    );

    println!(
        "\n1. Four tcpdump share group {GROUP} under hash: each flow stays whole, at one of them.\n"
    );
    let members = scene.start(4, GROUP, "hash")?;
    for member in &members {
        println!(
            "tcpdump {} runs on {}",
            member.pid(),
            library_of(member)?.display()
        );
    }
    println!();
    let offered = scene.talk()?;
    Table::of(members, offered)?.show(Flows::Whole)?;

    println!("\n2. The same under rnd: equal shares, but flows are split.\n");
    let members = scene.start(4, GROUP, "rnd")?;
    let offered = scene.talk()?;
    Table::of(members, offered)?.show(Flows::Split)?;

    println!(
        "\n3. While group {GROUP} captures, a second group on the device gets all packets too.\n"
    );
    let first = scene.start(4, GROUP, "hash")?;
    let before = scene.talk()?;
    let second = scene.start(2, SECOND_GROUP, "hash")?;
    let both = scene.talk()?;
    println!("group {SECOND_GROUP}, from the middle");
    Table::of(second, both)?.show(Flows::Whole)?;
    println!("\ngroup {GROUP}, from the beginning");
    let offered = Offered {
        packets: before.packets + both.packets,
        flows: before.flows + both.flows,
    };
    Table::of(first, offered)?.show(Flows::Whole)?;

    println!(
        "\n4. Under flow one of four is killed, and another joins: only flows of these two move.\n"
    );
    coming::show(&scene)
}

/// Two hosts (network namespaces) with a wire between them, and the directory of the captures. The
/// calling thread is in the namespace of one host.
struct Scene {
    hosts: Hosts,
    scratch: Scratch,
}

impl Scene {
    fn start(&self, count: usize, group: u16, mode: &str) -> Result<Vec<Member>> {
        let start = |_| {
            let file = self.scratch.new_file("pcap");
            let member = Program::tcpdump(DEVICE, file)?
                .group(group, mode)
                .start(&self.scratch)?;
            library_of(&member).map(|_| member)
        };
        let members = (0..count).map(start).collect::<Result<_>>()?;
        member::wait_for_members(group, count)?;
        Ok(members)
    }

    /// Sends the packets of all conversations. Returns the number of packets on the wire, by the
    /// device's counters.
    fn talk(&self) -> Result<Offered> {
        Ok(Offered {
            packets: self.hosts.talk(EACH)?,
            flows: FLOWS,
        })
    }
}

/// The libpcap that a process has mapped, by the kernel's list of mappings. Fails if it is not our
/// library.
fn library_of(member: &Member) -> Result<PathBuf> {
    let ours = library::library_dir()?;
    let libraries = member::libraries_of(member.pid())?;
    let found = libraries
        .iter()
        .find(|path| path.starts_with(&ours))
        .cloned();
    found.with_context(|| {
        format!(
            "process {} runs on {libraries:?}, not on {}",
            member.pid(),
            ours.display()
        )
    })
}

/// The packets and flows on the wire.
#[derive(Clone, Copy)]
struct Offered {
    packets: usize,
    flows: usize,
}

/// The expected distribution of flows: each flow at one member, or flows split over several
/// members.
enum Flows {
    Whole,
    Split,
}

/// The packets that each member of a group captured, and the packets that were on the wire.
struct Table {
    offered: Offered,
    captures: Vec<Capture>,
    dropped: usize,
}

impl Table {
    /// Stops the members when they have captured all packets, and counts the packets.
    fn of(members: Vec<Member>, offered: Offered) -> Result<Self> {
        if let Err(error) = member::wait_for_packets(&members, offered.packets) {
            println!("{error:#}");
        }
        let (mut captures, mut dropped) = (Vec::new(), 0);
        for member in members {
            let ended = member.stop()?;
            captures.push(ended.capture()?);
            dropped += ended.count("packets dropped by kernel")?;
        }
        Ok(Self {
            offered,
            captures,
            dropped,
        })
    }

    /// Prints the table. Fails if the counts do not add up.
    fn show(&self, expected: Flows) -> Result<()> {
        let split = capture::split_flows(&self.captures);
        println!(
            "{:12}{:>9}{:>9}{:>16}",
            "", "packets", "flows", "shared flows"
        );
        let (mut packets, mut flows) = (0, BTreeSet::new());
        for (index, capture) in self.captures.iter().enumerate() {
            let own: BTreeSet<FlowKey> = capture.flows().into_keys().collect();
            let shared = own.intersection(&split).count();
            let name = format!("tcpdump {}", index + 1);
            println!(
                "{name:12}{:>9}{:>9}{shared:>16}",
                capture.packets.len(),
                own.len()
            );
            packets += capture.packets.len();
            flows.extend(own);
        }
        let (together, shared) = (flows.len(), split.len());
        let Offered {
            packets: offered,
            flows: of,
        } = self.offered;
        let (lost, many) = (
            offered.saturating_sub(packets),
            packets.saturating_sub(offered),
        );
        println!("{:12}{packets:>9}{together:>9}{shared:>16}", "together");
        println!("{:12}{offered:>9}{of:>9}", "on the wire");
        println!("{:12}{lost:>9}", "lost");
        println!("{:12}{many:>9}", "too many");

        ensure!(packets == offered, "the packets don't add up");
        ensure!(
            self.dropped == 0,
            "the kernel dropped {} packets",
            self.dropped
        );
        ensure!(together == of, "the flows don't add up");
        match expected {
            Flows::Whole => ensure!(split.is_empty(), "{} flows were split", split.len()),
            Flows::Split => ensure!(!split.is_empty(), "no flow was split, but rnd splits flows"),
        }
        Ok(())
    }
}

const GROUP: u16 = 7;
const SECOND_GROUP: u16 = 23;
/// Conversations of each kind: TCP and UDP, over IPv4 and IPv6.
const EACH: usize = 64;
const FLOWS: usize = 4 * EACH;
