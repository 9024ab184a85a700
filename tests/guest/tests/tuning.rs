//! `fanpcap tune` on a card with channels. Each setting of a plan takes effect and is restored
//! exactly, also after a crash at any point. Settings that another program has changed stay.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use fanpcap_guest_tests::{
    Cards, compile, ensure_as_before, ethtool, fanpcap, receiving, state, tune,
};
use fanpcap_nic::apply::{self, Tried};
use fanpcap_nic::device::Device;
use fanpcap_nic::facts::Facts;
use fanpcap_nic::interrupts;
use fanpcap_nic::journal::{Journal, Outcome, Wish};
use fanpcap_nic::napi;
use fanpcap_nic::plan::{self, Wishes};
use fanpcap_nic::settings::Settings;
use fanpcap_testkit::Scratch;
use fanpcap_testkit::library::library_dir;
use fanpcap_testkit::veth::{ip, offloads_on};

/// The value that ethtool prints after a heading. If there are several values, takes the last one,
/// because ethtool prints the maximum values first.
fn shown(option: &str, device: &str, heading: &str) -> Result<String> {
    let said = ethtool(&[option, device])?;
    let value = said
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix(heading));
    Ok(value
        .with_context(|| format!("no {heading} in {said}"))?
        .trim()
        .to_owned())
}

/// The queues in the first line of the indirection table, as ethtool prints it.
fn table(device: &str) -> Result<String> {
    let said = ethtool(&["-x", device])?;
    let row = said.lines().find_map(|line| line.trim().strip_prefix("0:"));
    let words = row.with_context(|| said.clone())?.split_whitespace();
    Ok(words.collect::<Vec<_>>().join(" "))
}

fn sysfs(device: &Device, file: &str) -> PathBuf {
    format!("/sys/class/net/{}/{file}", device.name).into()
}

fn read(path: PathBuf) -> Result<String> {
    Ok(fs::read_to_string(&path)
        .with_context(|| path.display().to_string())?
        .trim()
        .to_owned())
}

/// A card with the settings of a host that uses it: an address, offloads, packet steering, and a
/// short ring.
struct InUse<'a>(&'a Device);

impl<'a> InUse<'a> {
    fn begin(device: &'a Device) -> Result<Self> {
        let name = &device.name;
        offloads_on(name)?;
        ip(&format!("addr add 192.0.2.1/24 dev {name}"))?;
        fs::write(sysfs(device, "queues/rx-0/rps_cpus"), "c")?;
        ethtool(&["-G", name, "rx", "64"])?;
        Ok(Self(device))
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        let name = &self.0.name;
        // Ignore errors: the next test checks the state that it needs.
        let _ = ip(&format!("addr flush dev {name}"));
        let _ = fs::write(sysfs(self.0, "queues/rx-0/rps_cpus"), "0");
        let _ = ethtool(&["-G", name, "rx", "256"]);
    }
}

/// Restores all settings and checks that each change was undone.
fn restore(device: &Device) -> Result<()> {
    for undone in Journal::open(device)?.restore(&Settings(device)) {
        let is_undone = matches!(
            undone.outcome,
            Outcome::Restored | Outcome::WasBack | Outcome::Later
        );
        ensure!(is_undone, "{undone:?}");
    }
    Ok(())
}

#[test]
#[ignore = "needs a guest: run by make test-guest"]
fn each_setting_of_a_plan_holds_and_comes_back() -> Result<()> {
    let Some(cards) = Cards::of_guest()? else {
        return Ok(());
    };
    let (device, name) = (&cards.far, cards.far.name.as_str());
    let _in_use = InUse::begin(device)?;
    let before = state(device);
    let mut facts = Facts::of(device);
    // Pretend that the card has missed packets, as it does if its ring is too short. Then the plan
    // also has a longer ring.
    facts.missed = 1000;
    let wishes = Wishes {
        queues: Some(2),
        monitor: true,
        ..Wishes::default()
    };
    let plan = plan::plan(&facts, wishes)?;
    let mut journal = Journal::open(device)?;
    for Tried { step, result } in apply::apply(device, &mut journal, Wish::Stays, &plan) {
        ensure!(result.is_ok(), "{}: {result:?}", step.text());
    }
    drop(journal);
    ensure_each_setting(device, &plan.receive)?;
    ensure!(shown("-g", name, "RX:")? == "128");
    restore(device)?;
    ensure_as_before(device, &before)
}

/// Checks the settings of a plan for two queues on these CPUs, with tools other than fanpcap.
fn ensure_each_setting(device: &Device, cpus: &[usize]) -> Result<()> {
    let name = device.name.as_str();
    ensure!(shown("-l", name, "Combined:")? == "2");
    ensure!(shown("-k", name, "generic-receive-offload:")? == "off");
    ensure!(shown("-k", name, "rx-gro-hw:")? == "off");
    ensure!(table(name)? == "0 1 0 1 0 1 0 1", "{}", table(name)?);
    ensure!(ethtool(&["-x", name])?.contains("\n6d:5a:6d:5a:"));
    ensure!(read(sysfs(device, "queues/rx-0/rps_cpus"))? == "0");
    for (queue, cpu) in (0..).zip(cpus) {
        let xps = read(sysfs(device, &format!("queues/tx-{queue}/xps_cpus")))?;
        ensure!(xps == format!("{:x}", 1 << cpu), "XPS of {queue}: {xps}");
        for interrupt in interrupts::of_channel(device, queue)? {
            let place = format!("/proc/irq/{}/smp_affinity_list", interrupt.number);
            let list = read(place.into())?;
            ensure!(list == cpu.to_string(), "{interrupt:?} on CPU {list}");
        }
    }
    Ok(())
}

#[test]
#[ignore = "needs a guest: run by make test-guest"]
fn threads_that_poll_are_placed_and_gone_afterwards() -> Result<()> {
    let Some(cards) = Cards::of_guest()? else {
        return Ok(());
    };
    let (device, name) = (&cards.far, cards.far.name.as_str());
    let before = state(device);
    let done = tune(&[name, "--apply", "--threads", "--queues", "2"])?;
    ensure!(!done.contains("REFUSED"), "{done}");
    ensure!(read(sysfs(device, "threaded"))? == "1", "{done}");
    let threads = napi::threads(device)?;
    ensure!(threads.len() == 2, "{threads:?}");
    for (queue, pid) in threads {
        let comm = read(format!("/proc/{pid}/comm").into())?;
        ensure!(comm.starts_with(&format!("napi/{name}-")), "{comm}");
        let status = read(format!("/proc/{pid}/status").into())?;
        let expected = format!("\nCpus_allowed_list:\t{}\n", queue + 1);
        ensure!(status.contains(&expected), "queue {queue}: {status}");
    }
    tune(&["--restore"])?;
    ensure!(read(sysfs(device, "threaded"))? == "0");
    ensure_as_before(device, &before)
}

#[test]
#[ignore = "needs a guest: run by make test-guest"]
fn what_somebody_else_has_set_is_left_alone_and_told() -> Result<()> {
    let Some(cards) = Cards::of_guest()? else {
        return Ok(());
    };
    let (device, name) = (&cards.far, cards.far.name.as_str());
    let before = state(device);
    tune(&[name, "--apply", "--queues", "2"])?;
    let number = receiving(device)?[0].number;
    let irq = format!("irq.{number}");
    fs::write(format!("/proc/irq/{number}/smp_affinity_list"), "3")?;
    let foreign_key = vec!["a7"; before["key"].len() / 2];
    ethtool(&["-X", name, "hkey", &foreign_key.join(":")])?;
    let restored = tune(&["--restore"])?;
    for told in [
        format!("{irq}: is 3 and not 1: "),
        "key: is a7a7a7".to_owned(),
    ] {
        let line = restored.lines().find(|line| line.contains(&told));
        let is_told = line.is_some_and(|line| line.ends_with("left alone"));
        ensure!(is_told, "{told}:\n{restored}");
    }
    let mut expected = before.clone();
    expected.insert(irq.clone(), "3".to_owned());
    expected.insert("key".to_owned(), foreign_key.concat());
    ensure_as_before(device, &expected)?;
    fs::write(
        format!("/proc/irq/{number}/smp_affinity_list"),
        &before[&irq],
    )?;
    let key = before["key"].as_bytes().chunks(2);
    let key: Vec<_> = key.map(|pair| String::from_utf8_lossy(pair)).collect();
    ethtool(&["-X", name, "hkey", &key.join(":")])?;
    ensure_as_before(device, &before)
}

#[test]
#[ignore = "needs a guest: run by make test-guest"]
#[allow(clippy::print_stdout, reason = "how long the loop was")]
fn after_a_crash_at_any_point_of_apply_everything_comes_back() -> Result<()> {
    let Some(cards) = Cards::of_guest()? else {
        return Ok(());
    };
    let device = &cards.far;
    let before = state(device);
    let scratch = Scratch::new()?;
    let dies = compile("dies", &scratch)?;
    let begun = Instant::now();
    let mut points = 0;
    while is_killed_after(points + 1, &dies, device)? {
        points += 1;
        restore_after(points, device, &before)?;
    }
    println!("killed after each of {points} calls, {:?}", begun.elapsed());
    ensure!(points > 20, "only {points} calls change something");
    restore_after(points, device, &before)
}

fn restore_after(points: u32, device: &Device, before: &BTreeMap<String, String>) -> Result<()> {
    let restored = restore(device).and_then(|()| ensure_as_before(device, before));
    restored.with_context(|| format!("killed after call {points}"))
}

/// Runs `fanpcap tune --apply`, and kills it after `number` system calls that change a device or a
/// journal. Returns false if the command made fewer such calls.
fn is_killed_after(number: u32, dies: &Path, device: &Device) -> Result<bool> {
    let done = Command::new(dies)
        .env("LD_LIBRARY_PATH", library_dir()?)
        .arg(number.to_string())
        .arg(fanpcap()?)
        .args(["tune", &device.name, "--apply", "--queues", "2"])
        .output()?;
    match done.status.code() {
        Some(0) => Ok(true),
        Some(3) => Ok(false),
        _ => bail!("{}: {}", done.status, String::from_utf8_lossy(&done.stderr)),
    }
}
