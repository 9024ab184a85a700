//! A member that records the packets that it gets (`c/records.c`).

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_group::page::MemberId;
use fanpcap_group::roster;
use fanpcap_linux::process::child;
use fanpcap_linux::process::pidfd::Process;
use fanpcap_netns::{DEVICE, Wire, poller};
use fanpcap_testkit::await_for::LIMIT;
use fanpcap_testkit::member::Ended;
use fanpcap_testkit::{Member, Program};

use super::load::print;
use super::records::now_us;

/// A way in which a member ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The member closes its handle on command.
    Leaves,
    /// The member closes its handle after it has hung for a while, so its ring has packets that it
    /// does not read.
    LeavesMuch,
    /// The member is killed with SIGKILL.
    Killed,
    /// The member is killed with SIGKILL after it has hung for a while.
    HangsFirst,
    /// The member is killed with SIGKILL. A child has its descriptors and does nothing.
    Held,
}

/// A member whose process records the packets that it reads.
pub(super) struct Recorder {
    /// The process, until it ends.
    process: Option<Member>,
    /// A child of the member that still runs when the member's process has ended.
    child: Option<Child>,
    /// The file with the records.
    pub(super) file: PathBuf,
    /// The member's slot, once the member has a share.
    pub(super) slot: Option<u8>,
    /// Whether the member waits when its device or poller is gone.
    pub(super) waits: bool,
}

/// A member's child, by its process ID. It is killed when this value is dropped.
struct Child(u32);

impl Recorder {
    /// Starts a member of mode `flow`; `how` has the arguments of `c/records.c`. `name=NAME` names
    /// the member, `mode=MODE` selects another mode, `driver=DRIVER` another engine, and
    /// `gone=wait` lets the member wait when its device or poller is gone.
    pub(super) fn start(wire: &Wire, device: &str, group: u16, how: &[&str]) -> Result<Self> {
        let mode = how.iter().find_map(|word| word.strip_prefix("mode="));
        Self::start_as(wire, device, group, mode.unwrap_or("flow"), how)
    }

    /// Starts a member in the mode `mode`, which may have options.
    pub(super) fn start_as(
        wire: &Wire,
        device: &str,
        group: u16,
        mode: &str,
        how: &[&str],
    ) -> Result<Self> {
        let built = wire.scratch.file("records");
        if !built.exists() {
            wire.compile("records")?;
        }
        let file = wire.scratch.new_file("packets");
        let driver = how.iter().find_map(|word| word.strip_prefix("driver="));
        let device = match driver {
            Some("dpdk") => poller::device("dpdk", DEVICE),
            _ => device,
        };
        let program = Program::new(built, "ready")?;
        let program = program.args([device, &group.to_string(), mode]);
        let name = how.iter().find_map(|word| word.strip_prefix("name="));
        let program = program.set("PCAP_MEMBER", name.unwrap_or_default());
        let program = match driver {
            Some(driver) => program.set("PCAP_DRIVER", driver),
            None => program,
        };
        let waits = how.contains(&"gone=wait");
        let program = match waits {
            true => program.set("PCAP_GONE", "wait"),
            false => program,
        };
        let how = how.iter().filter(|word| !word.contains('='));
        let process = program.arg(&file).args(how).start(&wire.scratch)?;
        Ok(Self {
            process: Some(process),
            child: None,
            file,
            slot: None,
            waits,
        })
    }

    pub(super) fn pid(&self) -> Result<u32> {
        Ok(self.process.as_ref().context("it has ended")?.pid())
    }

    /// The member's identification, from its page.
    pub(super) fn id(&self) -> Result<MemberId> {
        let pid = self.pid()?;
        let entries = roster::entries()?.into_iter();
        let mut own = entries.filter(|it| it.page.as_ref().is_some_and(|page| page.pid == pid));
        Ok(own.next().context("no page")?.id())
    }

    /// Stops the member by SIGSTOP, and waits so that packets collect in its ring.
    pub(super) fn hang(&self) -> Result<()> {
        let process = self.process.as_ref().context("it has ended")?;
        process.signal("STOP")?;
        thread::sleep(Duration::from_millis(100));
        Ok(())
    }

    /// Whether the member has a slot, and its process or a child of the process still runs and can
    /// read.
    pub(super) fn reads(&self) -> bool {
        self.slot.is_some() && (self.process.is_some() || self.child.is_some())
    }

    /// Tells a member that was started with `idle` to begin to read.
    pub(super) fn call(&self) -> Result<()> {
        Ok(child::signal(self.pid()?, child::SIGUSR1)?)
    }

    /// Makes the member set its filter for the `nth` time.
    pub(super) fn set_filter(&mut self, nth: usize) -> Result<()> {
        let process = self.process.as_mut().context("it has ended")?;
        process.signal("USR2")?;
        process.wait_until_says(&format!("filter {nth}."))
    }

    /// Sends the member a signal, by its name.
    pub(super) fn signal(&self, name: &str) -> Result<()> {
        let process = self.process.as_ref().context("it has ended")?;
        process.signal(name)
    }

    /// Ends the parent process of a member that was started with `daemon`. The child continues.
    pub(super) fn end_parent(&mut self) -> Result<()> {
        let mut process = self.process.take().context("it has ended")?;
        self.child = Some(Child::of(&mut process)?);
        child::signal(process.pid(), child::SIGUSR1)?;
        ensure!(process.wait()?.status.success());
        Ok(())
    }

    /// Ends the member. Returns the time of the command or signal, in microseconds since 1970.
    pub(super) fn end(&mut self, how: End) -> Result<u64> {
        let mut process = self.process.take().context("it has ended")?;
        if matches!(how, End::HangsFirst | End::LeavesMuch) {
            process.signal("STOP")?;
            thread::sleep(Duration::from_millis(200));
        }
        if how == End::Held {
            self.child = Some(Child::of(&mut process)?);
        }
        let signal = match how {
            End::Leaves | End::LeavesMuch => child::SIGTERM,
            End::Killed | End::HangsFirst | End::Held => child::SIGKILL,
        };
        let at = now_us();
        child::signal(process.pid(), signal)?;
        if how == End::LeavesMuch {
            process.signal("CONT")?;
        }
        process.wait()?;
        Ok(at)
    }

    /// Waits for the member's own end.
    pub(super) fn wait(&mut self) -> Result<Ended> {
        self.process.take().context("it has ended")?.wait()
    }

    /// Ends the member if it has not ended yet.
    pub(super) fn stop(&mut self) -> Result<()> {
        if let Some(child) = self.child.take() {
            let process = Process::open(child.0)?;
            child::signal(child.0, child::SIGTERM)?;
            ensure!(process.ends_within(Some(LIMIT))?, "the child does not end");
        }
        let Some(process) = self.process.take() else {
            return Ok(());
        };
        child::signal(process.pid(), child::SIGTERM)?;
        let ended = process.wait()?;
        print(ended.said.lines().last().unwrap_or("nothing"));
        ensure!(ended.status.success(), "{}", ended.said);
        Ok(())
    }
}

impl Child {
    /// Reads the child's process ID from the member's output.
    fn of(process: &mut Member) -> Result<Self> {
        process.wait_until_says(".\n")?;
        let said = process.said()?;
        let pid = said.split(&[' ', '.']).find_map(|word| word.parse().ok());
        Ok(Self(pid.context(said)?))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Ignore the error: the child may have ended.
        let _ = child::signal(self.0, child::SIGKILL);
    }
}
