//! A newcomer joins before or after a replacement of the program, but not during the replacement.
//! Other members ignore the newcomer until it is in the group.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use fanpcap_group::page::GroupDir;
use fanpcap_group::view::GroupTable;
use fanpcap_linux::interface;
use fanpcap_netns::dialog::Dialog;
use fanpcap_netns::{DEVICE, Wire, on_wire};
use fanpcap_testkit::Direction;
use fanpcap_testkit::await_for::{LIMIT, await_for};

use crate::late::slow_to_set;

const GROUP: u16 = 7;

/// Two programs that neither drop nor count packets.
const FIRST: &str = "main = steer_flow";
const SECOND: &str = "main = if is_udp then steer_flow else steer_p2p";

#[test]
#[ignore = "needs root: run by make test"]
fn a_newcomer_waits_for_a_replacement() -> Result<()> {
    // The delay is shorter than the longest time that a member waits for a lock.
    const SLOWLY: &str = "SLOW_MS=600";
    const BEGUN: Duration = Duration::from_millis(200);
    on_wire(1, |wire| {
        let preload = format!("LD_PRELOAD={}", slow_to_set(wire)?);
        let mut one = Dialog::behind(wire, GROUP, &["env", &preload, SLOWLY])?;
        let mut newcomer = Dialog::start(wire, GROUP)?;
        one.expect(&format!("open {FIRST}"), "opened 0")?;
        thread::scope(|scope| {
            let replacing = scope.spawn(|| one.expect(&format!("fanout 0 {SECOND}"), "done"));
            thread::sleep(BEGUN);
            let said = newcomer.ask(&format!("open {FIRST}"))?;
            ensure!(
                said.contains("runs the program 'main = if is_udp"),
                "{said}"
            );
            replacing.join().map_err(|_| anyhow!("a panic"))?
        })?;
        newcomer.expect(&format!("open {SECOND}"), "opened 0")
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn who_is_about_to_join_is_in_no_sum() -> Result<()> {
    // SLOW_OPTION is PACKET_FANOUT.
    const SLOWLY: [&str; 2] = ["SLOW_MS=1000", "SLOW_OPTION=18"];
    on_wire(1, |wire| {
        let preload = format!("LD_PRELOAD={}", slow_to_set(wire)?);
        let mut newcomer = Dialog::behind(wire, GROUP, &["env", &preload, SLOWLY[0], SLOWLY[1]])?;
        let mut one = Dialog::start(wire, GROUP)?;
        one.expect(&format!("open {FIRST}"), "opened 0")?;
        let ifindex = interface::index(DEVICE).context("the device")?;
        let group_dir = GroupDir::of(ifindex, GROUP)?;
        thread::scope(|scope| {
            let joining = scope.spawn(|| newcomer.expect(&format!("open {FIRST}"), "opened 0"));
            await_for("a page", LIMIT, || {
                Ok((group_dir.records().len() >= 2).then_some(()))
            })?;
            let sums = one.ask("stats 0")?;
            ensure!(!joining.is_finished(), "the newcomer has joined already");
            ensure!(sums.starts_with("0: members 1 "), "{sums}");
            joining.join().map_err(|_| anyhow!("a panic"))?
        })?;
        let sums = one.ask("stats 0")?;
        ensure!(sums.starts_with("0: members 2 "), "{sums}");
        Ok(())
    })
}

/// Sends frames that `steer_flow` drops, because they are not IP.
fn send_dropped(wire: &Wire, count: usize) -> Result<()> {
    let mut frame = [0; 60];
    frame[..6].fill(0xff);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    wire.send_bytes((0..count).map(|_| (Direction::Request, &frame[..])))
}

/// A handle that joins after its activation gets all packets until then. Its filter must not count
/// those that the members' filters count.
#[test]
#[ignore = "needs root: run by make test"]
fn a_dropped_packet_counts_once_while_a_handle_joins_that_receives() -> Result<()> {
    // SLOW_OPTION is PACKET_FANOUT.
    const SLOWLY: [&str; 2] = ["SLOW_MS=1000", "SLOW_OPTION=18"];
    on_wire(1, |wire| {
        let preload = format!("LD_PRELOAD={}", slow_to_set(wire)?);
        let mut newcomer = Dialog::behind(wire, GROUP, &["env", &preload, SLOWLY[0], SLOWLY[1]])?;
        let mut one = Dialog::start(wire, GROUP)?;
        one.expect(&format!("open {FIRST}"), "opened 0")?;
        newcomer.expect("plain", "opened 0")?;
        let ifindex = interface::index(DEVICE).context("the device")?;
        let group_dir = GroupDir::of(ifindex, GROUP)?;
        thread::scope(|scope| {
            let joining = scope.spawn(|| newcomer.expect(&format!("fanout 0 {FIRST}"), "done"));
            await_for("a page", LIMIT, || {
                Ok((group_dir.records().len() >= 2).then_some(()))
            })?;
            thread::sleep(Duration::from_millis(300));
            send_dropped(wire, 20)?;
            ensure!(!joining.is_finished(), "the newcomer has joined already");
            joining.join().map_err(|_| anyhow!("a panic"))?
        })?;
        send_dropped(wire, 10)?;
        newcomer.expect("count 0", "0 has 0 packets")?;
        send_dropped(wire, 10)?;
        let table = GroupTable::find(ifindex, GROUP, Duration::ZERO);
        let table = table.map_err(|error| anyhow!(error))?.context("no table")?;
        ensure!(table.nowhere() == 40, "{} of 40", table.nowhere());
        Ok(())
    })
}
