//! A guest: an emulated machine that runs one command on this machine's files.

use std::fs::{self, File};
use std::path::Path;
use std::process::{self, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::initrd;
use super::kernel::Kernel;
use crate::tree;

/// The script that runs the command; it runs on this machine's shell.
const START: &str = include_str!("start.sh");
/// The command that starts the emulator on this machine, in a network namespace.
const TAPS: &str = include_str!("taps.sh");
/// Number of a guest's CPUs, and of the channels of its network cards.
const CPUS: u32 = 4;
const MEMORY: &str = "3072";
/// The taps that taps.sh makes.
const CARDS: [&str; 2] = ["tap0", "tap1"];
/// The kernel's command line. From its first word, tests detect that they run in a guest.
const KERNEL_LINE: &str = "fanpcap.guest console=ttyS0 quiet loglevel=5 panic=-1 nokaslr \
    tsc=reliable no_timer_check rcupdate.rcu_expedited=1";
/// The emulator. It is started without KVM, so this machine needs no support for virtualization.
pub(super) const EMULATOR: &str = "qemu-system-x86_64";
/// Number of attempts to boot a guest until its command runs.
const BOOTS: u32 = 3;
/// Number of lines of the kernel's log that are printed for a guest that fails.
const LOG_LINES: usize = 30;

/// How a command in a guest ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: u8,
    /// Standard output and standard error of the command.
    pub(super) output: String,
}

/// Runs a shell command in a guest to its end, or until the time limit. If a guest dies before its
/// command starts, it is booted again. Guests die at boot because a kernel changes its own code
/// then, while the emulator runs each CPU in a thread of its own: a CPU has run an instruction that
/// was half old and half new.
pub(super) fn run(kernel: &Kernel, command: &str, limit: Duration) -> Result<Ended> {
    for _ in 1..BOOTS {
        if let Some(ended) = boot(kernel, command, limit)? {
            return Ok(ended);
        }
    }
    let ended = boot(kernel, command, limit)?;
    ended.with_context(|| format!("{BOOTS} guests died before their command"))
}

/// Runs the command with a single boot. Returns `None` if the guest died before its command
/// started.
fn boot(kernel: &Kernel, command: &str, limit: Duration) -> Result<Option<Ended>> {
    let job = tree::target()?.join(format!("guests/{}", process::id()));
    fs::create_dir_all(job.join(SHARE)).context("making the job's directory")?;
    let ended = boot_in(&job, kernel, command, limit);
    fs::remove_dir_all(&job).context("removing the job's directory")?;
    ended
}

/// The part of a job's directory that the guest writes to.
const SHARE: &str = "share";

fn boot_in(job: &Path, kernel: &Kernel, command: &str, limit: Duration) -> Result<Option<Ended>> {
    let (initrd, log, said) = (job.join("initrd"), job.join("log"), job.join("said"));
    initrd::write(kernel, &initrd)?;
    let share = job.join(SHARE);
    fs::write(share.join("start"), START)?;
    fs::write(share.join("command"), command)?;
    let mut qemu = emulator();
    qemu.args(hardware(&log));
    qemu.args(files(
        "machine",
        Path::new("/"),
        ",readonly=on,multidevs=remap",
    ));
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
fn emulator() -> Command {
    let mut qemu = Command::new("unshare");
    qemu.args(["--net", "sh", "-euc", TAPS, "sh", EMULATOR]);
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

/// The guest has no PIT (8254), so its kernel calibrates its clock by the HPET. With a PIT, the
/// clock of a guest ran 37 times too fast on a busy machine: `pit_hpet_ptimer_calibrate_cpu()`
/// prefers the PIT to the HPET.
fn hardware(log: &Path) -> Vec<String> {
    let line = format!(
        "-nodefaults -no-user-config -display none -no-reboot -machine q35,pit=off \
         -accel tcg,thread=multi -cpu max -smp {CPUS} -m {MEMORY} \
         -object rng-random,id=random,filename=/dev/urandom -device virtio-rng-pci,rng=random \
         -serial file:{}",
        log.display()
    );
    let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    words.extend(["-append".to_owned(), KERNEL_LINE.to_owned()]);
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
