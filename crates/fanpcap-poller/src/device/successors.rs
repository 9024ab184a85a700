//! Members that have something to inherit are asked to take no packets, before the buckets of a
//! member that is gone are given away.
//!
//! One member is asked first. If it does not answer in time, such as one that hangs with an empty
//! pool, all others that may inherit are asked. The first that answers inherits, and each of the
//! others goes on as soon as it answers. Until then the member that is gone keeps its buckets, as
//! on other engines, where no member takes over that does not run. A member has one question at
//! most that it has not answered. So a member that does not answer delays one takeover only, and
//! the poller remembers one number of each member.

use super::member::State;
use super::{Device, Member, Notice, Told};

/// How long one member alone is asked, nanoseconds: twice the time after which a busy reader looks
/// for messages.
const ANSWER_NS: u64 = 200_000_000;

impl Device {
    /// Asks members of a group that have something to inherit, the best first.
    pub(super) fn ask(&mut self, index: u8, successors: &[u64], now_ns: u64) -> Vec<Notice> {
        let asked: Vec<u64> = self.asked(index).collect();
        if asked.iter().any(|&asked_ns| is_new(asked_ns, now_ns)) {
            return Vec::new();
        }
        let count = if asked.is_empty() {
            1
        } else {
            successors.len()
        };
        let mut notices = Vec::new();
        for &to in successors {
            let member = self.members.get_mut(&to);
            let member = member.filter(|it| it.asked_ns.is_none() && notices.len() < count);
            if let Some(member) = member {
                member.asked_ns = Some(now_ns);
                let what = Told::Hold;
                notices.push(Notice { to, what });
            }
        }
        notices
    }

    /// Whether a member of a group has been asked that still has time to answer.
    pub(super) fn is_asking(&self, index: u8, now_ns: u64) -> bool {
        self.asked(index).any(|asked_ns| is_new(asked_ns, now_ns))
    }

    /// Whether a member has been asked and has not answered.
    pub(super) fn is_asked(&self, member: u64) -> bool {
        let member = self.members.get(&member);
        member.is_some_and(|it| it.asked_ns.is_some())
    }

    /// Nanoseconds until other members are asked, because one has not answered; `None` if they have
    /// been asked, or none has to answer. The group was last looked after at `attended_ns`.
    pub(super) fn until_answer(&self, index: u8, attended_ns: u64, now_ns: u64) -> Option<u64> {
        let asked = self.asked(index).filter(|&it| is_new(it, attended_ns));
        let due = asked.map(|asked_ns| (asked_ns + ANSWER_NS).saturating_sub(now_ns));
        due.min()
    }

    /// When the members of a group were asked that have not answered.
    fn asked(&self, index: u8) -> impl Iterator<Item = u64> {
        let is_there = move |it: &&Member| it.group == index && it.state != State::Gone;
        let members = self.members.values().filter(is_there);
        members.filter_map(|it| it.asked_ns)
    }
}

/// Whether a member that was asked still has time to answer.
fn is_new(asked_ns: u64, now_ns: u64) -> bool {
    now_ns.saturating_sub(asked_ns) < ANSWER_NS
}
