//! Sockets join groups that a founder has founded.

mod spares;

use super::*;
use crate::founder::Founder;
use crate::guard::GroupGuard;
use crate::roster;

const GROUP: u16 = 7;

/// A member on packet sockets. Its socket is closed before its membership ends.
struct Entered {
    socket: OwnedFd,
    member: Member,
}

pub(super) fn on_sockets(text: &str) -> GroupChoice {
    let script = Script::of_text(Source::new("test", text));
    let steering = Steering::compile(&script, &|_| Err("none".to_owned())).unwrap();
    GroupChoice {
        steering: Some(Arc::new(steering)),
        ..choice(Group::Number(GROUP), text)
    }
}

fn found(ifindex: u32, choice: &GroupChoice) -> Option<Founder> {
    Founder::found((ifindex, GROUP), choice, None).unwrap()
}

fn found_on_xdp(ifindex: u32, choice: &GroupChoice) -> Founder {
    let founder = Founder::found((ifindex, GROUP), choice, Some(("xdp", false)));
    founder.unwrap().unwrap()
}

fn enter(ifindex: u32, choice: &GroupChoice) -> Result<Entered, JoinError> {
    let socket = silent(ifindex);
    let member = join(JoinRequest {
        socket: socket.as_fd(),
        choice,
        protocol: ETH_P_ALL,
        before: MemberCounters::default(),
        per_device: PerDevice::Only,
        engine: None,
    })?;
    member.membership().unwrap().note_asked();
    Ok(Entered { socket, member })
}

impl Entered {
    fn received(&self) -> u32 {
        let statistics = packet::take_statistics(self.socket.as_fd());
        statistics.unwrap().packets
    }
}

/// Sends frames, which the kernel delivers before the call returns.
fn ensure_received(members: &[Entered], expected: &[u32]) {
    members.iter().for_each(|it| _ = it.received());
    send(20);
    let received: Vec<u32> = members.iter().map(Entered::received).collect();
    assert_eq!(received, expected);
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn the_first_member_sets_the_founders_program_and_so_does_who_follows_a_killed_one() {
    on_pair(|ifindex| {
        let second = on_sockets("main = steer_to 1");
        let founder = found(ifindex, &second).unwrap();
        assert!(found(ifindex, &second).is_none(), "it has a founder");
        let all = [(); 2].map(|()| enter(ifindex, &second).unwrap());
        ensure_received(&all, &[0, 20]);
        let shared = Arc::clone(all[0].member.membership().unwrap().shared());
        assert_eq!(shared.table().get(at::LACKS_PROGRAM), 0);
        // As after a member that was killed between its join and the setting of the BPF program.
        shared.table().set(at::LACKS_PROGRAM, 1);
        let third = enter(ifindex, &second).unwrap();
        assert_eq!(shared.table().get(at::LACKS_PROGRAM), 0);
        drop(shared);
        drop((all, third));
        settle(&founder);
        await_so("an empty group", || {
            Roster::look().unwrap().ids(ifindex, GROUP).next().is_none()
        });
        let again = [(); 2].map(|()| enter(ifindex, &second).unwrap());
        ensure_received(&again, &[0, 20]);
    });
}

/// Settles the members of a founder's group, which have left. A process that another test starts
/// may have their lifelines until it runs its program.
fn settle(founder: &Founder) {
    await_so("a group without living members", || {
        let memberless = founder.lock_memberless(true).unwrap();
        memberless.is_some_and(|it| it.settle().is_ok())
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn a_founder_without_members_is_replaced_and_one_with_members_is_not() {
    on_pair(|ifindex| {
        let [one, other] = ["main = steer_to 0", "main = steer_to 1"].map(on_sockets);
        let founder = found(ifindex, &one).unwrap();
        let first = enter(ifindex, &one).unwrap();
        assert!(enter(ifindex, &other).is_err());
        assert!(!founder.is_replaced());
        drop(first);
        settle(&founder);
        let first = enter(ifindex, &other).unwrap();
        assert!(founder.is_replaced() && founder.lock_memberless(true).unwrap().is_none());
        founder.attend().unwrap();
        let all = [first, enter(ifindex, &other).unwrap()];
        ensure_received(&all, &[0, 20]);
        drop(all);
        drop(founder);
        let on_xdp = choice(Group::Number(GROUP), "main = steer_flow");
        let founder = found(ifindex, &on_sockets("main = steer_flow")).unwrap();
        let member = join_on_xdp(ifindex, &on_xdp).unwrap();
        assert!(founder.is_replaced());
        leave([member], ifindex);
    });
}

/// How many groups the device of a member serves.
fn served(member: &Reader) -> usize {
    let shared = member.membership().shared();
    let ends = shared.on_device.as_ref().unwrap().device_descriptors();
    let [into, out_of] = ends.map(|it| it.try_clone_to_owned().unwrap());
    let (registry, _) = FdStore::of(into, out_of).unwrap();
    let mut count = 0;
    let mut look = |entry, _| {
        count += usize::from(matches!(entry, StoredFd::Lifeline(_)));
        true
    };
    registry.visit(&mut look).unwrap();
    count
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn a_founder_that_was_replaced_leaves_its_group_when_no_process_has_the_lock() {
    on_pair(|ifindex| {
        let [one, other] = ["main = steer_flow", "main = steer_to 0"]
            .map(|text| choice(Group::Number(GROUP), text));
        let founder = found_on_xdp(ifindex, &one);
        let member = join_on_xdp(ifindex, &other).unwrap();
        let has_page = || roster::founder(ifindex, GROUP).is_some();
        let guard = GroupGuard::take(&Identity::outside(GROUP, ifindex)).unwrap();
        founder.attend().unwrap();
        assert!(founder.is_replaced() && has_page());
        assert_eq!(served(&member), 2);
        drop(guard);
        // A process that another test starts may have the lifeline's end for a moment.
        await_so("one group on the device", || {
            founder.attend().unwrap();
            !has_page() && served(&member) == 1
        });
        drop(founder);
        leave([member], ifindex);
    });
}

/// A function that tells how many packets the host got since the last call.
fn host(ifindex: u32) -> impl Fn() -> u32 {
    let host = packet::open().unwrap();
    let protocol = ETH_P_ALL;
    packet::bind(host.as_fd(), Address { ifindex, protocol }).unwrap();
    move || packet::take_statistics(host.as_fd()).unwrap().packets
}

fn join_and_steal(ifindex: u32, choice: &GroupChoice) -> Reader {
    let prepared = prepare("xdp", ifindex, choice, false).unwrap();
    let steal = Steal::Force;
    let asks = asks(&prepared);
    join_on(ifindex, choice, Some(EngineAsk { steal, ..asks })).unwrap()
}

/// Each member steals the packets.
#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn the_host_gets_the_packets_while_a_founded_group_has_no_member() {
    on_pair(|ifindex| {
        let counted = host(ifindex);
        let flow = choice(Group::Number(GROUP), "main = steer_flow");
        let founder = found_on_xdp(ifindex, &flow);
        for _ in 0..2 {
            let mut all = [join_and_steal(ifindex, &flow)];
            await_shares(&all);
            for _ in 0..2 {
                counted();
                ensure_taken(&mut all, 20, &[20]);
                assert!(counted() < 20);
                founder.attend().unwrap();
            }
            drop(all);
            settle(&founder);
            await_so("the host's packets", || {
                founder.attend().unwrap();
                counted();
                send(20);
                std::thread::sleep(Duration::from_millis(10));
                counted() >= 20
            });
        }
    });
}
