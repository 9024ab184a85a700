//! Closes members' connections. The server's thread closes those whose queues have few messages. A
//! thread of the user takes more messages out of a queue, because the kernel calls all that watch
//! the member's end for each of them. To close a connection whose queue has descriptors may take as
//! long as the member wants, so a thread of its own closes all connections of this kind, one after
//! another.

use crate::accounts::Account;
use fanpcap_linux::unix::plain::{PlainConnection, Unclosed};
use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

/// Closes connections. When this value is dropped, its threads go on until they have closed all
/// connections, and nobody waits for them.
#[derive(Debug, Default)]
pub(super) struct Closer {
    /// To the threads of users that take messages out of queues.
    emptying: BTreeMap<Account, Sender<Closing>>,
    /// To the thread that closes connections with descriptors.
    waiting: Option<Sender<Closing>>,
    open: Vec<Open>,
}

/// A connection that is not closed yet.
#[derive(Debug)]
struct Open {
    account: Account,
    /// Whether it counts for its user: it did when it was accepted.
    counts: bool,
    /// The thread that closes the connection has the other clone.
    open: Arc<()>,
}

/// A connection, and what is dropped after it.
struct Closing {
    connection: PlainConnection,
    open: Arc<()>,
}

/// How often a thread takes messages out of a queue. The kernel limits how much a queue has, so
/// there is an end.
const ROUNDS_MAX: usize = 10_000;

impl Closer {
    /// Closes a connection that counts for its user. Does not wait.
    pub(super) fn close(&mut self, account: Account, connection: PlainConnection) {
        self.end(account, connection, true);
    }

    /// Closes a connection that is refused, because its user has too many. Does not wait. It counts
    /// for nobody: otherwise a user could take the room of all others by connections that are
    /// refused.
    pub(super) fn close_refused(&mut self, account: Account, connection: PlainConnection) {
        self.end(account, connection, false);
    }

    fn end(&mut self, account: Account, connection: PlainConnection, counts: bool) {
        let (connection, thread) = match connection.close() {
            Ok(()) => return,
            Err(Unclosed::Descriptors(it)) => (it, self.waiting()),
            Err(Unclosed::Messages(it)) => (it, self.emptying(account)),
        };
        let open = Arc::new(());
        let closing = Closing {
            connection,
            open: Arc::clone(&open),
        };
        self.open.push(Open {
            account,
            counts,
            open,
        });
        match thread {
            Ok(thread) => pass(&thread, closing),
            Err(_) => mem::forget(closing),
        }
    }

    fn waiting(&mut self) -> io::Result<Sender<Closing>> {
        let thread = match self.waiting.take() {
            Some(thread) => thread,
            None => start("closer", |all| all.into_iter().for_each(drop::<Closing>))?,
        };
        Ok(self.waiting.insert(thread).clone())
    }

    fn emptying(&mut self, account: Account) -> io::Result<Sender<Closing>> {
        if let Some(thread) = self.emptying.get(&account) {
            return Ok(thread.clone());
        }
        let waiting = self.waiting()?;
        let thread = start(&format!("empty {account}"), move |all| {
            all.into_iter().for_each(|it| empty(it, &waiting));
        })?;
        self.emptying.insert(account, thread.clone());
        Ok(thread)
    }

    /// The user of each connection that is not closed yet and counts for this user, and 1.
    pub(super) fn open(&mut self) -> impl Iterator<Item = (Account, u64)> {
        self.forget_closed();
        let counting = self.open.iter().filter(|it| it.counts);
        counting.map(|it| (it.account, 1))
    }

    /// The number of refused connections that are not closed yet.
    pub(super) fn refused(&mut self) -> usize {
        self.forget_closed();
        self.open.iter().filter(|it| !it.counts).count()
    }

    fn forget_closed(&mut self) {
        let before = self.open.len();
        self.open.retain(|it| Arc::strong_count(&it.open) > 1);
        if self.open.len() < before {
            let open = &self.open;
            let has_open = |account: &Account| open.iter().any(|it| it.account == *account);
            // The threads of the others end.
            self.emptying.retain(|account, _| has_open(account));
        }
    }
}

/// Empties a connection's queue, and closes the connection, or passes it on with its descriptors.
fn empty(closing: Closing, waiting: &Sender<Closing>) {
    let Closing {
        mut connection,
        open,
    } = closing;
    for _ in 0..ROUNDS_MAX {
        match connection.close() {
            Ok(()) => return,
            Err(Unclosed::Messages(it)) => connection = it,
            Err(Unclosed::Descriptors(it)) => {
                connection = it;
                break;
            }
        }
    }
    pass(waiting, Closing { connection, open });
}

/// Passes a connection to a thread. If there is none, the connection stays open, and counts.
fn pass(thread: &Sender<Closing>, closing: Closing) {
    if let Err(error) = thread.send(closing) {
        mem::forget(error.0);
    }
}

fn start(
    name: &str,
    run: impl FnOnce(Receiver<Closing>) + Send + 'static,
) -> io::Result<Sender<Closing>> {
    let (sender, connections) = mpsc::channel();
    let thread = thread::Builder::new().name(name.to_owned());
    thread.spawn(move || run(connections))?;
    Ok(sender)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_linux::unix::{message, pair, plain};
    use fanpcap_testkit::await_for::await_so;
    use fanpcap_testkit::loopback::free_address;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    const ONE: Account = Account(1);

    /// A connection with so many messages in its queue.
    fn with_messages(count: usize) -> PlainConnection {
        let [from, to] = pair().unwrap();
        (0..count).for_each(|_| message::send(from.as_fd(), b"x", &[]).unwrap());
        PlainConnection::new(to).unwrap()
    }

    /// A connection with a socket in its queue whose last close takes a thousand seconds, behind
    /// other messages.
    fn with_socket(mute: &TcpListener, before: usize) -> PlainConnection {
        let [from, to] = pair().unwrap();
        let mut socket = TcpStream::connect(mute.local_addr().unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[7; 1 << 16]).is_ok() {}
        plain::set_linger(socket.as_fd(), 1000).unwrap();
        (0..before).for_each(|_| message::send(from.as_fd(), b"x", &[]).unwrap());
        message::send(from.as_fd(), b"x", &[socket.as_fd()]).unwrap();
        PlainConnection::new(to).unwrap()
    }

    fn open(closer: &mut Closer) -> Vec<(Account, u64)> {
        closer.open().collect()
    }

    #[test]
    fn connections_with_messages_do_not_wait_for_those_with_descriptors() {
        let mute = TcpListener::bind(free_address()).unwrap();
        let mut closer = Closer::default();
        closer.close(ONE, with_messages(0));
        assert!(closer.open.is_empty(), "it is closed at once");
        closer.close(ONE, with_socket(&mute, 0));
        closer.close(ONE, with_socket(&mute, 20));
        for user in [ONE, Account(2)] {
            closer.close(user, with_messages(20));
            closer.close_refused(user, with_messages(20));
        }
        await_so("empty queues", || open(&mut closer) == [(ONE, 1), (ONE, 1)]);
        await_so("empty queues", || closer.refused() == 0);
        assert!(closer.emptying.keys().eq(&[ONE]), "the other thread ends");
        closer.close_refused(ONE, with_socket(&mute, 0));
        assert_eq!((closer.refused(), open(&mut closer).len()), (1, 2));
    }
}
