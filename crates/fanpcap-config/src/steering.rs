//! Compiles the steering program that a setting or a call asks for.

use crate::fanout::Script;
use crate::report::{Fault, Report};
use crate::source::Source;
pub use fanpcap_steer::Balance;
pub use fanpcap_steer::GroupOptions;
pub use fanpcap_steer::PcapCompiler;
use fanpcap_steer::ebpf::EbpfError;
pub use fanpcap_steer::ir::COUNTERS;
use fanpcap_steer::ir::Tree;
use fanpcap_steer::{Compiled, ForEngine};
pub use fanpcap_steer::{Overridden, overridden};

/// The counters of a steering program.
pub type Counts = [u64; COUNTERS];

/// A compiled steering program. Two steering programs are equal if their digests are equal.
#[derive(Debug)]
pub struct Steering {
    code: Code,
    title: String,
    text: String,
    file: Option<String>,
    options: GroupOptions,
}

/// The code for one kind of engine.
#[derive(Debug)]
enum Code {
    Sockets(Box<Compiled>),
    Engine(ForEngine),
}

impl PartialEq for Steering {
    fn eq(&self, other: &Self) -> bool {
        self.digest() == other.digest()
    }
}

impl Eq for Steering {}

impl Steering {
    /// Compiles a steering program, for Ethernet.
    ///
    /// # Errors
    /// A mistake in the steering program, with its line. If the steering program is correct, but a
    /// group can't run it, the error has the place of the setting or call that asks for it.
    pub fn compile(script: &Script, pcap: PcapCompiler<'_>) -> Result<Self, Report> {
        let compile = |tree| {
            let compiled = Compiled::with(&tree, script.options())?;
            Ok(Code::Sockets(Box::new(compiled)))
        };
        Self::with(script, pcap, &compile)
    }

    /// Compiles a steering program for a group on an engine other than packet sockets.
    ///
    /// # Errors
    /// Same as [`Steering::compile`].
    pub fn compile_for_engine(script: &Script, pcap: PcapCompiler<'_>) -> Result<Self, Report> {
        let compile = |tree| ForEngine::of(tree, script.options()).map(Code::Engine);
        Self::with(script, pcap, &compile)
    }

    fn with(
        script: &Script,
        pcap: PcapCompiler<'_>,
        compile: &dyn Fn(Tree) -> Result<Code, EbpfError>,
    ) -> Result<Self, Report> {
        let source = script.load()?;
        let code = compile(tree(&source, pcap)?);
        let steering = Self {
            code: code.map_err(|error| script.blame(unfit(&error)))?,
            title: script.title(source.text()),
            text: script.whole(source.text()),
            file: script.file().map(str::to_owned),
            options: script.options(),
        };
        match steering.classifies() && steering.balance().is_some() {
            true => Err(script.blame(balanced_classes())),
            false => Ok(steering),
        }
    }

    /// The compiled objects of a group of packet sockets.
    pub fn compiled(&self) -> Option<&Compiled> {
        match &self.code {
            Code::Sockets(compiled) => Some(compiled.as_ref()),
            Code::Engine(_) => None,
        }
    }

    /// The compiled steering program of a group on an engine other than packet sockets.
    pub fn for_engine(&self) -> Option<&ForEngine> {
        match &self.code {
            Code::Sockets(_) => None,
            Code::Engine(for_engine) => Some(for_engine),
        }
    }

    /// See [`Compiled::digest`].
    pub fn digest(&self) -> u64 {
        match &self.code {
            Code::Sockets(compiled) => compiled.digest(),
            Code::Engine(for_engine) => for_engine.digest(),
        }
    }

    /// The name of the steering program, or the beginning of its text, with the options of its
    /// groups.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The setting `file:PATH` with its options, if the steering program is from a file.
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    /// The whole text. [`Script::of_title`] makes the same steering program from it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text without the group's options, which [`Steering::options`] returns.
    pub fn program(&self) -> &str {
        match self.text.split_once(' ') {
            Some((options, program)) if options.starts_with('+') => program,
            _ => &self.text,
        }
    }

    /// The group's options.
    pub fn options(&self) -> GroupOptions {
        self.options
    }

    /// Whether the steering program gives packets to classes.
    pub fn classifies(&self) -> bool {
        self.for_engine().is_some_and(ForEngine::classifies)
    }

    /// The buckets that may move to balance the program's groups; `None` if the groups are not
    /// balanced.
    pub fn balance(&self) -> Option<Balance> {
        self.options.balance
    }

    /// Whether a group with this program must have only one device: a sticky group remembers the
    /// flows of one device, and a balanced group counts the packets of one device.
    pub fn is_of_one_device(&self) -> bool {
        self.options != GroupOptions::default()
    }

    /// Whether the steering program drops or counts packets, so that each member needs the
    /// filtering part. False on other engines, where the group's BPF program drops and counts the
    /// packets.
    pub fn has_filter(&self) -> bool {
        self.compiled().is_some_and(|it| it.filter().is_some())
    }

    /// Whether the members' filtering parts have counters.
    pub fn counts(&self) -> bool {
        self.compiled().is_some_and(|it| it.parts().counts())
    }

    /// Whether the filtering parts of both steering programs drop and count the same packets.
    pub fn filters_as(&self, other: &Self) -> bool {
        let [own, others] = [self, other].map(|it| it.compiled().map(|it| it.parts().filtering()));
        own == others
    }
}

fn tree(source: &Source, pcap: PcapCompiler<'_>) -> Result<Tree, Report> {
    fanpcap_steer::tree(source.text(), pcap).map_err(|error| {
        let mut fault = Fault::new("program-wrong", error.message).shift(error.span.start);
        fault.hint = error.hint;
        source.blame(fault)
    })
}

/// The fault of a balanced group whose steering program gives packets to classes.
fn balanced_classes() -> Fault {
    let message =
        "a group with '+balance' has no classes of members, and the program has 'classify'";
    Fault::new("balance-and-classes", message).hint("leave one of them out")
}

/// The fault of a steering program that is correct, but that a kernel group can't run.
fn unfit(error: &EbpfError) -> Fault {
    match error {
        EbpfError::Unfit(unfit) => Fault::new("program-needs-hub", unfit.what.clone()),
        EbpfError::TooLong { .. } | EbpfError::TooDeep | EbpfError::Filter { .. } => {
            Fault::new("program-too-large", error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fanout::Fanout;

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
    fn on_an_engine_no_member_has_a_filter() {
        let pcap: PcapCompiler<'_> = &|_| Err("no libpcap here".to_owned());
        let script = Script::of_text(Source::new("test", "main = tcp >-> steer_flow"));
        let steering = Steering::compile_for_engine(&script, pcap).unwrap();
        assert!(steering.for_engine().is_some() && !steering.has_filter());
        let flow = Steering::compile_for_engine(&Script::default_mode(), pcap).unwrap();
        assert_eq!(
            flow.digest(),
            Steering::compile(&Script::default_mode(), pcap)
                .unwrap()
                .digest()
        );
    }

    #[test]
    fn a_group_with_other_options_has_another_program() {
        let of = |text: &str| {
            let Ok(Fanout::Program(script)) = Fanout::parse(Source::new("test", text)) else {
                panic!("{text} is a program");
            };
            Steering::compile(&script, &|_| Err("no libpcap here".to_owned())).unwrap()
        };
        assert_ne!(of("flow"), of("flow+sticky"));
        assert_ne!(of("flow+sticky"), of("flow+sticky=1024"));
        assert_eq!(of("flow+sticky"), of("flow+sticky=65536+weight=2"));
        assert!(of("flow").filters_as(&of("flow+sticky")));
        assert_ne!(of("flow"), of("flow+balance"));
        assert_ne!(of("flow+balance=all"), of("flow+balance"));
        let has_one_device = |text| of(text).is_of_one_device();
        assert!(has_one_device("flow+sticky") && has_one_device("flow+balance"));
        assert!(!has_one_device("flow+weight=2"));
    }

    #[test]
    fn what_drops_and_what_counts_is_known() {
        let has = |text| {
            let steering = steering(text);
            (steering.has_filter(), steering.counts())
        };
        assert_eq!(has("main = steer_rrobin"), (false, false));
        assert_eq!(has("main = tcp >-> steer_rrobin"), (true, false));
        assert_eq!(has("main = inc 3 >-> steer_rrobin"), (true, true));
    }

    #[test]
    fn programs_that_drop_the_same_differ_in_steering_alone() {
        let one = steering("main = tcp >-> steer_rrobin");
        assert!(one.filters_as(&steering("main = tcp >-> steer_rnd")));
        assert!(!one.filters_as(&steering("main = udp >-> steer_rrobin")));
    }
}
