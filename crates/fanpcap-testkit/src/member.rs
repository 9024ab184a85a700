//! Programs that capture through our library: started, awaited, stopped, their output read.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail, ensure};
use fanpcap_linux::netlink::diag;
use fanpcap_linux::process::{child, stat};

use crate::await_for::{LIMIT, await_for};
use crate::capture::Capture;
use crate::library::library_dir;
use crate::scratch::Scratch;

/// A program to start in the calling thread's namespace, on our library and with no settings but
/// the ones given here.
#[derive(Debug)]
pub struct Program {
    command: Command,
    capture: Option<PathBuf>,
    ready: &'static str,
}

impl Program {
    /// A program that prints `ready` on a stream of its choice once it captures.
    ///
    /// # Errors
    /// When our library isn't staged.
    pub fn new(program: impl AsRef<OsStr>, ready: &'static str) -> Result<Self> {
        Ok(Self::on(&library_dir()?, program, ready))
    }

    /// The same on the libpcap of another directory, which is ours or anybody's.
    pub fn on(library: &Path, program: impl AsRef<OsStr>, ready: &'static str) -> Self {
        let mut command = Command::new(program);
        for (name, _) in env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"PCAP_") {
                command.env_remove(name);
            }
        }
        // An empty config file, so that the machine's own has no say.
        command
            .env("LD_LIBRARY_PATH", library)
            .env("PCAP_CONFIG", "/dev/null");
        command.stdin(Stdio::null());
        Self {
            command,
            capture: None,
            ready,
        }
    }

    /// tcpdump on `device`, writing each packet to `file` at once. It stays root, so that it may
    /// write there, and has a buffer that no test fills.
    ///
    /// # Errors
    /// When our library isn't staged.
    pub fn tcpdump(device: &str, file: PathBuf) -> Result<Self> {
        // tcpdump says so after it has set its filter, just before its first packet.
        let mut program = Self::new("tcpdump", "listening on")?
            .args(["-n", "-U", "-Z", "root", "-B", "16384", "-i", device, "-w"])
            .arg(&file);
        program.capture = Some(file);
        Ok(program)
    }

    /// One more argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// More arguments.
    #[must_use]
    pub fn args<I: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = I>) -> Self {
        self.command.args(arguments);
        self
    }

    /// An environment variable.
    #[must_use]
    pub fn set(mut self, variable: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(variable, value);
        self
    }

    /// `PCAP_GROUP` and `PCAP_FANOUT`.
    #[must_use]
    pub fn group(self, group: u16, mode: &str) -> Self {
        self.set("PCAP_GROUP", group.to_string())
            .set("PCAP_FANOUT", mode)
    }

    /// It is killed when the calling thread ends, however it ends.
    #[must_use]
    pub fn ends_with_caller(mut self) -> Self {
        child::end_with_caller(&mut self.command);
        self
    }

    /// Starts the program and waits until it captures.
    ///
    /// # Errors
    /// When it ends instead, with what it said; or doesn't get there in time.
    pub fn start(self, scratch: &Scratch) -> Result<Member> {
        let ready = self.ready;
        let mut member = self.spawn(scratch)?;
        member.wait_until_says(ready)?;
        Ok(member)
    }

    /// Runs the program to its end; what it said is the answer, whether it succeeded the status.
    ///
    /// # Errors
    /// When it can't be started or doesn't end in time.
    pub fn run(self, scratch: &Scratch) -> Result<Ended> {
        self.spawn(scratch)?.wait()
    }

    fn spawn(mut self, scratch: &Scratch) -> Result<Member> {
        let said = scratch.new_file("said");
        let log = File::create(&said)?;
        self.command.stdout(log.try_clone()?).stderr(log);
        let child = self
            .command
            .spawn()
            .with_context(|| format!("{:?}", self.command))?;
        Ok(Member {
            child,
            said,
            capture: self.capture,
        })
    }
}

/// A program that runs.
#[derive(Debug)]
pub struct Member {
    child: Child,
    said: PathBuf,
    capture: Option<PathBuf>,
}

/// A program that has ended.
#[derive(Debug)]
pub struct Ended {
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to its standard output and standard error.
    pub said: String,
    capture: Option<PathBuf>,
}

impl Member {
    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has said so far.
    ///
    /// # Errors
    /// When the file of its output can't be read.
    pub fn said(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.said)?).into_owned())
    }

    /// Waits until it has said `text`.
    ///
    /// # Errors
    /// When it ends without, or doesn't say so in time.
    pub fn wait_until_says(&mut self, text: &str) -> Result<()> {
        await_for(
            &format!("process {} to say {text:?}", self.pid()),
            LIMIT,
            || {
                // Asked in this order: what it said before it ended is all there afterwards.
                let ended = self.child.try_wait()?;
                let said = self.said()?;
                match ended {
                    _ if said.contains(text) => Ok(Some(())),
                    Some(status) => bail!("the program ended ({status}):\n{said}"),
                    None => Ok(None),
                }
            },
        )
    }

    /// The number of packets that it has written to its file so far.
    pub fn captured(&self) -> usize {
        self.capture.as_deref().map_or(0, Capture::count_so_far)
    }

    /// The packets that it has written to its file so far.
    pub fn capture_so_far(&self) -> Capture {
        let none = Capture {
            packets: Vec::new(),
        };
        self.capture.as_deref().map_or(none, Capture::read_so_far)
    }

    /// Sends a signal, by name without SIG.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn signal(&self, name: &str) -> Result<()> {
        signal(self.pid(), name)
    }

    /// Stops it as a user would, with an interrupt, and waits for its end.
    ///
    /// # Errors
    /// When it fails or doesn't end in time.
    pub fn stop(self) -> Result<Ended> {
        self.signal("INT")?;
        let ended = self.wait()?;
        ensure!(
            ended.status.success(),
            "the program ended ({}):\n{}",
            ended.status,
            ended.said
        );
        Ok(ended)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it doesn't end in time.
    pub fn wait(mut self) -> Result<Ended> {
        let what = format!("the end of process {}", self.pid());
        let status = await_for(&what, LIMIT, || Ok(self.child.try_wait()?))?;
        Ok(Ended {
            status,
            said: self.said()?,
            capture: self.capture.take(),
        })
    }
}

/// Sends a process a signal, by name without SIG. The shell has `kill`; a minimal system lacks the
/// program of that name.
///
/// # Errors
/// When the process is gone.
pub fn signal(pid: u32, name: &str) -> Result<()> {
    let mut sh = Command::new("sh");
    sh.args(["-c", "kill \"-$0\" \"$1\"", name, &pid.to_string()]);
    let status = sh.status()?;
    ensure!(status.success(), "kill -{name} {pid}: {status}");
    Ok(())
}

impl Drop for Member {
    fn drop(&mut self) {
        // What it has started holds its sockets too. These fail only when all have ended.
        let _ = child::signal_group(self.pid(), child::SIGKILL);
        let own = self.pid();
        for started in stat::all().iter().filter(|one| one.parent == own) {
            let _ = child::signal(started.pid, child::SIGKILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// What it captured.
    ///
    /// # Errors
    /// When there is no complete file.
    pub fn capture(&self) -> Result<Capture> {
        Capture::read(
            self.capture
                .as_deref()
                .context("a program without a capture file")?,
        )
    }

    /// The number before `what` in tcpdump's closing words, such as "packets received by filter".
    ///
    /// # Errors
    /// When it didn't say so.
    pub fn count(&self, what: &str) -> Result<usize> {
        self.said
            .lines()
            .find_map(|line| line.strip_suffix(what)?.trim().parse().ok())
            .with_context(|| format!("no {what:?} in:\n{}", self.said))
    }

    /// The signal that ended it.
    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }
}

/// Waits until the group has as many sockets as `members`, in the calling thread's namespace.
///
/// # Errors
/// When it doesn't come to that in time.
pub fn wait_for_members(group: u16, members: usize) -> Result<()> {
    await_for(
        &format!("{members} sockets in group {group}"),
        LIMIT,
        || {
            let in_group = |socket: &&diag::PacketSocket| {
                socket.fanout.is_some_and(|fanout| fanout.id == group)
            };
            let sockets = diag::packet_sockets()?;
            Ok((sockets.iter().filter(in_group).count() == members).then_some(()))
        },
    )
}

/// Waits until the programs have written `packets` packets to their files, all together.
///
/// # Errors
/// When they don't get there in time.
pub fn wait_for_packets(members: &[Member], packets: usize) -> Result<()> {
    let mut captured = 0;
    await_for("the last packets", LIMIT, || {
        captured = members.iter().map(Member::captured).sum();
        Ok((captured >= packets).then_some(()))
    })
    .with_context(|| format!("{captured} of {packets} packets captured"))
}

/// Waits until the members have written `packets` packets, stops them and returns what they
/// captured. What the kernel gave them must come to the same number, so that no packet stays hidden
/// in a ring.
///
/// # Errors
/// When packets are missing, were dropped, or are more than that.
pub fn finish(members: Vec<Member>, packets: usize) -> Result<Vec<Capture>> {
    wait_for_packets(&members, packets)?;
    let ended = members
        .into_iter()
        .map(Member::stop)
        .collect::<Result<Vec<_>>>()?;
    let (mut received, mut dropped) = (0, 0);
    for member in &ended {
        received += member.count("packets received by filter")?;
        dropped += member.count("packets dropped by kernel")?;
    }
    ensure!(dropped == 0, "{dropped} packets dropped");
    ensure!(
        received == packets,
        "{received} packets received, not {packets}"
    );
    ended.iter().map(|member| member.capture()).collect()
}

/// The shared libraries named libpcap that a process runs on.
///
/// # Errors
/// When the process is gone.
pub fn libraries_of(pid: u32) -> Result<Vec<PathBuf>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let paths = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .map(Path::new);
    let is_libpcap = |path: &&Path| {
        path.file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"libpcap"))
    };
    let mut found: Vec<PathBuf> = paths.filter(is_libpcap).map(PathBuf::from).collect();
    found.dedup();
    Ok(found)
}
