//! Pollers as processes, and members of them.

use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use fanpcap_linux::process::child::{self, SIGKILL, SIGTERM};
use fanpcap_linux::process::netns::inode;
use fanpcap_poll::message::{Hello, Steering};
use fanpcap_poll::place;
use fanpcap_reader::{GroupTasks, Input, Port, Ring};
use fanpcap_ring::{Layout as _, Pool};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::traffic::{self, Frame, sequence_of};
use fanpcap_testkit::{Injector, Scratch, netns};

use crate::{FAR, NEAR};

/// A poller that runs as a process. It ends when this value is dropped.
pub(crate) struct Poller {
    child: Child,
    said: PathBuf,
    _scratch: Scratch,
}

/// The command with these arguments after `fanpcap poller`.
pub(crate) fn command(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fanpcap"));
    command.arg("poller").args(arguments.split_whitespace());
    command
}

/// What a poller says that can't start.
pub(crate) fn refused(arguments: &str) -> Result<String> {
    let mut limited = Command::new("timeout");
    limited.args(["60", env!("CARGO_BIN_EXE_fanpcap"), "poller"]);
    told(limited.args(arguments.split_whitespace()).output()?)
}

/// The errors of a command that failed.
pub(crate) fn told(output: Output) -> Result<String> {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(!output.status.success(), "it has not failed: {said}");
    Ok(said)
}

impl Poller {
    /// Starts a poller, and waits until it serves `count` devices.
    pub(crate) fn start(arguments: &str, count: usize) -> Result<Self> {
        Self::start_by(command(arguments), count)
    }

    /// Starts a poller by a command that becomes the poller.
    pub(crate) fn start_by(mut command: Command, count: usize) -> Result<Self> {
        let scratch = Scratch::new()?;
        let said = scratch.file("said");
        let child = command
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&said)?)
            .spawn()?;
        let mut poller = Self {
            child,
            said,
            _scratch: scratch,
        };
        await_for("the poller", LIMIT, || {
            let said = poller.said()?;
            ensure!(poller.child.try_wait()?.is_none(), "{said}");
            let served = said.lines().filter(|line| line.contains("serving "));
            Ok((served.count() == count).then_some(()))
        })?;
        Ok(poller)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has written to standard error.
    pub(crate) fn said(&self) -> Result<String> {
        Ok(fs::read_to_string(&self.said)?)
    }

    /// Waits until it has written this text to standard error.
    pub(crate) fn await_said(&self, text: &str) -> Result<()> {
        await_for(text, LIMIT, || {
            Ok(self.said()?.contains(text).then_some(()))
        })
    }

    /// Kills it, as a crash does.
    pub(crate) fn kill(mut self) -> Result<()> {
        child::signal(self.id(), SIGKILL)?;
        self.child.wait()?;
        Ok(())
    }

    /// Ends it by SIGTERM. Returns the lines of its summary.
    pub(crate) fn end(mut self) -> Result<Vec<String>> {
        child::signal(self.id(), SIGTERM)?;
        let status = await_for("the poller's end", LIMIT, || Ok(self.child.try_wait()?))?;
        let mut printed = String::new();
        let mut stdout = self.child.stdout.take().context("standard output")?;
        stdout.read_to_string(&mut printed)?;
        ensure!(status.success(), "{printed}{}", self.said()?);
        Ok(printed.lines().map(str::to_owned).collect())
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // By SIGTERM, so that it leaves no files.
        let _ = child::signal(self.id(), SIGTERM);
        let ended = await_for("the poller's end", LIMIT, || Ok(self.child.try_wait()?));
        if ended.is_err() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The directory for the pollers of the calling thread's network namespace.
pub(crate) fn directory() -> Result<PathBuf> {
    Ok(PathBuf::from(format!(
        "/run/fanpcap-pollers/netns-{}",
        inode()?
    )))
}

/// The names of pollers' sockets in the calling thread's network namespace, those included that a
/// killed poller has left.
pub(crate) fn sockets() -> Result<Vec<String>> {
    let Ok(entries) = fs::read_dir(directory()?) else {
        return Ok(Vec::new());
    };
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let names: Result<Vec<String>> = names.collect();
    Ok(names?
        .into_iter()
        .filter(|it| !it.ends_with(".lock"))
        .collect())
}

/// Runs a test in a new network namespace. The number of the namespace may be that of an earlier
/// one, in which a poller was killed. What the test's own killed pollers have left is removed.
pub(crate) fn within<T: Send>(test: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    netns::within_new(|| {
        let _ = fs::remove_dir_all(directory()?);
        let tested = test();
        let _ = fs::remove_dir_all(directory()?);
        tested
    })
}

/// A member of group 5 on the device [`FAR`].
pub(crate) struct Member {
    pub(crate) port: Arc<dyn Port>,
    pub(crate) tasks: Arc<dyn GroupTasks>,
    pool: Pool,
    /// The numbers of the packets that it got.
    pub(crate) got: Vec<u64>,
}

/// What a member of group 5 on the device [`FAR`] asks for.
pub(crate) fn hello() -> Hello {
    Hello {
        group: Some(5),
        steering: Steering::Any,
        name: None,
        weight: 1,
        class: 0,
        snaplen: 262_144,
        memory: Some(8 << 20),
        wants_sent: true,
        wants_number: false,
        pair: 0,
        poller: 0,
    }
}

impl Member {
    pub(crate) fn enter(engine: &str) -> Result<Self> {
        Self::enter_at(engine, FAR)
    }

    pub(crate) fn enter_at(engine: &str, device: &str) -> Result<Self> {
        let place::Found {
            directory, name, ..
        } = place::open(engine, device)?;
        let entered = fanpcap_polled::enter(&directory, &name, &hello(), LIMIT)?;
        let Input { ring, port, .. } = entered.input(None)?;
        let Ring::Pool(pool) = ring else {
            anyhow::bail!("no pool");
        };
        Ok(Self {
            tasks: entered.tasks()?,
            port,
            pool,
            got: Vec::new(),
        })
    }

    /// Does its part for the group, and reads the packets that are there.
    pub(crate) fn read(&mut self) -> Result<()> {
        for mut takeover in self.tasks.attend().inherited {
            let mut taken = 0;
            while takeover.remains.head().is_some() {
                let frame = takeover.remains.next_frame()?.context("a frame")?;
                self.got.extend(sequence_of(frame.data()));
                taken += 1;
            }
            (takeover.done)(taken);
        }
        while self.pool.open() {
            while let Some(frame) = self.pool.next_frame()? {
                self.got.extend(sequence_of(frame.data()));
            }
            self.pool.release();
        }
        Ok(())
    }
}

/// Numbered frames on the device [`NEAR`].
pub(crate) struct Sent {
    injector: Injector,
    pub(crate) count: u64,
}

impl Sent {
    pub(crate) fn new() -> Result<Self> {
        let injector = Injector::open(NEAR)?;
        Ok(Self { injector, count: 0 })
    }

    pub(crate) fn send(&mut self, count: u64) -> Result<()> {
        let numbers = self.count..self.count + count;
        let frames: Vec<Frame> = traffic::frames(7, &traffic::flows(7, 200), numbers)?;
        self.injector.send_all(&frames)?;
        self.count += count;
        Ok(())
    }

    /// Sends frames until each member has got some. Then checks that the members together have got
    /// each frame once.
    pub(crate) fn share(&mut self, members: &mut [Member]) -> Result<()> {
        await_for("a share for each member", LIMIT, || {
            self.send(100)?;
            self.await_all(members)?;
            Ok(members.iter().all(|it| !it.got.is_empty()).then_some(()))
        })?;
        self.send(1000)?;
        self.await_all(members)?;
        self.ensure_each_once(members)
    }

    pub(crate) fn await_all(&self, members: &mut [Member]) -> Result<()> {
        await_for("all frames", LIMIT, || {
            members.iter_mut().try_for_each(Member::read)?;
            let count: usize = members.iter().map(|it| it.got.len()).sum();
            Ok((count as u64 >= self.count).then_some(()))
        })
    }

    pub(crate) fn ensure_each_once(&self, members: &[Member]) -> Result<()> {
        let all: Vec<u64> = members
            .iter()
            .flat_map(|it| it.got.iter().copied())
            .collect();
        let different: HashSet<u64> = all.iter().copied().collect();
        ensure!(
            all.len() as u64 == self.count,
            "{} of {}",
            all.len(),
            self.count
        );
        ensure!(different.len() == all.len(), "some came twice");
        Ok(())
    }
}
