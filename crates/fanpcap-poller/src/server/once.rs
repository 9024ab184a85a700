//! What each user may do once in a turn, or once in a few milliseconds, on connections that are not
//! of members.

use crate::accounts::Account;
use fanpcap_poll::message::Question;
use std::collections::{BTreeMap, BTreeSet};

/// How long a user's next question waits that the queues' threads answer, nanoseconds. These
/// threads have packets to take.
const BETWEEN_NS: u64 = 5_000_000;

/// More bytes than a question has.
pub(super) const HEAD_LEN: usize = 64;

/// What a process says that is no member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speech {
    /// A *hello*, or anything that is no question.
    Hello,
    /// A question that the queues' threads need not answer each time.
    Look,
    /// A question for which the queues' threads do something.
    Change,
}

impl Speech {
    /// Of a message of `len` bytes, which begins with these.
    pub(super) fn of(head: &[u8], len: usize) -> Self {
        let message = head.get(..len).unwrap_or_default();
        match Question::decode(message) {
            Ok(Question::Look(_)) => Self::Look,
            Ok(Question::Weigh { .. } | Question::Watch(_) | Question::Stop(_)) => Self::Change,
            Err(_) => Self::Hello,
        }
    }
}

/// What users have done.
#[derive(Debug, Default)]
pub(super) struct Once {
    /// The users of whom a newcomer has said *hello* in this turn. Their next newcomers wait for
    /// the next turn, so that a user with many newcomers delays another user's newcomer by one of
    /// its own at most: to make a pool takes milliseconds.
    greeted: BTreeSet<Account>,
    /// The users that have asked a question in this turn. Questions do not delay newcomers.
    asked: BTreeSet<Account>,
    /// When each user may ask a question again for which the queues' threads do something.
    changes_ns: BTreeMap<Account, u64>,
}

impl Once {
    /// Begins a turn.
    pub(super) fn begin(&mut self, now_ns: u64) {
        self.greeted.clear();
        self.asked.clear();
        self.changes_ns.retain(|_, until_ns| *until_ns > now_ns);
    }

    /// A process of this user says this, now.
    ///
    /// # Errors
    /// It must wait: at least until this time, and for the next turn.
    pub(super) fn take(
        &mut self,
        account: Account,
        speech: Speech,
        now_ns: u64,
    ) -> Result<(), u64> {
        let done = match speech {
            Speech::Hello => &mut self.greeted,
            Speech::Look | Speech::Change => &mut self.asked,
        };
        if done.contains(&account) {
            return Err(now_ns);
        }
        if speech == Speech::Change {
            let until_ns = self.changes_ns.entry(account).or_default();
            if *until_ns > now_ns {
                return Err(*until_ns);
            }
            *until_ns = now_ns + BETWEEN_NS;
        }
        done.insert(account);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_poll::message::{Hello, Request, Steering};

    const ONE: Account = Account(1);
    const NOW_NS: u64 = 7_000_000_000;

    #[test]
    fn messages_are_told_apart_by_their_beginnings() {
        let change = Question::Weigh {
            member: u64::MAX,
            weight: u16::MAX,
        };
        for (question, expected) in [
            (Question::Look(0), Speech::Look),
            (change, Speech::Change),
            (Question::Watch(5), Speech::Change),
            (Question::Stop(5), Speech::Change),
        ] {
            let bytes = question.encode();
            assert!(bytes.len() <= HEAD_LEN);
            assert_eq!(Speech::of(&bytes, bytes.len()), expected);
            let longer = [bytes, vec![0; HEAD_LEN]].concat();
            assert_eq!(Speech::of(&longer[..HEAD_LEN], longer.len()), Speech::Hello);
        }
        let hello = Request::Hello(Hello {
            group: None,
            steering: Steering::Any,
            name: None,
            weight: 1,
            class: 0,
            snaplen: 96,
            memory: None,
            wants_sent: true,
            wants_number: false,
            pair: 0,
            poller: 0,
        });
        let bytes = hello.encode().unwrap();
        assert_eq!(Speech::of(&bytes, bytes.len()), Speech::Hello);
        assert_eq!(Speech::of(b"", 0), Speech::Hello);
    }

    #[test]
    fn a_turn_has_a_hello_and_a_question_of_each_user() {
        let mut once = Once::default();
        for turn in 0..3 {
            once.begin(NOW_NS + turn);
            for user in [ONE, Account(2)] {
                for speech in [Speech::Look, Speech::Hello] {
                    assert_eq!(once.take(user, speech, NOW_NS + turn), Ok(()));
                    assert!(once.take(user, speech, NOW_NS + turn).is_err());
                }
                assert!(once.take(user, Speech::Change, NOW_NS + turn).is_err());
            }
        }
    }

    #[test]
    fn questions_for_which_the_queues_do_something_come_once_in_five_milliseconds() {
        let (mut once, due_ns) = (Once::default(), NOW_NS + BETWEEN_NS);
        assert_eq!(once.take(ONE, Speech::Change, NOW_NS), Ok(()));
        for now_ns in [NOW_NS + 1, due_ns - 1] {
            once.begin(now_ns);
            assert_eq!(once.take(ONE, Speech::Change, now_ns), Err(due_ns));
            assert_eq!(once.take(ONE, Speech::Look, now_ns), Ok(()));
        }
        once.begin(due_ns - 1);
        assert_eq!(once.take(Account(2), Speech::Change, due_ns - 1), Ok(()));
        once.begin(due_ns);
        assert_eq!(once.take(ONE, Speech::Change, due_ns), Ok(()));
    }
}
