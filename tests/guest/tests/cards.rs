//! Network cards with channels. Settings of channels and interrupts must take effect, and captures
//! on the cards must be complete.

use std::fs;

use anyhow::{Result, ensure};
use fanpcap_guest_tests::{Cards, counts, ethtool, receiving, set_channels};
use fanpcap_netns::wait_for_shares;
use fanpcap_nic::channels::{self, Wanted};
use fanpcap_nic::error::DeviceError;
use fanpcap_nic::interrupts;
use fanpcap_testkit::member::{finish, wait_for_members};
use fanpcap_testkit::veth::has_xdp;
use fanpcap_testkit::{Program, Scratch, capture};

#[test]
#[ignore = "needs a guest: run by make test-guest"]
fn four_channels_become_two() -> Result<()> {
    let Some(cards) = Cards::of_guest()? else {
        return Ok(());
    };
    let name = cards.far.name.as_str();
    let before = channels::read(&cards.far)?;
    ensure!(before.combined == 4, "{before:?}");
    set_channels(&cards.far, 2)?;
    let said = ethtool(&["-l", name])?;
    let now = said.lines().rfind(|line| line.starts_with("Combined:"));
    ensure!(now.is_some_and(|line| line.ends_with("\t2")), "{said}");
    let five = Wanted {
        combined: Some(5),
        ..Wanted::default()
    };
    let refused = channels::with(before, five);
    ensure!(
        matches!(refused, Err(DeviceError::TooManyChannels { most: 4, .. })),
        "{refused:?}"
    );
    set_channels(&cards.far, 4)
}

#[test]
#[ignore = "needs a guest: run by make test-guest"]
fn interrupts_come_to_the_cpu_that_they_were_given() -> Result<()> {
    let Some(cards) = Cards::of_guest()? else {
        return Ok(());
    };
    let frames = Cards::frames()?;
    let interrupts = receiving(&cards.far)?;
    ensure!(interrupts.len() == 4, "{interrupts:?}");
    for cpu in [1, 2] {
        for interrupt in &interrupts {
            interrupts::set_affinity(interrupt.number, &[cpu])?;
            let asked = interrupts::affinity(interrupt.number)?.asked;
            ensure!(asked == [cpu], "{asked:?}");
        }
        // Send frames before the test counts: the interrupt controller switches to the new CPU only
        // at the next interrupt.
        cards.send(&frames)?;
        let before = counts(&interrupts)?;
        cards.send(&frames)?;
        let after = counts(&interrupts)?;
        let grown = |at: usize| -> u64 {
            let sum = |table: &[Vec<u64>]| table.iter().map(|row| row[at]).sum::<u64>();
            sum(&after) - sum(&before)
        };
        for other in (0..4).filter(|other| *other != cpu) {
            let came = grown(other);
            ensure!(came == 0, "{came} interrupts on CPU {other}, not {cpu}");
        }
        ensure!(grown(cpu) > 0, "no interrupts on CPU {cpu}");
    }
    Ok(())
}

#[test]
#[ignore = "needs a guest: run by make test-guest"]
#[allow(clippy::print_stdout, reason = "the tally reads it")]
fn the_table_of_receive_side_scaling_chooses_the_channel() -> Result<()> {
    let Some(cards) = Cards::of_guest()? else {
        return Ok(());
    };
    let name = cards.far.name.as_str();
    let Ok(table) = ethtool(&["-x", name]) else {
        println!("SKIP: virtio_net has no table of receive-side scaling (Linux 5.18)");
        return Ok(());
    };
    ensure!(table.contains("with 4 RX ring(s)"), "{table}");
    let frames = Cards::frames()?;
    let interrupts = receiving(&cards.far)?;
    let used = || -> Result<Vec<bool>> {
        let before = counts(&interrupts)?;
        cards.send(&frames)?;
        let after = counts(&interrupts)?;
        Ok((0..after.len())
            .map(|channel| after[channel] != before[channel])
            .collect())
    };
    let spread = used()?;
    ensure!(spread == [true; 4], "{spread:?}");
    ethtool(&["-X", name, "equal", "1"])?;
    let alone = used();
    // Restore the default table before the checks. With a table that was set by hand, ethtool can't
    // change the number of channels.
    ethtool(&["-X", name, "default"])?;
    let alone = alone?;
    ensure!(alone == [true, false, false, false], "{alone:?}");
    Ok(())
}

/// tcpdump on the far card. The caller sets the group and the engine.
fn tcpdump(cards: &Cards, scratch: &Scratch) -> Result<Program> {
    Program::tcpdump(&cards.far.name, scratch.new_file("pcap"))
}

#[test]
#[ignore = "needs a guest: run by make test-guest"]
fn two_members_share_what_four_channels_receive() -> Result<()> {
    let Some(cards) = Cards::of_guest()? else {
        return Ok(());
    };
    let scratch = Scratch::new()?;
    let frames = Cards::frames()?;
    let start = |_| {
        let program = tcpdump(&cards, &scratch)?;
        program.group(7, "flow").start(&scratch)
    };
    let members = (0..2).map(start).collect::<Result<Vec<_>>>()?;
    wait_for_members(7, 2)?;
    wait_for_shares()?;
    cards.send(&frames)?;
    let captures = finish(members, frames.len())?;
    let seen = capture::sequences(&captures);
    ensure!(
        seen.len() == frames.len() && seen.values().all(|times| *times == 1),
        "{} of {} frames were captured",
        seen.len(),
        frames.len()
    );
    let split = capture::split_flows(&captures);
    ensure!(
        split.is_empty(),
        "{} flows reached both members",
        split.len()
    );
    ensure!(
        captures.iter().all(|capture| !capture.packets.is_empty()),
        "a member received no packet"
    );
    Ok(())
}

#[test]
#[ignore = "needs a guest: run by make test-guest"]
#[allow(clippy::print_stdout, reason = "the tally reads it")]
fn the_engine_on_xdp_serves_the_card_or_says_why_not() -> Result<()> {
    let Some(cards) = Cards::of_guest()? else {
        return Ok(());
    };
    // virtio_net needs free channels for the packets that XDP programs send.
    set_channels(&cards.far, 2)?;
    let scratch = Scratch::new()?;
    let frames = Cards::frames()?;
    // Turn off the capture of packets that the host sends, because it needs Linux 6.6.
    let config = scratch.new_file("pcap.conf");
    let device = &cards.far.name;
    fs::write(
        &config,
        format!("driver@{device} = xdp\noutgoing@{device} = no\n"),
    )?;
    let program = tcpdump(&cards, &scratch)?.set("PCAP_CONFIG", config);
    let member = program.start(&scratch)?;
    let said = member.said()?;
    let told = said.contains("packet sockets are read, not the engine xdp: ");
    ensure!(has_xdp(&cards.far.name)? != told, "{said}");
    println!("told: {said}");
    cards.send(&frames)?;
    finish(vec![member], frames.len())?;
    ensure!(
        !has_xdp(&cards.far.name)?,
        "the XDP program is still attached"
    );
    Ok(())
}
