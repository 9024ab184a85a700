//! Kills a member of a steered group (the victim) at each step of each change. The next member that
//! changes the group must complete or undo the victim's change. After that the table, the kernel's
//! group, the descriptor store and the pages must agree.

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::await_for;
use fanpcap_testkit::await_for::LIMIT;
use stage::{Change, OTHER_GROUP, PROGRAMS, Stage, Victim, die_in_each_step};

#[path = "deaths/stage.rs"]
mod stage;

fn join(_: &mut Stage<'_>, victim: &mut Victim) -> Result<()> {
    victim
        .it
        .expect(&format!("open {}", PROGRAMS[0]), "opened 0")
}

/// A newcomer joins a group that has members.
const JOIN: Change = Change {
    survivors: 2,
    hole: false,
    beside: false,
    driver: "tpacket",
    around: [20, 20],
    least: 6,
    prepare: |stage| stage.victim(),
    act: join,
};

/// A member leaves. The leaving member makes one step, and the other members make the remaining
/// steps.
const LEAVE: Change = Change {
    around: [10, 10],
    least: 1,
    prepare: joined,
    act: |_, victim| victim.it.expect("close 0", "done"),
    ..JOIN
};

/// A member handles the end of another member.
const BURY: Change = Change {
    around: [10, 110],
    prepare: |stage| {
        let other = Some(stage.member(false)?);
        let it = stage.member(true)?;
        Ok(Victim { it, other })
    },
    act: bury,
    ..JOIN
};

fn bury(stage: &mut Stage<'_>, victim: &mut Victim) -> Result<()> {
    drop(victim.other.take());
    let mut said = Ok((0, 0));
    let buried = await_for("the burial", LIMIT, || {
        victim.it.count(0)?;
        said = stage.audit();
        Ok(said.is_ok().then_some(()))
    });
    buried.with_context(|| format!("{said:?}"))
}

fn joined(stage: &mut Stage<'_>) -> Result<Victim> {
    let it = stage.member(true)?;
    Ok(Victim { it, other: None })
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_first_member_joins() -> Result<()> {
    die_in_each_step(&Change {
        survivors: 0,
        ..JOIN
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_newcomer_joins_in_a_hole() -> Result<()> {
    die_in_each_step(&Change {
        hole: true,
        around: [50, 15],
        ..JOIN
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_member_leaves() -> Result<()> {
    die_in_each_step(&LEAVE)
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_member_buries_another() -> Result<()> {
    die_in_each_step(&BURY)
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_newcomer_joins_in_a_hole_on_xdp() -> Result<()> {
    die_in_each_step(&Change {
        hole: true,
        driver: "xdp",
        around: [40, 5],
        ..JOIN
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_member_buries_another_on_xdp() -> Result<()> {
    die_in_each_step(&Change {
        driver: "xdp",
        around: [10, 25],
        ..BURY
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_member_leaves_on_xdp() -> Result<()> {
    die_in_each_step(&Change {
        beside: true,
        driver: "xdp",
        ..LEAVE
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_first_member_of_another_group_joins_on_xdp() -> Result<()> {
    die_in_each_step(&Change {
        survivors: 0,
        beside: true,
        driver: "xdp",
        around: [25, 5],
        ..JOIN
    })
}

/// The other group ends, so that the device serves only one group after the change.
#[test]
#[ignore = "needs root: run by make test"]
fn a_member_clears_the_group_slot_of_another_group_on_xdp() -> Result<()> {
    die_in_each_step(&Change {
        survivors: 1,
        driver: "xdp",
        around: [10, 10],
        prepare: |stage| {
            let it = stage.member(true)?;
            let other = Some(stage.member_of(OTHER_GROUP, false)?);
            Ok(Victim { it, other })
        },
        act: |stage, victim| {
            ensure!(stage.serves_several()?, "the device serves only one group");
            drop(victim.other.take());
            await_for("the group slot to be cleared", LIMIT, || {
                victim.it.count(0)?;
                Ok((!stage.serves_several()?).then_some(()))
            })
        },
        ..JOIN
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_member_replaces_the_program_on_xdp() -> Result<()> {
    die_in_each_step(&Change {
        survivors: 1,
        beside: true,
        driver: "xdp",
        around: [80, 60],
        prepare: joined,
        act: |stage, victim| {
            let next = PROGRAMS[1 - stage.runs.get()];
            victim.it.expect(&format!("fanout 0 {next}"), "done")
        },
        ..JOIN
    })
}

/// Tests that last too long for the usual runs.
mod long {
    use super::*;

    #[test]
    #[ignore = "needs root: run by make test"]
    fn a_newcomer_joins_at_the_end() -> Result<()> {
        die_in_each_step(&Change {
            around: [30, 15],
            ..JOIN
        })
    }

    #[test]
    #[ignore = "needs root: run by make test"]
    fn the_first_member_joins_on_xdp() -> Result<()> {
        die_in_each_step(&Change {
            survivors: 0,
            driver: "xdp",
            around: [25, 5],
            ..JOIN
        })
    }
}
