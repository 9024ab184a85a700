//! Which users may become members of a device, and what each of them may take. A policy file has
//! rules for users and for groups of users ([`file`]).

pub mod file;

use crate::filter::Filter;
use crate::limits::{Limit, Limits};
use std::sync::Arc;

/// What a rule gives to each of its users, where this is not the poller's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// The most connections.
    pub connections: Option<u64>,
    /// The most groups.
    pub groups: Option<u64>,
    /// The most bytes of pools, tables and remembered flows.
    pub bytes: Option<u64>,
    /// Which packets the members may have; `None`: all.
    pub filter: Option<Arc<Filter>>,
}

impl Grant {
    /// The limits of a user who has this grant. Those of all users together stay.
    pub(crate) fn limits(&self, limits: Limits) -> Limits {
        let own = |limit: Limit, each: Option<u64>| Limit {
            each: each.unwrap_or(limit.each),
            ..limit
        };
        Limits {
            connections: own(limits.connections, self.connections),
            groups: own(limits.groups, self.groups),
            bytes: own(limits.bytes, self.bytes),
        }
    }
}

/// What users have who may not become members: connections that wait for the answer.
pub(crate) const STRANGER: Grant = Grant {
    connections: Some(4),
    groups: Some(0),
    bytes: Some(0),
    filter: None,
};

/// For whom a rule is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The user with this number.
    User(u32),
    /// Processes in the group of users with this number.
    Group(u32),
}

/// A rule for a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// For whom the rule is.
    pub who: Who,
    /// What the rule gives; `None` if these users may not become members of the device.
    pub gives: Option<Grant>,
}

/// The users for whom there is no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// Whoever can connect to the socket may become a member.
    AllWhoConnect,
    /// Root, and processes in this group of users.
    RootAnd(Option<u32>),
    /// Nobody.
    Nobody,
}

/// The rules of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    rules: Vec<Rule>,
    others: Others,
}

impl Access {
    /// The rules in the order of the policy file.
    pub fn new(rules: Vec<Rule>, others: Others) -> Self {
        Self { rules, others }
    }

    /// Whoever can connect may become a member.
    pub fn without_rules() -> Self {
        Self::new(Vec::new(), Others::AllWhoConnect)
    }

    /// What a process of this user, which is in these groups, may take. `None` if it may not become
    /// a member. A rule for the user comes before all rules for groups, and of those the first one
    /// counts, alone: no filter of another rule is added. A process can leave its groups, so a rule
    /// for a group can't take anything away that a later rule or [`Others`] has.
    pub fn of(&self, user: u32, groups: &[u32]) -> Option<Grant> {
        let is_users = |rule: &&Rule| rule.who == Who::User(user);
        let is_groups = |rule: &&Rule| match rule.who {
            Who::User(_) => false,
            Who::Group(group) => groups.contains(&group),
        };
        let rule = self.rules.iter().find(is_users);
        match rule.or_else(|| self.rules.iter().find(is_groups)) {
            Some(rule) => rule.gives.clone(),
            None => self.others.have(user, groups).then(Grant::default),
        }
    }
}

impl Others {
    fn have(self, user: u32, groups: &[u32]) -> bool {
        match self {
            Self::AllWhoConnect => true,
            Self::RootAnd(group) => user == 0 || group.is_some_and(|it| groups.contains(&it)),
            Self::Nobody => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Grant = Grant {
        connections: Some(2),
        groups: None,
        bytes: Some(1 << 20),
        filter: None,
    };

    fn rule(who: Who, gives: Option<Grant>) -> Rule {
        Rule { who, gives }
    }

    #[test]
    fn the_users_rule_comes_first_then_the_first_of_its_groups_then_the_others() {
        let large = Grant {
            groups: Some(64),
            ..Grant::default()
        };
        let rules = vec![
            rule(Who::Group(100), Some(SMALL)),
            rule(Who::Group(200), None),
            rule(Who::User(7), Some(large.clone())),
            rule(Who::User(8), None),
        ];
        let with = |others| Access::new(rules.clone(), others);
        let all = with(Others::RootAnd(Some(300)));
        for (user, groups, expected) in [
            (7, &[100, 200][..], Some(large.clone())),
            (8, &[100], None),
            (9, &[200, 100], Some(SMALL)),
            (9, &[200, 300], None),
            (9, &[300], Some(Grant::default())),
            (9, &[], None),
            (0, &[], Some(Grant::default())),
        ] {
            assert_eq!(all.of(user, groups), expected, "{user} {groups:?}");
        }
        let named = with(Others::Nobody);
        assert_eq!(named.of(0, &[300]), None);
        assert_eq!(named.of(7, &[]), Some(large));
        assert_eq!(Access::without_rules().of(9, &[]), Some(Grant::default()));
    }

    #[test]
    fn a_grant_changes_only_what_each_user_may_take() {
        let limits = Limits::default();
        let own = SMALL.limits(limits);
        assert_eq!((own.connections.each, own.bytes.each), (2, 1 << 20));
        assert_eq!(own.connections.all, limits.connections.all);
        assert_eq!(own.groups, limits.groups);
        assert_eq!(Grant::default().limits(limits), limits);
        let stranger = STRANGER.limits(limits);
        assert_eq!((stranger.groups.each, stranger.bytes.each), (0, 0));
    }
}
