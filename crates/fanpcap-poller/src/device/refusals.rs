//! The answers to newcomers that are refused.

use crate::limits::Reached;
use fanpcap_poll::message::Refused;
use std::io;

/// What to say when a limit is reached.
pub(super) struct Texts {
    of_all: &'static str,
    of_user: &'static str,
}

impl Texts {
    pub(super) fn of(&self, reached: Reached) -> &'static str {
        match reached {
            Reached::OfAll => self.of_all,
            Reached::OfUser => self.of_user,
        }
    }
}

pub(crate) fn refused(slug: &str, text: &str) -> Refused {
    Refused {
        slug: slug.to_owned(),
        text: text.to_owned(),
    }
}

pub(super) fn failed(error: &io::Error) -> Refused {
    refused(
        "poller-failed",
        &format!("the poller can't make a pool: {error}"),
    )
}

pub(super) const NO_MEMORY: Texts = Texts {
    of_all: "the poller's members and groups take all memory that they may take: ask for a smaller \
             buffer",
    of_user: "this user's members and groups take all memory of the poller that they may take: ask \
              for a smaller buffer, or close other handles",
};
pub(super) const FULL: &str = "the group has as many members as it can have";
pub(super) const MANY_GROUPS: Texts = Texts {
    of_all: "the poller's device has as many groups as it can have",
    of_user: "this user has as many groups on the poller's device as a user may have: join one of \
              them, or close other handles",
};
pub(crate) const MANY_CONNECTIONS: &str = "this user has as many connections to the device's \
                                           poller as a user may have: close other handles";
pub(super) const NOT_ALLOWED: &str = "the policy of the device's poller has no place for this user";
pub(super) const OTHER_FILTER: &str = "the group's other members have another filter of the \
                                       policy of the device's poller: choose another group";
pub(super) const OTHER_STEERING: &str =
    "the group has another steering program or mode: leave the mode out, or choose another group";
pub(super) const APART: &str = "the handle's devices have different pollers, so the directions of a \
                                flow would part: serve all of them by one command, such as fanpcap \
                                poller packet:eth0 packet:eth1, or give each device another group";
pub(super) const NOT_ONE: &str = "the groups of this number on the handle's devices can't be one: \
                                  they have different steering programs, or +sticky or +balance: \
                                  take the same one without these, or give each device another \
                                  group";
pub(super) const NO_TABLE: &str = "the poller can't make the group's table";
pub(super) const NO_QUEUE: &str = "a queue of the poller's device has ended";
