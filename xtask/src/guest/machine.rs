//! A guest: an emulated machine that runs one command on the files of a directory.

use std::fs::{self, File};
use std::path::Path;
use std::process::{self, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::architecture::Architecture;
use super::initrd;
use super::kernel::Kernel;
use crate::tree;

/// The script that runs the command; it runs on the shell of the guest's root directory.
const START: &str = include_str!("start.sh");
/// The command that starts the emulator on this machine, in a network namespace.
const TAPS: &str = include_str!("taps.sh");
/// Number of a guest's CPUs, and of the channels of its network cards.
const CPUS: u32 = 4;
const MEMORY: &str = "3072";
/// The taps that taps.sh makes.
const CARDS: [&str; 2] = ["tap0", "tap1"];
/// The kernel's command line without the words of the architecture. From its first word, tests
/// detect that they run in a guest.
const KERNEL_LINE: &str =
    "fanpcap.guest quiet loglevel=5 panic=-1 nokaslr rcupdate.rcu_expedited=1";
/// Number of attempts to boot a guest until its command runs.
const BOOTS: u32 = 3;
/// Number of lines of the kernel's log that are printed for a guest that fails.
const LOG_LINES: usize = 30;

/// How a command in a guest ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: u8,
    /// Standard output and standard error of the command.
    pub(crate) output: String,
}

/// Runs a shell command in a guest to its end, or until the time limit. `root` is the guest's root
/// directory; the guest's changes of it are lost. If a guest dies before its command starts, it is
/// booted again. Guests die at boot because a kernel changes its own code then, while the emulator
/// runs each CPU in a thread of its own: a CPU has run an instruction that was half old and half
/// new.
pub(super) fn run(kernel: &Kernel, root: &Path, command: &str, limit: Duration) -> Result<Ended> {
    for _ in 1..BOOTS {
        if let Some(ended) = boot(kernel, root, command, limit)? {
            return Ok(ended);
        }
    }
    let ended = boot(kernel, root, command, limit)?;
    ended.with_context(|| format!("{BOOTS} guests died before their command"))
}

/// Runs the command with a single boot. Returns `None` if the guest died before its command
/// started.
fn boot(kernel: &Kernel, root: &Path, command: &str, limit: Duration) -> Result<Option<Ended>> {
    let job = tree::target()?.join(format!("guests/{}", process::id()));
    let share = job.join(SHARE);
    fs::create_dir_all(&share).context("making the job's directory")?;
    fs::write(share.join("start"), START)?;
    fs::write(share.join("command"), command)?;
    let ended = boot_in(&job, kernel, root, limit);
    fs::remove_dir_all(&job).context("removing the job's directory")?;
    ended
}

/// The part of a job's directory that the guest writes to.
const SHARE: &str = "share";

fn boot_in(job: &Path, kernel: &Kernel, root: &Path, limit: Duration) -> Result<Option<Ended>> {
    let (initrd, log, said) = (job.join("initrd"), job.join("log"), job.join("said"));
    initrd::write(kernel, &initrd)?;
    let share = job.join(SHARE);
    let mut qemu = emulator(kernel.architecture);
    qemu.args(hardware(kernel.architecture, &log));
    qemu.args(files("machine", root, ",readonly=on,multidevs=remap"));
    qemu.args(files("modules", &kernel.modules(), ",readonly=on"));
    qemu.args(files("job", &share, ""));
    qemu.arg("-kernel").arg(kernel.image());
    qemu.arg("-initrd").arg(&initrd);
    let outcome = wait(&mut qemu, File::create(&said)?, limit);
    let read = |path: &Path| {
        let bytes = fs::read(path).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let output = read(&share.join("output"));
    let status = read(&share.join("status"));
    let is_early = outcome.is_ok() && !share.join("output").exists();
    let reason = match outcome {
        Ok(_) if !status.is_empty() => {
            let status = status.trim().parse().context("the command's status")?;
            return Ok(Some(Ended { status, output }));
        }
        Ok(ended) => format!("the guest ended ({ended}) before its command did"),
        Err(error) => format!("{error:#}"),
    };
    let log = last_lines(&read(&log));
    if is_early {
        println!("  the guest died before its command: {reason}\n{log}");
        return Ok(None);
    }
    bail!("{reason}\n{}{log}{output}", read(&said))
}

/// The emulator in a network namespace, without its arguments. It is killed when the calling thread
/// ends.
fn emulator(architecture: &Architecture) -> Command {
    let mut qemu = Command::new("unshare");
    qemu.args(["--net", "sh", "-euc", TAPS, "sh", architecture.emulator]);
    qemu
}

/// Waits for the emulator's end. Kills the emulator at the time limit.
fn wait(qemu: &mut Command, said: File, limit: Duration) -> Result<ExitStatus> {
    qemu.stdin(Stdio::null());
    qemu.stdout(said.try_clone()?).stderr(said);
    let mut qemu = qemu.spawn().context("starting the emulator")?;
    let end = Instant::now() + limit;
    while Instant::now() < end {
        if let Some(status) = qemu.try_wait()? {
            return Ok(status);
        }
        thread::sleep(Duration::from_millis(100));
    }
    qemu.kill()?;
    qemu.wait()?;
    bail!("the guest did not end within {limit:?}")
}

fn hardware(architecture: &Architecture, log: &Path) -> Vec<String> {
    let line = format!(
        "-nodefaults -no-user-config -display none -no-reboot {} \
         -accel tcg,thread=multi -smp {CPUS} -m {MEMORY} \
         -object rng-random,id=random,filename=/dev/urandom -device virtio-rng-pci,rng=random \
         -serial file:{}",
        architecture.machine,
        log.display()
    );
    let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let kernel_line = format!("{KERNEL_LINE} {}", architecture.kernel_line);
    words.extend(["-append".to_owned(), kernel_line]);
    for (number, tap) in CARDS.iter().enumerate() {
        words.extend(card(number, tap));
    }
    words
}

/// A network card with as many channels as CPUs, and a table for receive-side scaling. A card has
/// an interrupt vector for each direction of a channel, and two more.
fn card(number: usize, tap: &str) -> [String; 4] {
    let vectors = 2 * CPUS + 2;
    [
        "-netdev".to_owned(),
        format!("tap,id={tap},ifname={tap},script=no,downscript=no,queues={CPUS}"),
        "-device".to_owned(),
        format!(
            "virtio-net-pci,netdev={tap},mac=52:54:00:00:00:0{number},mq=on,vectors={vectors},\
             rss=on,hash=on,romfile="
        ),
    ]
}

/// Options for a directory that the guest mounts by this name.
fn files(name: &str, path: &Path, options: &str) -> [String; 4] {
    let path = path.display().to_string().replace(',', ",,");
    [
        "-fsdev".to_owned(),
        format!("local,id={name},path={path},security_model=none{options}"),
        "-device".to_owned(),
        format!("virtio-9p-pci,fsdev={name},mount_tag={name}"),
    ]
}

fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let from = lines.len().saturating_sub(LOG_LINES);
    lines[from..]
        .iter()
        .map(|line| format!("{line}\n"))
        .collect()
}
