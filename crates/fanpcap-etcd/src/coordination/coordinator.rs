//! A coordinator's side: one thread stands for election, another thread follows the cluster's keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fanpcap_cluster::{ClusterStatus, DesiredState, Revision, Topology, View, WriteError};

use super::names::Names;
use super::view::{CopyOfKeys, candidates, notes, revision, unreadable, view};
use crate::client::Client;
use crate::election::{Candidate, leader};
use crate::error::CallError;
use crate::follow::Follower;
use crate::kv::{Compare, Keys, Operation};
use crate::lease::Lease;

/// The pause after a call that failed.
const PAUSE: Duration = Duration::from_millis(200);

/// A message from one of the two threads to [`CoordinatorLink`].
#[derive(PartialEq)]
enum CoordinatorMessage {
    Keys(CopyOfKeys),
    Term(Term),
    Refused(CallError),
    Unreached(CallError),
}

/// An order to the thread that stands for election.
enum Order {
    /// Stands for election if `true`; withdraws if `false`.
    Stand(bool),
    /// Withdraws from the election, and ends the thread.
    End,
}

/// A candidate in the election, and the time before which its lease can't end.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Term {
    candidate: Candidate,
    until: Instant,
}

/// A coordinator's connection to its cluster in etcd.
#[derive(Debug)]
pub struct CoordinatorLink {
    client: Arc<Client>,
    names: Names,
    /// The desired state from the settings. The operator's changes are in etcd.
    desired: DesiredState,
    news: Receiver<CoordinatorMessage>,
    keeper: Option<(Sender<Order>, JoinHandle<()>)>,
    keys: CopyOfKeys,
    term: Option<Term>,
    view: View,
    has_reached: bool,
    /// The revision of a topology that this version can't read. This coordinator then does not
    /// stand for election, because a coordinator of another version may be able to read the
    /// topology.
    pub unreadable: Option<Revision>,
    /// Why etcd refuses calls, or why it was never in reach; `None` after a successful call.
    pub denied: Option<String>,
}

impl CoordinatorLink {
    /// Starts the threads. `value` is the name in the election; `desired` comes from the settings.
    pub fn start(
        client: Arc<Client>,
        names: Names,
        ttl: Duration,
        value: &str,
        desired: DesiredState,
    ) -> Self {
        let (outbox, news) = mpsc::channel();
        let (order, orders) = mpsc::channel();
        let ended = Arc::new(AtomicBool::new(false));
        follow(&client, &names, outbox.clone(), Arc::clone(&ended));
        let candidacy = Candidacy {
            lease: Lease {
                client: Arc::clone(&client),
                ttl,
                id: None,
            },
            election: names.election(),
            value: value.as_bytes().to_vec(),
        };
        let keeper = thread::spawn(move || {
            candidacy.run(&orders, &outbox);
            ended.store(true, Ordering::Relaxed);
        });
        Self {
            client,
            names,
            view: View {
                desired: desired.clone(),
                ..View::default()
            },
            desired,
            news,
            keeper: Some((order, keeper)),
            keys: CopyOfKeys::new(),
            term: None,
            has_reached: false,
            unreadable: None,
            denied: None,
        }
    }

    /// Waits at most `wait` for changes, and returns the present view.
    ///
    /// # Errors
    /// Fails if etcd refuses a call before any call succeeded.
    pub fn poll(&mut self, wait: Duration) -> Result<&View, CallError> {
        let first = self.news.recv_timeout(wait);
        if first == Err(RecvTimeoutError::Disconnected) {
            thread::sleep(wait);
        }
        for news in first.into_iter().chain(self.news.try_iter()) {
            match news {
                CoordinatorMessage::Keys(keys) => self.keys = keys,
                CoordinatorMessage::Term(term) => {
                    self.term = Some(term);
                    self.has_reached = true;
                    self.denied = None;
                }
                CoordinatorMessage::Refused(error) if !self.has_reached => return Err(error),
                CoordinatorMessage::Refused(error) => self.denied = Some(error.to_string()),
                CoordinatorMessage::Unreached(error)
                    if !self.has_reached && self.denied.is_none() =>
                {
                    self.denied = Some(format!("{error}; waits for etcd"));
                }
                CoordinatorMessage::Unreached(_) => {}
            }
        }
        self.view = view(&self.names, &self.keys, &self.desired);
        self.mind_unreadable();
        self.view.leads = self.leads() && self.unreadable.is_none();
        Ok(&self.view)
    }

    /// Withdraws from the election while the topology can't be read.
    fn mind_unreadable(&mut self) {
        let before = self.unreadable;
        self.unreadable = unreadable(&self.names, &self.keys);
        let stands = self.unreadable.is_none();
        if stands != before.is_none() {
            let keeper = self.keeper.as_ref();
            // If the thread has panicked, the send fails, and the lease ends in etcd.
            keeper.map(|(order, _)| order.send(Order::Stand(stands)));
        }
    }

    /// Whether this coordinator leads, and its lease has not ended.
    fn leads(&self) -> bool {
        let mut candidates = candidates(&self.names, &self.keys);
        self.term.as_ref().is_some_and(|term| {
            term.until > Instant::now() && term.candidate.leads(&mut candidates)
        })
    }

    /// Writes a topology, if this coordinator leads and the topology in etcd still has the revision
    /// `replaces`. If `replaces` is `None`, there must be no topology yet.
    ///
    /// # Errors
    /// See [`WriteError`]. [`WriteError::Unknown`] leaves open whether the topology was written.
    pub fn write(
        &mut self,
        topology: &Topology,
        replaces: Option<Revision>,
    ) -> Result<Revision, WriteError> {
        let term = self.term.as_ref().filter(|_| self.leads());
        let candidate = term.map(|term| &term.candidate);
        let candidate = candidate.ok_or(WriteError::NotLeading)?;
        let key = self.names.topology();
        let known = replaces.map_or(0, |revision| i64::try_from(revision.0).unwrap_or(i64::MAX));
        let value = topology.encode();
        let put = Operation::Put {
            key: key.clone(),
            value: value.clone(),
            lease: 0,
        };
        let conditions = [
            candidate.still_stands(),
            Compare::ModRevision(key.clone(), known),
        ];
        let reads = [key, candidate.key.clone()].map(|key| Operation::Get(Keys::One(key)));
        let txn = self.client.txn(&conditions, &[put], &reads);
        let txn = txn.map_err(|error| match error.is_elsewhere() {
            true => WriteError::Unknown,
            false => WriteError::Engine(error.into()),
        })?;
        if txn.succeeded {
            return Ok(revision(txn.revision));
        }
        let mut found = txn.ranges.iter().map(|range| range.kvs.first());
        let present = found.next().flatten();
        // An earlier attempt of this call wrote the topology, but etcd's answer was lost.
        if let Some(kv) = present.filter(|kv| kv.value == value && kv.mod_revision > known) {
            return Ok(revision(kv.mod_revision));
        }
        let own = found.next().flatten();
        match own.map(|kv| kv.create_revision) == Some(candidate.create_revision) {
            true => Err(WriteError::Changed),
            false => Err(WriteError::NotLeading),
        }
    }

    /// Gives up the lead. Another coordinator takes over at once.
    pub fn resign(&mut self) {
        self.term = None;
        if let Some((order, keeper)) = self.keeper.take() {
            // If the thread has panicked, sending fails, and the thread keeps no lease alive.
            let _ = order.send(Order::End);
            let _ = keeper.join();
        }
    }
}

/// Reads a cluster's keys once.
///
/// # Errors
/// Fails if no endpoint answers in time, or etcd refuses the call.
pub fn look(
    client: &Client,
    names: &Names,
    desired: &DesiredState,
) -> Result<ClusterStatus, CallError> {
    let kvs = client.range(&names.all())?.kvs.into_iter();
    let keys: CopyOfKeys = kvs.map(|kv| (kv.key.clone(), kv)).collect();
    let leading = leader(candidates(names, &keys));
    let leading = leading.map(|kv| String::from_utf8_lossy(&kv.value).into_owned());
    Ok(ClusterStatus {
        view: view(names, &keys, desired),
        unreadable: unreadable(names, &keys),
        leader: leading,
        notes: notes(names, &keys),
        ..ClusterStatus::default()
    })
}

/// The thread that stands for election.
struct Candidacy {
    lease: Lease,
    election: String,
    /// The value of the coordinator's key, which is the coordinator's name.
    value: Vec<u8>,
}

impl Candidacy {
    fn run(mut self, orders: &Receiver<Order>, outbox: &Sender<CoordinatorMessage>) {
        let mut next = Instant::now();
        let mut stands = true;
        loop {
            match orders.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Order::Stand(may)) => {
                    stands = may;
                    if !stands {
                        self.withdraw();
                    }
                }
                Ok(Order::End) => return self.withdraw(),
                // The caller was dropped without `resign`.
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let begun = Instant::now();
            if !stands {
                next = begun + self.lease.ttl;
                continue;
            }
            let (news, pause) = match self.round() {
                Ok(term) => (CoordinatorMessage::Term(term), self.lease.ttl * 3 / 10),
                Err(error) if error.is_lasting() => {
                    (CoordinatorMessage::Refused(error), self.lease.ttl * 3 / 10)
                }
                Err(error) => (CoordinatorMessage::Unreached(error), PAUSE),
            };
            next = begun + pause;
            if outbox.send(news).is_err() {
                return;
            }
        }
    }

    /// Gives the lead to another coordinator. If etcd is out of reach, the lease ends by itself.
    fn withdraw(&mut self) {
        if let Some(id) = self.lease.id.take() {
            let _ = self.lease.client.revoke(id);
        }
    }

    /// Keeps the lease alive. If the lease or its key is gone, becomes a candidate again.
    fn round(&mut self) -> Result<Term, CallError> {
        let until = Instant::now() + self.lease.ttl;
        let (lease, _) = self.lease.keep()?;
        let client = &self.lease.client;
        let candidate = client.stand(&self.election, lease, &self.value)?;
        Ok(Term { candidate, until })
    }
}

/// Starts the thread that follows the cluster's keys.
fn follow(
    client: &Arc<Client>,
    names: &Names,
    outbox: Sender<CoordinatorMessage>,
    ended: Arc<AtomicBool>,
) {
    let mut follower = Follower::new(Arc::clone(client), names.all());
    thread::spawn(move || {
        while !ended.load(Ordering::Relaxed) {
            match follower.wait() {
                Ok(false) => {}
                Ok(true) => {
                    if outbox
                        .send(CoordinatorMessage::Keys(follower.copy().clone()))
                        .is_err()
                    {
                        return;
                    }
                }
                Err(_) => thread::sleep(PAUSE),
            }
        }
    });
}
