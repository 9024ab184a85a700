//! A group's steering program is replaced while the group's members capture.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_group::view::GroupTable;
use fanpcap_linux::interface;
use fanpcap_netns::dialog::Dialog;
use fanpcap_netns::remains::on_wire_that_ends_clean;
use fanpcap_netns::{DEVICE, Wire, ensure_each_once, finish};
use fanpcap_testkit::await_for::LIMIT;
use fanpcap_testkit::traffic::{self, Frame};
use fanpcap_testkit::{Transport, await_for, capture, member};

use crate::scene::{start, start_as, tcpdump};

const GROUP: u16 = 7;

/// The number of replacements while packets arrive, and the time between two of them.
const TIMES: usize = 5;
const PAUSE: Duration = Duration::from_millis(200);

fn dialog(wire: &Wire) -> Result<Dialog> {
    Dialog::behind(wire, GROUP, &["env", "PCAP_DRIVER=xdp"])
}

/// Some frames of both directions, and how many of them are TCP frames.
fn mixed() -> Result<(Vec<Frame>, usize)> {
    let frames = traffic::frames(3, &traffic::flows(3, 30), 0..300)?;
    let is_tcp = |frame: &&Frame| frame.flow.transport == Transport::Tcp;
    let tcp = frames.iter().filter(is_tcp).count();
    Ok((frames, tcp))
}

/// The group's first three counters in the answer to `stats N`.
fn counters(dialog: &mut Dialog) -> Result<[usize; 3]> {
    let said = dialog.ask("stats 0")?;
    let numbers: Vec<usize> = said.split(' ').filter_map(|it| it.parse().ok()).collect();
    let last = numbers.last_chunk().filter(|_| said.contains(" group "));
    last.copied().with_context(|| said.clone())
}

/// Waits until the group's ledger has counted `count` packets as put into members' rings.
fn await_ledger(count: usize) -> Result<()> {
    let ifindex = interface::index(DEVICE).context("the device")?;
    let table = GroupTable::find(ifindex, GROUP, LIMIT).map_err(anyhow::Error::msg)?;
    let table = table.context("no table")?;
    let mut said = String::new();
    await_for("the ledger", LIMIT, || {
        let ledger = table.look().and_then(|view| view.ledger);
        said = format!("{ledger:?}, {count} packets");
        let is_whole = ledger.is_some_and(|it| {
            let all = [it.offered, it.produced];
            let others = [it.dropped, it.nowhere, it.no_member, it.unwanted];
            all == [count as u64; 2] && others == [0; 4]
        });
        Ok(is_whole.then_some(()))
    })
    .with_context(|| said.clone())
}

#[test]
#[ignore = "needs root: run by make test"]
fn nothing_is_lost_or_doubled_while_programs_are_replaced() -> Result<()> {
    const FIRST: &str = "main = inc 0 >-> steer_rrobin";
    const PROGRAMS: [&str; 2] = ["main = inc 1 >-> steer_flow", "main = inc 2 >-> steer_rnd"];
    on_wire_that_ends_clean(2, |wire| {
        let (mut one, mut other) = (dialog(wire)?, dialog(wire)?);
        one.expect(&format!("open {FIRST}"), "opened 0")?;
        other.expect(&format!("open {FIRST}"), "opened 0")?;
        let third = start_as(wire, tcpdump(wire)?.group(GROUP, FIRST))?;
        // A handle outside the group, which must get all packets during the replacements.
        let alone = start(wire)?;
        member::wait_for_members(GROUP, 3)?;
        let frames = traffic::frames(1, &traffic::flows(1, 60), 0..40_000)?;
        let is_over = AtomicBool::new(false);
        let sent = thread::scope(|scope| {
            let replacing = scope.spawn(|| {
                let replaced = (0..TIMES).try_for_each(|time| {
                    thread::sleep(PAUSE);
                    let by = if time % 2 == 0 { &mut one } else { &mut other };
                    by.expect(&format!("fanout 0 {}", PROGRAMS[time % 2]), "done")
                });
                thread::sleep(PAUSE);
                is_over.store(true, Ordering::Relaxed);
                replaced
            });
            let mut sent = 0;
            for some in frames.chunks(50) {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                wire.send(some)?;
                sent += some.len();
                thread::sleep(Duration::from_millis(2));
            }
            replacing.join().expect("the thread does not panic")?;
            anyhow::Ok(sent)
        })?;
        let frames = &frames[..sent];
        let mut dialogs = 0;
        await_for("all packets", LIMIT, || {
            dialogs = one.count(0)? + other.count(0)?;
            Ok((dialogs + third.captured() >= sent).then_some(()))
        })?;
        await_ledger(sent)?;
        let counted = counters(&mut one)?;
        ensure!(
            counted.iter().sum::<usize>() == sent,
            "{counted:?} of {sent}"
        );
        ensure!(counted.iter().all(|&it| it > 0), "{counted:?}");
        println!("{counted:?} packets under three programs");
        let captured = [third.stop()?.capture()?];
        let seen = capture::sequences(&captured);
        ensure!(seen.values().all(|times| *times == 1), "captured twice");
        ensure!(seen.len() + dialogs == sent, "{} and {dialogs}", seen.len());
        ensure_each_once(&finish(vec![alone], sent)?, frames)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn any_program_may_follow_and_newcomers_bring_the_new_one() -> Result<()> {
    const NEXT: &str = "main = tcp >-> steer_to 1";
    on_wire_that_ends_clean(1, |wire| {
        let (mut one, mut other) = (dialog(wire)?, dialog(wire)?);
        one.expect("open main = steer_to 0", "opened 0")?;
        other.expect("open main = steer_to 0", "opened 0")?;
        let (frames, tcp) = mixed()?;
        wire.send(&frames)?;
        let counts = [one.count(0)?, other.count(0)?];
        ensure!(counts == [frames.len(), 0], "{counts:?}");
        // Each member requests the new program. At the second call the program is attached already.
        for by in [&mut other, &mut one] {
            by.expect(&format!("fanout 0 {NEXT}"), "done")?;
        }
        wire.send(&frames)?;
        let counts = [one.count(0)?, other.count(0)?];
        ensure!(counts == [frames.len(), tcp], "{counts:?}");
        let mut newcomer = dialog(wire)?;
        let said = newcomer.ask("open main = steer_to 0")?;
        let runs = format!("fan-out group {GROUP} runs the program '{NEXT}'");
        ensure!(said.contains(&runs), "{said}");
        newcomer.expect("open -", "opened 0")?;
        // The member that replaced the program ends. Another member, which did not replace the
        // program, must be able to replace it after that.
        drop(other);
        one.expect("fanout 0 main = steer_to 0", "done")?;
        wire.send(&frames)?;
        let counts = [one.count(0)?, newcomer.count(0)?];
        ensure!(
            counts.iter().sum::<usize>() == 2 * frames.len(),
            "{counts:?}"
        );
        newcomer.expect("nobody", "done")?;
        let said = newcomer.ask("fanout 0 main = drop")?;
        let refused = "loading a BPF program takes CAP_BPF and CAP_NET_ADMIN";
        ensure!(said.contains(refused), "{said}");
        Ok(())
    })
}
