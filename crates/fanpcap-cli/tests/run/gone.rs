//! Copies whose device is removed and created again: --restart starts them when the device is up,
//! or they wait for it themselves.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::await_for::{LIMIT, await_for, within};
use fanpcap_testkit::{Capture, Injector, Veth, netns, veth};

use crate::captures::{frames, wait_until_taken};
use crate::{FAR, GROUP, NEAR, Running, printed};

/// How long the device is away. Longer than the pauses before the first restarts.
const AWAY: Duration = Duration::from_secs(3);

/// The time from the device's return until a copy has captured a packet again.
const BACK_WITHIN: Duration = Duration::from_secs(1);

/// Two copies of tcpdump that capture on `device`, and the pair of devices.
fn two_copies(mode: &str, device: &str, options: &[&str], before: &[&str]) -> Result<Running> {
    Veth::new(NEAR, FAR, 1)?;
    let group = GROUP.to_string();
    let all = ["-n", "2", "--group", &group, "--cpus", "none"];
    let all = [&all[..], &["--fanout", mode], options].concat();
    let tcpdump = "tcpdump -n -U --immediate-mode -Z root -w %i.pcap -i";
    let command: Vec<&str> = before.iter().copied().chain(tcpdump.split(' ')).collect();
    let running = Running::start(&all, &[&command[..], &[device]].concat())?;
    running.wait_until_says(&format!("on {FAR}: 2 copies"), 1)?;
    running.wait_until_says("tcpdump: listening", 2)?;
    Ok(running)
}

fn comes_back(mode: &str, device: &str) -> Result<()> {
    let running = two_copies(mode, device, &["--restart"], &[])?;
    thread::sleep(Duration::from_millis(300));
    Injector::open(NEAR)?.send_all(&frames(20)?)?;
    veth::ip(&format!("link delete {NEAR}"))?;
    running.wait_until_says("because a device is gone", 2)?;
    let captures = ["0.pcap.1", "1.pcap.1"].map(|name| running.scratch.file(name));
    thread::sleep(AWAY);
    let waiting = printed(&["metrics"])?;
    let expected = format!("fanpcap_device_waiting_members{{device=\"{FAR}\",");
    let count = waiting.lines().find(|it| it.starts_with(&expected));
    ensure!(count.is_some_and(|it| it.ends_with(" 2")), "{waiting}");
    Veth::new(NEAR, FAR, 1)?;
    let (back, limit) = (Instant::now(), within(BACK_WITHIN));
    let injector = Injector::open(NEAR)?;
    let again = ["0.pcap", "1.pcap"].map(|name| running.scratch.file(name));
    let is_kept = || captures.iter().all(|file| file.exists());
    await_for("a packet", LIMIT, || {
        injector.send_all(&frames(20)?)?;
        thread::sleep(Duration::from_millis(10));
        let packets: usize = again.iter().map(|it| Capture::count_so_far(it)).sum();
        Ok((is_kept() && packets > 0).then_some(()))
    })
    .with_context(|| running.said())?;
    let took = back.elapsed();
    let before: usize = captures.iter().map(|it| Capture::count_so_far(it)).sum();
    running.wait_until_says("tcpdump: listening", 4)?;
    let waiting = printed(&["metrics"])?;
    ensure!(!waiting.contains(&expected), "{waiting}");
    let ended = running.stop()?;
    ensure!(took < limit, "{took:?} of {limit:?}: {}", ended.said());
    ensure!(before == 20, "{before}: {}", ended.said());
    let absent = &ended.summary()["absent"];
    ensure!(absent["times"] == 1, "{absent} {}", ended.said());
    let seconds = absent["seconds"].as_f64().context("seconds")?;
    ensure!(seconds >= AWAY.as_secs_f64(), "{seconds}");
    ensure!(absent["packets"].as_u64().is_some(), "{absent}");
    let told = format!("because {FAR} was gone: ");
    ensure!(ended.said().contains(&told), "{}", ended.said());
    Ok(())
}

#[test]
#[ignore = "needs root: eBPF, packet sockets in a namespace"]
fn copies_are_started_when_their_device_is_back() {
    let on_xdp = format!("xdp:{FAR}");
    for (mode, device) in [("hash", FAR), ("flow", FAR), ("flow", &on_xdp)] {
        netns::within_new(|| comes_back(mode, device))
            .with_context(|| format!("{mode} on {device}"))
            .unwrap();
    }
}

/// No device changes while the handles wait, so nothing wakes them.
fn waits(mode: &str, device: &str) -> Result<()> {
    let running = two_copies(mode, device, &[], &["env", "PCAP_GONE=wait"])?;
    Injector::open(NEAR)?.send_all(&frames(20)?)?;
    thread::sleep(Duration::from_secs(1));
    veth::ip(&format!("link delete {NEAR}"))?;
    thread::sleep(AWAY);
    Veth::new(NEAR, FAR, 1)?;
    let injector = Injector::open(NEAR)?;
    let captures = ["0.pcap", "1.pcap"].map(|name| running.scratch.file(name));
    await_for("a packet", LIMIT, || {
        injector.send_all(&frames(20)?)?;
        thread::sleep(Duration::from_millis(10));
        let packets: usize = captures.iter().map(|it| Capture::count_so_far(it)).sum();
        Ok((packets > 20).then_some(()))
    })
    .with_context(|| running.said())?;
    thread::sleep(Duration::from_millis(300));
    let ended = running.stop()?;
    let absent = &ended.summary()["absent"];
    ensure!(absent["times"] == 1, "{absent} {}", ended.said());
    let seconds = absent["seconds"].as_f64().context("seconds")?;
    // The ledger notices within a tenth of a second that the members have left.
    let least = AWAY.as_secs_f64() - 0.1;
    ensure!(seconds >= least, "{absent} {}", ended.said());
    Ok(())
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn copies_that_could_not_wait_are_named_at_the_start() {
    let said = |options: &[&str], arguments: &[&str]| -> Result<String> {
        let through = ["env", "PCAP_GONE=wait"];
        let tcpdump = ["--", "tcpdump", "-L", "-i", FAR];
        let line = [&["-n", "1", "--cpus", "none"], options, &tcpdump, arguments].concat();
        let mut running = Running::start_by(&through, &line, None)?;
        running.process.wait()?;
        Ok(running.said())
    };
    netns::within_new(|| {
        Veth::new(NEAR, FAR, 1)?;
        let warning = format!(
            "PCAP_GONE=wait: the copies can't wait for {FAR}, because tcpdump gives up \
             CAP_NET_RAW: start it with -Z root, or use --restart\n"
        );
        for (options, arguments, is_warned) in [
            (&[][..], &[][..], true),
            (&[], &["-Z", "nobody"], true),
            (&[], &["-Z", "root"], false),
            (&["--restart"], &[], false),
        ] {
            let said = said(options, arguments)?;
            ensure!(
                said.contains(&warning) == is_warned,
                "{arguments:?}: {said}"
            );
        }
        Ok(())
    })
    .unwrap();
}

/// The ledger counts what was in the rings when the device went, also for handles that come back.
fn counts_what_was_unread(mode: &str) -> Result<()> {
    Veth::new(NEAR, FAR, 1)?;
    let group = GROUP.to_string();
    let options = [
        "-n",
        "2",
        "--group",
        &group,
        "--fanout",
        mode,
        "--merge",
        "all.pcapng",
    ];
    let command = "env PCAP_GONE=wait tcpdump -n -Z root -w %i.pcap -i";
    let command: Vec<&str> = command.split(' ').chain([FAR]).collect();
    let running = Running::start(&options, &command)?;
    running.wait_until_says("tcpdump: listening", 2)?;
    // A copy gets its share when it reads for the first time.
    thread::sleep(Duration::from_millis(300));
    Injector::open(NEAR)?.send_all(&frames(3000)?)?;
    veth::ip(&format!("link delete {NEAR}"))?;
    thread::sleep(Duration::from_secs(1));
    Veth::new(NEAR, FAR, 1)?;
    thread::sleep(Duration::from_secs(1));
    Injector::open(NEAR)?.send_all(&frames(2000)?)?;
    wait_until_taken(2000)?;
    let ended = running.stop()?;
    let total = &ended.summary()["total"];
    ensure!(
        total["received"] == 5000 && total["taken"] == 5000,
        "{total} {}",
        ended.said()
    );
    ensure!(total["unread"] == 0, "{total} {}", ended.said());
    ensure!(
        ended.summary()["taken_not_written"] == 0,
        "{}",
        ended.said()
    );
    Ok(())
}

#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn packets_in_the_ring_of_a_device_that_goes_are_counted() {
    for mode in ["flow", "hash"] {
        netns::within_new(|| counts_what_was_unread(mode))
            .with_context(|| mode.to_owned())
            .unwrap();
    }
}

/// The copies end one after the other, so a message must not say that the others continue.
#[test]
#[ignore = "needs root: packet sockets in a namespace"]
fn no_copy_continues_without_its_device() {
    netns::within_new(|| {
        let running = two_copies("hash", FAR, &[], &[])?;
        veth::ip(&format!("link delete {NEAR}"))?;
        let ended = running.wait()?;
        let said = ended.said();
        for copy in ["copy 0", "copy 1"] {
            let told = format!("{copy} ended (exit status: 1), because a device is gone");
            ensure!(said.contains(&told), "{said}");
        }
        ensure!(!said.contains("continue"), "{said}");
        let hint = format!(
            "--restart' starts the copies again when {FAR} is up; with 'gone@{FAR} = wait'"
        );
        ensure!(said.matches(&hint).count() == 1, "{said}");
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: eBPF, packet sockets in a namespace"]
fn the_ledger_knows_how_long_waiting_copies_were_absent() {
    let on_xdp = format!("xdp:{FAR}");
    for (mode, device) in [("hash", FAR), ("flow", FAR), ("flow", &on_xdp)] {
        netns::within_new(|| waits(mode, device))
            .with_context(|| format!("{mode} on {device}"))
            .unwrap();
    }
}
