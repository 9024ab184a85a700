//! Starts applications with our library, waits for them, stops them, and reads their output.

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

/// An application that starts in the calling thread's network namespace and loads our library (or,
/// with `on`, another libpcap). Its `PCAP_*` settings are only those that this type's methods set.
#[derive(Debug)]
pub struct Program {
    command: Command,
    capture: Option<PathBuf>,
    ready: &'static str,
}

impl Program {
    /// An application that prints `ready` on standard output or standard error once it captures.
    ///
    /// # Errors
    /// Our library isn't staged.
    pub fn new(program: impl AsRef<OsStr>, ready: &'static str) -> Result<Self> {
        Ok(Self::on(&library_dir()?, program, ready))
    }

    /// An application that loads the libpcap in the directory `library`.
    pub fn on(library: &Path, program: impl AsRef<OsStr>, ready: &'static str) -> Self {
        let mut command = Command::new(program);
        for (name, _) in env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"PCAP_") {
                command.env_remove(name);
            }
        }
        // The config file is empty, because the machine's own must have no effect.
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

    /// tcpdump on `device`, which writes each packet to `file` at once. tcpdump stays root, because
    /// only root may write the file. Its buffer is so large that no test fills it.
    ///
    /// # Errors
    /// Our library isn't staged.
    pub fn tcpdump(device: &str, file: PathBuf) -> Result<Self> {
        // tcpdump prints this after it has set its filter, just before its first packet.
        let mut program = Self::new("tcpdump", "listening on")?
            .args(["-n", "-U", "-Z", "root", "-B", "16384", "-i", device, "-w"])
            .arg(&file);
        program.capture = Some(file);
        Ok(program)
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<I: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = I>) -> Self {
        self.command.args(arguments);
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn set(mut self, variable: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(variable, value);
        self
    }

    /// Sets `PCAP_GROUP` and `PCAP_FANOUT`.
    #[must_use]
    pub fn group(self, group: u16, mode: &str) -> Self {
        self.set("PCAP_GROUP", group.to_string())
            .set("PCAP_FANOUT", mode)
    }

    /// Makes the kernel kill the application when the calling thread ends for any reason.
    #[must_use]
    pub fn ends_with_caller(mut self) -> Self {
        child::end_with_caller(&mut self.command);
        self
    }

    /// Starts the application and waits until it captures.
    ///
    /// # Errors
    /// The application ends before it captures, or does not capture in time. The message has its
    /// output.
    pub fn start(self, scratch: &Scratch) -> Result<Member> {
        let ready = self.ready;
        let mut member = self.spawn(scratch)?;
        member.wait_until_says(ready)?;
        Ok(member)
    }

    /// Runs the application to its end. Returns its output and status.
    ///
    /// # Errors
    /// The application can't be started or doesn't end in time.
    pub fn run(self, scratch: &Scratch) -> Result<Ended> {
        self.spawn(scratch)?.wait()
    }

    /// Starts the application, and does not wait until it captures.
    ///
    /// # Errors
    /// The application can't be started.
    pub fn spawn(mut self, scratch: &Scratch) -> Result<Member> {
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

/// A running application.
#[derive(Debug)]
pub struct Member {
    child: Child,
    said: PathBuf,
    capture: Option<PathBuf>,
}

/// An application that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit status.
    pub status: ExitStatus,
    /// The application's standard output and standard error.
    pub said: String,
    capture: Option<PathBuf>,
}

impl Member {
    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The file with the application's output.
    pub fn output(&self) -> PathBuf {
        self.said.clone()
    }

    /// The application's output so far.
    ///
    /// # Errors
    /// The file of its output can't be read.
    pub fn said(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.said)?).into_owned())
    }

    /// Waits until the application has printed `text`.
    ///
    /// # Errors
    /// The application ends without printing the text, or doesn't print it in time.
    pub fn wait_until_says(&mut self, text: &str) -> Result<()> {
        await_for(
            &format!("process {} to say {text:?}", self.pid()),
            LIMIT,
            || {
                // Checks for the application's end before it reads the output: after the end, the
                // output is complete.
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

    /// The number of packets in the application's capture file so far.
    pub fn captured(&self) -> usize {
        self.capture.as_deref().map_or(0, Capture::count_so_far)
    }

    /// The packets in the application's capture file so far.
    pub fn capture_so_far(&self) -> Capture {
        let none = Capture {
            packets: Vec::new(),
        };
        self.capture.as_deref().map_or(none, Capture::read_so_far)
    }

    /// Sends the application a signal. `name` is the signal's name without SIG.
    ///
    /// # Errors
    /// The process is gone.
    pub fn signal(&self, name: &str) -> Result<()> {
        signal(self.pid(), name)
    }

    /// Stops the application with an interrupt, as a user would, and waits for its end.
    ///
    /// # Errors
    /// The application fails or doesn't end in time.
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

    /// Waits for the application's end.
    ///
    /// # Errors
    /// The application doesn't end in time.
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

/// Sends a process a signal. `name` is the signal's name without SIG. Uses the shell's own command
/// `kill`, because a minimal system has no executable of that name.
///
/// # Errors
/// The process is gone.
pub fn signal(pid: u32, name: &str) -> Result<()> {
    let mut sh = Command::new("sh");
    sh.args(["-c", "kill \"-$0\" \"$1\"", name, &pid.to_string()]);
    let status = sh.status()?;
    ensure!(status.success(), "kill -{name} {pid}: {status}");
    Ok(())
}

impl Drop for Member {
    fn drop(&mut self) {
        // The application's children have copies of its sockets, so they are killed too. This call
        // fails if the application leads no process group, or if all processes of the group have
        // ended.
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
    /// The packets in the application's capture file.
    ///
    /// # Errors
    /// The file is missing or incomplete.
    pub fn capture(&self) -> Result<Capture> {
        Capture::read(
            self.capture
                .as_deref()
                .context("this application writes no capture file")?,
        )
    }

    /// The number before the text `what` in tcpdump's closing lines. An example of `what` is
    /// "packets received by filter".
    ///
    /// # Errors
    /// tcpdump printed no such line.
    pub fn count(&self, what: &str) -> Result<usize> {
        self.said
            .lines()
            .find_map(|line| line.strip_suffix(what)?.trim().parse().ok())
            .with_context(|| format!("no {what:?} in:\n{}", self.said))
    }

    /// The signal that ended the application.
    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }
}

/// Waits until the group has `members` sockets, in the calling thread's namespace.
///
/// # Errors
/// The group does not reach that number in time.
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

/// Waits until the capture files of all members together have at least `packets` packets.
///
/// # Errors
/// The files do not have the packets in time.
pub fn wait_for_packets(members: &[Member], packets: usize) -> Result<()> {
    let mut captured = 0;
    await_for("the last packets", LIMIT, || {
        captured = members.iter().map(Member::captured).sum();
        Ok((captured >= packets).then_some(()))
    })
    .with_context(|| format!("{captured} of {packets} packets captured"))
}

/// Waits until the members have written `packets` packets, stops them and returns what they
/// captured. The numbers of received packets that the members print must also add up to `packets`:
/// this shows that no packet was left in a ring.
///
/// # Errors
/// Packets are missing, were dropped, or are too many.
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

/// The shared libraries named libpcap that a process has loaded.
///
/// # Errors
/// The process is gone.
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
