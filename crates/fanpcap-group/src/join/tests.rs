//! Sockets join groups on XDP, on a pair of devices that belong to the test. Checks which members
//! get the packets, and what is left when all members are gone.

mod attempts;
mod numbers;
mod founded;

use super::*;
use crate::page::{GroupDir, HeldPage};
use crate::table::at;
use crate::view::GroupTable;
use fanpcap_config::fanout::Script;
use fanpcap_config::settings::Steal;
use fanpcap_config::source::Source;
use fanpcap_config::steering::Steering;
use fanpcap_engine::Ask;
use fanpcap_engine::fd_store::{FdStore, StoredFd};
use fanpcap_linux::bpf::{Attached, Hook};
use fanpcap_linux::netlink::link;
use fanpcap_linux::packet::{ETH_P_ALL, inject::Injector};
use fanpcap_reader::{GroupTasks, Ring};
use fanpcap_ring::{Layout as _, Pool};
use fanpcap_testkit::await_for::await_so;
use fanpcap_testkit::frames::{ethernet, udp, v4};
use fanpcap_testkit::netns::on_pair;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

fn choice(group: Group, text: &str) -> GroupChoice {
    let script = Script::of_text(Source::new("test", text));
    let steering = Steering::compile_for_engine(&script, &|_| Err("none".to_owned())).unwrap();
    GroupChoice {
        group,
        mode: ModeKind::Program.into(),
        steering: Some(Arc::new(steering)),
        weight: None,
        class: 0,
        is_default: false,
        origin: "test".to_owned(),
        name: None,
    }
}

fn asks(prepared: &Prepared) -> EngineAsk<'_> {
    let ask = Ask {
        snaplen: 96,
        bytes: Some(1 << 22),
        outgoing: false,
    };
    EngineAsk {
        prepared,
        ask,
        steal: Steal::No,
    }
}

/// A member that this process reads.
struct Reader {
    // The fields are dropped in this order.
    pool: Pool,
    _socket: OwnedFd,
    member: Member,
}

fn join_on_xdp(ifindex: u32, choice: &GroupChoice) -> Result<Reader, JoinError> {
    let prepared = prepare("xdp", ifindex, choice, false)?;
    join_on(ifindex, choice, Some(asks(&prepared)))
}

fn join_on(
    ifindex: u32,
    choice: &GroupChoice,
    engine: Option<EngineAsk<'_>>,
) -> Result<Reader, JoinError> {
    let socket = silent(ifindex);
    let request = JoinRequest {
        socket: socket.as_fd(),
        choice,
        protocol: 3,
        before: MemberCounters::default(),
        per_device: PerDevice::Only,
        engine,
    };
    let member = join(request)?;
    let _ = member.read_by_us();
    let pool = pool(ifindex, member.membership().unwrap());
    let reader = Reader {
        pool,
        _socket: socket,
        member,
    };
    reader.membership().attend();
    Ok(reader)
}

fn silent(ifindex: u32) -> OwnedFd {
    let socket = packet::open().unwrap();
    let protocol = ETH_P_SILENT;
    packet::bind(socket.as_fd(), Address { ifindex, protocol }).unwrap();
    socket
}

fn pool(ifindex: u32, membership: &Membership) -> Pool {
    let (slot, rings) = membership.io().unwrap();
    // A reader's socket stays open as long as the process. The member's socket closes earlier.
    let socket: &'static OwnedFd = Box::leak(Box::new(silent(ifindex)));
    match rings.input(slot, socket.as_fd(), None).unwrap().ring {
        Ring::Pool(pool) => pool,
        Ring::V2(_) | Ring::V3(_) | Ring::Calls(_) => panic!("no ring of the engine"),
    }
}

impl Reader {
    fn membership(&self) -> &Arc<Membership> {
        self.member.membership().unwrap()
    }

    /// Takes the frames, and returns how many of them the test has sent.
    fn take(&mut self) -> usize {
        let mut count = 0;
        while self.pool.open() {
            while let Some(frame) = self.pool.next_frame().unwrap() {
                count += usize::from(is_ours(frame.data()));
            }
            self.pool.release();
        }
        count
    }
}

fn is_ours(frame: &[u8]) -> bool {
    frame.get(12..15) == Some(&[8, 0, 0x45])
}

/// Sends this many frames, each of another flow.
fn send(count: u8) {
    let sender = Injector::open("va").unwrap();
    for flow in 0..count {
        let packet = v4(17, 0, &udp(flow.into(), 9, &[0; 18]));
        sender.send(&ethernet(0x0800, &packet)).unwrap();
    }
}

/// Waits until these members together have taken this many frames.
fn await_frames(members: &mut [Reader], expected: usize) -> Vec<usize> {
    let mut taken = vec![0; members.len()];
    await_so("all frames", || {
        for (sum, member) in taken.iter_mut().zip(members.iter_mut()) {
            *sum += member.take();
        }
        taken.iter().sum::<usize>() >= expected
    });
    taken
}

/// Waits until each member has its share. Another test may hold the group's lock for a moment.
fn await_shares(members: &[Reader]) {
    for member in members {
        await_so("a share", || {
            member.membership().attend();
            member.membership().has_share()
        });
    }
}

/// Closes the last members. The kernel then removes the device's BPF program.
fn leave(members: impl IntoIterator<Item = Reader>, ifindex: u32) {
    members.into_iter().for_each(drop);
    await_so("the kernel frees all", || {
        link::get(ifindex).unwrap().xdp.is_none()
    });
}

/// Sends frames, and checks how many each member takes.
fn ensure_taken(members: &mut [Reader], sent: u8, expected: &[usize]) {
    send(sent);
    assert_eq!(await_frames(members, expected.iter().sum()), expected);
}

/// Sends frames of many flows, and checks that each member has its share of them. Returns the
/// shares.
fn ensure_shared(members: &mut [Reader]) -> Vec<usize> {
    send(200);
    let shares = await_frames(members, 200);
    assert!(shares.iter().all(|share| *share > 20), "{shares:?}");
    assert_eq!(shares.iter().sum::<usize>(), 200);
    shares
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn a_lone_handle_has_a_group_of_its_own_and_leaves_nothing() {
    on_pair(|ifindex| {
        let alone = choice(Group::New, "main = steer_to 0");
        let first = join_on_xdp(ifindex, &alone).unwrap();
        assert_eq!(first.member.identity().group(), u16::MAX);
        let mut all = [first];
        ensure_taken(&mut all, 20, &[20]);
        // A second group gets all packets as well.
        let [first] = all;
        let second = join_on_xdp(ifindex, &alone).unwrap();
        assert_eq!(second.member.identity().group(), u16::MAX - 1);
        let mut all = [first, second];
        ensure_taken(&mut all, 20, &[20, 20]);
        let [first, second] = all;
        drop(first);
        let mut all = [second];
        await_so("the registry", || {
            all[0].membership().attend();
            !all[0].membership().shared().lifelines.is_ready().unwrap()
        });
        ensure_taken(&mut all, 20, &[20]);
        leave(all, ifindex);
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn members_share_the_packets_and_inherit_what_one_leaves() {
    on_pair(|ifindex| {
        let flow = choice(Group::Number(7), "main = steer_flow");
        let mut all: Vec<Reader> = (0..3)
            .map(|_| join_on_xdp(ifindex, &flow).unwrap())
            .collect();
        await_shares(&all);
        let shares = ensure_shared(&mut all);
        send(200);
        let left = all.remove(1);
        drop(left);
        let mut inherited = 0;
        await_so("a takeover", || {
            let mut tasks = all[0].membership().attend();
            for it in &mut tasks.inherited {
                while it.remains.head().is_some() {
                    let frame = it.remains.next_frame().unwrap().unwrap();
                    inherited += usize::from(is_ours(frame.data()));
                }
            }
            for it in tasks.inherited.drain(..) {
                (it.done)(0);
            }
            inherited > 0
        });
        assert_eq!(inherited, shares[1]);
        let taken = await_frames(&mut all, 200 - inherited);
        assert_eq!(taken, [shares[0], shares[2]]);
        let mut counted = None;
        await_so("the final counters", || {
            all[0].membership().attend();
            counted = all[0].membership().departed().counters;
            counted.is_some_and(|it| it.received > 0)
        });
        let counted = counted.unwrap();
        assert!(counted.received >= 2 * inherited as u64, "{counted:?}");
        assert_eq!(counted.dropped, 0);
        // A newcomer joins into the slot of the member that is gone.
        all.push(join_on_xdp(ifindex, &flow).unwrap());
        await_shares(&all);
        ensure_shared(&mut all);
        leave(all, ifindex);
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn members_on_different_engines_are_told_so() {
    on_pair(|ifindex| {
        let flow = choice(Group::Number(8), "main = steer_flow");
        let _member = join_on_xdp(ifindex, &flow).unwrap();
        let mut sockets = flow.clone();
        let script = Script::of_text(Source::new("test", "main = steer_flow"));
        let steering = Steering::compile(&script, &|_| Err("none".to_owned())).unwrap();
        sockets.steering = Some(Arc::new(steering));
        let error = join_on(ifindex, &sockets, None).err().unwrap();
        let expected = "fan-out group 8 is on engine xdp, this handle on packet sockets";
        assert!(error.to_string().starts_with(expected), "{error}");
        let hash = GroupChoice {
            mode: ModeKind::Hash.into(),
            steering: None,
            ..flow
        };
        let error = join_on(ifindex, &hash, None).err().unwrap();
        assert!(error.to_string().starts_with(expected), "{error}");
        let error = join_on_xdp(ifindex, &hash).err().unwrap();
        assert!(
            error
                .to_string()
                .contains("can't run mode hash on engine xdp"),
            "{error}"
        );
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn the_ledger_adds_up_and_one_member_tells_the_counters() {
    on_pair(|ifindex| {
        let text = "main = udp >-> inc 3 >-> steer_flow";
        let counting = choice(Group::Number(9), text);
        let mut all: Vec<Reader> = (0..2)
            .map(|_| join_on_xdp(ifindex, &counting).unwrap())
            .collect();
        await_shares(&all);
        send(100);
        await_frames(&mut all, 100);
        let told = || {
            let tell = |reader: &Reader| reader.member.steered().unwrap().counted().unwrap().0[3];
            all.iter().map(tell).collect::<Vec<_>>()
        };
        let told = told();
        assert!(told[0] >= 100 && told[1] == 0, "{told:?}");
        let ledger = all[0].membership().ledger().unwrap();
        assert!(ledger.produced >= 100, "{ledger:?}");
        let sum = ledger.nowhere + ledger.no_member + ledger.produced + ledger.dropped;
        assert_eq!(ledger.offered, sum + ledger.unwanted, "{ledger:?}");
        all[0].member.steered().unwrap().publish();
        let found = GroupTable::find(ifindex, 9, Duration::ZERO)
            .unwrap()
            .unwrap();
        let shown = found.look().unwrap().ledger.unwrap();
        assert_eq!(shown.produced, ledger.produced);
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn a_member_tells_of_the_group_whose_first_member_gets_nothing() {
    on_pair(|ifindex| {
        let second = choice(Group::Number(9), "main = steer_to 1");
        let mut all: Vec<Reader> = (0..2)
            .map(|_| join_on_xdp(ifindex, &second).unwrap())
            .collect();
        await_shares(&all);
        send(100);
        await_frames(&mut all, 100);
        // The counters that a member has published may be a tenth of a second old.
        std::thread::sleep(Duration::from_millis(150));
        all[1].member.steered().unwrap().publish();
        let found = GroupTable::find(ifindex, 9, Duration::ZERO)
            .unwrap()
            .unwrap();
        let shown = found.look().unwrap().ledger.unwrap();
        let ledger = all[1].membership().ledger().unwrap();
        assert!(ledger.produced >= 100, "{ledger:?}");
        assert_eq!(shown.offered, ledger.offered);
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn a_group_whose_program_was_detached_takes_no_newcomer_and_others_get_the_device() {
    on_pair(|ifindex| {
        let flow = |group| choice(Group::Number(group), "main = steer_flow");
        let member = join_on_xdp(ifindex, &flow(7)).unwrap();
        let shared = member.membership().shared();
        let ends = shared.on_device.as_ref().unwrap().device_descriptors();
        let [into, out_of] = ends.map(|it| it.try_clone_to_owned().unwrap());
        let (registry, _) = FdStore::of(into, out_of).unwrap();
        let device = registry.find(StoredFd::Engine(ifindex.into())).unwrap();
        let link = device.unwrap().swap_remove(0);
        Attached::open(link, Hook::Driver)
            .unwrap()
            .detach()
            .unwrap();
        let lost = join_on_xdp(ifindex, &flow(7)).err().unwrap();
        assert!(lost.to_string().contains("detached from vb"), "{lost}");
        let mut all = [join_on_xdp(ifindex, &flow(8)).unwrap()];
        await_shares(&all);
        ensure_taken(&mut all, 20, &[20]);
        leave(all, ifindex);
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn the_last_member_that_departs_leaves_its_last_counters() {
    on_pair(|ifindex| {
        let flow = choice(Group::Number(7), "main = steer_flow");
        let both = [(); 2].map(|()| join_on_xdp(ifindex, &flow).unwrap());
        await_shares(&both);
        let group_dir = GroupDir::of(ifindex, 7).unwrap();
        let page = |reader: &Reader| {
            let id = reader.member.identity().id();
            group_dir.hold(std::process::id(), id).unwrap()
        };
        let pages = both.each_ref().map(page);
        send(40);
        let [first, last] = both;
        let given = |reader: &Reader| {
            let counted = reader.membership().counted().unwrap();
            counted.received
        };
        await_so("all frames", || given(&first) + given(&last) >= 40);
        let is_final = |page: &HeldPage| page.takeover().unwrap().is_final;
        // A process that another test forks may hold the group's lock for a while.
        await_so("the first one's end", || {
            first.member.depart();
            !last.membership().departed().sockets.is_empty()
        });
        assert!(!is_final(&pages[0]), "the last member reads the first ring");
        await_so("the last one's counters", || {
            last.member.depart();
            is_final(&pages[1])
        });
        let before = given(&last);
        assert_eq!(pages[1].record().unwrap().counters.received, before);
        send(40);
        assert_eq!(given(&last), before, "packets came after the departure");
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn a_stray_write_to_the_tables_engine_hides_no_member() {
    on_pair(|ifindex| {
        let flow = choice(Group::Number(7), "main = steer_flow");
        let first = join_on_xdp(ifindex, &flow).unwrap();
        first.membership().shared().table().set(at::ENGINE, 99);
        let all = [first, join_on_xdp(ifindex, &flow).unwrap()];
        await_shares(&all);
        leave(all, ifindex);
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn any_member_takes_the_packets_from_the_host_until_its_group_is_gone() {
    on_pair(|ifindex| {
        let host = packet::open().unwrap();
        let protocol = ETH_P_ALL;
        packet::bind(host.as_fd(), Address { ifindex, protocol }).unwrap();
        let counted = || packet::take_statistics(host.as_fd()).unwrap().packets;
        // The kernel may drop packets while the device's driver is reconfigured.
        let await_host = || {
            await_so("the host's packets", || {
                counted();
                send(20);
                std::thread::sleep(Duration::from_millis(10));
                counted() >= 20
            });
        };
        let join = |group, steal| {
            let flow = choice(Group::Number(group), "main = steer_flow");
            let prepared = prepare("xdp", ifindex, &flow, false).unwrap();
            let asks = asks(&prepared);
            join_on(ifindex, &flow, Some(EngineAsk { steal, ..asks })).unwrap()
        };
        // The member that steals is the first on its device, or the first of its group, or joins
        // another member.
        for before in [None, Some(7), Some(8)] {
            let mut first = before.map(|group| join(group, Steal::No));
            await_host();
            first.iter_mut().for_each(|it| _ = it.take());
            let mut all = vec![join(8, Steal::Force)];
            all.extend(first);
            await_shares(&all);
            counted();
            send(20);
            // Each of the two groups gets all packets.
            await_frames(&mut all, if before == Some(7) { 40 } else { 20 });
            assert!(counted() < 20, "{before:?}");
            leave(all, ifindex);
        }
        await_host();
    });
}
