//! Made-up groups: each problem is found, and nothing where there is no problem.

use fanpcap_group::view::Place;

use super::*;

fn member(pid: u32, program: &str) -> Member {
    Member {
        pid: Some(pid),
        program: program.to_owned(),
        is_ours: true,
        ..Member::default()
    }
}

fn group(mode: &str, members: Vec<Member>) -> Group {
    Group {
        ifindex: 3,
        device: "eth0".to_owned(),
        number: 7,
        mode: mode.to_owned(),
        members,
        holder: None,
    }
}

fn only(group: &Group) -> Finding {
    let mut findings = group.findings(&[0, 1, 2, 3], &[]);
    assert_eq!(findings.len(), 1, "{findings:?}");
    findings.remove(0)
}

#[test]
fn a_healthy_group_has_no_findings() {
    let mut members = vec![member(1, "tcpdump"), member(2, "tcpdump")];
    members[0].cpus = vec![0];
    members[1].cpus = vec![1];
    members[1].unread_seconds = Some(3.0);
    assert!(group("hash", members).findings(&[0, 1], &[]).is_empty());
}

#[test]
fn members_that_a_cpuset_keeps_together_are_found() {
    let scratch = fanpcap_testkit::Scratch::new().unwrap();
    let root = scratch.file("");
    for (path, text) in [
        ("proc/1/cpuset", "/box\n"),
        ("sys/fs/cgroup/box/cpuset.cpus.effective", "2\n"),
    ] {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let mut members = vec![member(1, "tcpdump"), member(2, "tcpdump")];
    for member in &mut members {
        member.cpus = vec![2];
        member.cpuset = Cpuset::of(&root, 1);
    }
    // taskset(1) could not move these members, because their cpuset has only one CPU.
    let found = only(&group("hash", members.clone()));
    assert_eq!((found.name, found.effect), ("narrow-cpuset", Effect::Costs));
    assert_eq!(found.fix, "echo 0,2 > /sys/fs/cgroup/box/cpuset.cpus");
    let to = |cpus: &[usize]| members[0].move_to(cpus, 1);
    assert_eq!(to(&[2, 3]), "taskset -acp 2-3 1");
    // The cpuset keeps CPU 2 for its other processes.
    let add = "echo 2-3 > /sys/fs/cgroup/box/cpuset.cpus && taskset -acp 3 1";
    assert_eq!(to(&[3]), add);
    // A group with one member needs only one CPU, so this cpuset is no problem.
    assert!(
        group("hash", vec![members.remove(0)])
            .findings(&[0, 1, 2], &[])
            .is_empty()
    );
}

#[test]
fn members_that_do_not_belong_are_found() {
    let mut members = vec![member(1, "tcpdump"), member(2, "p0f")];
    let found = only(&group("hash", members.clone()));
    assert_eq!(
        (found.name, found.effect),
        ("mixed-programs", Effect::Loses)
    );
    assert_eq!(found.place, "eth0 group 7");
    assert!(
        found.what.contains("p0f (pid 2), tcpdump (pid 1)"),
        "{found:?}"
    );
    members[1].is_ours = false;
    let found = only(&group("hash", members.clone()));
    assert_eq!(found.name, "strangers-in-group");
    assert!(found.fix.starts_with("export PCAP_GROUP=8 "), "{found:?}");
    members[1].program = String::new();
    members[1].pid = None;
    let found = only(&group("hash", members.clone()));
    assert!(found.what.contains("not shown to this user"), "{found:?}");
    // If no member reads through our library, the others are not reported as strangers.
    members[0].is_ours = false;
    assert!(group("hash", members).findings(&[0], &[]).is_empty());
}

#[test]
fn who_does_not_read_loses_or_costs_by_the_mode() {
    let mut slow = member(2, "tcpdump");
    slow.unread_seconds = Some(11.0);
    for (mode, effect) in [
        ("hash+rollover", Effect::Loses),
        ("flow", Effect::Costs),
        ("flow on xdp", Effect::Costs),
    ] {
        let found = only(&group(mode, vec![member(1, "tcpdump"), slow.clone()]));
        assert_eq!((found.name, found.effect), ("member-silent", effect));
        assert!(found.fix.starts_with("kill 2 "), "{found:?}");
    }
    let without = Member {
        has_no_share: true,
        ..slow.clone()
    };
    let healthy = group("flow", vec![member(1, "tcpdump"), without]);
    assert!(healthy.findings(&[0, 1], &[]).is_empty());
    let mut held = group("flow", vec![member(1, "tcpdump")]);
    held.holder = Stat::of(std::process::id()).map(|own| Stat { state: 'T', ..own });
    let found = only(&held);
    assert_eq!((found.name, found.effect), ("group-held", Effect::Loses));
    slow.is_stopped = true;
    let found = only(&group("lb", vec![slow]));
    assert_eq!(
        (found.name, found.fix.as_str()),
        ("member-stopped", "kill -CONT 2")
    );
}

#[test]
fn a_ring_without_room_is_found() {
    let mut slow = member(2, "tcpdump");
    slow.dropped = 40;
    let found = only(&group("flow", vec![member(1, "tcpdump"), slow]));
    assert_eq!((found.name, found.effect), ("ring-full", Effect::Loses));
    assert!(
        found.what.contains("(pid 2) had no room for 40 packets"),
        "{found:?}"
    );
    assert!(
        found.fix.starts_with("fanpcap run -n 3 -- tcpdump"),
        "{found:?}"
    );
}

#[test]
fn members_on_one_cpu_are_found_where_another_is_free() {
    let mut members = vec![member(1, "a"), member(2, "a"), member(3, "a")];
    for (member, cpu) in members.iter_mut().zip([0, 1, 1]) {
        member.cpus = vec![cpu];
    }
    let group = group("flow", members);
    let found = only(&group);
    assert_eq!(
        (found.name, found.fix.as_str()),
        ("one-cpu-for-members", "taskset -acp 2 3")
    );
    assert!(group.findings(&[0, 1], &[]).is_empty(), "no CPU is free");
    // CPUs 2 and 3 only receive, as `fanpcap tune` has planned.
    assert!(group.findings(&[0, 1, 2, 3], &[2, 3]).is_empty());
    let all_receive = group.findings(&[0, 1, 2], &[0, 1, 2]).remove(0);
    assert_eq!(all_receive.fix, "taskset -acp 2 3");
}

#[test]
fn sockets_become_groups_with_what_they_lost_in_between() {
    let socket = |inode, dropped| Socket {
        inode,
        ifindex: 3,
        protocol: 3,
        founds: None,
        group: Some(fanpcap_snapshot::Group {
            number: 7,
            mode: "flow".to_owned(),
            no_flow: None,
        }),
        ring_bytes: None,
        captures_sent: false,
        is_at_poller: false,
        counts: Some(fanpcap_snapshot::Counts {
            read_ns: 1,
            received: 100,
            dropped,
            taken: None,
            read_taken: None,
            waits: false,
        }),
        program_counters: None,
        program_counted_ns: 0,
        unread_seconds: None,
        is_never_read: inode != 1,
        waits_for_device: false,
        has_page: true,
        is_placeholder: inode == 9,
        place: (inode == 2).then_some(Place {
            buckets: 0,
            ..fanpcap_snapshot::fixture::after().sockets[0].place.unwrap()
        }),
        class: None,
        process: None,
    };
    let snapshot = |sockets| Snapshot {
        sockets,
        ..Snapshot::default()
    };
    let before = snapshot(vec![socket(1, 5)]);
    let founder = Socket {
        founds: Some(fanpcap_snapshot::Group {
            number: 8,
            mode: "flow".to_owned(),
            no_flow: None,
        }),
        group: None,
        ..socket(3, 0)
    };
    let now = snapshot(vec![socket(1, 8), socket(2, 30), socket(9, 0), founder]);
    let groups = groups(&before, &now);
    // A group that only a founder keeps has no members.
    assert_eq!(groups.len(), 2);
    assert!(groups[1].members.is_empty() && groups[1].findings(&[0, 1], &[]).is_empty());
    let dropped: Vec<u64> = groups[0].members.iter().map(|it| it.dropped).collect();
    let shares: Vec<bool> = groups[0].members.iter().map(|it| it.has_no_share).collect();
    assert_eq!(shares, [false, true]);
    // The second member is new, so it is unknown when it dropped packets.
    assert_eq!(dropped, [3, 0]);
}
