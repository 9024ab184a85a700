//! Devices that get no selection.

use anyhow::{Result, ensure};
use fanpcap_bpf::{Instruction, ProgramKind};
use fanpcap_linux::bpf::{Hook, LoadedProgram};
use fanpcap_linux::interface;
use fanpcap_testkit::mirror::{CONTROL, MONITOR};
use fanpcap_testkit::{netns, veth};

use crate::stage::Stage;

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn a_device_that_the_machine_needs_is_refused() {
    netns::within_new(|| {
        let stage = Stage::bare(1)?;
        refused(&stage, CONTROL, "ctl has an IP address")?;
        stage
            .mirror
            .on_node(0, || veth::ip("route add default dev ctl"))?;
        refused(&stage, CONTROL, "ctl carries the default route; --force")?;
        refused(&stage, "absent", "there is no device absent")?;
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn anothers_xdp_program_is_left_alone() {
    netns::within_new(|| {
        let stage = Stage::bare(1)?;
        let code = [Instruction::set(0, 2), Instruction::exit()];
        let other = LoadedProgram::load(ProgramKind::Xdp, "other_tool", &code)?;
        let link = stage.mirror.on_node(0, || {
            let index = interface::index(MONITOR).unwrap_or(0);
            Ok(other.attach(index, Hook::Driver)?)
        })?;
        refused(&stage, MONITOR, "mon has another XDP program, other_tool")?;
        drop(link);
        Ok(())
    })
    .unwrap();
}

fn refused(stage: &Stage, device: &str, why: &str) -> Result<()> {
    let done = stage.run(0, &["-i", device])?;
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    ensure!(!done.status.success() && said.contains(why), "{said}");
    Ok(())
}
