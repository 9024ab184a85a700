//! Names and owners of made-up sockets.

use super::*;
use crate::holders;

#[test]
fn modes_of_foreign_groups_have_the_kernels_names() {
    let name = |mode| kernel_mode(diag::FanoutGroup { id: 1, mode });
    assert_eq!((name(0), name(4)), ("hash".to_owned(), "rnd".to_owned()));
    assert_eq!(
        (name(7), name(99)),
        ("ebpf".to_owned(), "mode-99".to_owned())
    );
}

#[test]
fn the_engine_precedes_the_text_of_a_steering_program() {
    assert_eq!(on_engine("flow+sticky"), "flow+sticky on xdp");
    assert_eq!(on_engine("main = tcp"), "on xdp: main = tcp");
}

#[test]
fn devices_that_are_gone_are_named_so() {
    assert_eq!(unlisted_name(0), "any");
    assert_eq!(unlisted_name(u32::MAX), "gone");
    assert_eq!(unlisted_name(7), "#7");
}

/// A member is in another PID namespace. In the test's PID namespace, the pid on the member's page
/// belongs to another process.
#[test]
fn the_pid_on_a_page_is_checked() {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let inode = holders::tests::inode(&socket);
    let of_page = |pid: u32, inode: u32| {
        let mut source = Source::new(Some(ANY)).unwrap();
        let seen = RosterEntry {
            socket: diag::PacketSocket {
                inode,
                ifindex: 0,
                protocol: 3,
                is_running: true,
                fanout: None,
                version: 2,
                user: 0,
                ring: None,
            },
            page: Some(holders::tests::page(pid)),
            founds: None,
            is_placeholder: false,
        };
        source
            .sockets(&[seen], 0, &BTreeMap::new())
            .remove(0)
            .process
            .unwrap()
    };
    let own = std::process::id();
    for pid in [own, 1] {
        let found = of_page(pid, inode);
        assert_eq!((found.pid, found.program.as_str()), (Some(own), "member"));
        assert!(found.affinity.is_some());
    }
    // No process here owns the socket: only the page has the application's name.
    let unknown = of_page(own, 0);
    assert_eq!((unknown.pid, unknown.program.as_str()), (None, "member"));
}

#[test]
fn only_sockets_that_get_packets_are_unread() {
    let of_page = |is_founder| {
        let page = Record {
            is_founder,
            last_look: LastLook::Never,
            ..holders::tests::page(1)
        };
        let seen = RosterEntry {
            socket: diag::PacketSocket {
                inode: 0,
                ifindex: 0,
                protocol: 0,
                is_running: true,
                fanout: None,
                version: 2,
                user: 0,
                ring: None,
            },
            page: Some(page),
            founds: is_founder.then_some(5),
            is_placeholder: false,
        };
        let mut source = Source::new(Some(ANY)).unwrap();
        let at_ns = 90_000_000_000;
        source.sockets(&[seen], at_ns, &BTreeMap::new()).remove(0)
    };
    let (member, founder) = (of_page(false), of_page(true));
    assert!(member.unread_seconds.is_some() && member.is_never_read);
    assert_eq!(founder.unread_seconds, None);
    assert!(!founder.is_never_read);
}

#[test]
fn an_unknown_device_is_refused_by_name() {
    let error = Source::new(Some("nosuch0")).unwrap_err();
    assert!(error.to_string().contains("no device 'nosuch0'"), "{error}");
    Source::new(Some(ANY)).unwrap();
}

#[test]
fn the_device_that_was_asked_for_is_listed_without_sockets_too() {
    let links = link::links().unwrap();
    let devices = Source::new(Some("lo")).unwrap().devices(&links, &[], false);
    assert_eq!(devices.len(), 1);
    assert!(devices[0].name == "lo" && devices[0].counters.is_some());
    let all = |is_awaited| Source::new(None).unwrap().devices(&links, &[], is_awaited);
    assert!(all(false).is_empty());
    let names: Vec<String> = all(true).into_iter().map(|it| it.name).collect();
    assert_eq!(names, ["gone"]);
}
