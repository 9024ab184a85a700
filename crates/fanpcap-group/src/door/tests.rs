//! Doors in a directory of the test's own: who answers, who is answered, and what comes instead.

use super::*;
use crate::page::tests::{Base, create};
use fanpcap_linux::unix::message::send;
use std::net::{SocketAddr, UdpSocket};

const SOON: Duration = Duration::from_millis(100);

/// What a test's members share.
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
    let base = Base::new("knock");
    let group_dir = base.group_dir(4);
    let (shared, door) = (Descriptors::new(), Door::new().unwrap());
    let mut knock = Knock::at(Some(&group_dir));
    assert!(knock.hear().is_none());
    assert_eq!(knock.to_string(), "the group has no door");
    door.answer(&shared.borrowed()).unwrap();
    let page = create(&group_dir);
    door.open(&page).unwrap();
    assert!(knock.hear().is_none());
    knock.wait(Duration::from_millis(1));
    assert!(knock.hear().is_none());
    assert!(knock.to_string().starts_with("nobody answers"), "{knock}");
    door.answer(&shared.borrowed()).unwrap();
    knock.wait(SOON);
    let heard = knock.hear().unwrap().into_iter().map(UdpSocket::from);
    let heard: Vec<SocketAddr> = heard.map(|it| it.local_addr().unwrap()).collect();
    assert_eq!(heard, shared.addresses());
    // A group with a dock hands out more.
    assert!(knock.hear().is_none());
    let more = [&shared.borrowed()[..], &shared.borrowed()[..2]].concat();
    door.answer(&more).unwrap();
    knock.wait(SOON);
    assert_eq!(knock.hear().unwrap().len(), WITH_DOCK);
    // Whoever has the socket answers, the opener's process or another.
    let other = Door::of(door.as_fd().try_clone_to_owned().unwrap()).unwrap();
    drop(door);
    assert!(knock.hear().is_none());
    other.answer(&shared.borrowed()).unwrap();
    assert!(knock.hear().is_some());
    drop(other);
    let mut late = Knock::at(Some(&group_dir));
    assert!(late.hear().is_none());
    assert_eq!(late.to_string(), "the group has no door");
}

#[test]
fn who_knocks_and_never_listens_keeps_nobody_waiting() {
    let base = Base::new("silent");
    let group_dir = base.group_dir(4);
    let (shared, door) = (Descriptors::new(), Door::new().unwrap());
    let page = create(&group_dir);
    door.open(&page).unwrap();
    let knocks: Vec<_> = (0..=NEWCOMERS_MAX)
        .map(|_| {
            let mut knock = Knock::at(Some(&group_dir));
            assert!(knock.hear().is_none());
            assert!(!knock.waiting.is_empty());
            knock
        })
        .collect();
    let mut last = Knock::at(Some(&group_dir));
    assert!(last.hear().is_none() && last.waiting.is_empty());
    assert!(last.to_string().starts_with("nobody answers"), "{last}");
    drop(knocks);
    // One call answers all of those.
    door.answer(&shared.borrowed()).unwrap();
    assert!(named::accept(door.as_fd()).unwrap().is_none());
    assert!(last.hear().is_none());
    door.answer(&shared.borrowed()).unwrap();
    assert!(last.hear().is_some());
}

#[test]
fn what_is_no_answer_is_not_taken_for_one() {
    let base = Base::new("foreign");
    let group_dir = base.group_dir(4);
    let (shared, door) = (Descriptors::new(), Door::new().unwrap());
    let page = create(&group_dir);
    door.open(&page).unwrap();
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
        let mut knock = Knock::at(Some(&group_dir));
        assert!(knock.hear().is_none());
        let member = named::accept(door.as_fd()).unwrap().unwrap();
        send(member.as_fd(), bytes, descriptors).unwrap();
        assert!(knock.hear().is_none() && knock.waiting.is_empty());
        assert!(
            knock.to_string().starts_with("the group's door: "),
            "{knock}"
        );
        // It knocks once more.
        assert!(knock.hear().is_none());
        door.answer(&shared.borrowed()).unwrap();
        assert!(knock.hear().is_some());
    }
    let mut knock = Knock::at(Some(&group_dir));
    assert!(knock.hear().is_none());
    drop(named::accept(door.as_fd()).unwrap());
    assert!(knock.hear().is_none());
    assert!(knock.to_string().contains("not let in"), "{knock}");
    assert!(Door::of(shared.0[0].try_clone().unwrap().into()).is_err());
}
