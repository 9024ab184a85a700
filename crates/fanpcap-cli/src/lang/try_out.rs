//! `fanpcap lang try`: which member would get each packet of a capture file.

mod members;
mod owners;
mod engine;
mod tally;
mod place;
mod datagrams;
mod flows;
mod packets;
mod each_packet;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;
use fanpcap_buckets::layout::CLASSES;
use fanpcap_gen::{Record, Records};
use fanpcap_steer::ir::{Function, Node, Tree};
use fanpcap_steer::native::Packet;
use fanpcap_terminal::streams::{self, Reader};
use fanpcap_wire::{Frame, Layers, Tag};

use super::given::Given;
use each_packet::EachPacket;
use engine::Engine;
use flows::Flows;
use members::MEMBERS_MAX;
use packets::Fate;
use report::Report;
use tally::Tally;

/// Shows which member would get which packets of a capture file
#[derive(Args, Debug)]
#[command(allow_missing_positional = true, override_usage = USAGE, after_long_help = FIGURES)]
pub(super) struct Arguments {
    #[command(flatten)]
    program: Given,
    /// The capture file, pcap or pcapng, of Ethernet frames
    capture: PathBuf,
    /// How many members the group has
    #[arg(short = 'n', long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=i64::from(MEMBERS_MAX)))]
    members: u16,
    /// Classes of the members, one for each member, as in 2,0,0; needs a program with classify
    #[arg(
        long,
        value_name = "CLASSES",
        value_delimiter = ',',
        conflicts_with = "members",
        value_parser = clap::value_parser!(u8).range(0..=CLASSES as i64 - 1)
    )]
    classes: Vec<u8>,
    /// Print a line for each packet: its number and flow, and the members that get it
    #[arg(long)]
    packets: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const USAGE: &str = "fanpcap lang try [OPTIONS] <FILE | -e TEXT | --mode MODE> <CAPTURE>";

const FIGURES: &str = "\
What the command does:
  Each packet goes through the program as it would in a fan-out group of the kernel. One half of the program decides which member gets the packet. \
The other half, the filter of this member, decides whether the packet is kept. If the program does something that such a group can't do, for example \
gives copies to several members, the command follows the language, and the output says why a group can't run the program. The command moves the outermost \
802.1Q or 802.1ad tag from the frame to a field beside the frame, as the kernel does on receipt. Nothing is loaded into the kernel, so no privilege is needed.

Figures:
  Member 0 is the member that joins first, and the others follow in their order. Share: a member's part of the packets that at least one member gets. \
Skew: the busiest member's packets divided by the mean. Bytes are bytes on the wire.
  A flow is all packets between two ends, in either direction. The addresses, ports and protocol are those of the innermost packet. An ICMP error \
belongs to the flow that it quotes, a fragment to the flow of its datagram. A flow is whole if at least one member gets all its packets that are not dropped. \
It is split if no member gets all packets of one direction. It is apart if its directions go to different members. The program is symmetric if, in each flow \
that was seen in both directions, both directions go to the same member.
  Unread packets contain a packet that can't be read, or no IP packet; they are steered by the outer header. docs/steering.md lists the mirrors and tunnels \
that are read.
  If a later fragment of a datagram comes before the first, the ports are not known. This fragment may get another member than its flow, and the datagram is \
counted as late.";

/// Runs `fanpcap lang try`.
pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    // A single positional argument is the capture, even if the user meant the steering program.
    let given = arguments.capture.display();
    ensure!(
        !arguments.program.is_missing(),
        "a program and a capture are needed, but only {given} is given: write fanpcap lang try {given} CAPTURE, or \
         fanpcap lang try --mode flow {given}"
    );
    let program = arguments.program.source()?.tree()?;
    let mut each = arguments.packets.then(|| EachPacket::new(arguments.json));
    let Some(report) = report(&program, arguments, &mut each)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let text = match arguments.json {
        true => serde_json::to_string(&report).context("writing JSON")? + "\n",
        false => report.to_string(),
    };
    let text = match each {
        Some(each) => each.end(&text),
        None => text,
    };
    streams::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the capture and prints its packets to `each`; `None` if nobody reads these any more.
fn report(
    program: &Tree,
    arguments: &Arguments,
    each: &mut Option<EachPacket>,
) -> Result<Option<Report>> {
    let classes = classes(program, arguments)?;
    let mut engine = Engine::new(program, &classes);
    let (mut tally, mut flows) = (Tally::of(classes.len()), Flows::default());
    let mut records = Records::open(&arguments.capture)?;
    let mut shortened = 0;
    for record in records.by_ref() {
        let record = record?;
        shortened += u64::from(record.is_shortened());
        let length = record.len;
        let now_ns = record.time;
        let (bytes, tag) = received(record);
        let frame = Frame { bytes: &bytes, tag };
        let packet = Packet {
            frame,
            length: length - if tag.is_some() { 4 } else { 0 },
            mark: Some(0),
            now_ns,
            ..Packet::default()
        };
        let (outcome, members) = engine.evaluate(&packet);
        tally.take(&outcome, members, length.into());
        let layers = Layers::of_cut(&frame, packet.length);
        if !members.is_empty() {
            flows.take(&layers, members, now_ns);
        }
        if let Some(each) = each {
            let number = tally.read.packets;
            let fate = Fate::new(number, length, &layers, &outcome, members);
            if each.add(&fate)? == Reader::Gone {
                return Ok(None);
            }
        }
    }
    ensure!(
        tally.read.packets > 0,
        "{}: no packets",
        arguments.capture.display()
    );
    Ok(Some(Report::new(
        arguments,
        program,
        &engine,
        (&tally, &flows),
        (shortened, records.is_cut()),
    )))
}

/// The class of each member.
fn classes(program: &Tree, arguments: &Arguments) -> Result<Vec<u8>> {
    if arguments.classes.is_empty() {
        return Ok(vec![0; arguments.members.into()]);
    }
    ensure!(
        arguments.classes.len() <= usize::from(MEMBERS_MAX),
        "--classes: a group has at most {MEMBERS_MAX} members"
    );
    let mut classifies = false;
    program.main.walk(&mut |node| {
        classifies |= matches!(node, Node::Function(Function::Classify(_)));
    });
    ensure!(
        classifies || arguments.classes.iter().all(|class| *class == 0),
        "--classes: the program has no classify, so only class 0 gets packets"
    );
    Ok(arguments.classes.clone())
}

/// The frame as the kernel has it after receipt: the outermost tag is stored beside the frame
/// (`skb_vlan_untag`).
fn received(record: Record) -> (Vec<u8>, Option<Tag>) {
    let mut bytes = record.bytes;
    let Some(&[a, b, c, d, _, _]) = bytes.get(12..18).and_then(|it| it.first_chunk()) else {
        return (bytes, None);
    };
    let [tpid, tci] = [[a, b], [c, d]].map(u16::from_be_bytes);
    if !matches!(tpid, 0x8100 | 0x88a8) {
        return (bytes, None);
    }
    bytes.drain(12..16);
    (bytes, Some(Tag { tpid, tci }))
}
