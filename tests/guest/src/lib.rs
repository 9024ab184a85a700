//! The two network cards of a guest (a virtual machine). They are virtio-net cards with four
//! channels and are wired to each other.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fanpcap_linux::process::cpu;
use fanpcap_nic::channels::{self, Wanted};
use fanpcap_nic::device::Device;
use fanpcap_nic::facts::Facts;
use fanpcap_nic::interrupts::{self, Interrupt, Serves};
use fanpcap_nic::journal::{self, Journal};
use fanpcap_nic::settings::Settings;
use fanpcap_testkit::traffic::{self, Frame};
use fanpcap_testkit::veth::{await_up, counters, ip, offloads_off};
use fanpcap_testkit::{Injector, Scratch, await_for, cpus, library};

/// A word on the kernel's command line of each guest.
const MARK: &str = "fanpcap.guest";
/// The cards' addresses, which the emulator gives them.
const NEAR: &str = "52:54:00:00:00:00";
const FAR: &str = "52:54:00:00:00:01";
const LIMIT: Duration = Duration::from_secs(60);
/// Frames that are sent at once. Larger bursts may overrun the far card's ring of 256 buffers.
const BURST: usize = 32;

/// The cards of a guest. Only one test at a time can use the cards.
#[derive(Debug)]
pub struct Cards {
    /// The card on which frames are sent.
    pub near: Device,
    /// The card at which the frames arrive.
    pub far: Device,
    sender: Injector,
    _turn: MutexGuard<'static, ()>,
}

impl Cards {
    /// Sets up both cards: the links are up, and all channels are in use. Outside a guest, prints
    /// the reason and returns `None`.
    ///
    /// # Errors
    /// The cards can't be set up.
    #[allow(clippy::print_stdout, reason = "the tally reads it")]
    pub fn of_guest() -> Result<Option<Self>> {
        static TURN: Mutex<()> = Mutex::new(());
        if !fs::read_to_string("/proc/cmdline")?.contains(MARK) {
            println!("SKIP: only a guest has these cards (make test-guest)");
            return Ok(None);
        }
        // Ignore the panic of an earlier test: each test sets up the cards anew.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let (near, far) = (card(NEAR)?, card(FAR)?);
        for card in [&near, &far] {
            // A test that failed may have left changes.
            Journal::open(card)?.restore(&Settings(card));
            offloads_off(&card.name)?;
            // The cards are in promiscuous mode, because frames may have any addresses.
            ip(&format!("link set {} promisc on up", card.name))?;
            set_channels(card, channels::read(card)?.most[3])?;
            await_up(&card.name)?;
        }
        Ok(Some(Self {
            sender: Injector::open(&near.name)?,
            near,
            far,
            _turn: turn,
        }))
    }

    /// Frames of many flows.
    ///
    /// # Errors
    /// The frames can't be built.
    pub fn frames() -> Result<Vec<Frame>> {
        traffic::frames(1, &traffic::flows(1, 16), 0..400)
    }

    /// Sends frames and checks that the far card has received the same number of frames.
    ///
    /// # Errors
    /// The far card has received fewer frames.
    pub fn send(&self, frames: &[Frame]) -> Result<()> {
        let received = || counters(&self.far.name).map(|counters| counters.received);
        for burst in frames.chunks(BURST) {
            let before = received()?;
            for frame in burst {
                self.sender.send(&frame.bytes)?;
            }
            await_for("the frames to arrive", LIMIT, || {
                let came = received()? - before;
                Ok((came >= burst.len() as u64).then_some(()))
            })?;
        }
        Ok(())
    }
}

/// Sets the number of channels that receive and send, and waits until the link is up.
///
/// # Errors
/// The change fails, or the device has another number of channels after it.
pub fn set_channels(device: &Device, combined: u32) -> Result<()> {
    let wanted = Wanted {
        combined: Some(combined),
        ..Wanted::default()
    };
    let to = channels::with(channels::read(device)?, wanted)?;
    channels::set(device, to)?;
    let now = channels::read(device)?.combined;
    ensure!(now == combined, "{now} channels instead of {combined}");
    await_up(&device.name)
}

/// Runs ethtool and returns its output.
///
/// # Errors
/// ethtool fails; the error has its message.
pub fn ethtool(arguments: &[&str]) -> Result<String> {
    let done = Command::new("ethtool").args(arguments).output();
    let done = done.context("starting ethtool")?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "ethtool {arguments:?}: {complaint}");
    Ok(said)
}

/// The `fanpcap` command that `make` has built.
///
/// # Errors The command has not been built.
pub fn fanpcap() -> Result<PathBuf> {
    Ok(library::library_dir()?.join("../bin/fanpcap"))
}

/// Runs `fanpcap tune` and returns its output.
///
/// # Errors
/// The command fails; the error has its output.
pub fn tune(arguments: &[&str]) -> Result<String> {
    let done = Command::new(fanpcap()?)
        .arg("tune")
        .args(arguments)
        .output();
    let done = done.context("starting fanpcap")?;
    let said = [&done.stdout[..], &done.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    ensure!(done.status.success(), "fanpcap tune {arguments:?}:\n{said}");
    Ok(said)
}

/// Compiles a C program of this package.
///
/// # Errors
/// The compiler fails; the error has its messages.
pub fn compile(name: &str, scratch: &Scratch) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("c/{name}.c"));
    let program = scratch.file(name);
    library::compile_c(&source, &program)?;
    Ok(program)
}

/// All settings of a device, and the CPUs to which its interrupts were assigned.
pub fn state(device: &Device) -> BTreeMap<String, String> {
    let facts = Facts::of(device);
    let irqs = facts.interrupts.iter().map(|(interrupt, affinity)| {
        let cpus = cpu::list_text(&affinity.asked);
        (format!("irq.{}", interrupt.number), cpus)
    });
    let values = facts.values.iter();
    let values = values.map(|(knob, value)| (knob.to_string(), value.clone()));
    values.chain(irqs).collect()
}

/// Checks that a device has its former settings, and that no journal of changes remains.
///
/// # Errors
/// A setting differs, or a journal remains.
pub fn ensure_as_before(device: &Device, before: &BTreeMap<String, String>) -> Result<()> {
    let now = state(device);
    for name in before.keys().chain(now.keys()) {
        let (is, was) = (now.get(name), before.get(name));
        ensure!(
            is == was,
            "{name} is now {is:?}; before the test it was {was:?}"
        );
    }
    ensure!(
        journal::journals()?.is_empty(),
        "a journal of changes remains"
    );
    Ok(())
}

/// The number of times that each of these interrupts has occurred on each CPU.
///
/// # Errors
/// The kernel does not list one of the interrupts.
pub fn counts(interrupts: &[Interrupt]) -> Result<Vec<Vec<u64>>> {
    interrupts.iter().map(count).collect()
}

fn count(interrupt: &Interrupt) -> Result<Vec<u64>> {
    let table = fs::read_to_string("/proc/interrupts")?;
    let start = format!("{}:", interrupt.number);
    let line = table
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(&start))
        .with_context(|| format!("no line {start} in /proc/interrupts"))?;
    let words = line.split_whitespace().take(cpus()?.len());
    Ok(words.map(str::parse).collect::<Result<_, _>>()?)
}

/// The receive interrupts of a card, by channel.
///
/// # Errors
/// A channel has no receive interrupt.
pub fn receiving(device: &Device) -> Result<Vec<Interrupt>> {
    let channels = channels::read(device)?.combined;
    (0..channels)
        .map(|channel| {
            let all = interrupts::of_channel(device, channel)?;
            let found = all.into_iter().find(|it| it.serves == Serves::Rx(channel));
            found.with_context(|| format!("channel {channel} has no receive interrupt"))
        })
        .collect()
}

/// The device with this hardware address. The cards' names do not identify them, because the order
/// of the names is not fixed.
fn card(address: &str) -> Result<Device> {
    for entry in fs::read_dir("/sys/class/net")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let device = Device::open(&name)?;
        if device.address == address {
            return Ok(device);
        }
    }
    bail!("no card has the address {address}")
}
