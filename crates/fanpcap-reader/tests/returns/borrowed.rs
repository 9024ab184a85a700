//! Another member reads the ring of a member that does not read, until the ring's owner begins to
//! read. Each packet must be delivered once, by one of the two.

use super::fake::{FakeDevice, NONBLOCKING, Return, packet, times};
use super::group_tasks::{FakeGroup, keep};
use fanpcap_linux::file::shared;
use fanpcap_reader::borrowed::{Claims, take_back};
use fanpcap_reader::{Reader, Takeover};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const TIMEOUT: Option<Duration> = Some(Duration::from_millis(10));
const COUNT: fn(i32) -> Return = Return::Count;

#[test]
fn an_owner_reads_on_behind_what_a_borrower_has_read() {
    for (is_v3, read) in [(true, 2_u32), (true, 3), (false, 0), (false, 2), (true, 4)] {
        let (mut lent, input) = FakeDevice::new(is_v3, TIMEOUT);
        let owner = Reader::new(input, &NONBLOCKING).unwrap();
        let position = keep(&owner);
        lent.arrive(&[1, 2, 3].map(|number| packet(number, 60)));
        lent.arrive(&[4].map(|number| packet(number, 60)));

        let looked = shared::own(&[0])[0].clone();
        let (_device, input) = FakeDevice::new(true, TIMEOUT);
        let reader = Reader::new(input, &NONBLOCKING).unwrap();
        let tasks = FakeGroup::new();
        let done = Arc::new(AtomicU64::new(u64::MAX));
        let told = Arc::clone(&done);
        tasks.inherited.lock().unwrap().push_back(vec![Takeover {
            remains: lent.remains(position.get()),
            published: position.clone(),
            rejected: None,
            claims: Claims::on(&looked),
            done: Box::new(move |taken| told.store(taken, Ordering::SeqCst)),
        }]);
        tasks.join(&reader);
        let first: Vec<i64> = (1..=i64::from(read)).collect();
        if read > 0 {
            let count = i32::try_from(read).unwrap();
            assert_eq!(times(&reader, count), (COUNT(count), first));
        }

        let of_owner = FakeGroup::new();
        let claimed = take_back(&looked, 70).unwrap();
        assert_eq!(claimed, u64::from(read));
        of_owner.skipped.store(claimed, Ordering::SeqCst);
        of_owner.join(&owner);
        let rest: Vec<i64> = (i64::from(read) + 1..=4).collect();
        let count = COUNT(i32::try_from(rest.len()).unwrap());
        assert_eq!(times(&owner, -1), (count, rest), "{is_v3} {read}");
        assert_eq!(times(&reader, -1), (COUNT(0), vec![]), "{is_v3} {read}");
        assert_eq!(done.load(Ordering::SeqCst), u64::from(read));
        assert_eq!(position.get().taken, 4);
        lent.arrive(&[packet(5, 60)]);
        assert_eq!(times(&owner, -1), (COUNT(1), vec![5]));
    }
}
