//! One analyzer's records: batches, and the way that they take.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::ops::AddAssign;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};

use fanpcap_cluster::Revision;
use fanpcap_cluster::record::{BatchBuilder, Head, PAPER_HEADER_BYTES, PaperBuilder, Record};
use fanpcap_cluster::sealed::SEAL_BYTES;

use super::Way;
use super::datagrams::{Datagrams, socket};
use super::line::{Line, Sent, Shared, WINDOW};
use crate::keyring::Keyring;

/// Bytes of a batch over TCP.
const BATCH: usize = 32 << 10;

/// When this many batches wait for an acknowledgement, only full batches are sent. A quiet node
/// normally has about twenty waiting; otherwise its small batches would fill the window while its
/// analyzer is gone.
const BEHIND: usize = 512;

/// The fate of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shipped {
    /// Given to the lanes.
    pub taken: u64,
    /// Sent; over TCP, acknowledged.
    pub sent: u64,
    /// Lost here: an analyzer was slow or out of reach, or there was none.
    pub lost: u64,
    /// Connections that broke.
    pub broken: u64,
}

impl AddAssign for Shipped {
    fn add_assign(&mut self, other: Self) {
        self.taken += other.taken;
        self.sent += other.sent;
        self.lost += other.lost;
        self.broken += other.broken;
    }
}

/// One analyzer's records.
#[derive(Debug)]
pub(super) struct Lane {
    outlet: Outlet,
    counts: Shipped,
}

#[derive(Debug)]
enum Outlet {
    Udp(Box<Datagrams>, BatchBuilder),
    Paper(UdpSocket, PaperBuilder),
    Tcp {
        builder: BatchBuilder,
        batches: Sender<Sent>,
        shared: Arc<Shared>,
        thread: JoinHandle<u64>,
    },
}

impl Lane {
    pub(super) fn open(
        to: SocketAddr,
        way: Way,
        head: Head,
        link: u16,
        keyring: Arc<Keyring>,
    ) -> io::Result<Self> {
        let outlet = match way {
            Way::Udp(size) => {
                let datagrams = Datagrams::open(to, head, keyring)?;
                // A key may come later.
                let size = size.saturating_sub(SEAL_BYTES);
                Outlet::Udp(Box::new(datagrams), BatchBuilder::new(head, size, link))
            }
            Way::Paper(port) => {
                let to = SocketAddr::new(to.ip(), port.unwrap_or(to.port()));
                Outlet::Paper(socket(to)?, PaperBuilder::default())
            }
            Way::Tcp => {
                let (batches, queue) = channel();
                let shared = Arc::new(Shared::default());
                let line = Line::new(to, head, keyring, Arc::clone(&shared));
                let thread = thread::Builder::new()
                    .name("shipping".to_owned())
                    .spawn(move || line.run(&queue))?;
                Outlet::Tcp {
                    builder: BatchBuilder::new(head, BATCH, link),
                    batches,
                    shared,
                    thread,
                }
            }
        };
        Ok(Self {
            outlet,
            counts: Shipped::default(),
        })
    }

    pub(super) fn push(&mut self, revision: Revision, record: &Record<'_>) {
        self.counts.taken += 1;
        match &mut self.outlet {
            Outlet::Udp(_, builder) | Outlet::Tcp { builder, .. } => {
                let (sequence, first) = (builder.sequence(), builder.first());
                if let Some(bytes) = builder.push(revision, record) {
                    let records = builder.first() - first;
                    self.send(sequence, records, bytes);
                }
            }
            Outlet::Paper(_, builder) => {
                if let Some(datagram) = builder.push(record.captured) {
                    self.send_paper(&datagram);
                }
            }
        }
    }

    /// Sends what waits; or, `now` not being 0, that there is nothing to send, unless the analyzer
    /// is far behind.
    pub(super) fn flush(&mut self, revision: Revision, now: u64) {
        if let Outlet::Udp(datagrams, _) = &mut self.outlet {
            datagrams.heed();
        }
        if now > 0 && self.is_behind() {
            return;
        }
        match &mut self.outlet {
            Outlet::Udp(_, builder) | Outlet::Tcp { builder, .. } => {
                let (sequence, first) = (builder.sequence(), builder.first());
                let mut batch = builder.flush();
                if batch.is_none() && now > 0 {
                    batch = builder.idle(revision, now);
                }
                let records = builder.first() - first;
                if let Some(bytes) = batch {
                    self.send(sequence, records, bytes);
                }
            }
            Outlet::Paper(_, builder) => {
                if let Some(datagram) = builder.flush() {
                    self.send_paper(&datagram);
                }
            }
        }
    }

    /// Whether the analyzer has acknowledged nothing for long.
    fn is_behind(&self) -> bool {
        match &self.outlet {
            Outlet::Tcp { shared, .. } => shared.held.load(Ordering::Relaxed) >= BEHIND,
            Outlet::Udp(..) | Outlet::Paper(..) => false,
        }
    }

    fn send(&mut self, sequence: u64, records: u64, bytes: Vec<u8>) {
        match &mut self.outlet {
            Outlet::Udp(datagrams, _) => datagrams.send(records, bytes),
            // Has no batches.
            Outlet::Paper(..) => {}
            Outlet::Tcp {
                builder,
                batches,
                shared,
                ..
            } => {
                let batch = Sent {
                    sequence,
                    records,
                    bytes,
                };
                let has_room = shared.held.fetch_add(1, Ordering::Relaxed) < WINDOW;
                if !has_room || batches.send(batch).is_err() {
                    shared.held.fetch_sub(1, Ordering::Relaxed);
                    builder.take_back();
                    self.counts.lost += records;
                }
            }
        }
    }

    fn send_paper(&mut self, datagram: &[u8]) {
        let headers = (datagram.len() / PAPER_HEADER_BYTES) as u64;
        let Outlet::Paper(socket, _) = &self.outlet else {
            return;
        };
        match socket.send(datagram) {
            Ok(_) => self.counts.sent += headers,
            Err(_) => self.counts.lost += headers,
        }
    }

    pub(super) fn shipped(&self) -> Shipped {
        let mut counts = self.counts;
        match &self.outlet {
            Outlet::Tcp { shared, .. } => {
                counts.sent = shared.shipped.load(Ordering::Relaxed);
                counts.broken = shared.broken.load(Ordering::Relaxed);
            }
            Outlet::Udp(datagrams, _) => {
                (counts.sent, counts.lost) = (datagrams.sent, datagrams.lost);
            }
            Outlet::Paper(..) => {}
        }
        counts
    }

    /// What is wrong with the connection, if anything is.
    pub(super) fn trouble(&self) -> Option<String> {
        let Outlet::Tcp { shared, .. } = &self.outlet else {
            return None;
        };
        let trouble = shared.trouble.lock();
        let trouble = trouble.unwrap_or_else(PoisonError::into_inner);
        Some(trouble.clone()).filter(|text| !text.is_empty())
    }

    /// Takes no more records. What was sent is acknowledged later.
    pub(super) fn retire(mut self) -> Retired {
        let line = match self.outlet {
            Outlet::Tcp {
                batches,
                shared,
                thread,
                ..
            } => {
                drop(batches);
                Some((shared, thread))
            }
            Outlet::Udp(datagrams, _) => {
                (self.counts.sent, self.counts.lost) = datagrams.close();
                None
            }
            Outlet::Paper(..) => None,
        };
        Retired {
            counts: self.counts,
            line,
        }
    }
}

/// A lane that takes no more records.
#[derive(Debug)]
pub(super) struct Retired {
    counts: Shipped,
    line: Option<(Arc<Shared>, JoinHandle<u64>)>,
}

impl Retired {
    pub(super) fn shipped(&self) -> Shipped {
        let mut counts = self.counts;
        if let Some((shared, _)) = &self.line {
            counts.sent = shared.shipped.load(Ordering::Relaxed);
            counts.broken = shared.broken.load(Ordering::Relaxed);
        }
        counts
    }

    /// Whether all is acknowledged, or given up.
    pub(super) fn is_done(&self) -> bool {
        self.line
            .as_ref()
            .is_none_or(|(_, thread)| thread.is_finished())
    }

    /// Gives up what is not acknowledged within some seconds.
    pub(super) fn end(&self) {
        if let Some((shared, _)) = &self.line {
            shared.ends.store(true, Ordering::Relaxed);
        }
    }

    /// Waits until all is acknowledged, or given up.
    pub(super) fn close(mut self) -> Shipped {
        self.end();
        let lost = match self.line.take() {
            Some((shared, thread)) => {
                let lost = thread.join().unwrap_or(0);
                self.counts.sent = shared.shipped.load(Ordering::Relaxed);
                self.counts.broken = shared.broken.load(Ordering::Relaxed);
                lost
            }
            None => 0,
        };
        self.counts.lost += lost;
        self.counts
    }
}
