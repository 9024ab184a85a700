//! Fault loops. A loop repeats an operation while its first, second, third ... system call fails.
//! It runs on our library or on the system's library.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use fanpcap_testkit::{Scratch, Veth, library, netns, veth};

/// The device on which operations run.
pub const DEVICE: &str = "vb";
/// The alternative name of [`DEVICE`].
pub const OTHER_NAME: &str = "longname0";
/// The group of all handles that are members.
pub const GROUP: u16 = 7;

/// The device at which frames enter.
const FAR_DEVICE: &str = "va";

/// The way in which calls fail; c/fault.h describes each way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// `ENOMEM`, `EMFILE`.
    Resources,
    /// `EPERM`, `EACCES`.
    Denied,
    /// `EINTR`.
    Interrupted,
    /// `EMFILE`, for the chosen call and all later calls.
    Exhausted,
}

/// All ways in which calls fail.
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

/// The library that the operation calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// Our library.
    Ours,
    /// The system's library, without ours.
    Systems,
}

/// An operation, and the kind of handle that it uses.
#[derive(Clone, Copy, Debug)]
pub struct Loop {
    /// Name of the operation in c/operations.c.
    pub operation: &'static str,
    /// The library on which the operation runs.
    pub library: Library,
    /// Whether the handle is a member of [`GROUP`].
    pub member: bool,
    /// The environment variables that are set.
    pub environment: &'static [(&'static str, &'static str)],
    /// The name by which the operation opens the device.
    pub device: &'static str,
}

impl Loop {
    /// The operation on our library, with a plain handle.
    pub fn plain(operation: &'static str) -> Self {
        Self {
            operation,
            library: Library::Ours,
            member: false,
            environment: &[],
            device: DEVICE,
        }
    }

    /// The operation on our library, with a member.
    pub fn member(operation: &'static str) -> Self {
        Self {
            member: true,
            ..Self::plain(operation)
        }
    }

    /// The operation on the system's library.
    pub fn systems(operation: &'static str) -> Self {
        Self {
            library: Library::Systems,
            ..Self::plain(operation)
        }
    }

    /// Runs the operation for all of these passes at the same time, each pass in its own network
    /// namespace.
    ///
    /// # Errors
    /// The namespace can't be set up, or the program ends before it has finished.
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

    /// The command that runs the operation in the calling thread's namespace, with no settings but
    /// those of the operation.
    fn command(&self, pass: Pass, programs: &Programs) -> Result<Command> {
        // Mount a private /run. In the machine's /run the library would also read pages of other
        // tests, which would make the loop longer.
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

/// The compiled tracer, and the compiled program that it runs.
#[derive(Debug)]
pub struct Programs {
    tracer: PathBuf,
    operations: PathBuf,
    _scratch: Scratch,
}

impl Programs {
    /// Compiles both programs.
    ///
    /// # Errors
    /// The compiler fails; the error has its messages.
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

/// One run of an operation, in which a system call failed. Only in the last run of a pass no call
/// failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The way in which the call failed.
    pub pass: Pass,
    /// The number of the call among those that the pass counts.
    pub nth: usize,
    /// The call with its option or path; `None` if no call failed.
    pub call: Option<String>,
    /// The error that the call returned.
    pub errno: String,
    /// The status that the operation returned.
    pub status: i32,
    /// The errors in the result, in the words of c/operations.c.
    pub wrong: BTreeSet<String>,
    /// The operation's message.
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
