//! A poller that replies late, or that ends.

use super::*;
use fanpcap_linux::file::directory::Directory;
use fanpcap_linux::unix::{message, named};
use fanpcap_poll::message::{MemberCounts, SeenLedger};
use fanpcap_testkit::Scratch;
use fanpcap_testkit::await_for::await_so;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::process;

const NAME: &str = "poller";

/// A ledger with one copy, which is this process, and the poller's end of its connection.
fn ledger() -> (PolledLedger, OwnedFd) {
    let scratch = Scratch::new().unwrap();
    let directory = Directory::open(scratch.file("").as_path()).unwrap();
    let listener = named::socket().unwrap();
    let name = OsStr::new(NAME);
    named::listen(listener.as_fd(), &directory, name, 0o600, 1).unwrap();
    // All replies that come in time are there before the questions.
    let asking = Asking::connect(&directory, name, Duration::from_millis(1)).unwrap();
    let connection = named::accept(listener.as_fd()).unwrap().unwrap();
    let mut ledger = PolledLedger::unasked(5, "packet", "eth7");
    ledger.asking = Some(asking);
    ledger.started(process::id(), 0);
    (ledger, connection)
}

/// Replies to the questions of a look: the copy has a member with these counts.
fn reply(connection: &OwnedFd, counts: MemberCounts) {
    let slot = SeenSlot {
        counts,
        ..slot(1, process::id())
    };
    reply_with(connection, &[], &[slot]);
}

/// A living member of this process.
fn slot(member: u64, pid: u32) -> SeenSlot {
    SeenSlot {
        state: State::Live as u8,
        member,
        pid,
        pool_bytes: 1,
        ..SeenSlot::default()
    }
}

/// Replies to the questions of a look: these members have ended, and the group has these.
fn reply_with(connection: &OwnedFd, ended: &[EndedMember], slots: &[SeenSlot]) {
    let group = SeenGroup {
        number: Some(5),
        user: effective_user(),
        slots: slots.to_vec(),
        ..SeenGroup::default()
    };
    let watched = Watched {
        ended: ended.to_vec(),
        ..Watched::default()
    };
    // After accounts, the ledger asks for more.
    let more = (!ended.is_empty()).then(Watched::default);
    let watched = [Some(watched), more].into_iter().flatten();
    let watched = watched.map(|it| Reply::Watched(Box::new(it)));
    for reply in watched.chain([Reply::Group(Box::new(group)), Reply::NoGroup]) {
        message::send(connection.as_fd(), &reply.encode().unwrap(), &[]).unwrap();
    }
}

const COUNTS: MemberCounts = MemberCounts {
    produced: 10,
    dropped: 2,
    taken: 7,
    rejected: 0,
};

/// The member's counts at the last reply, once, and what is unknown.
fn ensure_lost(ledger: &mut PolledLedger) {
    assert_eq!(ledger.members(0), 1);
    let account = Account {
        received: Some(12),
        dropped: Some(2),
        taken: Some(7),
        unread: None,
        uncounted_at_most: None,
        ..Account::ZERO
    };
    assert_eq!(ledger.account(0), account);
    assert!(!ledger.has_members(0) && !ledger.has_stopped());
}

#[test]
fn a_poller_that_ends_is_not_asked_again() {
    let (mut ledger, connection) = ledger();
    reply(&connection, COUNTS);
    ledger.look();
    assert_eq!((ledger.members(0), ledger.take_complaint()), (1, None));
    drop(connection);
    for is_new in [true, false, false] {
        ledger.look();
        assert_eq!(ledger.take_complaint().is_some(), is_new);
        ensure_lost(&mut ledger);
    }
    ledger.close();
    ensure_lost(&mut ledger);
    // Nothing is known of a copy that starts now.
    ledger.started(1, 1);
    assert_eq!(ledger.account(1), Account::default());
}

#[test]
fn a_late_reply_is_the_reply_to_no_later_question() {
    let (mut ledger, connection) = ledger();
    reply(&connection, COUNTS);
    ledger.look();
    ledger.stop_members();
    assert!(ledger.has_unstopped());
    let done = Reply::Done.encode().unwrap();
    // A process that another test starts may have a copy of the connection for a moment.
    await_so("the end of the connection", || {
        let sent = message::send(connection.as_fd(), &done, &[]);
        sent.is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    });
    let said = ledger.take_complaint().unwrap();
    assert!(said.contains("unknown from now on"), "{said}");
    ledger.look();
    assert_eq!(ledger.take_complaint(), None);
    ensure_lost(&mut ledger);
}

/// Members whose accounts did not come are no members without packets.
#[test]
fn an_account_that_did_not_come_is_unknown() {
    let (mut ledger, connection) = ledger();
    reply(&connection, COUNTS);
    ledger.look();
    ledger.seen = None;
    drop(connection);
    ledger.look();
    assert_eq!(
        (ledger.members(0), ledger.account(0)),
        (1, Account::default())
    );
}

#[test]
fn packets_after_the_stop_are_not_the_groups() {
    let watched = Watched {
        ledger: SeenLedger {
            offered: 100,
            no_member: 3,
            no_time: 5,
            stopped: 40,
            not_allowed: 7,
            ..SeenLedger::default()
        },
        ..Watched::default()
    };
    let at_poller = at_poller(&watched);
    let counts = [at_poller.offered, at_poller.no_member, at_poller.no_time];
    assert_eq!((counts, at_poller.not_allowed), ([60, 3, 5], 7));
}

/// A process that is no copy's reads the last packets of a copy that has ended, between the two
/// questions of a look.
#[test]
fn an_account_that_comes_after_the_group_is_awaited() {
    let (mut ledger, connection) = ledger();
    reply(&connection, COUNTS);
    ledger.look();
    let ended = EndedMember {
        member: 1,
        pid: process::id(),
        counts: COUNTS,
        inherited: 1,
    };
    reply_with(&connection, &[], &[]);
    reply_with(&connection, &[ended], &[]);
    ledger.close();
    let expected = (1, of_ended(&ended), None);
    let found = (
        ledger.members(0),
        ledger.account(0),
        ledger.take_complaint(),
    );
    assert_eq!(found, expected);
}

#[test]
fn an_account_that_never_comes_is_unknown_and_said() {
    let (mut ledger, connection) = ledger();
    reply(&connection, COUNTS);
    ledger.look();
    reply_with(&connection, &[], &[]);
    ledger.close_within(Duration::ZERO);
    let found = (ledger.members(0), ledger.account(0));
    assert_eq!(found, (1, Account::default()));
    let said = ledger.take_complaint().unwrap();
    assert!(
        said.contains("the figures of the copy are unknown"),
        "{said}"
    );
}

/// More than PIDs can be (`PID_MAX_LIMIT`, linux/threads.h).
const GONE: u32 = 1 << 23;

#[test]
fn a_member_whose_process_was_never_seen_is_said() {
    let (mut ledger, connection) = ledger();
    let ended = |member, pid| EndedMember {
        member,
        pid,
        counts: COUNTS,
        inherited: 0,
    };
    // The process of the member 2 is no copy's, and has ended when its member has. That of the
    // member 3 lives.
    let init = 1;
    reply_with(&connection, &[], &[slot(2, init)]);
    ledger.look();
    reply_with(&connection, &[ended(2, GONE), ended(3, init)], &[]);
    ledger.look();
    assert_eq!((ledger.members(0), ledger.take_complaint()), (0, None));
    let without = EndedMember {
        counts: MemberCounts::default(),
        ..ended(4, GONE)
    };
    reply_with(&connection, &[without, ended(5, GONE)], &[]);
    ledger.look();
    assert_eq!(ledger.account(0), Account::uncounted(Some(12)));
    let said = ledger.take_complaint().unwrap();
    assert!(said.contains("lack at most 12 packets"), "{said}");
    assert_eq!(ledger.take_complaint(), None);
}

/// The questions since the last call that change something.
fn changes(connection: &OwnedFd) -> Vec<Question> {
    let mut buffer = [0; 64];
    let mut all = Vec::new();
    while let Ok(Some(message)) = message::receive(connection.as_fd(), &mut buffer, 0) {
        all.push(Question::decode(&buffer[..message.len]).unwrap());
    }
    all.retain(|it| matches!(it, Question::Stop(_) | Question::Weigh { .. }));
    all
}

#[test]
fn a_stopped_copy_gets_no_packets_when_another_process_comes_and_goes() {
    let (mut ledger, connection) = ledger();
    let done = || {
        let done = Reply::Done.encode().unwrap();
        message::send(connection.as_fd(), &done, &[]).unwrap();
    };
    let (own, other) = (slot(1, process::id()), slot(2, 1));
    reply_with(&connection, &[], &[own]);
    done();
    ledger.stop();
    assert_eq!(changes(&connection), [Question::Stop(5)]);
    reply_with(&connection, &[], &[own]);
    ledger.stop_newcomers();
    assert!(changes(&connection).is_empty(), "it is stopped");
    // A newcomer starts the group again.
    reply_with(&connection, &[], &[own, other]);
    done();
    ledger.stop_newcomers();
    let drain = |member| Question::Weigh { member, weight: 0 };
    assert_eq!(changes(&connection), [drain(1)]);
    reply_with(&connection, &[], &[own, other]);
    ledger.stop_newcomers();
    assert!(changes(&connection).is_empty(), "it is drained");
    // The last members of a group get its packets whatever their weights are.
    let ended = EndedMember {
        member: 2,
        pid: GONE,
        ..EndedMember::default()
    };
    reply_with(&connection, &[ended], &[own]);
    done();
    ledger.stop_newcomers();
    assert_eq!(changes(&connection), [Question::Stop(5)]);
    // One that comes and goes between two looks has started the group, too.
    let of_copy = EndedMember {
        member: 4,
        pid: process::id(),
        ..ended
    };
    for ended in [EndedMember { member: 3, ..ended }, of_copy] {
        reply_with(&connection, &[ended], &[own]);
        done();
        ledger.stop_newcomers();
        assert_eq!(changes(&connection), [Question::Stop(5)]);
    }
    assert!(!ledger.has_unstopped() && ledger.has_stopped());
}
