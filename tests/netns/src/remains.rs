//! Checks that applications leave nothing in the kernel and on the machine when all of them have
//! ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_group::page::GroupDir;
use fanpcap_linux::bpf::ObjectId;
use fanpcap_linux::netlink::link;
use fanpcap_linux::process::netns;
use fanpcap_testkit::await_for::{LIMIT, await_for};

use crate::{Wire, on_wire};

/// Time between two searches for the objects that the applications hold.
const EVERY: Duration = Duration::from_millis(20);

/// Runs a test with a wire, as [`on_wire`] does, and checks that nothing remains.
///
/// # Errors The test fails, or objects remain.
pub fn on_wire_that_ends_clean<T: Send>(
    queues: usize,
    test: impl FnOnce(&Wire) -> Result<T> + Send,
) -> Result<T> {
    on_wire(queues, |wire| leaves_nothing(|| test(wire)))
}

/// Runs a test that ends all its applications, in any way. Checks that soon afterwards nothing of
/// the applications remains in the calling thread's network namespace: no BPF programs, maps or
/// links, no pages of living members, no pinned files, and no changed settings of devices.
///
/// # Errors
/// The test fails, objects remain, or no application had a BPF link. Applications on the XDP engine
/// always have a link, so without one they did not use this engine.
pub fn leaves_nothing<T>(test: impl FnOnce() -> Result<T>) -> Result<T> {
    let (tested, held) = watched(test)?;
    let has_link = held.iter().any(|it| matches!(it, ObjectId::Link(_)));
    ensure!(has_link, "no application had a BPF link");
    Ok(tested)
}

/// Like [`leaves_nothing`], for applications that may end before their BPF objects have been
/// listed. Objects that were not listed are not searched for afterwards.
///
/// # Errors The test fails, or objects remain.
pub fn leaves_nothing_soon<T>(test: impl FnOnce() -> Result<T>) -> Result<T> {
    watched(test).map(|(tested, _)| tested)
}

/// Runs a test and waits until nothing of its applications remains. Returns the test's result and
/// the BPF objects that the applications held.
fn watched<T>(test: impl FnOnce() -> Result<T>) -> Result<(T, BTreeSet<ObjectId>)> {
    let before = settings()?;
    let is_over = AtomicBool::new(false);
    let (tested, held) = thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&is_over));
        let tested = {
            let _over = OnDrop(&is_over);
            test()
        };
        (tested, watcher.join().expect("the watcher does not panic"))
    });
    let tested = tested?;
    let held = held?;
    let mut left = String::new();
    await_for("the end of all that remains", LIMIT, || {
        left = remains(&held, &before)?;
        Ok(left.is_empty().then_some(()))
    })
    .with_context(|| format!("{left}; {}", holders(&held)))?;
    Ok((tested, held))
}

/// Tells the watching thread to end when this value is dropped, so also if the test panics.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Collects the BPF objects of all processes in the calling thread's network namespace, until
/// `is_over` is set.
fn watch(is_over: &AtomicBool) -> Result<BTreeSet<ObjectId>> {
    let own = netns::inode()?;
    let mut held = BTreeSet::new();
    while !is_over.load(Ordering::Relaxed) {
        for pid in processes_in(own) {
            held.extend(ObjectId::held_by(pid));
        }
        thread::sleep(EVERY);
    }
    Ok(held)
}

/// The applications in a network namespace, without the test's own children that have not executed
/// another program yet. Such a child still has the test's descriptors, and the name of one of the
/// test's threads. execve(2) closes these descriptors before it changes the name.
fn processes_in(namespace: u64) -> impl Iterator<Item = u32> {
    let name = format!("net:[{namespace}]");
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let threads = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    let names = threads.filter_map(|thread| fs::read(thread.path().join("comm")).ok());
    let own: BTreeSet<Vec<u8>> = names.collect();
    pids.filter(move |pid: &u32| {
        let is_in = fs::read_link(format!("/proc/{pid}/ns/net"));
        let is_in = is_in.is_ok_and(|it| it == Path::new(&name));
        is_in && fs::read(format!("/proc/{pid}/comm")).is_ok_and(|it| !own.contains(&it))
    })
}

/// The objects that remain, in words; empty if nothing remains.
fn remains(held: &BTreeSet<ObjectId>, before: &BTreeMap<u32, Settings>) -> Result<String> {
    let mut left = Vec::new();
    for object in held {
        if object.exists()? {
            left.push(format!("{object:?}"));
        }
    }
    for (index, now) in settings()? {
        if now.has_xdp {
            left.push(format!("an XDP program on {}", now.device));
        }
        if let Some(before) = before.get(&index).filter(|before| !before.is_like(&now)) {
            left.push(format!("{before:?} is {now:?}"));
        }
    }
    left.extend(pages()?);
    left.extend(pins());
    Ok(left.join(", "))
}

/// The processes that hold some of these objects. For each process: its number, its program, its
/// network namespace, and the objects.
fn holders(objects: &BTreeSet<ObjectId>) -> String {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let link = |pid: u32, name: &str| fs::read_link(format!("/proc/{pid}/{name}"));
    let process = |pid| {
        let held = &ObjectId::held_by(pid) & objects;
        let of = |name| link(pid, name).unwrap_or_default();
        (!held.is_empty()).then(|| format!("{pid} {:?} {:?} {held:?}", of("exe"), of("ns/net")))
    };
    let processes: Vec<String> = pids.filter_map(process).collect();
    format!("held by: {}", processes.join("; "))
}

/// The settings of a device that applications may change while they capture, and must restore.
#[derive(Debug)]
struct Settings {
    device: String,
    has_xdp: bool,
    promiscuity: u32,
    /// The output of `ethtool -k`.
    features: String,
}

impl Settings {
    fn is_like(&self, other: &Self) -> bool {
        self.promiscuity == other.promiscuity && self.features == other.features
    }
}

/// The settings of all devices in the calling thread's network namespace, by index.
fn settings() -> Result<BTreeMap<u32, Settings>> {
    let links = link::links()?.into_iter();
    let links = links.filter(|link| link.kind == "veth");
    let of = |link: link::Link| {
        let features = Command::new("ethtool").args(["-k", &link.name]).output()?;
        let features = String::from_utf8_lossy(&features.stdout).into_owned();
        let settings = Settings {
            has_xdp: link.xdp.is_some(),
            promiscuity: link.promiscuity,
            // The first line has only the device's name, which is no setting.
            features: features.lines().skip(1).collect::<Vec<_>>().join("\n"),
            device: link.name,
        };
        Ok((link.index, settings))
    };
    links.map(of).collect()
}

/// Pages of living members in the calling thread's network namespace. The function first lists the
/// pages by `records`, which removes the pages of killed members.
fn pages() -> Result<Vec<String>> {
    let mut left = Vec::new();
    for version in fs::read_dir("/run/fanpcap").into_iter().flatten().flatten() {
        let directory = version.path().join(netns::inode()?.to_string());
        for group in fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = group.file_name();
            let name = name.to_string_lossy();
            let (ifindex, number) = name.split_once('.').context("a group's directory")?;
            GroupDir::of(ifindex.parse()?, number.parse()?)?.records();
            let files = fs::read_dir(group.path()).into_iter().flatten().flatten();
            left.extend(files.map(|file| file.path().display().to_string()));
        }
    }
    left.retain(|path| !path.ends_with(".door"));
    Ok(left)
}

/// Names in the BPF file system that contain `fanpcap`. There must be none, because fanpcap pins
/// nothing.
fn pins() -> Vec<String> {
    let entries = fs::read_dir("/sys/fs/bpf").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("fanpcap")).collect()
}
