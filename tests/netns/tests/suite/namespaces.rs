//! A member stays in the network namespace of its device, even if its thread moves to another
//! namespace.

use anyhow::{Result, ensure};
use fanpcap_netns::{DEVICE, FAR_DEVICE, on_wire};
use fanpcap_testkit::Program;

#[test]
#[ignore = "needs root: run by make test"]
fn a_thread_that_leaves_the_namespace_of_its_member_knows_its_group() -> Result<()> {
    for mode in ["hash", "flow"] {
        on_wire(1, |wire| {
            let program = Program::new(wire.compile("moves")?, "")?;
            let program = program.args([DEVICE, "7", FAR_DEVICE, mode]);
            let ended = program.run(&wire.scratch)?;
            let expected = "here: received 10, dropped 0, members 1.\n\
                            elsewhere: received 10, dropped 0, members 1.\n";
            ensure!(ended.said == expected, "{mode}: {}", ended.said);
            Ok(())
        })?;
    }
    Ok(())
}
