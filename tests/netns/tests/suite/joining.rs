//! A refused join names its reason, and members with different steering programs detect each other.

use anyhow::{Result, ensure};
use fanpcap_netns::{DEVICE, FAR_DEVICE, Wire, on_wire};
use fanpcap_testkit::Program;

#[test]
#[ignore = "needs root: run by make test"]
fn another_mode_names_the_mode_of_the_group() -> Result<()> {
    on_wire(1, |wire| {
        let _member = wire.start_group(1, 7, "lb")?;
        ensure_refused(wire, wire.tcpdump()?.group(7, "hash"), &["lb", "hash", "7"])
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn another_option_is_another_mode() -> Result<()> {
    on_wire(1, |wire| {
        let _member = wire.start_group(1, 7, "hash")?;
        ensure_refused(
            wire,
            wire.tcpdump()?.group(7, "hash+defrag"),
            &["hash", "defrag", "7"],
        )
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_number_taken_on_another_device_names_that_device() -> Result<()> {
    on_wire(1, |wire| {
        let _member = wire.start_group(1, 7, "hash")?;
        let other = wire.tcpdump_on(FAR_DEVICE)?.group(7, "hash");
        ensure_refused(wire, other, &["7", DEVICE, FAR_DEVICE])
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_device_without_packet_socket_has_no_groups() -> Result<()> {
    on_wire(1, |wire| {
        ensure_refused(
            wire,
            wire.tcpdump_on("nflog")?.group(7, "hash"),
            &["fan-out", "packet socket"],
        )
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_mode_without_a_group_is_an_error() -> Result<()> {
    on_wire(1, |wire| {
        ensure_refused(
            wire,
            wire.tcpdump()?.set("PCAP_FANOUT", "hash"),
            &["PCAP_GROUP"],
        )
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn an_unknown_mode_names_the_nearest() -> Result<()> {
    on_wire(1, |wire| {
        ensure_refused(wire, wire.tcpdump()?.group(7, "hahs"), &["hahs", "hash"])
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn another_program_in_the_group_is_a_warning() -> Result<()> {
    on_wire(1, |wire| {
        let _members = wire.start_group(2, 7, "hash")?;
        let other = Program::new(wire.compile("member")?, "ready")?.group(7, "hash");
        let ended = other.args([DEVICE, "0"]).start(&wire.scratch)?.stop()?;
        let warned = ended.said.contains("warning 1:") && ended.said.contains("tcpdump");
        ensure!(warned, "no warning in:\n{}", ended.said);
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_warning_is_in_the_errbuf_of_pcap_open_live() -> Result<()> {
    on_wire(1, |wire| {
        let program = wire.compile("openlive")?;
        let alone = Program::new(&program, "")?.group(7, "hash");
        let said = alone.arg(DEVICE).run(&wire.scratch)?.said;
        ensure!(said == "open 1, group 7, errbuf: \n", "alone: {said}");

        let _members = wire.start_group(1, 7, "hash")?;
        let beside = Program::new(&program, "")?.group(7, "hash");
        let said = beside.arg(DEVICE).run(&wire.scratch)?.said;
        let warned = said.starts_with("open 1, group 7, errbuf: ") && said.contains("tcpdump");
        ensure!(warned, "no warning in: {said}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_same_program_is_no_warning() -> Result<()> {
    on_wire(1, |wire| {
        let program = wire.compile("member")?;
        let start = || {
            Program::new(&program, "ready")?
                .group(7, "hash")
                .args([DEVICE, "0"])
                .start(&wire.scratch)
        };
        let (one, other) = (start()?, start()?);
        let said = one.stop()?.said + &other.stop()?.said;
        ensure!(!said.contains("warning"), "{said}");
        Ok(())
    })
}

/// Checks that the program fails, and that its output contains each of `words`.
fn ensure_refused(wire: &Wire, program: Program, words: &[&str]) -> Result<()> {
    let ended = program.run(&wire.scratch)?;
    ensure!(
        !ended.status.success(),
        "the program succeeded:\n{}",
        ended.said
    );
    for word in words {
        ensure!(ended.said.contains(word), "no {word:?} in:\n{}", ended.said);
    }
    Ok(())
}
