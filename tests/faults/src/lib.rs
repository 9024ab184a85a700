//! Fault loops: repeat an operation while its first, second, third ... system call fails, on our
//! library and on the system's.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use fanpcap_testkit::{Scratch, Veth, library, netns, veth};

/// The device that operations are done on.
pub const DEVICE: &str = "vb";
/// Its other name.
pub const OTHER_NAME: &str = "longname0";
/// The group of members.
pub const GROUP: u16 = 7;

/// The device at which frames enter.
const FAR_DEVICE: &str = "va";

/// How calls fail; c/fault.h says what each means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// `ENOMEM`, `EMFILE`.
    Resources,
    /// `EPERM`, `EACCES`.
    Denied,
    /// `EINTR`.
    Interrupted,
    /// `EMFILE`, and again and again from then on.
    Exhausted,
}

/// All of them.
pub const PASSES: [Pass; 4] = [
    Pass::Resources,
    Pass::Denied,
    Pass::Interrupted,
    Pass::Exhausted,
];

impl Pass {
    fn name(self) -> &'static str {
        match self {
            Self::Resources => "resources",
            Self::Denied => "denied",
            Self::Interrupted => "interrupted",
            Self::Exhausted => "exhausted",
        }
    }
}

/// What runs below the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// Our library.
    Ours,
    /// The system's, without us.
    Systems,
}

/// An operation, and the handle that it is done on or with.
#[derive(Clone, Copy, Debug)]
pub struct Loop {
    /// Its name in c/operations.c.
    pub operation: &'static str,
    /// The library.
    pub library: Library,
    /// Whether the handle is a member of [`GROUP`].
    pub member: bool,
    /// The environment variables.
    pub environment: &'static [(&'static str, &'static str)],
    /// The device's name.
    pub device: &'static str,
}

impl Loop {
    /// On our library, with a plain handle.
    pub fn plain(operation: &'static str) -> Self {
        Self {
            operation,
            library: Library::Ours,
            member: false,
            environment: &[],
            device: DEVICE,
        }
    }

    /// On our library, with a member.
    pub fn member(operation: &'static str) -> Self {
        Self {
            member: true,
            ..Self::plain(operation)
        }
    }

    /// On the system's library.
    pub fn systems(operation: &'static str) -> Self {
        Self {
            library: Library::Systems,
            ..Self::plain(operation)
        }
    }

    /// Runs it for these passes at once, each in a network namespace of its own.
    ///
    /// # Errors
    /// When the scene can't be made, or the program ends before it has finished.
    pub fn run(&self, programs: &Programs, passes: &[Pass]) -> Result<Vec<Failure>> {
        thread::scope(|scope| {
            let start = |&pass| scope.spawn(move || self.run_pass(pass, programs));
            let runs: Vec<_> = passes.iter().map(start).collect();
            let mut failures = Vec::new();
            for run in runs {
                failures.extend(run.join().expect("a pass does not panic")?);
            }
            Ok(failures)
        })
    }

    fn run_pass(&self, pass: Pass, programs: &Programs) -> Result<Vec<Failure>> {
        let done = netns::within_new(|| {
            Veth::new(FAR_DEVICE, DEVICE, 1)?;
            if self.device != DEVICE {
                veth::ip(&format!(
                    "link property add dev {DEVICE} altname {}",
                    self.device
                ))?;
            }
            self.command(pass, programs)?.output().context("the tracer")
        })?;
        let said = String::from_utf8_lossy(&done.stdout);
        let complaint = String::from_utf8_lossy(&done.stderr);
        ensure!(
            done.status.success() && said.ends_with("finished\n"),
            "{self:?} {pass:?} ended ({}):\n{said}{complaint}",
            done.status
        );
        let lines = said.lines().filter(|&line| line != "finished");
        lines.map(|line| Failure::parse(pass, line)).collect()
    }

    /// The program in the calling thread's namespace, with no settings but these.
    fn command(&self, pass: Pass, programs: &Programs) -> Result<Command> {
        // A /run of its own: pages of others would be looked at, too, and make the loop longer.
        let private = "mount -t tmpfs tmpfs /run && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", private, "sh"]);
        command.arg(&programs.tracer);
        for (name, _) in env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"PCAP_") {
                command.env_remove(name);
            }
        }
        match self.library {
            Library::Ours => command.env("LD_LIBRARY_PATH", library::library_dir()?),
            Library::Systems => command.env_remove("LD_LIBRARY_PATH"),
        };
        command
            .env("PCAP_CONFIG", "/dev/null")
            .envs(self.environment.iter().copied());
        command.arg(&programs.operations);
        command.args([self.operation, pass.name(), self.device, FAR_DEVICE]);
        command.args(self.member.then(|| GROUP.to_string()));
        Ok(command)
    }
}

/// The tracer and the program that it runs, compiled.
#[derive(Debug)]
pub struct Programs {
    tracer: PathBuf,
    operations: PathBuf,
    _scratch: Scratch,
}

impl Programs {
    /// Compiles them.
    ///
    /// # Errors
    /// What the compiler says.
    pub fn compile() -> Result<Self> {
        let scratch = Scratch::new()?;
        let compile = |name: &str| {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("c/{name}.c"));
            let program = scratch.file(name);
            library::compile_c(&source, &program).map(|()| program)
        };
        Ok(Self {
            tracer: compile("tracer")?,
            operations: compile("operations")?,
            _scratch: scratch,
        })
    }
}

/// One go at an operation in which a system call failed; the last of a pass, in which none did.
#[derive(Clone, Debug)]
pub struct Failure {
    /// How it failed.
    pub pass: Pass,
    /// Which call it was, of those that the pass counts.
    pub nth: usize,
    /// The call with its option or path; none: nothing failed.
    pub call: Option<String>,
    /// What it failed with.
    pub errno: String,
    /// What the operation returned.
    pub status: i32,
    /// The error in the result, in the words of c/operations.c.
    pub wrong: BTreeSet<String>,
    /// The message that came with it.
    pub message: String,
}

impl Failure {
    fn parse(pass: Pass, line: &str) -> Result<Self> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [nth, call, errno, status, wrong, message] = fields[..] else {
            bail!("{pass:?}: {line}");
        };
        let words = wrong.split(' ').filter(|word| !matches!(*word, "" | "-"));
        Ok(Self {
            pass,
            nth: nth.parse()?,
            call: (call != "none").then(|| call.to_owned()),
            errno: errno.to_owned(),
            status: status.parse()?,
            wrong: words.map(str::to_owned).collect(),
            message: message.to_owned(),
        })
    }
}
