//! Members that come back to the next poller, in any order.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "scene/clients.rs"]
mod clients;
mod scene;

use clients::{NAME, Poller, Wire, hello};
use fanpcap_poll::message::{Hello, Program, Steering};
use fanpcap_polled::{EnterError, PolledMember, enter};
use fanpcap_steer::modes;
use fanpcap_testkit::await_for::LIMIT;
use std::ffi::OsStr;

fn try_enter(poller: &Poller, steering: Steering) -> Result<PolledMember, EnterError> {
    let hello = Hello {
        steering,
        ..hello()
    };
    enter(&poller.directory(), OsStr::new(NAME), &hello, LIMIT)
}

fn program(mode: &str, flows: Option<u32>) -> Program {
    Program {
        text: modes::source(mode).unwrap().to_owned(),
        flows,
        balance: None,
    }
}

#[test]
fn a_group_begins_again_with_the_steering_program_that_it_had() {
    let has = program("flow_2_tuple", Some(1024));
    let said = || Steering::Program(has.clone());
    let poller = Poller::of_wires(&[Wire::default()]);
    let first = try_enter(&poller, said()).unwrap();
    assert_eq!(first.steering(), None, "it has said it");
    let second = try_enter(&poller, Steering::Any).unwrap();
    assert_eq!(second.steering(), Some(&has));
    drop((poller, first, second));
    let poller = Poller::of_wires(&[Wire::default()]);
    let second = try_enter(&poller, Steering::Former(has.clone())).unwrap();
    assert_eq!(second.steering(), Some(&has));
    let _first = try_enter(&poller, said()).unwrap();
    let other = try_enter(&poller, Steering::Program(program("flow", None)));
    assert!(matches!(other, Err(EnterError::Refused(it)) if it.slug == "poller-steering"));
}

#[test]
fn a_member_that_comes_back_takes_the_steering_program_that_the_group_has_now() {
    let poller = Poller::of_wires(&[Wire::default()]);
    let first = try_enter(&poller, Steering::Any).unwrap();
    let flow = program("flow", None);
    assert_eq!(first.steering(), Some(&flow));
    let former = Steering::Former(program("flow_2_tuple", None));
    let back = try_enter(&poller, former).unwrap();
    assert_eq!(back.steering(), Some(&flow));
    let own = Hello {
        group: None,
        ..hello()
    };
    let own = enter(&poller.directory(), OsStr::new(NAME), &own, LIMIT).unwrap();
    assert_eq!(own.steering(), None, "nobody else is in its group");
}

/// Members of a new group keep its number when their poller has ended, and the next one does not
/// know that they wait.
#[test]
fn pollers_choose_different_numbers_for_new_groups() {
    let new = Hello {
        group: None,
        wants_number: true,
        ..hello()
    };
    let numbers = [(); 4].map(|()| {
        let poller = Poller::of_wires(&[Wire::default()]);
        let member = enter(&poller.directory(), OsStr::new(NAME), &new, LIMIT).unwrap();
        member.group().unwrap()
    });
    let is_first = |number: &u16| *number == numbers[0];
    assert!(!numbers.iter().all(is_first), "{numbers:?}");
}
