//! Newcomers that can't make their own rings take those that the founder makes.

use super::*;
use crate::found;
use crate::guard::GroupLock;
use crate::shared::Shared;
use crate::spares;
use std::thread;

/// A founded group, and its objects as a newcomer finds them.
struct Founded {
    founder: Founder,
    shared: Arc<Shared>,
    lock: GroupLock,
}

impl Founded {
    fn on(ifindex: u32) -> Self {
        let flow = choice(Group::Number(GROUP), "main = steer_flow");
        let founder = found_on_xdp(ifindex, &flow);
        let identity = Identity::outside(GROUP, ifindex);
        let lock = GroupLock::open(&identity).unwrap();
        let guard = lock.take().unwrap();
        let shared = found::find(&identity, ifindex).unwrap();
        drop(guard);
        Self {
            founder,
            shared: shared.unwrap(),
            lock,
        }
    }

    /// The size of the rings for who asks for so many MiB.
    fn size(&self, mib: u32) -> u32 {
        spares::size(self.shared.engine.unwrap(), Some(mib << 20)).unwrap()
    }

    /// The sizes of the rings in the store.
    fn stored(&self) -> Vec<u64> {
        let _guard = self.lock.take().unwrap();
        let mut sizes = Vec::new();
        let mut look = |entry, _| {
            if let StoredFd::Spare(number) = entry {
                sizes.push(number & u64::from(u32::MAX));
            }
            true
        };
        self.shared.fd_store.visit(&mut look).unwrap();
        sizes
    }

    /// Newcomers take rings of so many MiB at once, while the founder looks after the group.
    fn take_at_once(&self, mib: &[u32]) -> Vec<Option<Vec<OwnedFd>>> {
        let take =
            |mib: u32| spares::take(&self.shared, &self.lock, Some(mib << 20), true).unwrap();
        thread::scope(|scope| {
            let begin = |mib: &u32| {
                let mib = *mib;
                scope.spawn(move || take(mib))
            };
            let takers: Vec<_> = mib.iter().map(begin).collect();
            while takers.iter().any(|it| !it.is_finished()) {
                self.founder.attend().unwrap();
                thread::sleep(Duration::from_millis(2));
            }
            takers.into_iter().map(|it| it.join().unwrap()).collect()
        })
    }

    fn get(&self, word: usize) -> u64 {
        self.shared.table().get(word)
    }

    /// Waits until the founder has made all rings that were asked for.
    fn await_stored(&self, count: usize) {
        await_so("rings in the store", || {
            self.founder.attend().unwrap();
            self.get(at::ASKED_RINGS) == self.get(at::MADE_RINGS) && self.stored().len() == count
        });
    }

    /// Bytes of these rings, which no member has used.
    fn adopt(&self, rings: Vec<OwnedFd>) -> usize {
        let on_device = self.shared.on_device.as_ref().unwrap();
        on_device.open(&ASK, Some(rings)).unwrap().bytes()
    }
}

const ASK: Ask = Ask {
    snaplen: 96,
    bytes: Some(4 << 20),
    outgoing: false,
};

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn newcomers_at_once_have_one_ring_each_and_one_is_left() {
    on_pair(|ifindex| {
        let founded = Founded::on(ifindex);
        founded.founder.attend().unwrap();
        assert!(founded.stored().is_empty(), "nobody has asked");
        let taken = founded.take_at_once(&[4; 20]);
        assert!(taken.iter().all(Option::is_some));
        founded.await_stored(1);
        assert_eq!(founded.get(at::MADE_RINGS), 21);
        // The next newcomer need not wait, and one is left again.
        assert!(founded.take_at_once(&[4])[0].is_some());
        founded.await_stored(1);
        assert_eq!(founded.get(at::MADE_RINGS), 22);
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn newcomers_that_ask_for_two_sizes_get_them() {
    on_pair(|ifindex| {
        let founded = Founded::on(ifindex);
        let mib = [4, 32, 4, 32, 4, 32];
        let taken = founded.take_at_once(&mib);
        for (mib, rings) in mib.into_iter().zip(taken) {
            let bytes = founded.adopt(rings.unwrap());
            assert_eq!(Ok(founded.size(mib)), u32::try_from(bytes));
        }
        founded.await_stored(1);
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn a_newcomer_that_gives_up_withdraws_its_request() {
    on_pair(|ifindex| {
        let founded = Founded::on(ifindex);
        let take = |has| spares::take(&founded.shared, &founded.lock, Some(4 << 20), has);
        assert!(take(true).unwrap().is_none(), "the founder makes none");
        assert_eq!(founded.get(at::ASKED_RINGS), 0);
        founded.founder.attend().unwrap();
        assert!(founded.stored().is_empty());
        // Without a founder, a newcomer does not wait.
        assert!(take(false).unwrap().is_none());
        assert_eq!(founded.get(at::ASKED_RINGS), 0);
    });
}

/// A newcomer may withdraw its request while the founder makes the rings.
#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn a_founder_that_has_made_too_many_rings_makes_no_more() {
    on_pair(|ifindex| {
        let founded = Founded::on(ifindex);
        assert!(founded.take_at_once(&[4])[0].is_some());
        founded.await_stored(1);
        let asked = founded.get(at::ASKED_RINGS);
        founded.shared.table().set(at::ASKED_RINGS, asked - 1);
        for _ in 0..5 {
            founded.founder.attend().unwrap();
        }
        assert_eq!(founded.stored().len(), 1);
        let taken = founded.take_at_once(&[4, 4]);
        assert!(taken.iter().all(Option::is_some));
        founded.await_stored(1);
    });
}

/// Any member can write to the table.
#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn stray_words_of_the_table_make_a_founder_make_some_rings_only() {
    on_pair(|ifindex| {
        let founded = Founded::on(ifindex);
        let table = founded.shared.table();
        table.set(at::ASKED_RINGS, 1 << 40);
        let most = usize::try_from(spares::AHEAD_MAX).unwrap();
        for mib in [4, 8] {
            table.set(at::ASKED_BYTES, founded.size(mib).into());
            let all = vec![u64::from(founded.size(mib)); most];
            await_so("all rings", || {
                founded.founder.attend().unwrap();
                founded.stored() == all
            });
            founded.founder.attend().unwrap();
            assert_eq!(founded.stored(), all);
        }
        table.set(at::MADE_RINGS, 77);
        let taken = founded.take_at_once(&[4, 8]);
        assert!(taken.iter().all(Option::is_some));
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn rings_that_a_member_has_used_are_no_newcomers() {
    on_pair(|ifindex| {
        let founded = Founded::on(ifindex);
        let flow = choice(Group::Number(GROUP), "main = steer_flow");
        let mut all = [join_on_xdp(ifindex, &flow).unwrap()];
        await_shares(&all);
        ensure_taken(&mut all, 20, &[20]);
        let (_, rings) = all[0].membership().io().unwrap();
        let used = rings.descriptors().into_iter();
        let used = used.map(|it| it.try_clone_to_owned().unwrap()).collect();
        let on_device = founded.shared.on_device.as_ref().unwrap();
        let refused = on_device.open(&ASK, Some(used)).err().unwrap();
        assert!(refused.to_string().contains("busy"), "{refused}");
        let taken = founded.take_at_once(&[4]).swap_remove(0);
        assert!(founded.adopt(taken.unwrap()) > 0);
    });
}

/// The number that the founder's group had on the device may be another group's by now.
#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn a_founder_that_was_replaced_gives_no_packets_back() {
    on_pair(|ifindex| {
        let founded = Founded::on(ifindex);
        let other = choice(Group::Number(GROUP), "main = steer_to 0");
        let mut all = [join_and_steal(ifindex, &other)];
        assert!(founded.founder.is_replaced());
        let number = all[0].membership().shared().table().get(at::GROUP_SLOT);
        founded.shared.table().set(at::GROUP_SLOT, number);
        founded.shared.table().set(at::STEALS, 1);
        founded.founder.attend().unwrap();
        await_shares(&all);
        let counted = host(ifindex);
        ensure_taken(&mut all, 20, &[20]);
        assert!(counted() < 20);
        drop(founded);
        leave(all, ifindex);
    });
}
