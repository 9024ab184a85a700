//! Takes over what an agent of an earlier build has left in `/run/fanpcap`, where root of a
//! container may have made links.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use fanpcap_linux::bpf;
use fanpcap_linux::file::bpf_fs;
use fanpcap_linux::file::directory::Directory;
use fanpcap_linux::file::lock;
use fanpcap_linux::interface;
use fanpcap_testkit::mirror::MONITOR;
use fanpcap_testkit::netns;

use crate::refusals::{netns_of, refused};
use crate::stage::Stage;

/// The directories with the state of this build and of earlier builds, below `/run` or `/dev/shm`.
const STATE: &str = "fanpcap-state/cluster";
const EARLIER: &str = "fanpcap/cluster";

/// The tests mount and unmount in the same directory, so only one of them may run.
static TURN: Mutex<()> = Mutex::new(());

/// The path of `state` below `/run`, or below `/dev/shm` if `/run` is not in memory.
fn placed(state: &str) -> PathBuf {
    let run = Path::new("/run");
    let is_in_memory = Directory::open(run).is_ok_and(|run| run.is_in_memory().unwrap_or(false));
    let base = if is_in_memory { "/run" } else { "/dev/shm" };
    Path::new(base).join(state)
}

/// Files of the host that a container might want to have changed.
struct Victims {
    file: PathBuf,
    directory: PathBuf,
}

impl Victims {
    fn new(stage: &Stage) -> Result<Self> {
        let victims = Self {
            file: stage.scratch.file("precious"),
            directory: stage.scratch.file("precious.d"),
        };
        fs::write(&victims.file, "precious")?;
        fs::create_dir(&victims.directory)?;
        for name in ["shadow", "7", "link"] {
            fs::write(victims.directory.join(name), "precious")?;
        }
        Ok(victims)
    }

    fn ensure_unchanged(&self) -> Result<()> {
        ensure!(fs::read_to_string(&self.file)? == "precious", "a file");
        let left = fs::read_dir(&self.directory)?.count();
        ensure!(left == 3, "{left} of 3 files are left");
        Ok(())
    }
}

/// A device's files and pins, in one of the directories with the state of nodes.
struct Places {
    pins: PathBuf,
    files: PathBuf,
    ifindex: u32,
}

impl Places {
    fn of(stage: &Stage, directory: &str) -> Result<Self> {
        let index = || interface::index(MONITOR).context("the device");
        let (netns, ifindex) = (netns_of(stage, 0)?, stage.mirror.on_node(0, index)?);
        Ok(Self {
            pins: placed(directory).join(format!("bpf/{netns}-{ifindex}")),
            files: placed(directory).join(netns.to_string()),
            ifindex,
        })
    }

    /// Makes links to the victims at every name that an agent may read, write or remove.
    fn plant(&self, victims: &Victims) -> Result<()> {
        for name in ["new", "state"] {
            let path = self.files.join(format!("{}.{name}", self.ifindex));
            let _ = fs::remove_file(&path);
            symlink(&victims.file, path)?;
        }
        for name in ["x", "4294967295"] {
            symlink(&victims.directory, self.pins.join(name))?;
        }
        Ok(())
    }
}

/// Moves the state of the first node's agent to the directories of earlier builds.
fn age(stage: &Stage) -> Result<()> {
    let (new, old) = (Places::of(stage, STATE)?, Places::of(stage, EARLIER)?);
    let mount = placed(EARLIER).join("bpf");
    for directory in [&mount, &placed(EARLIER).join("mount"), &old.files] {
        fs::create_dir_all(directory)?;
    }
    if !bpf_fs::is_bpf(&mount)? {
        bpf_fs::mount(&mount)?;
    }
    fs::create_dir(&old.pins)?;
    move_pins(&new.pins, &old.pins)?;
    fs::remove_dir(&new.pins)?;
    for name in ["lock", "state"] {
        let name = format!("{}.{name}", new.ifindex);
        fs::copy(new.files.join(&name), old.files.join(&name))?;
    }
    fs::remove_dir_all(&new.files)?;
    Ok(())
}

fn move_pins(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, other) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            fs::create_dir(&other)?;
            move_pins(&path, &other)?;
            fs::remove_dir(&path)?;
        } else {
            bpf::pin(bpf::open_pinned(&path)?.as_fd(), &other)?;
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn a_node_of_an_earlier_build_is_taken_over_without_a_loss() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    netns::within_new(|| {
        let mut stage = Stage::new(2)?;
        let victims = Victims::new(&stage)?;
        stage.send(0..600)?;
        stage.kill(0)?;
        age(&stage)?;
        let old = Places::of(&stage, EARLIER)?;
        old.plant(&victims)?;
        stage.send(600..1200)?;
        let said = stage.output(0).len();
        stage.start(0)?;
        stage.send(1200..2400)?;
        stage.await_output(0, "loaded topology")?;
        ensure!(stage.output(0).len() > said);
        stage.send(2400..3000)?;
        let each = stage.assert_once(0..3000)?;
        ensure!(each.iter().all(|count| *count > 500), "{each:?}");
        victims.ensure_unchanged()?;
        // The link is no longer pinned where containers may remove it.
        ensure!(!old.pins.join("link").exists());
        ensure!(Places::of(&stage, STATE)?.pins.join("link").exists());
        stage.kill(0)?;
        let done = stage.run(0, &["-i", MONITOR, "--detach"])?;
        ensure!(done.status.success(), "{done:?}");
        victims.ensure_unchanged()?;
        // Other objects whose names look like pins stay.
        for name in ["x", "4294967295"] {
            let _ = fs::remove_file(old.pins.join(name));
        }
        let _ = (fs::remove_dir(&old.pins), fs::remove_dir_all(&old.files));
        let mount = placed(EARLIER).join("bpf");
        let is_empty = fs::read_dir(&mount)?
            .flatten()
            .all(|entry| !entry.path().is_dir());
        if is_empty && bpf_fs::is_bpf(&mount)? {
            bpf_fs::unmount(&mount)?;
        }
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn links_that_a_container_plants_lead_an_agent_nowhere() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    netns::within_new(|| {
        let mut stage = Stage::bare(1)?;
        let victims = Victims::new(&stage)?;
        // Makes everything that a container with the whole of /run/fanpcap can make before the
        // first agent runs.
        let old = Places::of(&stage, EARLIER)?;
        fs::create_dir_all(&old.files)?;
        fs::create_dir_all(&old.pins)?;
        old.plant(&victims)?;
        // The process with the lock may be an agent of an earlier build. The error names this
        // process.
        let path = old.files.join(format!("{}.lock", old.ifindex));
        let file = fs::File::create(&path)?;
        ensure!(lock::try_take(&file)?);
        let holder = format!("process {} locks {}", std::process::id(), path.display());
        refused(
            &stage,
            MONITOR,
            &format!("({holder}): one of an earlier build"),
        )?;
        drop(file);
        stage.start(0)?;
        stage.await_output(0, "loaded topology")?;
        let holder = format!("process {} locks ", stage.pid(0)?);
        refused(&stage, MONITOR, &holder)?;
        stage.kill(0)?;
        victims.ensure_unchanged()?;
        // The node's objects are not pinned in the earlier build's directory.
        ensure!(!old.pins.join("link").exists() && !old.pins.join("next").exists());
        let done = stage.run(0, &["-i", MONITOR, "--detach"])?;
        ensure!(done.status.success(), "{done:?}");
        victims.ensure_unchanged()?;
        fs::remove_dir_all(&old.pins)?;
        fs::remove_dir_all(&old.files)?;
        Ok(())
    })
    .unwrap();
}
