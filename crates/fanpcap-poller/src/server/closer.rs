//! Closes members' connections. To close one whose queue has descriptors may take as long as the
//! member wants, so a thread of its own does that. The server's thread closes all others.

use fanpcap_linux::unix::plain::PlainConnection;
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;

/// Closes connections.
#[derive(Debug, Default)]
pub(super) struct Closer {
    /// To the thread, which begins with the first connection that it closes. When this value is
    /// dropped, the thread goes on until it has closed all connections, and nobody waits for it.
    thread: Option<Sender<Closing>>,
    /// The connections that are not closed yet: their users, and a count that the thread has too.
    open: Vec<(u32, Arc<()>)>,
}

/// A connection, and what is dropped after it.
struct Closing {
    _connection: PlainConnection,
    _open: Arc<()>,
}

impl Closer {
    /// Closes a connection. Does not wait.
    pub(super) fn close(&mut self, user: u32, connection: PlainConnection) {
        let Err(connection) = connection.close() else {
            return;
        };
        let open = Arc::new(());
        self.open.push((user, Arc::clone(&open)));
        let closing = Closing {
            _connection: connection,
            _open: open,
        };
        let unsent = match self.thread() {
            Ok(thread) => thread.send(closing).map_err(|error| error.0),
            Err(_) => Err(closing),
        };
        if let Err(closing) = unsent {
            // There is no thread. The connection stays open, and counts for its user.
            mem::forget(closing);
        }
    }

    fn thread(&mut self) -> io::Result<&Sender<Closing>> {
        let thread = match self.thread.take() {
            Some(thread) => thread,
            None => start()?,
        };
        Ok(self.thread.insert(thread))
    }

    /// The user of each connection that is not closed yet, and 1.
    pub(super) fn open(&mut self) -> impl Iterator<Item = (u32, u64)> {
        self.open.retain(|(_, open)| Arc::strong_count(open) > 1);
        self.open.iter().map(|(user, _)| (*user, 1))
    }
}

fn start() -> io::Result<Sender<Closing>> {
    let (sender, connections) = mpsc::channel();
    let thread = thread::Builder::new().name("closer".to_owned());
    thread.spawn(move || connections.into_iter().for_each(drop::<Closing>))?;
    Ok(sender)
}
