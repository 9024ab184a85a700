//! The directory of the members' pages holds whatever others put there; nobody is harmed by it.

use anyhow::{Result, ensure};
use fanpcap_netns::{DEVICE, on_wire};
use fanpcap_testkit::Program;

#[test]
#[ignore = "needs root: run by make test"]
fn nobody_waits_for_a_pipe_among_the_pages() -> Result<()> {
    ensure_harmless("pipe")
}

#[test]
#[ignore = "needs root: run by make test"]
fn no_page_is_written_through_a_link() -> Result<()> {
    ensure_harmless("link")
}

fn ensure_harmless(planted: &str) -> Result<()> {
    on_wire(1, |wire| {
        // A /run of its own, so that the machine's stays as it is.
        let private = "mount -t tmpfs tmpfs /run && exec \"$@\"";
        let program = Program::new("unshare", "")?
            .args(["-m", "sh", "-c", private, "sh"])
            .arg(wire.compile("planted")?)
            .args([DEVICE, "7", planted]);
        let ended = program.run(&wire.scratch)?;
        let well = ended.status.success() && ended.said.contains("all is well");
        ensure!(well, "{}", ended.said);
        Ok(())
    })
}
