//! Rules of groups that the kernel's own test (psock_fanout) checks with bare sockets. Here they
//! are tested with handles. [`super::modes`] tests the modes' distributions.

use anyhow::{Result, ensure};
use fanpcap_netns::{DEVICE, FAR_DEVICE, on_wire};
use fanpcap_testkit::Program;

#[test]
#[ignore = "needs root: run by make test"]
fn nobody_joins_with_another_mode_or_other_options() -> Result<()> {
    ensure_holds("others-stay-out")
}

#[test]
#[ignore = "needs root: run by make test"]
fn rollover_is_a_mode_or_an_option_but_not_twice() -> Result<()> {
    ensure_holds("rollover-twice")
}

#[test]
#[ignore = "needs root: run by make test"]
fn new_groups_have_numbers_of_their_own_that_others_may_join_by() -> Result<()> {
    ensure_holds("new-groups")
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_full_group_takes_one_more_when_one_has_left() -> Result<()> {
    ensure_holds("full-group")
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_number_is_free_again_when_the_last_member_has_gone() -> Result<()> {
    ensure_holds("reused-number")
}

fn ensure_holds(case: &str) -> Result<()> {
    on_wire(1, |wire| {
        let program = Program::new(wire.compile("kernel")?, "")?;
        let ended = program
            .args([case, DEVICE, FAR_DEVICE])
            .run(&wire.scratch)?;
        let well = ended.status.success() && ended.said.contains("all checks passed");
        ensure!(well, "{case}: {}", ended.said);
        Ok(())
    })
}
