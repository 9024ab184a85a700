//! What a source has dropped reaches the members that were there.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "scene/clients.rs"]
mod clients;
mod scene;

use clients::{Poller, await_answer, hello};
use fanpcap_linux::unix::message;
use fanpcap_poll::message::{Answer, Request};
use fanpcap_poller::queue::{Idle, Queue};
use fanpcap_poller::{Burst, Source, SourceCounts, SourceError};
use fanpcap_ring::PoolWords;
use fanpcap_testkit::await_for::await_so;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// A source that drops packets and has none.
#[derive(Clone, Default)]
struct Dropping(Arc<AtomicU64>, u16);

impl Source for Dropping {
    fn burst<'s>(&'s mut self, _: &mut Burst<'s>) -> Result<(), SourceError> {
        thread::sleep(Duration::from_micros(200));
        Ok(())
    }

    fn release(&mut self) {}

    fn check(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    fn waits_on(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn transmit(&mut self, _: &[u8]) -> io::Result<bool> {
        Ok(false)
    }

    fn queue(&self) -> u16 {
        self.1
    }

    fn counts(&mut self) -> SourceCounts {
        let dropped = self.0.load(Ordering::Relaxed);
        SourceCounts {
            received: dropped,
            dropped,
            ..SourceCounts::default()
        }
    }
}

/// A member's connection, and the words of its pool.
struct Member(
    PoolWords,
    #[expect(dead_code, reason = "keeps the member")] OwnedFd,
);

impl Member {
    fn enter(poller: &Poller) -> Self {
        let socket = poller.connect();
        let bytes = Request::Hello(hello()).encode().unwrap();
        message::send(socket.as_fd(), &bytes, &[]).unwrap();
        let (answer, descriptors) = await_answer(socket.as_fd()).unwrap();
        let Answer::Welcome(welcome) = answer else {
            panic!("{answer:?}");
        };
        let pool = welcome.open(descriptors).unwrap().pool;
        Self(pool.map_words().unwrap(), socket)
    }

    fn missed(&self) -> [u64; 2] {
        [0, 1].map(|lane| self.0.missed(lane))
    }
}

#[test]
fn members_see_the_drops_of_each_queue_since_they_came() {
    let sources = [0, 1].map(|queue| Dropping(Arc::default(), queue));
    let drop = |queue: usize, count| sources[queue].0.fetch_add(count, Ordering::Relaxed);
    drop(0, 5);
    let queue = |it: &Dropping| Queue::start(Box::new(it.clone()), Idle::Spin, || {}).unwrap();
    let poller = Poller::of_queues(sources.iter().map(queue).collect());
    let first = Member::enter(&poller);
    assert_eq!(first.missed(), [0, 0], "before it came");
    drop(0, 7);
    drop(1, 1);
    await_so("the drops", || first.missed() == [7, 1]);
    let second = Member::enter(&poller);
    assert_eq!(second.missed(), [0, 0], "before it came");
    drop(0, 2);
    await_so("the drops", || first.missed() == [9, 1]);
    await_so("the drops", || second.missed() == [2, 0]);
}
