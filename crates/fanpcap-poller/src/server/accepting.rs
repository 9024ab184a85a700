//! Accepts connections, and refuses those of users that have too many.

use super::{Connection, Server, refuse};
use crate::access::STRANGER;
use crate::accounts::Account;
use crate::device::{MANY_CONNECTIONS, refused};
use crate::limits::Taken;
use fanpcap_linux::unix::plain::PlainConnection;
use fanpcap_linux::unix::{self, named};
use fanpcap_linux::wait::clock;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// How many connections are accepted in one turn.
const ACCEPTS_MAX: usize = 64;

impl Server {
    /// The connections of each user, those included that are not closed yet.
    fn taken(&mut self) -> Taken {
        let open = self.connections.values().map(|it| (it.account, 1));
        self.closer.open().chain(open).collect()
    }

    pub(super) fn has_room(&mut self) -> bool {
        let closing = self.closer.open().count();
        let all = self.device.limits().connections.all;
        let has_files = (self.closer.refused() as u64) < self.refused_max;
        has_files && ((self.connections.len() + closing) as u64) < all
    }

    /// Accepts connections, until that has taken long. What is left comes in the next turn. To
    /// refuse a connection takes long if many epoll instances watch the other end.
    pub(super) fn accept(&mut self) -> io::Result<()> {
        self.times.begin_part();
        for _ in 0..ACCEPTS_MAX {
            if !self.has_room() {
                break;
            }
            let begin_ns = clock::thread_cpu_ns();
            let Some(socket) = named::accept(self.listener.as_fd())? else {
                break;
            };
            let account = self.let_in(socket)?;
            if !self.times.add(account, clock::thread_cpu_ns() - begin_ns) {
                break;
            }
        }
        Ok(())
    }

    /// Takes a connection that was accepted, or refuses it if its user has too many. Returns the
    /// user for whom it counts.
    fn let_in(&mut self, socket: OwnedFd) -> io::Result<Account> {
        let peer = unix::peer(socket.as_fd())?;
        let account = self.device.account(peer.user);
        // If they can't be read, no rule for a group counts.
        let mut groups = unix::peer_groups(socket.as_fd()).unwrap_or_default();
        groups.push(peer.group);
        let socket = PlainConnection::new(socket)?;
        let (grant, refused_by) = match self.device.let_in(peer.user, &groups) {
            Ok(grant) => (grant, None),
            Err(refused) => (STRANGER, Some(refused)),
        };
        let limit = grant.limits(*self.device.limits()).connections;
        if limit.check(&self.taken(), account, 1).is_err() {
            let refused = refused("poller-connections", MANY_CONNECTIONS);
            refuse(socket.as_fd(), refused);
            self.closer.close_refused(account, socket);
            return Ok(account);
        }
        self.last += 1;
        let connection = Connection {
            peer,
            account,
            grant,
            socket,
            since_ns: clock::monotonic_ns(),
            served: self.last,
            waits_ns: 0,
            refused: refused_by,
            member: None,
            watches: false,
        };
        self.connections.insert(self.last, connection);
        Ok(account)
    }
}
