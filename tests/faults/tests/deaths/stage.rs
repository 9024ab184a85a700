//! A group in which a member (the victim) is killed at each step of a change, and the checks of the
//! group's state after each death.

use std::cell::Cell;
use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_group::audit;
use fanpcap_linux::bpf;
use fanpcap_linux::file::shared::{self, Word};
use fanpcap_linux::interface;
use fanpcap_linux::netlink::link;
use fanpcap_netns::dialog::Dialog;
use fanpcap_netns::remains::leaves_nothing;
use fanpcap_netns::{DEVICE, Wire, on_wire};
use fanpcap_testkit::await_for::LIMIT;
use fanpcap_testkit::{await_for, member, traffic};

const GROUP: u16 = 7;
/// Another group on the same device.
pub(crate) const OTHER_GROUP: u16 = 8;
/// The group's steering programs; a change may replace one by the other.
pub(crate) const PROGRAMS: [&str; 2] = ["main = steer_flow", "main = steer_rrobin"];

/// Many steps of a change only move one more bucket. Of these steps the test tries only every
/// `STRIDE`th.
const STRIDE: u64 = 307;

/// Bytes of a ring. The kernel clears the rings of a thousand members, so they are smaller than the
/// default rings of 16 MiB, or 64 MiB on XDP. In these tests a ring holds at most some hundred
/// frames.
const RING: u32 = 4 << 20;

/// Number of groups that run at the same time. Each group tries a part of the steps.
const PARTS: usize = 2;

/// The pause after a change. Without pauses, thousands of changes of filters and BPF programs in a
/// second have hung the kernel.
const PAUSE: Duration = Duration::from_millis(50);

/// Builds our library with the feature `faults`, which the released library does not have. Returns
/// the library's directory.
fn library() -> Result<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let target = env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
        let cargo = env::var_os("CARGO").unwrap_or("cargo".into());
        let mut build = Command::new(cargo);
        build
            .current_dir(&root)
            .args(["build", "--quiet", "-p", "fanpcap-abi"]);
        // Build the same crates that this test is built from.
        build.args(["--features", "fanpcap-group/faults"]);
        build.status().ok().filter(|it| it.success())?;
        let library = target.join("with-faults");
        fs::create_dir_all(&library).ok()?;
        fs::copy(
            target.join("debug/libpcap.so"),
            library.join("libpcap.so.0.8"),
        )
        .ok()?;
        Some(library)
    };
    let built = BUILT.get_or_init(build).as_deref();
    built.context("the library with faults can't be built")
}

/// A group whose members act only on command.
pub(crate) struct Stage<'a> {
    wire: &'a Wire,
    library: &'a Path,
    ifindex: u32,
    /// The members that repair the state after a victim's death.
    survivors: Vec<Dialog>,
    /// A member of another group on the same device. The other group also gets all packets.
    beside: Option<Dialog>,
    /// The number of steps that victims have made so far, and the number of the step before which
    /// the victim is killed.
    steps: [Word; 2],
    steps_file: PathBuf,
    /// `PCAP_DRIVER=` and the engine of all members.
    driver: String,
    /// Index in [`PROGRAMS`] of the program that the group runs, according to its members.
    pub(crate) runs: Cell<usize>,
}

/// A change of the group, which the victim makes, and the other members that this change needs.
pub(crate) struct Change {
    /// Number of members that survive.
    pub(crate) survivors: usize,
    /// Whether there is a placeholder between the members.
    pub(crate) hole: bool,
    /// Whether the device has another group.
    pub(crate) beside: bool,
    /// The engine of all members.
    pub(crate) driver: &'static str,
    /// The least number of steps before the moves of buckets, and after them.
    pub(crate) around: [u64; 2],
    /// The least number of steps at which a victim must have been killed.
    pub(crate) least: u32,
    /// Starts the victim, and the members that must join before the victim.
    pub(crate) prepare: fn(&mut Stage<'_>) -> Result<Victim>,
    pub(crate) act: fn(&mut Stage<'_>, &mut Victim) -> Result<()>,
}

/// The member that is to be killed.
pub(crate) struct Victim {
    pub(crate) it: Dialog,
    /// Another member, on which the victim acts.
    pub(crate) other: Option<Dialog>,
}

impl<'a> Stage<'a> {
    fn new(wire: &'a Wire, library: &'a Path, driver: &str) -> Result<Self> {
        let steps_file = wire.scratch.file("steps");
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&steps_file)?;
        Ok(Self {
            wire,
            library,
            ifindex: interface::index(DEVICE).context("the device")?,
            survivors: Vec::new(),
            beside: None,
            steps: shared::map(&file, &[0, 0])?,
            steps_file,
            driver: format!("PCAP_DRIVER={driver}"),
            runs: Cell::new(0),
        })
    }

    /// Starts a process that may open handles in a group. If `counts`, its steps are counted, and
    /// it can be killed at a step.
    fn start(&self, group: u16, counts: bool) -> Result<Dialog> {
        let library = format!("LD_LIBRARY_PATH={}", self.library.display());
        let steps = format!("FANPCAP_FAULTS={}", self.steps_file.display());
        let words = ["env", &library, &self.driver, &steps];
        let words = if counts { &words[..] } else { &words[..3] };
        let mut dialog = Dialog::behind(self.wire, group, words)?;
        dialog.expect(&format!("ring {RING}"), "done")?;
        Ok(dialog)
    }

    pub(crate) fn member(&self, counts: bool) -> Result<Dialog> {
        self.member_of(GROUP, counts)
    }

    pub(crate) fn member_of(&self, group: u16, counts: bool) -> Result<Dialog> {
        let mut member = self.start(group, counts)?;
        let runs = if group == GROUP { self.runs.get() } else { 0 };
        let said = member.ask(&format!("open {}", PROGRAMS[runs]))?;
        if said != "opened 0" {
            let other = PROGRAMS[1 - runs];
            ensure!(
                said.contains(&format!("runs the program '{other}'")),
                "{said}"
            );
            member.expect(&format!("open {other}"), "opened 0")?;
            self.runs.set(1 - runs);
        }
        Ok(member)
    }

    pub(crate) fn victim(&self) -> Result<Victim> {
        let it = self.start(GROUP, true)?;
        Ok(Victim { it, other: None })
    }

    pub(crate) fn audit(&self) -> Result<(usize, usize), String> {
        audit::audit(self.ifindex, GROUP)
    }

    /// Waits until table, kernel, descriptor store and pages agree, while the survivors read
    /// packets.
    fn await_agreement(&mut self) -> Result<()> {
        let count = self.survivors.len();
        let mut said = String::new();
        let awaited = await_for("agreement", LIMIT, || {
            for reader in self.survivors.iter_mut().chain(&mut self.beside) {
                reader.count(0)?;
            }
            let audited = audit::audit(self.ifindex, GROUP);
            let beside = self.beside.as_ref();
            let beside = beside.map(|_| audit::audit(self.ifindex, OTHER_GROUP));
            let is_served = self.serves_several()? == beside.is_some();
            said = format!("{audited:?}, beside {beside:?}, served {is_served}");
            let is_whole = matches!(audited, Ok((members, _)) if members == count)
                && beside.is_none_or(|it| it == Ok((1, 0)));
            Ok((is_whole && is_served).then_some(()))
        });
        awaited.with_context(|| said.clone())
    }

    /// Whether the device's BPF program is the one that serves several groups.
    pub(crate) fn serves_several(&self) -> Result<bool> {
        let xdp = link::get(self.ifindex)?.xdp;
        let name = xdp.map(|xdp| bpf::program_name(xdp.program)).transpose();
        // Ignore errors: the program may be replaced between the two calls.
        Ok(name
            .ok()
            .flatten()
            .is_some_and(|name| name == "fanpcap_root"))
    }

    /// Checks the state after a new member has joined, and again after this member has left. If the
    /// victim was killed before it put anything into the descriptor store, no member notices its
    /// death before the next change. That change completes or undoes the victim's change.
    fn ensure_next_repairs(&mut self) -> Result<()> {
        let next = self.member(false)?;
        self.survivors.push(next);
        self.await_agreement()?;
        self.ensure_all_arrive()?;
        let is_on_engine = link::get(self.ifindex)?.xdp.is_some();
        ensure!(
            is_on_engine == self.driver.ends_with("xdp"),
            "another engine"
        );
        drop(self.survivors.pop());
        match self.survivors.is_empty() {
            true => member::wait_for_members(GROUP, 0),
            false => self.await_agreement(),
        }
    }

    /// The number of packets that the survivors have received, and the number that the member of
    /// the other group has received.
    fn counts(&mut self) -> Result<[usize; 2]> {
        let sum = |readers: &mut dyn Iterator<Item = &mut Dialog>| {
            let counts = readers.map(|it| it.count(0));
            counts.sum::<Result<usize>>()
        };
        let own = sum(&mut self.survivors.iter_mut())?;
        Ok([own, sum(&mut self.beside.iter_mut())?])
    }

    /// Sends some frames, and checks that the survivors together receive each frame once, and that
    /// the member of the other group receives each frame once.
    fn ensure_all_arrive(&mut self) -> Result<()> {
        let before = self.counts()?;
        let frames = traffic::frames(3, &traffic::flows(3, 60), 0..120)?;
        let wanted = [
            frames.len(),
            frames.len() * usize::from(self.beside.is_some()),
        ];
        self.wire.send(&frames)?;
        await_for("each frame once", LIMIT, || {
            let now = self.counts()?;
            let now = [now[0] - before[0], now[1] - before[1]];
            ensure!(
                now[0] <= wanted[0] && now[1] <= wanted[1],
                "{now:?} packets"
            );
            Ok((now == wanted).then_some(()))
        })
    }

    /// Lets the victim make a change, and kills the victim before step `at` of the change. If `at`
    /// is 0, the victim is not killed. Returns how many steps the victim made, and whether it was
    /// killed.
    fn run(&mut self, change: &Change, at: u64) -> Result<(u64, bool)> {
        self.steps[1].set(0);
        let mut victim = (change.prepare)(self)?;
        let before = self.steps[0].get();
        self.steps[1].set(if at == 0 { 0 } else { before + at });
        let acted = (change.act)(self, &mut victim);
        let count = self.steps[0].get() - before;
        let is_killed = at != 0 && count == at;
        ensure!(acted.is_ok() != is_killed, "{acted:?} after {count} steps");
        self.steps[1].set(0);
        drop(victim);
        thread::sleep(PAUSE);
        if self.survivors.is_empty() {
            member::wait_for_members(GROUP, 0)?;
        }
        self.ensure_next_repairs()?;
        Ok((count, is_killed))
    }
}

/// Kills a victim at each step of a change. [`PARTS`] groups do this at the same time, each in its
/// own namespace, because the groups spend most of their time waiting.
pub(crate) fn die_in_each_step(change: &Change) -> Result<()> {
    let library = library()?;
    let die = |part| {
        on_wire(1, |wire| match change.driver {
            "xdp" => leaves_nothing(|| die_on(wire, library, change, part)),
            _ => die_on(wire, library, change, part),
        })
    };
    let killed: u32 = thread::scope(|scope| {
        let parts: Vec<_> = (0..PARTS)
            .map(|part| scope.spawn(move || die(part)))
            .collect();
        let killed = parts
            .into_iter()
            .map(|part| part.join().expect("a part does not panic"));
        killed.sum::<Result<u32>>()
    })?;
    ensure!(killed >= change.least, "at least {}", change.least);
    Ok(())
}

/// Runs the change once for each step of the part `part`. Returns the number of steps at which a
/// victim was killed.
fn die_on(wire: &Wire, library: &Path, change: &Change, part: usize) -> Result<u32> {
    let mut stage = Stage::new(wire, library, change.driver)?;
    if change.beside {
        stage.beside = Some(stage.member_of(OTHER_GROUP, false)?);
    }
    for _ in 0..change.survivors + usize::from(change.hole) {
        stage.survivors.push(stage.member(false)?);
    }
    if change.hole {
        drop(stage.survivors.remove(1));
        stage.await_agreement()?;
        ensure!(
            stage.audit() == Ok((change.survivors, 1)),
            "{:?}",
            stage.audit()
        );
    }
    let (count, _) = stage.run(change, 0).context("without a kill")?;
    let [first, last] = change.around;
    let is_tried = |at: &u64| *at <= first || *at + last > count || at % STRIDE == 0;
    let mut killed = 0;
    for at in (1..=count).filter(is_tried).skip(part).step_by(PARTS) {
        let run = stage.run(change, at);
        let (_, is_killed) = run.with_context(|| format!("killed at step {at} of {count}"))?;
        killed += u32::from(is_killed);
    }
    print(&format!(
        "{count} steps; members were killed at {killed} of these steps"
    ));
    Ok(killed)
}

#[expect(clippy::print_stdout, reason = "the figures of a test")]
fn print(figures: &str) {
    println!("{figures}");
}
