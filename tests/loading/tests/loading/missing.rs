//! Absent devices: settings do not change pcap_open_live()'s error.

use anyhow::Result;
use fanpcap_loading::{compile, on_ours, on_system, run};
use fanpcap_testkit::Scratch;

#[test]
fn the_words_are_the_systems() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = compile(&scratch, "missing.c", &[])?;
    let devices = ["", "nodevice0", "nodevice0:1"];
    let system = run(&scratch, on_system(&program).args(devices))?.success()?;
    let mut command = on_ours(&program)?;
    command.args(devices).env("PCAP_CAPLEN", "64");
    assert_eq!(run(&scratch, &mut command)?.success()?, system);
    Ok(())
}
