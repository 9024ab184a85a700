//! Handles on several devices: either all of them receive, or none.

use super::fake::World;
use fanpcap::activate::activate;
use fanpcap::handle::{ERROR, Life, Member, NO_SUCH_DEVICE, PartState, System, WARNING};
use fanpcap::several;
use fanpcap_group::join::JoinError;

const DEVICES: &str = "fx0^fx1";
const GROUPS: &str = "group_fx0 = 7\ngroup_fx1 = 8\n";

#[test]
fn all_are_activated_before_any_receives_and_planned_once() {
    let world = World::default();
    let p = world.open_several(DEVICES, GROUPS);
    assert_eq!(activate(p), 0);
    let calls = [
        "0 buffer 16777216",
        "0 protocol 6",
        "0 activate",
        "1 buffer 16777216",
        "1 protocol 6",
        "1 activate",
        "0 take over several",
        "0 foresee",
        "1 foresee",
        "0 join",
        "0 truncate",
        "0 publish",
        "1 join",
        "1 publish",
        "0 truncate",
        "1 truncate",
        "0 publish",
    ];
    assert_eq!(world.calls(), calls);
    assert_eq!(world.plans.get(), 2);
    let parts = several::all(p).into_iter().map(|part| part.notes().part);
    assert!(parts.eq([PartState::Live, PartState::Live]));
}

#[test]
fn without_groups_they_are_bound_as_the_last_step() {
    let world = World::default();
    let p = world.open_several(DEVICES, "");
    assert_eq!(activate(p), 0);
    let calls = world.calls();
    let bound: Vec<_> = calls.iter().filter(|call| call.ends_with("bind")).collect();
    assert_eq!(bound, ["0 bind", "1 bind"]);
    let activated = calls.iter().rposition(|call| call.ends_with("activate"));
    assert!(activated < calls.iter().position(|call| call == "0 bind"));
}

#[test]
fn a_device_that_comes_later_lets_the_application_try_again() {
    let world = World::default();
    let p = world.open_several(DEVICES, GROUPS);
    p.after(1).change(|state| state.is_gone = true);
    assert_eq!(activate(p), NO_SUCH_DEVICE);
    assert_eq!(p.error(), "fx1: No such device exists");
    assert_eq!(p.notes().part, PartState::Silent);
    assert!(world.calls().iter().all(|call| !call.ends_with("join")));
    p.after(1).change(|state| state.is_gone = false);
    assert_eq!(activate(p), 0);
    let calls = world.calls();
    assert!(!calls.contains(&"0 activate".to_owned()), "{calls:?}");
    assert!(calls.contains(&"1 activate".to_owned()));
}

#[test]
fn a_handle_that_failed_is_not_activated_again() {
    let world = World::default();
    let p = world.open_several(DEVICES, GROUPS);
    p.after(1).change(|state| state.activate = (ERROR, "no"));
    assert_eq!(activate(p), ERROR);
    assert_eq!(p.error(), "fx1: no");
    world.calls();
    assert_eq!(activate(p), ERROR);
    let text = "fx1: this handle could not be activated: open a new one";
    assert_eq!((p.error().as_str(), world.calls().len()), (text, 0));
}

#[test]
fn a_handle_that_receives_is_activated_already() {
    let world = World::default();
    let p = world.open_several(DEVICES, "");
    assert_eq!(activate(p), 0);
    world.calls();
    p.change(|state| state.activate = (-4, "already"));
    assert_eq!(activate(p), -4);
    assert_eq!(world.calls(), ["0 activate"]);
}

#[test]
fn nobody_joins_when_one_is_foreseen_to_be_refused() {
    let world = World::default();
    let p = world.open_several(DEVICES, GROUPS);
    p.after(1)
        .change(|state| state.refused = Some(|| JoinError::Full(8)));
    assert_eq!(activate(p), ERROR);
    assert!(
        p.error().starts_with("fx1: fan-out group 8 is full"),
        "{}",
        p.error()
    );
    assert!(world.calls().iter().all(|call| !call.ends_with("join")));
}

#[test]
fn a_group_of_a_kernels_mode_is_of_one_device() {
    let world = World::default();
    let p = world.open_several(DEVICES, "def_group = 7\nfanout = lb\n");
    assert_eq!(activate(p), ERROR);
    let text = "fx1: fan-out group 7, of mode lb, is of one device: use mode flow";
    assert!(p.error().starts_with(text), "{}", p.error());
    assert!(world.calls().iter().all(|call| !call.ends_with("join")));
    let p = world.open_several(DEVICES, "def_group = 7\nfanout = flow+sticky\n");
    assert_eq!(activate(p), ERROR);
    let text = "fx1: fan-out group 7, of mode flow+sticky, is of one device";
    assert!(p.error().starts_with(text), "{}", p.error());
    let p = world.open_several(DEVICES, "def_group = 7\nfanout = flow+balance\n");
    assert_eq!(activate(p), ERROR);
    let text = "fx1: fan-out group 7, of mode flow+balance, is of one device";
    assert!(p.error().starts_with(text), "{}", p.error());
}

#[test]
fn a_steered_group_is_of_all_devices_with_its_number() {
    let world = World::default();
    let settings = "def_group = 7\nfanout = flow\ngroup_fx1 = 8\n";
    let p = world.open_several("fx0^fx1^fx2", settings);
    assert_eq!(activate(p), 0);
    let calls = world.calls();
    let of = |what: &str| -> Vec<String> {
        let found = calls.iter().filter(|call| call.contains(what));
        found.cloned().collect()
    };
    assert_eq!(of("foresee"), ["0 foresee", "1 foresee"]);
    assert_eq!(of("join"), ["0 join 0 of 2", "1 join", "2 join 1 of 2"]);
}

#[test]
fn a_refusal_that_nobody_foresees_leaves_the_others_as_they_are() {
    let world = World::default();
    let p = world.open_several(DEVICES, GROUPS);
    p.after(1).change(|state| {
        state.refused = Some(|| JoinError::Full(8));
        state.is_foreseen = false;
    });
    assert_eq!(activate(p), ERROR);
    assert_eq!(p.group().unwrap().group, 7);
    assert_eq!(p.notes().part, PartState::Silent);
    world.calls();
    p.after(1).change(|state| state.refused = None);
    assert_eq!(activate(p), 0);
    let calls = world.calls();
    let joined = calls.iter().filter(|call| call.ends_with("join"));
    assert!(joined.eq(["1 join"]), "{calls:?}");
}

#[test]
fn devices_that_can_not_be_read_together_are_refused() {
    let world = World::default();
    let p = world.open_several(DEVICES, "");
    world.is_not_ethernet.set(true);
    assert_eq!(activate(p), ERROR);
    assert_eq!(p.error(), "not Ethernet");
}

#[test]
fn the_first_warning_is_kept_and_the_first_error_ends() {
    let world = World::default();
    let p = world.open_several("fx0^fx1^fx2^fx3", "");
    let apply = |statuses: [i32; 4]| {
        let mut statuses = statuses.into_iter();
        let mut applied = 0;
        let status = several::each(p, |part| {
            applied += 1;
            let status = statuses.next().unwrap_or(0);
            if status != 0 {
                part.fail(&format!("status {status}"));
            }
            status
        });
        (status, applied, p.error())
    };
    assert_eq!(
        apply([0, WARNING, 2, 0]),
        (WARNING, 4, "fx1: status 1".to_owned())
    );
    assert_eq!(
        apply([0, WARNING, -2, 0]),
        (-2, 3, "fx2: status -2".to_owned())
    );
    assert_eq!(apply([-3, 0, 0, 0]), (-3, 1, "status -3".to_owned()));
}

#[test]
fn none_of_several_may_be_much_later_than_others() {
    let world = World::default();
    let one = world.open("fx0", None);
    let p = world.open_several(DEVICES, "");
    let timeouts =
        [0, 5, 1000, -1].map(|asked| (several::timeout(one, asked), several::timeout(p, asked)));
    assert_eq!(timeouts, [(0, 20), (5, 5), (1000, 20), (-1, -1)]);
}
