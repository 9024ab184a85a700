//! The environment of the tests with real packets: a wire in a network namespace, members that
//! capture at one of its ends, and checks that several tests use.

pub mod calls;
pub mod dialog;
pub mod poller;
pub mod remains;
pub mod tagger;

use std::cell::Cell;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use fanpcap_group::record::LastLook;
use fanpcap_group::roster::{self, RosterEntry};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::traffic::Frame;
use fanpcap_testkit::{Capture, Direction, Injector, Member, Program, Scratch, Veth};
use fanpcap_testkit::{capture, library, member, netns, veth};

pub use fanpcap_testkit::member::finish;

/// A veth pair in a new namespace. Requests enter at `va`, replies at `vb`, where members capture.
/// So members see requests arrive and replies leave.
#[derive(Debug)]
pub struct Wire {
    /// The directory for the test's files.
    pub scratch: Scratch,
    requests: Injector,
    replies: Injector,
    files: Cell<usize>,
}

/// The device at which members capture.
pub const DEVICE: &str = "vb";
/// The device at which requests enter.
pub const FAR_DEVICE: &str = "va";

/// Runs a test with a wire whose devices have `queues` queues.
///
/// # Errors The test fails, or the wire can't be created.
pub fn on_wire<T: Send>(queues: usize, test: impl FnOnce(&Wire) -> Result<T> + Send) -> Result<T> {
    netns::within_new(|| {
        Veth::new(FAR_DEVICE, DEVICE, queues)?;
        test(&Wire {
            scratch: Scratch::new()?,
            requests: Injector::open(FAR_DEVICE)?,
            replies: Injector::open(DEVICE)?,
            files: Cell::new(0),
        })
    })
}

impl Wire {
    /// A tcpdump that captures at [`DEVICE`] into a file of its own, without settings.
    ///
    /// # Errors Our library has not been built (`make`).
    pub fn tcpdump(&self) -> Result<Program> {
        self.tcpdump_on(DEVICE)
    }

    /// Like [`Wire::tcpdump`], but captures at the device `device`.
    ///
    /// # Errors Our library has not been built (`make`).
    pub fn tcpdump_on(&self, device: &str) -> Result<Program> {
        let number = self.files.replace(self.files.get() + 1);
        Program::tcpdump(device, self.scratch.file(&format!("{number}.pcap")))
    }

    /// Starts `count` copies of tcpdump in a group and waits until they capture.
    ///
    /// # Errors
    /// A copy fails.
    pub fn start_group(&self, count: usize, group: u16, mode: &str) -> Result<Vec<Member>> {
        let start = |_| self.tcpdump()?.group(group, mode).start(&self.scratch);
        let members = (0..count).map(start).collect::<Result<_>>()?;
        member::wait_for_members(group, count)?;
        wait_for_shares()?;
        Ok(members)
    }

    /// Sends frames in order, requests at [`FAR_DEVICE`] and replies at [`DEVICE`]. Checks that all
    /// frames reached the packet sockets.
    ///
    /// # Errors
    /// A frame can't be sent, or was dropped on the way.
    pub fn send(&self, frames: &[Frame]) -> Result<()> {
        self.send_with(frames, |frame| frame.direction)
    }

    /// Like [`Wire::send`], but sends requests and replies at [`FAR_DEVICE`]. So all frames arrive
    /// at the members' device, as from a tap.
    ///
    /// # Errors
    /// As [`Wire::send`].
    pub fn send_as_tap(&self, frames: &[Frame]) -> Result<()> {
        self.send_with(frames, |_| Direction::Request)
    }

    fn send_with(&self, frames: &[Frame], side: impl Fn(&Frame) -> Direction) -> Result<()> {
        let dropped = || veth::counters(DEVICE).map(|counters| counters.receive_dropped);
        let before = dropped()?;
        self.send_bytes(frames.iter().map(|frame| (side(frame), &frame.bytes[..])))?;
        ensure!(dropped()? == before, "the host dropped frames");
        Ok(())
    }

    /// Sends frames in order, requests at [`FAR_DEVICE`] and replies at [`DEVICE`]. Checks that all
    /// frames passed the device. The host may drop the frames after the packet sockets have
    /// received them.
    ///
    /// # Errors
    /// A frame can't be sent or did not pass the device.
    pub fn send_bytes<'a>(
        &self,
        frames: impl Iterator<Item = (Direction, &'a [u8])>,
    ) -> Result<()> {
        let before = veth::counters(DEVICE)?;
        let mut sent = 0;
        for (direction, bytes) in frames {
            match direction {
                Direction::Request => self.requests.send(bytes)?,
                Direction::Reply => self.replies.send(bytes)?,
            }
            sent += 1;
        }
        let mut passed = 0;
        await_for("the frames to pass", LIMIT, || {
            let after = veth::counters(DEVICE)?;
            passed = after.received - before.received + after.sent - before.sent;
            Ok((passed >= sent).then_some(()))
        })
        .with_context(|| format!("{passed} of {sent}"))?;
        ensure!(passed == sent, "{passed} of {sent} frames passed");
        Ok(())
    }

    /// Compiles a program of this crate's `c` directory and returns the path of the result.
    ///
    /// # Errors
    /// The compiler fails; the error has its messages.
    pub fn compile(&self, name: &str) -> Result<PathBuf> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("c")
            .join(format!("{name}.c"));
        let program = self.scratch.file(name);
        library::compile_c(&source, &program)?;
        Ok(program)
    }
}

/// Waits until all members with a steering program wait for packets. Then each member has its
/// share.
///
/// # Errors
/// A member does not wait for packets within the usual time.
pub fn wait_for_shares() -> Result<()> {
    let waits = |entry: &RosterEntry| match &entry.page {
        Some(page) if page.steering.is_some() => {
            [LastLook::Waits, LastLook::Unknown].contains(&page.last_look)
        }
        Some(_) | None => true,
    };
    await_for("members that wait", LIMIT, || {
        Ok(roster::entries()?.iter().all(waits).then_some(()))
    })
}

/// Checks that every frame was captured exactly once, by any member.
///
/// # Errors
/// A frame was captured never or more than once.
pub fn ensure_each_once(captures: &[Capture], frames: &[Frame]) -> Result<()> {
    let seen = capture::sequences(captures);
    for frame in frames {
        let times = seen.get(&frame.sequence).copied().unwrap_or(0);
        ensure!(
            times == 1,
            "frame {} was captured {times} times",
            frame.sequence
        );
    }
    ensure!(
        seen.len() == frames.len(),
        "frames captured that were never sent"
    );
    Ok(())
}

/// Checks that no flow was captured by more than one member.
///
/// # Errors
/// A flow was captured by several members.
pub fn ensure_flows_whole(captures: &[Capture]) -> Result<()> {
    let split = capture::split_flows(captures);
    if let Some(flow) = split.first() {
        bail!("{} flows at several members, first {flow}", split.len());
    }
    Ok(())
}

/// The number of packets in each capture.
pub fn shares(captures: &[Capture]) -> Vec<usize> {
    captures
        .iter()
        .map(|capture| capture.packets.len())
        .collect()
}
