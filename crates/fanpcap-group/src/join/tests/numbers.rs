//! Groups whose numbers the library chooses.

use super::*;

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn handles_without_a_group_that_join_at_once_have_groups_of_their_own() {
    on_pair(|ifindex| {
        let alone = choice(Group::New, "main = steer_to 0");
        let first = join_on_xdp(ifindex, &alone).unwrap();
        let number = first.member.identity().group();
        // The second handle chooses its number as if the first group did not exist.
        assert!(engine::has_members(&refusal(ifindex, number)));
        let mut all: Vec<Reader> = vec![first, join_on_xdp(ifindex, &alone).unwrap()];
        ensure_taken(&mut all, 20, &[20, 20]);
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn a_group_whose_last_member_is_being_closed_has_its_number() {
    on_pair(|ifindex| {
        // The member's page is gone, and the kernel has not closed the socket yet.
        let same = choice(Group::Number(9), "main = steer_to 0");
        let closing = silent(ifindex);
        packet::join(closing.as_fd(), wanted(same.group, same.mode)).unwrap();
        let error = refusal(ifindex, 9);
        assert!(engine::has_members(&error), "{error}");
    });
}

/// The error of a handle that begins the group `number`, which has a member.
fn refusal(ifindex: u32, number: u16) -> JoinError {
    let same = choice(Group::Number(number), "main = steer_to 0");
    let prepared = prepare("xdp", ifindex, &same, false).unwrap();
    let socket = silent(ifindex);
    let newcomer = Newcomer {
        fd: socket.as_fd(),
        group: same.group,
        fanout: wanted(same.group, same.mode),
        choice: &same,
        bound: Address {
            ifindex,
            protocol: ETH_P_SILENT,
        },
        protocol: 3,
        id: MemberId::of_socket(packet::inode(socket.as_fd()).unwrap()),
        per_device: PerDevice::Only,
        engine: Some(asks(&prepared)),
        is_first: true,
    };
    let steering = same.steering.as_ref().unwrap();
    let joined = program::join(&newcomer, steering, MemberCounters::default());
    joined.err().unwrap()
}
