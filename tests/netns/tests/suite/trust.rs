//! Other users' locks, files and output do not affect root's members (`docs/security.md`).

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use fanpcap_engine::root;
use fanpcap_linux::interface;
use fanpcap_linux::process::netns;
use fanpcap_netns::dialog::Dialog;
use fanpcap_netns::{DEVICE, Wire, on_wire};
use fanpcap_testkit::{Member, Program, mounts};

/// Starts a process of another user, which takes every lock on pages that it can get.
pub(crate) fn start_hog(wire: &Wire) -> Result<Member> {
    let hog = Program::new(wire.compile("lockhog")?, "ready")?.ends_with_caller();
    hog.arg(root::make_root()?).start(&wire.scratch)
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_strangers_lock_makes_no_dead_member_live() -> Result<()> {
    on_wire(1, |wire| {
        let mut hog = start_hog(wire)?;
        let mut dead = Dialog::start(wire, 7)?;
        dead.expect("open main = tcp >-> steer_flow", "opened 0")?;
        let page = format!("has {}.", dead.pid());
        drop(dead);
        // The other user's process gets the page's lock as soon as the killed member has lost it.
        hog.wait_until_says(&page)?;
        let mut other = Dialog::start(wire, 7)?;
        other.expect("open main = udp >-> steer_flow", "opened 0")
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_strangers_lock_keeps_nobody_from_replacing_a_program() -> Result<()> {
    on_wire(1, |wire| {
        let mut hog = start_hog(wire)?;
        let mut own = Dialog::start(wire, 7)?;
        own.expect("open main = steer_flow", "opened 0")?;
        let ifindex = interface::index(DEVICE).context("the device")?;
        hog.wait_until_says(&format!("has {ifindex}.7\n"))?;
        own.expect("fanout 0 main = steer_rrobin", "done")
    })
}

/// Runs a member whose `/run/fanpcap` is a file system with the access mode `mode`. Another user
/// has put links there before: the member must not change the files to which they lead.
fn ensure_spared(mode: &str) -> Result<()> {
    const PRECIOUS: [&str; 5] = ["syslog.1", "backup.20", "db.0", "keep.me", "libfoo.so.1"];
    on_wire(1, |wire| {
        let victim = wire.scratch.file("victim");
        fs::create_dir(&victim)?;
        for name in PRECIOUS {
            fs::write(victim.join(name), "precious")?;
        }
        let ifindex = interface::index(DEVICE).context("the device")?;
        let (netns, victim) = (netns::inode()?, victim.display());
        // The other user puts links into two directories of pages: that of an old build, whose path
        // has no version, and that of this build (`v6`).
        let plant = format!(
            "cd /run/fanpcap && mkdir -p {netns} v6/{netns} && \
             ln -s {victim} {netns}/{ifindex}.7 && ln -s {victim} v6/{netns}/{ifindex}.7"
        );
        let scene = format!(
            "mount -t tmpfs -o mode=755 tmpfs /run && mkdir /run/fanpcap && \
             mount -t tmpfs -o mode={mode} tmpfs /run/fanpcap && \
             setpriv --reuid=65534 --regid=65534 --clear-groups sh -c '{plant}' && exec \"$@\""
        );
        let member = Program::new("unshare", "")?
            .args(["-m", "sh", "-c", &scene, "sh"])
            .arg(wire.compile("sees")?)
            .args([DEVICE, "7"]);
        let ended = member.run(&wire.scratch)?;
        ensure!(ended.said.contains("sums unknown"), "{}", ended.said);
        let left = fs::read_dir(wire.scratch.file("victim"))?.count();
        ensure!(
            left == PRECIOUS.len(),
            "only {left} files of the victim are left"
        );
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_link_that_another_user_planted_is_not_followed() -> Result<()> {
    mounts::where_possible(|| {
        ensure_spared("777")?;
        ensure_spared("1777")
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_process_that_may_make_no_files_is_a_member_without_a_page() -> Result<()> {
    on_wire(1, |wire| {
        for mode in ["hash", "main = steer_flow"] {
            let limited = Program::new(wire.compile("limited")?, "")?.args([DEVICE, "7", mode]);
            let ended = limited.run(&wire.scratch)?;
            ensure!(ended.status.success(), "{:?}: {}", ended.status, ended.said);
            ensure!(ended.said == "1 members, sums unknown\n", "{}", ended.said);
        }
        Ok(())
    })
}

/// A newcomer finds the shared objects of a steered group by its members' pages. A process that may
/// create no files has no page, so newcomers can join only its groups with the kernel's modes.
#[test]
#[ignore = "needs root: run by make test"]
fn who_may_make_no_files_shares_with_others_by_the_kernels_modes_alone() -> Result<()> {
    on_wire(1, |wire| {
        let start = |group: &str, mode: &str| {
            let limited = Program::new(wire.compile("limited")?, "1 members, sums unknown\n")?;
            let limited = limited.args([DEVICE, group, mode, "stays"]);
            limited.ends_with_caller().start(&wire.scratch)
        };
        let _first = start("7", "hash")?;
        Dialog::start(wire, 7)?.expect("open hash", "opened 0")?;
        let _first = start("8", "main = steer_flow")?;
        let refused = Dialog::start(wire, 8)?.ask("open main = steer_flow")?;
        let is_told = ["no member has a page", "(see LimitFSIZE=)"].map(|it| refused.contains(it));
        ensure!(is_told == [true; 2], "{refused}");
        Ok(())
    })
}

/// A directory in memory. Containers share it, or each container has its own.
pub(crate) struct Volume(PathBuf);

impl Volume {
    pub(crate) fn new(name: &str) -> Result<Self> {
        let name = format!("fanpcap-volume-{name}-{}", std::process::id());
        let path = PathBuf::from("/dev/shm").join(name);
        fs::DirBuilder::new().mode(0o755).create(&path)?;
        Ok(Self(path))
    }

    /// Like [`Volume::new`], but the directory belongs to the user `user`.
    pub(crate) fn of(name: &str, user: u32) -> Result<Self> {
        let volume = Self::new(name)?;
        chown(&volume.0, Some(user), Some(user))?;
        Ok(volume)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The words before a command that mount this volume at `/run/fanpcap/v7` for the command.
    pub(crate) fn over_run(&self) -> Vec<&str> {
        self.within(&["unshare", "-m"])
    }

    /// The words before a command that run the command in a separate container, with this volume at
    /// `/run/fanpcap/v7`. The command is the first process of a PID namespace, and its `/run` is on
    /// a disk.
    pub(crate) fn behind(&self) -> Vec<&str> {
        self.within(&["unshare", "-m", "-p", "-f", "--kill-child", "--mount-proc"])
    }

    fn within<'a>(&'a self, unshare: &[&'a str]) -> Vec<&'a str> {
        const SCENE: &str = "disk=/var/tmp/${0##*/}; mkdir -p $disk/fanpcap/v7 && \
                             mount --bind $disk /run && \
                             mount --bind \"$0\" /run/fanpcap/v7 && exec \"$@\"";
        let volume = self.0.to_str().unwrap_or_default();
        [unshare, &["sh", "-c", SCENE, volume]].concat()
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
        let disk = self
            .0
            .file_name()
            .map(|name| Path::new("/var/tmp").join(name));
        let _ = disk.map(fs::remove_dir_all);
    }
}

#[test]
#[ignore = "needs root: run by make test"]
fn members_of_containers_with_one_volume_know_each_other() -> Result<()> {
    mounts::where_possible(|| {
        on_wire(1, |wire| {
            let (shared, apart) = (Volume::new("shared")?, Volume::new("apart")?);
            let mut one = Dialog::behind(wire, 7, &shared.behind())?;
            let mut other = Dialog::behind(wire, 7, &shared.behind())?;
            one.expect("open main = tcp >-> steer_flow", "opened 0")?;
            // Only a member that reads gives a newcomer the group's descriptors.
            one.expect("read 0", "done")?;
            other.expect("open main = tcp >-> steer_flow", "opened 0")?;
            let refused = other.ask("open main = udp >-> steer_flow")?;
            ensure!(refused.contains("runs the program"), "{refused}");
            let sums = one.ask("stats 0")?;
            ensure!(sums.starts_with("0: members 2 "), "{sums}");
            let root = fs::metadata(&shared.0)?;
            ensure!(root.uid() == 0 && root.mode() & 0o777 == 0o755, "{root:?}");

            let mut stranger = Dialog::behind(wire, 7, &apart.behind())?;
            let refused = stranger.ask("open main = tcp >-> steer_flow")?;
            ensure!(refused.contains("none of them can be joined"), "{refused}");
            let sums = one.ask("stats 0")?;
            ensure!(sums.starts_with("0: members 2 "), "{sums}");
            Ok(())
        })
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn another_program_is_a_stranger_also_by_the_same_pid() -> Result<()> {
    mounts::where_possible(|| {
        on_wire(1, |wire| {
            let volume = Volume::new("pid")?;
            let program = wire.compile("renamed")?;
            let other = wire.scratch.file("other");
            fs::copy(&program, &other)?;
            let start = |program: &PathBuf| {
                let words = volume.behind();
                Program::new(words[0], "ready")?
                    .args(&words[1..])
                    .arg(program)
                    .args([DEVICE, "worker"])
                    .group(7, "hash")
                    .ends_with_caller()
                    .start(&wire.scratch)
            };
            let _one = start(&program)?;
            let said = start(&other)?.said()?;
            ensure!(said.contains("(process 1)"), "{said}");
            Ok(())
        })
    })
}
