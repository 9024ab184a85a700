//! The rendezvous in a directory that belongs to the test: members, newcomers, and wrong answers.

use super::*;
use crate::page::tests::{Base, create};
use fanpcap_linux::unix::message::send;
use std::net::{SocketAddr, UdpSocket};

const SOON: Duration = Duration::from_millis(100);

/// The descriptors that a test's members share.
struct Descriptors([UdpSocket; DESCRIPTORS]);

impl Descriptors {
    fn new() -> Self {
        Self([(); DESCRIPTORS].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap()))
    }

    fn borrowed(&self) -> [BorrowedFd<'_>; DESCRIPTORS] {
        self.0.each_ref().map(AsFd::as_fd)
    }

    fn addresses(&self) -> [SocketAddr; DESCRIPTORS] {
        self.0.each_ref().map(|it| it.local_addr().unwrap())
    }
}

#[test]
fn a_newcomer_gets_what_a_member_hands_out() {
    let base = Base::new("request");
    let group_dir = base.group_dir(4);
    let (shared, rendezvous) = (Descriptors::new(), Rendezvous::new().unwrap());
    let mut request = DescriptorRequest::at(Some(&group_dir));
    assert!(request.poll().is_none());
    assert_eq!(
        request.to_string(),
        "the group has no socket beside its pages"
    );
    rendezvous.answer(&shared.borrowed()).unwrap();
    let page = create(&group_dir);
    rendezvous.open(&page).unwrap();
    assert!(request.poll().is_none());
    request.wait(Duration::from_millis(1));
    assert!(request.poll().is_none());
    assert!(
        request.to_string().starts_with("no member answers"),
        "{request}"
    );
    rendezvous.answer(&shared.borrowed()).unwrap();
    request.wait(SOON);
    let heard = request.poll().unwrap().into_iter().map(UdpSocket::from);
    let heard: Vec<SocketAddr> = heard.map(|it| it.local_addr().unwrap()).collect();
    assert_eq!(heard, shared.addresses());
    // A group with a registry hands out more descriptors.
    assert!(request.poll().is_none());
    let more = [&shared.borrowed()[..], &shared.borrowed()[..2]].concat();
    rendezvous.answer(&more).unwrap();
    request.wait(SOON);
    assert_eq!(request.poll().unwrap().len(), WITH_REGISTRY);
    // Any process that has the socket can answer, not only the process that opened it.
    let other = Rendezvous::of(rendezvous.as_fd().try_clone_to_owned().unwrap()).unwrap();
    drop(rendezvous);
    assert!(request.poll().is_none());
    other.answer(&shared.borrowed()).unwrap();
    assert!(request.poll().is_some());
    drop(other);
    let mut late = DescriptorRequest::at(Some(&group_dir));
    assert!(late.poll().is_none());
    assert_eq!(late.to_string(), "the group has no socket beside its pages");
}

#[test]
fn newcomers_that_never_listen_delay_nobody() {
    let base = Base::new("silent");
    let group_dir = base.group_dir(4);
    let (shared, rendezvous) = (Descriptors::new(), Rendezvous::new().unwrap());
    let page = create(&group_dir);
    rendezvous.open(&page).unwrap();
    let requests: Vec<_> = (0..=NEWCOMERS_MAX)
        .map(|_| {
            let mut request = DescriptorRequest::at(Some(&group_dir));
            assert!(request.poll().is_none());
            assert!(!request.waiting.is_empty());
            request
        })
        .collect();
    let mut last = DescriptorRequest::at(Some(&group_dir));
    assert!(last.poll().is_none() && last.waiting.is_empty());
    assert!(last.to_string().starts_with("no member answers"), "{last}");
    drop(requests);
    // One call answers all these requests.
    rendezvous.answer(&shared.borrowed()).unwrap();
    assert!(named::accept(rendezvous.as_fd()).unwrap().is_none());
    assert!(last.poll().is_none());
    rendezvous.answer(&shared.borrowed()).unwrap();
    assert!(last.poll().is_some());
}

#[test]
fn what_is_no_answer_is_not_taken_for_one() {
    let base = Base::new("foreign");
    let group_dir = base.group_dir(4);
    let (shared, rendezvous) = (Descriptors::new(), Rendezvous::new().unwrap());
    let page = create(&group_dir);
    rendezvous.open(&page).unwrap();
    let [first, second, ..] = shared.borrowed();
    let five = [&shared.borrowed()[..], &[first]].concat();
    let (none, two) = (&[][..], &[first, second][..]);
    let answers: [(&[u8], &[BorrowedFd<'_>]); 5] = [
        (b"FPDOOR_9", &shared.borrowed()),
        (b"FPDOOR_1 and more", &shared.borrowed()),
        (&ANSWER, none),
        (&ANSWER, two),
        (&ANSWER, &five),
    ];
    for (bytes, descriptors) in answers {
        let mut request = DescriptorRequest::at(Some(&group_dir));
        assert!(request.poll().is_none());
        let member = named::accept(rendezvous.as_fd()).unwrap().unwrap();
        send(member.as_fd(), bytes, descriptors).unwrap();
        assert!(request.poll().is_none() && request.waiting.is_empty());
        assert!(
            request.to_string().starts_with("the group's socket: "),
            "{request}"
        );
        // The newcomer sends another request.
        assert!(request.poll().is_none());
        rendezvous.answer(&shared.borrowed()).unwrap();
        assert!(request.poll().is_some());
    }
    let mut request = DescriptorRequest::at(Some(&group_dir));
    assert!(request.poll().is_none());
    drop(named::accept(rendezvous.as_fd()).unwrap());
    assert!(request.poll().is_none());
    assert!(
        request.to_string().contains("belongs to another user"),
        "{request}"
    );
    assert!(Rendezvous::of(shared.0[0].try_clone().unwrap().into()).is_err());
}
