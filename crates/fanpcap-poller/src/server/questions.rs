//! Replies to processes that are no members: what they may see of groups, and change.

use super::Server;
use fanpcap_linux::unix::message;
use fanpcap_linux::wait::clock;
use fanpcap_poll::message::{Question, Reply};
use std::os::fd::AsFd;

impl Server {
    /// Replies to a question. `None` if the connection is to be closed.
    pub(super) fn reply(&mut self, number: u64, question: Question) -> Option<()> {
        let now_ns = clock::monotonic_ns();
        let connection = self.connections.get_mut(&number)?;
        if let Some(refused) = connection.refused.take() {
            super::refuse(connection.socket.as_fd(), refused);
            return None;
        }
        let user = connection.peer.user;
        let done = |done: Result<(), String>| done.map_or_else(Reply::NotDone, |()| Reply::Done);
        let reply = match question {
            Question::Look(from) => {
                let seen = self.device.see(from, user, now_ns);
                seen.map_or(Reply::NoGroup, |it| Reply::Group(Box::new(it)))
            }
            Question::Weigh { member, weight } => {
                done(self.device.weigh(member, weight, user, now_ns))
            }
            Question::Watch(group) => {
                let watched = self.device.watch(number, (group, user), now_ns);
                connection.watches |= watched.is_ok();
                let not = |why: &str| Reply::NotDone(why.to_owned());
                watched.map_or_else(not, |it| Reply::Watched(Box::new(it)))
            }
            Question::Stop(group) => done(self.device.stop(number, (group, user))),
        };
        let bytes = reply.encode().ok()?;
        message::send(connection.socket.as_fd(), &bytes, &[]).ok()
    }
}
