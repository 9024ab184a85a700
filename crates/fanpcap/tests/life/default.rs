//! Members without a mode get the group's mode, or the default of a new group.

use super::fake::{Fake, Takes, World};
use fanpcap::activate::activate;
use fanpcap::fanout::fanout;
use fanpcap::handle::{ERROR, System};
use fanpcap_config::mode::{Mode, ModeKind};
use fanpcap_config::settings::GroupChoice;
use fanpcap_group::join::{JoinError, ProgramError, Runs, Titled};
use fanpcap_group::record::NoFlow;

fn kernels(mode: &str) -> Runs {
    Runs::Kernel(Mode::parse(mode).unwrap())
}

/// A group whose pages have this title and the digest of its steering program.
fn steered(title: &str, digest: u64) -> Runs {
    let title = title.to_owned();
    Runs::Program(ModeKind::Program.into(), Some(Titled { digest, title }))
}

/// The mode in which the handle joins. `runs` is what the group runs at each look-up in turn.
fn joins(runs: &[Runs], takes: Option<Takes>) -> String {
    let world = World::default();
    let p = world.open("fx0", Some("group = 9"));
    p.change(|state| {
        state.runs = runs.to_vec();
        state.takes = takes;
    });
    match activate(p) {
        0 => joined(p),
        _ => p.error(),
    }
}

fn joined(p: Fake<'_>) -> String {
    p.change(|state| state.joined_as.clone())
        .unwrap_or_default()
}

fn is_kernels(choice: &GroupChoice) -> bool {
    choice.mode.kind != ModeKind::Program
}

#[test]
fn the_first_member_takes_flow_or_hash() {
    assert_eq!(joins(&[Runs::Nothing], None), "flow");
    let without_bpf = |choice: &GroupChoice| match is_kernels(choice) {
        true => Ok(()),
        false => Err(ProgramError::NotPermitted(9).into()),
    };
    assert_eq!(joins(&[Runs::Nothing], Some(without_bpf)), "hash");
    let full = |_: &GroupChoice| Err(JoinError::Full(9));
    let said = joins(&[Runs::Nothing], Some(full));
    assert!(said.contains("is full"), "{said}");
}

#[test]
fn only_who_begins_a_group_without_flow_notes_why() {
    let without_bpf = |choice: &GroupChoice| match is_kernels(choice) {
        true => Ok(()),
        false => Err(ProgramError::NotPermitted(9).into()),
    };
    let noted = |runs: Runs| {
        let world = World::default();
        let p = world.open("fx0", Some("group = 9"));
        p.change(|state| {
            state.runs = vec![runs];
            state.takes = Some(without_bpf);
        });
        assert_eq!(activate(p), 0);
        p.change(|state| state.no_flow)
    };
    assert_eq!(noted(Runs::Nothing), Some(NoFlow::NotPermitted));
    assert_eq!(noted(kernels("hash")), None);
}

#[test]
fn a_newcomer_takes_the_groups_own_mode() {
    for mode in ["hash", "lb+defrag", "rollover"] {
        assert_eq!(joins(&[kernels(mode)], None), mode);
    }
    let program = ModeKind::Program.into();
    assert_eq!(joins(&[Runs::Program(program, None)], None), "flow");
}

#[test]
fn a_newcomer_takes_the_groups_steering_program() {
    // The digest comes from another handle with the same steering program.
    for title in ["flow_2_tuple", "main = steer_rrobin"] {
        let world = World::default();
        let p = world.open("fx0", Some(&format!("group = 9\nfanout@9 = {title}")));
        assert_eq!(activate(p), 0);
        let digest = p.change(|state| state.digest).unwrap();
        let shown = joined(p);
        assert_eq!(joins(&[steered(title, digest)], None), shown);
        // A title that is cut, or that does not match the digest, is not used.
        assert_eq!(joins(&[steered(title, digest + 1)], None), "flow");
        assert_eq!(joins(&[steered("main = steer_rr", digest)], None), "flow");
    }
}

#[test]
fn a_long_steering_program_comes_from_the_members() {
    let text = "main = when (has_port 53) (inc 1) >-> when (has_port 443) (inc 2) >-> steer_flow";
    let world = World::default();
    let p = world.open("fx0", Some(&format!("group = 9\nfanout@9 = {text}")));
    assert_eq!(activate(p), 0);
    let digest = p.change(|state| state.digest);
    let q = world.open("fx0", Some("group = 9"));
    q.change(|state| {
        state.runs = vec![steered(&text[..64], digest.unwrap())];
        state.program_text = Some(text.to_owned());
    });
    assert_eq!(activate(q), 0);
    assert_eq!(q.change(|state| state.digest), digest);
}

#[test]
fn where_others_are_faster_their_mode_counts() {
    let only_lb = |choice: &GroupChoice| match choice.mode.kind == ModeKind::Lb {
        true => Ok(()),
        false => Err(JoinError::OtherMode {
            group: 9,
            asked: choice.shown_mode(),
            runs: "lb".to_owned(),
        }),
    };
    let runs = [Runs::Nothing, kernels("lb")];
    assert_eq!(joins(&runs, Some(only_lb)), "lb");
    // The group's mode always differs from the one that was looked up.
    let said = joins(&[kernels("cpu")], Some(only_lb));
    assert!(said.contains("runs lb, not cpu"), "{said}");
}

#[test]
fn options_that_nobody_tells_are_tried() {
    let with_both = |choice: &GroupChoice| match choice.mode.to_string().as_str() {
        "hash+defrag+rollover" => Ok(()),
        asked => Err(JoinError::OtherMode {
            group: 9,
            asked: asked.to_owned(),
            runs: "hash with other options".to_owned(),
        }),
    };
    let said = joins(&[kernels("hash")], Some(with_both));
    assert_eq!(said, "hash+defrag+rollover");
}

#[test]
fn a_mode_that_was_given_is_not_changed() {
    let world = World::default();
    let p = world.open("fx0", Some("group = 9\nfanout@9 = flow"));
    p.change(|state| {
        state.takes = Some(|_| Err(ProgramError::NotPermitted(9).into()));
        state.runs = vec![kernels("hash")];
    });
    assert_eq!(activate(p), ERROR);
    assert!(p.error().contains("needs CAP_BPF"), "{}", p.error());
}

#[test]
fn a_call_without_a_mode_keeps_a_members_own() {
    let world = World::default();
    let p = world.open("fx0", None);
    assert_eq!(fanout(p, 9, Some("lb".to_owned())), Ok(()));
    assert_eq!(activate(p), 0);
    world.calls();
    assert_eq!(fanout(p, 9, None), Ok(()));
    assert_eq!(world.calls(), ["0 publish"]);
    assert!(fanout(p, 8, None).is_err());
}
