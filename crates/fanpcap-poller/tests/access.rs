//! Rules for the users of a device: who becomes a member, and what each user may take.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "scene/clients.rs"]
mod clients;
mod scene;

use clients::{Poller, Wire, await_answer, hello};
use fanpcap_linux::process::effective_user;
use fanpcap_linux::unix;
use fanpcap_poll::message::{Answer, Hello};
use fanpcap_poller::access::{Access, Grant, Others, Rule, Who};
use std::os::fd::AsFd;

/// The answer's slug if a process of this test's user is refused.
fn refusal(poller: &Poller, hello: &Hello) -> Option<String> {
    let said = poller.newcomer(hello).err()?;
    Some(said.split(':').next()?.to_owned())
}

fn rule(who: Who, gives: Option<Grant>) -> Rule {
    Rule { who, gives }
}

#[test]
fn who_has_no_rule_is_refused_if_the_policy_says_so() {
    let (wire, user) = (Wire::default(), effective_user());
    let own_group = unix::peer(unix::pair().unwrap()[0].as_fd()).unwrap().group;
    let all = Some(Grant::default());
    let stranger = rule(Who::User(user + 1), all.clone());
    let own = [Who::User(user), Who::Group(own_group)].map(|who| rule(who, all.clone()));
    let [of_user, of_group] = own;
    for (rules, others, expected) in [
        (
            vec![stranger.clone()],
            Others::Nobody,
            Some("poller-policy"),
        ),
        (vec![stranger], Others::AllWhoConnect, None),
        (vec![of_user], Others::Nobody, None),
        (vec![of_group], Others::Nobody, None),
        (
            vec![rule(Who::User(user), None)],
            Others::AllWhoConnect,
            Some("poller-policy"),
        ),
    ] {
        let shown = format!("{rules:?}");
        let poller = Poller::with_access(&wire, Access::new(rules, others));
        let said = refusal(&poller, &hello());
        assert_eq!(said.as_deref(), expected, "{shown}");
    }
}

#[test]
fn a_rule_sets_what_its_user_may_take() {
    let wire = Wire::default();
    let gives = Grant {
        connections: Some(3),
        groups: Some(1),
        // A pool has 4 MiB, and a group takes some more.
        bytes: Some(11 << 20),
        filter: None,
    };
    let rules = vec![rule(Who::User(effective_user()), Some(gives))];
    let poller = Poller::with_access(&wire, Access::new(rules, Others::Nobody));
    let other_group = Hello {
        group: Some(6),
        ..hello()
    };
    let members = [poller.member(&hello()), poller.member(&hello())];
    assert_eq!(refusal(&poller, &other_group).unwrap(), "poller-groups");
    assert_eq!(refusal(&poller, &hello()).unwrap(), "poller-memory");
    let _third = poller.connect();
    let fourth = poller.connect();
    match await_answer(fourth.as_fd()) {
        Some((Answer::Refused(refused), _)) => assert_eq!(refused.slug, "poller-connections"),
        other => panic!("{other:?}"),
    }
    drop(members);
}
