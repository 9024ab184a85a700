//! Channels, polling threads and the journal on veth devices.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use fanpcap_linux::process::netns::inode;
use fanpcap_nic::device::Device;
use fanpcap_nic::error::DeviceError;
use fanpcap_nic::facts::Facts;
use fanpcap_nic::interrupts;
use fanpcap_nic::journal::{Journal, Outcome, Wish};
use fanpcap_nic::knob::{Knob, Knobs, Placement, Setting};
use fanpcap_nic::napi;
use fanpcap_nic::settings::Settings;
use fanpcap_testkit::veth::ip;
use fanpcap_testkit::{Veth, needs, netns};

/// Creates a veth pair with four queues in a separate namespace, and removes its journals
/// afterwards.
fn within(test: impl FnOnce(&Device) -> Result<()> + Send) -> Result<()> {
    netns::within_new(|| {
        let journals = Journals(place()?);
        Veth::new("fnic0", "fnic1", 4)?;
        let device = Device::open("fnic1")?;
        assert_eq!(device.driver, "veth");
        let result = test(&device);
        drop(journals);
        result
    })
}

/// The directory of the namespace's journals.
fn place() -> Result<PathBuf> {
    let number = inode()?.to_string();
    let (_, place) = fanpcap_engine::root::state_directory("tune", &number)?;
    Ok(place)
}

struct Journals(PathBuf);

impl Drop for Journals {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn set_gro(device: &str, value: &str) -> Result<()> {
    let mut ethtool = std::process::Command::new("ethtool");
    let status = ethtool.args(["-K", device, "gro", value]).status()?;
    ensure!(status.success(), "ethtool -K {device} gro {value}");
    Ok(())
}

#[test]
#[ignore = "needs root: a network namespace"]
fn channels_are_set_and_put_back() -> Result<()> {
    within(|device| {
        let knobs = Placement(device);
        let before = knobs.read(&Knob::Channels)?;
        assert_eq!(before, "rx=4,tx=4,other=0,combined=0");
        let mut journal = Journal::open(device)?;
        let hold = journal.hold()?;
        assert!(journal.set(&knobs, Wish::While(&hold), &Knob::Channels, "rx=2")?);
        assert_eq!(knobs.read(&Knob::Channels)?, "rx=2,tx=4,other=0,combined=0");
        let many = journal.set(&knobs, Wish::While(&hold), &Knob::Channels, "rx=5");
        let many = many.unwrap_err();
        assert_eq!(many.to_string(), "5 rx channels, but it takes 4 at most");
        assert_eq!(many.errno(), 22);
        drop(journal);
        let mut again = Journal::open(device)?;
        assert_eq!(again.changes().len(), 1);
        let undone = again.release(&knobs, hold);
        assert!(matches!(undone[0].outcome, Outcome::Restored));
        assert_eq!(knobs.read(&Knob::Channels)?, before);
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a network namespace"]
fn a_device_without_interrupts_has_polling_threads_that_can_be_placed() -> Result<()> {
    within(|device| {
        let none = interrupts::of_channel(device, 0).unwrap_err();
        assert!(matches!(none, DeviceError::NoInterrupts), "{none}");
        let knobs = Placement(device);
        let mut journal = Journal::open(device)?;
        let hold = journal.hold()?;
        let wish = Wish::While(&hold);
        let without = journal
            .set(&knobs, wish, &Knob::Threaded, "on")
            .unwrap_err();
        let is_none = matches!(without, DeviceError::NoNapi);
        ensure!(is_none, "{without}");
        set_gro("fnic1", "on")?;
        let not_threaded = napi::thread(device, 0).unwrap_err();
        assert!(matches!(not_threaded, DeviceError::NotThreaded));
        assert!(journal.set(&knobs, wish, &Knob::Threaded, "on")?);
        if let Err(none) = needs::kernel_threads() {
            assert!(matches!(napi::threads(device), Err(DeviceError::Hidden)));
            return Err(none);
        }
        let mut threads = napi::threads(device)?;
        threads.dedup_by_key(|it| it.1);
        let queues: Vec<u32> = threads.iter().map(|it| it.0).collect();
        assert_eq!(queues, [0, 1, 2, 3]);
        assert!(journal.set(&knobs, wish, &Knob::Napi(3), "0")?);
        assert_eq!(napi::affinity(device, 3)?, [0]);
        let missing = journal.set(&knobs, wish, &Knob::Napi(4), "0").unwrap_err();
        assert!(missing.to_string().contains("queue 4"), "{missing}");
        let undone = journal.release(&knobs, hold);
        assert_eq!(undone.len(), 2);
        assert_eq!(knobs.read(&Knob::Threaded)?, "off");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a network namespace"]
fn cpus_that_other_devices_were_given_are_told() -> Result<()> {
    within(|device| {
        Veth::new("fnic2", "fnic3", 2)?;
        let other = Device::open("fnic3")?;
        let settings = Settings(device);
        let mut journal = Journal::open(device)?;
        let hold = journal.hold()?;
        let steering = Setting::Rps(0).into();
        ensure!(journal.set(&settings, Wish::While(&hold), &steering, "0")?);
        drop(journal);
        assert_eq!(Facts::of(&other).taken, [0]);
        // CPUs that a device itself uses are not counted as taken by other devices.
        assert_eq!(Facts::of(device).taken, [0; 0]);
        Journal::open(device)?.release(&settings, hold);
        assert_eq!(Facts::of(&other).taken, [0; 0]);
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a network namespace"]
fn a_device_of_the_same_name_and_index_outside_is_not_touched() -> Result<()> {
    within(|_| {
        // The mounted sysfs shows the outer namespace.
        let outside = std::fs::read_to_string("/sys/class/net/lo/flags")?;
        assert_eq!(outside.trim(), "0x9");
        netns::enter_quiet()?;
        ip("link set lo down")?;
        ip("link add fnic9 numrxqueues 2 type veth peer fnic8")?;
        let device = Device::open("fnic9")?;
        assert!(!napi::is_threaded(&device)?);
        let path = "/sys/class/net/fnic9";
        ensure!(!PathBuf::from(path).exists(), "{path} is the namespace's");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a network namespace"]
fn a_journal_that_others_could_have_written_is_not_used() -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    within(|device| {
        // An owner keeps the directory from being removed.
        let _hold = Journal::open(device)?.hold()?;
        let place = place()?;
        let tune = place.parent().context("no parent")?;
        assert_eq!(tune.metadata()?.permissions().mode() & 0o777, 0o700);
        std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o777))?;
        let error = Journal::open(device).unwrap_err();
        assert!(error.to_string().contains("not trusted"), "{error}");
        assert_eq!(error.errno(), 13);
        Ok(())
    })
}
