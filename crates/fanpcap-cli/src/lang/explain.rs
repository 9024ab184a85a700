//! `fanpcap lang explain`: the parts of a steering program, the engines that run them, and their
//! cost.

mod frames;
mod cost;
mod part;

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgGroup, Args};
use fanpcap_steer::ir::Tree;
use fanpcap_steer::{Compiled, Definition, ForEngine, GroupOptions, ebpf};
use fanpcap_terminal::streams;

use super::given::Given;
use super::written;
use frames::frames;
use part::Part;

/// Explains a steering program: its types, which engines run it, its cost, its eBPF
#[derive(Args, Debug)]
#[command(override_usage = USAGE, after_long_help = SECTIONS)]
#[command(group(ArgGroup::new("given").required(true).args(["file", "text", "mode"])))]
pub(super) struct Arguments {
    #[command(flatten)]
    program: Given,
    /// Show the eBPF as well
    #[arg(long)]
    bytecode: bool,
}

const USAGE: &str = "fanpcap lang explain [OPTIONS] <FILE | -e TEXT | --mode MODE>";

const SECTIONS: &str = "\
What it says:
  Definitions have their types as in fanpcap-lang(7). A definition with parameters is put in where \
it is named. Its type is the type that its body requires, or `any` if the body does not decide.
  A fan-out group of the kernel runs a program in two parts. The group's program decides which \
member gets a packet; it can't drop a packet. The filter of each member decides whether the packet \
is kept, and counts. Each part is shown in the language, without the functions of the other part. A \
steering function in the filter drops packets that lack the header by which it steers. A program \
that never drops and counts nothing has no filter.
  The XDP engine runs a program as a whole, in one BPF program for the group. If this program gives \
a packet to one member, a group of the kernel would give the packet to the same member. The text \
does not contain the time stamp and the copy into the member's ring, which cost the same for each \
program.
  Time is the time of a run in the kernel on this machine (BPF_PROG_TEST_RUN, the median of \
several), for one packet of each kind, on an idle machine. It contains some nanoseconds of the \
measurement itself: a program that does nothing shows how many. Without the capability to load \
programs, the time is a rough estimate from the number of instructions.
  Instructions and maps are those of eBPF. Verified is the number of instructions that the kernel's \
verifier processed; its limit is a million.";

/// Runs `fanpcap lang explain`.
pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let source = arguments.program.source()?;
    let (program, definitions) = (source.tree()?, source.definitions()?);
    let text = text(&program, &definitions, arguments.bytecode)?;
    streams::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn text(program: &Tree, definitions: &[Definition], bytecode: bool) -> Result<String> {
    let frames = frames()?;
    let mut text = String::new();
    write_definitions(&mut text, definitions)?;
    match in_group(program) {
        Ok(parts) => {
            writeln!(text, "\nIn a fan-out group of the kernel: yes")?;
            for part in &parts {
                part.write(&mut text, &frames, bytecode)?;
            }
            if parts.len() == 1 {
                writeln!(text, "  no filter: it never drops and counts nothing")?;
            }
        }
        Err(why) => writeln!(text, "\nIn a fan-out group of the kernel: no\n  {why}")?,
    }
    match ForEngine::of(program.clone(), GroupOptions::default())
        .and_then(|it| Ok((it.decision()?, it)))
    {
        Ok((object, for_engine)) => {
            writeln!(text, "\nOn the XDP engine: yes")?;
            let part = Part {
                what: "which member gets the packet, without the copy into its ring",
                lines: Vec::new(),
                object,
            };
            part.write(&mut text, &frames, bytecode)?;
            write_beyond(&mut text, &for_engine)?;
        }
        Err(why) => writeln!(text, "\nOn the XDP engine: no\n  {why}")?,
    }
    writeln!(text, "\nWithout the kernel, as in fanpcap lang try: yes")?;
    writeln!(text, "  {}", cost::native(program, &frames))?;
    Ok(text)
}

fn write_definitions(text: &mut String, definitions: &[Definition]) -> Result<()> {
    writeln!(text, "Definitions")?;
    let width = definitions.iter().map(|it| it.name.chars().count()).max();
    for Definition { name, signature } in definitions {
        writeln!(text, "  {name:<0$}  {signature}", width.unwrap_or(0))?;
    }
    Ok(())
}

/// Writes those effects of the steering program that a group of the kernel does not support.
fn write_beyond(text: &mut String, for_engine: &ForEngine) -> Result<()> {
    let beyond = [
        (for_engine.copies(), "some packets go to several members"),
        (
            for_engine.classifies(),
            "some packets go to members of a class (+class=N) only",
        ),
        (
            for_engine.decides_for_host(),
            "the program decides which packets the host gets",
        ),
    ];
    for (_, what) in beyond.into_iter().filter(|(does, _)| *does) {
        writeln!(text, "    {what}")?;
    }
    Ok(())
}

/// The parts of a steering program, each with its BPF program.
fn in_group(tree: &Tree) -> Result<Vec<Part>, ebpf::EbpfError> {
    let compiled = Compiled::of(tree)?;
    let parts = compiled.parts();
    let mut all = vec![Part {
        what: "which member gets the packet, decided by the group's program",
        lines: written::lines(parts.steering()),
        object: compiled.fanout().clone(),
    }];
    if let (Some(filtering), Some(filter)) = (parts.filtering(), compiled.filter()) {
        all.push(Part {
            what: "whether the packet is kept, decided by each member's filter",
            lines: written::lines(filtering),
            object: filter.clone(),
        });
    }
    Ok(all)
}
