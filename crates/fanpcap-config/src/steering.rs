//! A steering program, compiled: what a group of the kernel's is given of it, and what tells it from others.

use crate::fanout::Script;
use crate::report::{Fault, Report};
use crate::source::Source;
use fanpcap_bpf::Classic;
use fanpcap_linux::packet;
use fanpcap_steer::ebpf::{self, EbpfError, LoadError, Loaded, Object};
pub use fanpcap_steer::ir::COUNTERS;
use fanpcap_steer::ir::{self, Function, Program};
use fanpcap_steer::slice;
use std::fmt::{self, Write};

/// Compiles a pcap expression for Ethernet, or says why it can't.
pub type PcapCompiler<'a> = &'a dyn Fn(&str) -> Result<Vec<Classic>, String>;

/// The counters of a program.
pub type Counts = [u64; COUNTERS];

/// A program that steers a group. Two are equal when they do the same.
#[derive(Debug)]
pub struct Steering {
    program: Program,
    /// What decides about the member.
    fanout: Object,
    /// What drops and counts, if anything does: it is each member's own filter.
    verdict: Option<Program>,
    /// The same for the kernel.
    filter: Option<Object>,
    counts: bool,
    digest: u64,
    title: String,
}

impl PartialEq for Steering {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for Steering {}

impl Steering {
    /// Compiles a program, for Ethernet.
    ///
    /// # Errors
    /// What is wrong in the program's own line; or with the whole, where the program was asked for.
    pub fn compile(script: &Script, pcap: PcapCompiler<'_>) -> Result<Self, Report> {
        let source = script.load()?;
        let program = parse(&source, pcap)?;
        let verdict = slice::verdict(&program).map_err(EbpfError::Unfit);
        let refused = |error: EbpfError| script.blame(unfit(&error));
        let verdict = verdict.map_err(refused)?;
        let fanout = ebpf::fanout(&program).map_err(refused)?;
        let filter = ebpf::filter(&program, None).map_err(refused)?;
        Ok(Self {
            fanout,
            filter,
            counts: verdict.as_ref().is_some_and(|it| counts(&it.main)),
            verdict,
            digest: digest(&program, ir::MEANING),
            title: script.title(source.text()),
            program,
        })
    }

    /// What tells it from other programs, also in other processes: alike for texts that mean the same.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Its name, or how its text begins.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Whether it drops or counts, so that each member has it in its own filter.
    pub fn has_verdict(&self) -> bool {
        self.verdict.is_some()
    }

    /// Whether it has counters.
    pub fn counts(&self) -> bool {
        self.counts
    }

    /// Whether the other drops and counts the same packets.
    pub fn judges_as(&self, other: &Self) -> bool {
        self.verdict == other.verdict
    }

    /// Loads what the group is given.
    pub fn load_fanout(&self) -> Result<Loaded, LoadError> {
        self.fanout.load("fanpcap_steer")
    }

    /// Loads what is a member's filter, if the program has such a thing. A socket has room for it then.
    pub fn load_filter(&self) -> Result<Option<Loaded>, LoadError> {
        self.filter.as_ref().map(load).transpose()
    }

    /// The same together with the filter that a handle has itself; none where that can't be.
    pub fn load_filter_with(&self, own: &packet::Filter) -> Option<Loaded> {
        let filter = ebpf::filter(&self.program, Some(own.instructions())).ok()??;
        load(&filter).ok()
    }
}

fn load(filter: &Object) -> Result<Loaded, LoadError> {
    let loaded = filter.load(FILTER_NAME)?;
    loaded.ensure_room()?;
    Ok(loaded)
}

const FILTER_NAME: &str = "fanpcap_filter";

fn parse(source: &Source, pcap: PcapCompiler<'_>) -> Result<Program, Report> {
    fanpcap_steer::compile(source.text(), pcap).map_err(|error| {
        let mut fault = Fault::new("program-wrong", error.message).shift(error.span.start);
        fault.hint = error.hint;
        source.blame(fault)
    })
}

/// Why a right program is none for a group of the kernel's.
fn unfit(error: &EbpfError) -> Fault {
    match error {
        EbpfError::Unfit(unfit) => Fault::new("program-needs-hub", unfit.what.clone()),
        EbpfError::TooLong { .. } | EbpfError::TooDeep | EbpfError::Filter { .. } => {
            Fault::new("program-too-large", error.to_string())
        }
    }
}

fn counts(function: &Function) -> bool {
    matches!(function, Function::Count(..)) || function.children().any(counts)
}

/// FNV-1a of the tree as text, which has no memory addresses in it, and of what it means: members of an older and a newer build agree on
/// a program only if it does the same in both.
fn digest(program: &Program, meaning: u32) -> u64 {
    let mut digest = Digest(0xcbf2_9ce4_8422_2325);
    // It can't fail: Digest doesn't.
    let _ = write!(digest, "{meaning} {program:?}");
    // 0 stands for none.
    digest.0.max(1)
}

struct Digest(u64);

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steering(text: &str) -> Steering {
        let script = Script::of_text(Source::new("test", text));
        Steering::compile(&script, &|_| Err("no libpcap here".to_owned())).unwrap()
    }

    #[test]
    fn what_means_the_same_has_the_same_digest() {
        let one = steering("main = tcp >-> steer_flow");
        assert_eq!(one, steering("main = do\n  tcp -- only\n  steer_flow"));
        assert_ne!(one, steering("main = udp >-> steer_flow"));
        assert_eq!(one.title(), "main = tcp >-> steer_flow");
    }

    #[test]
    fn what_means_something_else_in_another_build_has_another_digest() {
        let one = steering("main = tcp >-> steer_flow");
        assert_eq!(one.digest(), digest(&one.program, ir::MEANING));
        assert_ne!(one.digest(), digest(&one.program, ir::MEANING + 1));
    }

    #[test]
    fn what_drops_and_what_counts_is_known() {
        let has = |text| {
            let steering = steering(text);
            (steering.has_verdict(), steering.counts())
        };
        assert_eq!(has("main = steer_rrobin"), (false, false));
        assert_eq!(has("main = tcp >-> steer_rrobin"), (true, false));
        assert_eq!(has("main = inc 3 >-> steer_rrobin"), (true, true));
    }

    #[test]
    fn programs_that_drop_the_same_differ_in_steering_alone() {
        let one = steering("main = tcp >-> steer_rrobin");
        assert!(one.judges_as(&steering("main = tcp >-> steer_rnd")));
        assert!(!one.judges_as(&steering("main = udp >-> steer_rrobin")));
    }
}
