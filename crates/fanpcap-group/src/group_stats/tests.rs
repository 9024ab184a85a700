//! Sums over made-up members and pages.

use super::*;
use crate::record::tests::record;

#[test]
fn sums_are_over_the_members_and_no_other_pages() {
    let pages = |inodes: &[u64]| {
        let page = |&inode: &u64| {
            let pid = u32::try_from(inode).unwrap();
            (MemberId::of_socket(inode), Record { pid, ..record() })
        };
        inodes.iter().map(page).collect::<Vec<_>>()
    };
    let told = |members: &[u64], inodes: &[u64]| {
        let members: Vec<_> = members.iter().copied().map(MemberId::of_socket).collect();
        let records = of_members(&members, pages(inodes))?;
        Some(records.iter().map(|it| it.pid).collect::<Vec<_>>())
    };
    assert_eq!(told(&[1, 2], &[2, 1]), Some(vec![1, 2]));
    assert_eq!(told(&[1], &[1, 3]), Some(vec![1]), "socket 3 is joining");
    assert_eq!(told(&[1, 2], &[1, 3]), None, "member 2 has no page");
    assert_eq!(told(&[], &[3]), None);
}

#[test]
fn members_that_are_gone_are_in_the_sums_and_no_members() {
    let alive = Record {
        read_ns: 1,
        counters: MemberCounters {
            received: 10,
            dropped: 3,
        },
        ..record()
    };
    let stats = |departed: &Departed| {
        let members = [1, 2].map(MemberId::of_socket).to_vec();
        let pages = vec![(MemberId::of_socket(1), alive.clone())];
        GroupStats::of(Some(members), pages, departed)
    };
    assert_eq!(stats(&Departed::default()).counters, None, "2 has no page");
    let mut departed = Departed {
        sockets: vec![MemberId::of_socket(2)],
        counters: Some(MemberCounters {
            received: 5,
            dropped: 1,
        }),
    };
    let sums = MemberCounters {
        received: 15,
        dropped: 4,
    };
    let stats_with = stats(&departed);
    assert_eq!(
        (stats_with.members, stats_with.counters),
        (Some(1), Some(sums))
    );
    departed.counters = None;
    assert_eq!(stats(&departed).counters, None);
}
