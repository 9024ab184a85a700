//! Applications set a card's channels, and the CPUs of its interrupts, by calls and by settings.
//! The interrupts must occur on the named CPUs, and at the end the old values must be restored.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use fanpcap_guest_tests::{
    Cards, compile, counts, ensure_as_before, ethtool, fanpcap, receiving, state, tune,
};
use fanpcap_testkit::member::finish;
use fanpcap_testkit::{Program, Scratch};

/// Settings with two channels. The interrupts of each channel go to the CPU with the channel's
/// number.
fn settings(cards: &Cards, scratch: &Scratch) -> Result<PathBuf> {
    let name = &cards.far.name;
    let text = format!("combined_channels@{name} = 2\nirq@{name}.0 = 0\nirq@{name}.1 = 1\n");
    scratch.write("pcap.conf", &text)
}

/// The number of channels according to ethtool.
fn channels(cards: &Cards) -> Result<String> {
    let said = ethtool(&["-l", &cards.far.name])?;
    let now = said.lines().rfind(|line| line.starts_with("Combined:"));
    Ok(now
        .unwrap_or_default()
        .replace("Combined:", "")
        .trim()
        .to_owned())
}

/// Checks that frames arrive by two channels, with interrupts only on the CPUs with the channels'
/// numbers.
fn ensure_placed(cards: &Cards) -> Result<()> {
    ensure!(channels(cards)? == "2", "{} channels", channels(cards)?);
    let interrupts = receiving(&cards.far)?;
    let frames = Cards::frames()?;
    // Send frames before the test counts: the interrupt controller switches to the new CPU only at
    // the next interrupt.
    cards.send(&frames)?;
    let before = counts(&interrupts)?;
    cards.send(&frames)?;
    let after = counts(&interrupts)?;
    for (channel, (after, before)) in after.iter().zip(&before).enumerate() {
        let grown = |cpu: usize| after[cpu] - before[cpu];
        ensure!(
            grown(channel) > 0,
            "channel {channel} had no interrupt on its CPU"
        );
        let elsewhere = (0..after.len()).find(|cpu| *cpu != channel && grown(*cpu) > 0);
        ensure!(
            elsewhere.is_none(),
            "interrupts of channel {channel} on CPU {elsewhere:?}"
        );
    }
    Ok(())
}

/// The arguments of a tcpdump on the far card that gives up its privileges.
fn unprivileged(cards: &Cards) -> [&str; 7] {
    [
        "-n",
        "-Z",
        "nobody",
        "-i",
        &cards.far.name,
        "-w",
        "/dev/null",
    ]
}

#[test]
#[ignore = "needs a guest: run by make test-guest"]
fn the_papers_snippets_bring_each_channel_to_its_cpu() -> Result<()> {
    let Some(cards) = Cards::of_guest()? else {
        return Ok(());
    };
    let before = state(&cards.far);
    let scratch = Scratch::new()?;
    let paper = Program::new(compile("paper", &scratch)?, "")?;
    let ended = paper.arg(&cards.far.name).run(&scratch)?;
    let expected = "2 channels\nchannel 0 on CPU 0\nchannel 1 on CPU 1\n";
    ensure!(ended.said == expected, "{}", ended.said);
    ensure_placed(&cards)?;
    // Changes that calls have made stay until the user restores the old values.
    tune(&["--restore"])?;
    ensure_as_before(&cards.far, &before)
}

#[test]
#[ignore = "needs a guest: run by make test-guest"]
fn settings_hold_until_the_application_ends() -> Result<()> {
    let Some(cards) = Cards::of_guest()? else {
        return Ok(());
    };
    let before = state(&cards.far);
    let scratch = Scratch::new()?;
    let config = settings(&cards, &scratch)?;
    let tcpdump = Program::tcpdump(&cards.far.name, scratch.new_file("pcap"))?;
    let member = tcpdump.set("PCAP_CONFIG", config).start(&scratch)?;
    ensure_placed(&cards)?;
    finish(vec![member], 2 * Cards::frames()?.len())?;
    ensure_as_before(&cards.far, &before)
}

#[test]
#[ignore = "needs a guest: run by make test-guest"]
fn what_an_application_without_privileges_leaves_comes_back_by_restore() -> Result<()> {
    let Some(cards) = Cards::of_guest()? else {
        return Ok(());
    };
    let before = state(&cards.far);
    let scratch = Scratch::new()?;
    let tcpdump = Program::new("tcpdump", "listening on")?.args(unprivileged(&cards));
    let tcpdump = tcpdump.set("PCAP_CONFIG", settings(&cards, &scratch)?);
    let member = tcpdump.start(&scratch)?;
    ensure_placed(&cards)?;
    member.stop()?;
    ensure!(channels(&cards)? == "2", "{} channels", channels(&cards)?);
    let restored = tune(&["--restore"])?;
    ensure!(restored.contains("as before"), "{restored}");
    ensure_as_before(&cards.far, &before)
}

#[test]
#[ignore = "needs a guest: run by make test-guest"]
fn under_run_copies_without_privileges_leave_nothing() -> Result<()> {
    let Some(cards) = Cards::of_guest()? else {
        return Ok(());
    };
    let before = state(&cards.far);
    let scratch = Scratch::new()?;
    let run = Program::new(fanpcap()?, "1: tcpdump: listening on")?;
    let run = run.args(["run", "-n", "2", "--cpus", "none", "--", "tcpdump"]);
    let run = run.args(unprivileged(&cards));
    let mut running = run
        .set("PCAP_CONFIG", settings(&cards, &scratch)?)
        .start(&scratch)?;
    running.wait_until_says("0: tcpdump: listening on")?;
    ensure_placed(&cards)?;
    running.stop()?;
    ensure_as_before(&cards.far, &before)
}

#[test]
#[ignore = "needs a guest: run by make test-guest"]
fn what_a_killed_application_leaves_comes_back_at_the_next_start() -> Result<()> {
    let Some(cards) = Cards::of_guest()? else {
        return Ok(());
    };
    let before = state(&cards.far);
    let scratch = Scratch::new()?;
    let config = settings(&cards, &scratch)?;
    let tcpdump = || Program::tcpdump(&cards.far.name, scratch.new_file("pcap"));
    let killed = tcpdump()?.set("PCAP_CONFIG", config).start(&scratch)?;
    ensure_placed(&cards)?;
    killed.signal("KILL")?;
    killed.wait()?;
    ensure!(channels(&cards)? == "2", "{} channels", channels(&cards)?);
    let other = format!("irq@{}.3 = 0\n", cards.far.name);
    let other = scratch.write("other.conf", &other)?;
    let next = tcpdump()?.set("PCAP_CONFIG", other).start(&scratch)?;
    ensure!(channels(&cards)? == "4", "{} channels", channels(&cards)?);
    next.stop()?;
    ensure_as_before(&cards.far, &before)
}
