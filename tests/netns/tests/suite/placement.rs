//! Calls and settings change the number of a device's channels, and its polling threads. Settings
//! take effect when a handle is activated, and the old values are restored when the last handle
//! that requested the change is closed.

use std::fs;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use fanpcap_linux::process::netns::inode;
use fanpcap_netns::{DEVICE, Wire, on_wire};
use fanpcap_nic::device::Device;
use fanpcap_nic::{channels, napi};
use fanpcap_testkit::{Member, Program, veth};

/// The device's number of channels before the test.
const CHANNELS: u32 = 4;
const TWO: &str = "rx_channels@vb = 2\n";

/// Runs a test with a wire whose device has no journal before or after the test.
fn on_four(test: impl FnOnce(&Wire) -> Result<()> + Send) -> Result<()> {
    on_wire(CHANNELS as usize, |wire| {
        let _journals = Journals(journals()?);
        ensure!(receiving()? == CHANNELS, "{} channels", receiving()?);
        test(wire)
    })
}

struct Journals(PathBuf);

impl Drop for Journals {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn journals() -> Result<PathBuf> {
    let (_, path) = fanpcap_engine::root::state_directory("tune", &inode()?.to_string())?;
    Ok(path)
}

fn receiving() -> Result<u32> {
    Ok(channels::read(&Device::open(DEVICE)?)?.rx)
}

/// An application (`c/member.c`) that opens and activates a handle with these settings.
fn program(wire: &Wire, settings: &str) -> Result<Program> {
    let config = wire.scratch.write("pcap.conf", settings)?;
    let program = Program::new(wire.compile("member")?, "ready")?;
    Ok(program.set("PCAP_CONFIG", config).args([DEVICE, "0"]))
}

fn start(wire: &Wire, settings: &str) -> Result<Member> {
    program(wire, settings)?.start(&wire.scratch)
}

#[test]
#[ignore = "needs root: run by make test"]
fn channels_are_read_and_set_by_calls() -> Result<()> {
    on_four(|wire| {
        let program = Program::new(wire.compile("channels")?, "")?;
        let ended = program.arg(DEVICE).run(&wire.scratch)?;
        ensure!(ended.said.contains("all checks passed"), "{}", ended.said);
        // A change that a call has made stays after the end of the application.
        ensure!(receiving()? == 2);
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn channels_are_as_before_when_the_last_handle_is_closed() -> Result<()> {
    on_four(|wire| {
        let first = start(wire, TWO)?;
        ensure!(receiving()? == 2);
        let second = start(wire, TWO)?;
        let other = program(wire, "rx_channels@vb = 3\n")?.run(&wire.scratch)?;
        let disagrees = format!("process {} wants the value rx=2", first.pid());
        ensure!(other.said.contains(&disagrees), "{}", other.said);
        ensure!(receiving()? == 2);
        first.stop()?;
        ensure!(
            receiving()? == 2,
            "the second application still needs 2 channels"
        );
        second.stop()?;
        ensure!(receiving()? == CHANNELS);
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_killed_applications_channels_are_put_back_at_the_next_start() -> Result<()> {
    on_four(|wire| {
        let killed = start(wire, TWO)?;
        killed.signal("KILL")?;
        killed.wait()?;
        ensure!(receiving()? == 2);
        // The number of channels that the killed application set does not prevent another number,
        // and is not restored later.
        let next = start(wire, "rx_channels@vb = 3\n")?;
        ensure!(receiving()? == 3);
        next.stop()?;
        ensure!(receiving()? == CHANNELS);
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn an_application_without_privileges_leaves_it_to_the_next() -> Result<()> {
    on_four(|wire| {
        let config = wire.scratch.write("pcap.conf", TWO)?;
        let tcpdump = |user| {
            let file = wire.scratch.new_file("capture");
            let program = Program::new("tcpdump", "listening on")?;
            let program = program.args(["-Z", user, "-i", DEVICE, "-w"]).arg(file);
            program.set("PCAP_CONFIG", &config).start(&wire.scratch)
        };
        let dropped = tcpdump("nobody")?;
        ensure!(receiving()? == 2);
        dropped.stop()?;
        ensure!(
            receiving()? == 2,
            "an application without the right changed the channels"
        );
        let root = tcpdump("root")?;
        ensure!(receiving()? == 2);
        root.stop()?;
        ensure!(receiving()? == CHANNELS);
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn settings_that_stay_stay() -> Result<()> {
    on_four(|wire| {
        start(wire, "rx_channels@vb = 2\nkeep@vb = yes\n")?.stop()?;
        ensure!(receiving()? == 2);
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn what_somebody_else_has_set_since_stays() -> Result<()> {
    on_four(|wire| {
        let member = start(wire, TWO)?;
        veth::set_queues(DEVICE, "rx", 3)?;
        member.stop()?;
        ensure!(receiving()? == 3);
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn polling_threads_go_where_settings_say() -> Result<()> {
    on_four(|wire| {
        veth::offloads_on(DEVICE)?;
        let member = start(wire, "napi@vb.0 = 1\nnapi@vb.1 = 0\n")?;
        let device = Device::open(DEVICE)?;
        ensure!(napi::is_threaded(&device)?);
        let affinities = [napi::affinity(&device, 0)?, napi::affinity(&device, 1)?];
        ensure!(affinities == [[1], [0]], "{affinities:?}");
        member.stop()?;
        ensure!(!napi::is_threaded(&device)?);
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_device_that_cannot_be_set_is_not_captured_on() -> Result<()> {
    on_four(|wire| {
        let refused = |settings| program(wire, settings)?.run(&wire.scratch);
        let many = refused("def_group = 3\nrx_channels@vb = 9\n")?;
        let expected =
            "pcap.conf:2:1: device 'vb' can't have this setting: 9 rx channels, but it takes 4";
        ensure!(many.said.contains(expected), "{}", many.said);
        // Either all settings take effect or none.
        let none = refused("irq@vb.0 = 0\nrx_channels@vb = 2\n")?;
        ensure!(none.said.contains("pcap.conf:1:1"), "{}", none.said);
        ensure!(none.said.contains("no interrupts"), "{}", none.said);
        ensure!(receiving()? == CHANNELS);
        Ok(())
    })
}
