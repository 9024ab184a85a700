//! Takes messages from the network: datagrams, and connections that are acknowledged.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fanpcap_cluster::record::{HEAD_BYTES, Head, Kind, MESSAGE_BYTES, encode_ack};

/// Messages that may wait for the analyzer.
const QUEUE: usize = 1024;

/// Connections at once.
const CONNECTIONS: usize = 256;

/// How long a connection waits for bytes before it looks for what is to be acknowledged.
const LOOK: Duration = Duration::from_millis(10);

/// A connection that begins a message and does not end it is closed after so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// A message, and where to tell what the analyzer lacks.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) bytes: Vec<u8>,
    pub(super) lacks: Option<Arc<AtomicU64>>,
}

/// What the intake has dropped.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    /// Datagrams that found the queue full.
    pub(super) datagrams: AtomicU64,
    /// Connections that sent garbage, or that were too many.
    pub(super) connections: AtomicU64,
}

/// Listens on an address, by UDP and TCP.
///
/// # Errors
///
/// The address can't be listened on.
pub(super) fn open(on: SocketAddr) -> Result<(Receiver<Message>, Arc<Dropped>)> {
    let socket = UdpSocket::bind(on).with_context(|| format!("cannot listen on {on} by UDP"))?;
    let listener =
        TcpListener::bind(on).with_context(|| format!("cannot listen on {on} by TCP"))?;
    let (to, queue) = sync_channel(QUEUE);
    let dropped = Arc::new(Dropped::default());
    let (sender, count) = (to.clone(), Arc::clone(&dropped));
    start("datagrams", move || {
        take_datagrams(&socket, &sender, &count)
    })?;
    let count = Arc::clone(&dropped);
    start("connections", move || accept(&listener, &to, &count))?;
    Ok((queue, dropped))
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map(|_| ())
}

fn take_datagrams(socket: &UdpSocket, to: &SyncSender<Message>, dropped: &Dropped) {
    let mut buffer = vec![0; MESSAGE_BYTES];
    loop {
        let Ok(length) = socket.recv(&mut buffer) else {
            thread::sleep(LOOK);
            continue;
        };
        let bytes = buffer[..length].to_vec();
        match to.try_send(Message { bytes, lacks: None }) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                dropped.datagrams.fetch_add(1, Ordering::Relaxed);
            }
            Err(TrySendError::Disconnected(_)) => return,
        }
    }
}

fn accept(listener: &TcpListener, to: &SyncSender<Message>, dropped: &Arc<Dropped>) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((stream, _)) = listener.accept() else {
            // Out of descriptors, say.
            thread::sleep(LOOK);
            continue;
        };
        if open.load(Ordering::Relaxed) >= CONNECTIONS {
            dropped.connections.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        open.fetch_add(1, Ordering::Relaxed);
        let (sender, count, open) = (to.clone(), Arc::clone(dropped), Arc::clone(&open));
        let begun = start("connection", move || {
            if serve(stream, &sender).is_err() {
                count.connections.fetch_add(1, Ordering::Relaxed);
            }
            open.fetch_sub(1, Ordering::Relaxed);
        });
        if begun.is_err() {
            dropped.connections.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Takes a connection's messages until it ends.
///
/// # Errors
///
/// It sent something else, or it broke.
fn serve(mut stream: TcpStream, to: &SyncSender<Message>) -> io::Result<()> {
    stream.set_read_timeout(Some(LOOK))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut acks = Acks::default();
    loop {
        let mut bytes = vec![0; HEAD_BYTES];
        if !fill(&mut stream, &mut bytes, Some(&mut acks))? {
            return Ok(());
        }
        let garbage = |error| io::Error::new(ErrorKind::InvalidData, error);
        let head = Head::decode(&bytes).map_err(garbage)?;
        bytes.resize(head.length, 0);
        if !fill(&mut stream, &mut bytes[HEAD_BYTES..], None)? && head.length > HEAD_BYTES {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if head.kind == Kind::Records {
            acks.head = Some(head);
        }
        let lacks = Some(Arc::clone(&acks.lacks));
        if to.send(Message { bytes, lacks }).is_err() {
            return Ok(());
        }
        acks.tell(&mut stream)?;
    }
}

/// What a connection's sender was told of its batches.
#[derive(Debug, Default)]
struct Acks {
    lacks: Arc<AtomicU64>,
    told: u64,
    head: Option<Head>,
}

impl Acks {
    fn tell(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        let lacks = self.lacks.load(Ordering::Acquire);
        let Some(head) = self.head.filter(|_| lacks > self.told) else {
            return Ok(());
        };
        self.told = lacks;
        stream.write_all(&encode_ack(&head, lacks))
    }
}

/// Fills a buffer from a connection. Returns whether there was anything. While nothing has come
/// yet, it waits for ever and tells what is to be told.
fn fill(
    stream: &mut TcpStream,
    buffer: &mut [u8],
    mut acks: Option<&mut Acks>,
) -> io::Result<bool> {
    let mut there = 0;
    let mut begun = Instant::now();
    while there < buffer.len() {
        match stream.read(&mut buffer[there..]) {
            Ok(0) if there == 0 => return Ok(false),
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(more) => there += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                let is_early = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                match acks.as_deref_mut().filter(|_| there == 0) {
                    Some(acks) if is_early => {
                        acks.tell(stream)?;
                        begun = Instant::now();
                    }
                    _ if is_early && begun.elapsed() < PATIENCE => {}
                    _ => return Err(error),
                }
            }
        }
    }
    Ok(there > 0)
}
