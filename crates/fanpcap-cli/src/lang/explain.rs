//! `fanpcap lang explain`: the parts of a steering program, what runs them, and their cost.

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

/// Explains a program: types, what runs it, what it costs, its eBPF
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
  Definitions have their types as in fanpcap-lang(7). One with parameters is put in where it is \
named; its type is as its body uses them, `any` where that does not tell.
  A fan-out group of the kernel's runs a program in two parts: the group's program decides which \
member gets a packet, and can't drop; each member's own filter decides whether the packet is kept, \
and counts. Each is shown in the language, as it is left when the other is taken out: a steering \
function in the filter drops what has no such thing to be steered by. A program that never drops \
and counts nothing has no filter.
  The XDP engine runs a program whole, in one BPF program for the group. Where it gives a packet \
to one member, a group of the kernel's would give it to the same. What is shown is without the \
stamp and the copy into the member's ring, which cost the same for each program.
  Time is that of a run in the kernel on this machine (BPF_PROG_TEST_RUN, the median of several), \
for one packet of each kind, with nothing else at work on it; some nanoseconds of it are the \
trial's own, as a program shows that does nothing. Without the capability to load programs it is \
an estimate from the number of instructions: rough, by what others took.
  Instructions and maps are those of eBPF; verified is how many instructions the kernel's verifier \
went through, of the million that it takes at most.";

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
            writeln!(text, "\nIn a fan-out group of the kernel's: yes")?;
            for part in &parts {
                part.write(&mut text, &frames, bytecode)?;
            }
            if parts.len() == 1 {
                writeln!(text, "  no filter: it never drops and counts nothing")?;
            }
        }
        Err(why) => writeln!(text, "\nIn a fan-out group of the kernel's: no\n  {why}")?,
    }
    match ForEngine::of(program.clone(), GroupOptions::default())
        .and_then(|it| Ok((it.decision()?, it)))
    {
        Ok((object, for_engine)) => {
            writeln!(text, "\nOn the XDP engine: yes")?;
            let part = Part {
                what: "who gets it, without the copy into a member's ring",
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

/// Writes what a group of the kernel can't do.
fn write_beyond(text: &mut String, for_engine: &ForEngine) -> Result<()> {
    let beyond = [
        (for_engine.copies(), "some packets go to several members"),
        (
            for_engine.classifies(),
            "some packets go to members of a class (+class=N) only",
        ),
        (for_engine.decides_for_host(), "it says what the host gets"),
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
        what: "which member, for the group",
        lines: written::lines(parts.steering()),
        object: compiled.fanout().clone(),
    }];
    if let (Some(filtering), Some(filter)) = (parts.filtering(), compiled.filter()) {
        all.push(Part {
            what: "whether it is kept, as each member's filter",
            lines: written::lines(filtering),
            object: filter.clone(),
        });
    }
    Ok(all)
}
