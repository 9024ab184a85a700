//! A node's side: one thread keeps the node's keys alive, another thread follows the topology.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use fanpcap_cluster::{Announcement, NodeEvent, Refusal, Revision, Topology, unreadable_topology};

use super::names::Names;
use super::registration::{Registration, RegistrationState};
use crate::client::Client;
use crate::error::CallError;
use crate::follow::Follower;
use crate::kv::Keys;

/// The pause after a call that failed.
const PAUSE: Duration = Duration::from_millis(200);

/// How many lease durations a node waits before it reports that its id is taken. After a reboot,
/// the node's old key may last so long, because etcd renews all leases when etcd's leader changes.
const PATIENCE: u32 = 3;

/// A node's connection to its cluster in etcd.
///
/// Two threads make the calls to etcd. So if etcd is out of reach, no call delays the caller.
#[derive(Debug)]
pub struct NodeLink {
    orders: Sender<Order>,
    news: Receiver<NodeMessage>,
    has_reached: bool,
    /// The refusal that was reported last. The same refusal is not reported again.
    denied: Option<String>,
}

/// A change that the caller passes to the thread that keeps the node's keys alive.
#[derive(Debug)]
enum Order {
    Announce(Announcement),
    Acknowledge(Revision),
}

type NodeMessage = Result<NodeEvent, CallError>;

impl NodeLink {
    /// Starts the threads. The node joins the cluster with its first announcement. `ttl` is the
    /// time to live of its lease. The lease is renewed three times within `ttl`.
    pub fn start(client: Arc<Client>, names: Names, ttl: Duration) -> Self {
        let (orders, inbox) = mpsc::channel();
        let (outbox, news) = mpsc::channel();
        let keeper = Keeper {
            registration: Registration::new(Arc::clone(&client), names.clone(), ttl),
            client,
            names,
            ttl,
            inbox,
            outbox,
            reached: None,
            was_reached: false,
            refusal: None,
            ended: Arc::new(AtomicBool::new(false)),
            follows: false,
        };
        thread::spawn(move || keeper.run());
        Self {
            orders,
            news,
            has_reached: false,
            denied: None,
        }
    }

    /// Sets the node's announcement.
    pub fn announce(&self, announcement: Announcement) {
        // If the thread has panicked, the send fails. Then `poll` acts as if etcd did not answer.
        let _ = self.orders.send(Order::Announce(announcement));
    }

    /// Sets the newest topology by which the node captures.
    pub fn acknowledge(&self, revision: Revision) {
        let _ = self.orders.send(Order::Acknowledge(revision));
    }

    /// Waits at most `wait` for events, and returns them, the oldest first.
    ///
    /// # Errors
    /// Fails if etcd refuses a call before any call succeeded, because a password, a certificate or
    /// a permission is wrong. Later refusals are events ([`NodeEvent::Denied`]), because then nodes
    /// keep capturing as before.
    pub fn poll(&mut self, wait: Duration) -> Result<Vec<NodeEvent>, CallError> {
        let mut events = Vec::new();
        let first = self.news.recv_timeout(wait);
        // Both threads have ended, because one has panicked.
        if first == Err(RecvTimeoutError::Disconnected) {
            thread::sleep(wait);
        }
        for news in first.into_iter().chain(self.news.try_iter()) {
            match news {
                Ok(event) => {
                    if event == NodeEvent::Reach(true) {
                        self.has_reached = true;
                        self.denied = None;
                    }
                    events.push(event);
                }
                Err(error) if !self.has_reached => return Err(error),
                Err(error) => {
                    let said = error.to_string();
                    if self.denied.as_ref() != Some(&said) {
                        self.denied = Some(said.clone());
                        events.push(NodeEvent::Denied(said));
                    }
                }
            }
        }
        Ok(events)
    }
}

/// The thread that keeps the node's keys alive.
struct Keeper {
    client: Arc<Client>,
    names: Names,
    ttl: Duration,
    registration: Registration,
    inbox: Receiver<Order>,
    outbox: Sender<NodeMessage>,
    /// When etcd last answered.
    reached: Option<Instant>,
    was_reached: bool,
    /// The refusal that was last reported; `None` if the node is not refused any more.
    refusal: Option<Refusal>,
    ended: Arc<AtomicBool>,
    follows: bool,
}

impl Keeper {
    fn run(mut self) {
        let mut next = Instant::now();
        loop {
            let wait = next.saturating_duration_since(Instant::now());
            match self.inbox.recv_timeout(wait) {
                Ok(Order::Announce(announcement)) => self.registration.announce(announcement),
                Ok(Order::Acknowledge(revision)) => self.registration.acknowledge(revision),
                Err(RecvTimeoutError::Timeout) => {}
                // The caller was dropped. Nobody renews the lease from now on, so it ends in etcd.
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let begun = Instant::now();
            next = begun + self.round();
        }
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Does a round. Returns the time until the next round.
    fn round(&mut self) -> Duration {
        let error = match self.registration.round() {
            Ok(standing) => {
                self.reached = Some(Instant::now());
                if standing != RegistrationState::Silent {
                    self.tell_reach(true);
                    self.judge(standing);
                    // This key only makes commands show the clone, so a failure to store the key is
                    // ignored.
                    let _ = self.registration.note_clone(self.refusal);
                }
                return self.ttl * 3 / 10;
            }
            Err(error) => error,
        };
        // If etcd has not answered for a whole `ttl`, the lease may have ended.
        if self.reached.is_none_or(|at| at.elapsed() > self.ttl) {
            self.tell_reach(false);
        }
        match error.is_lasting() {
            true => {
                self.tell(Err(error));
                self.ttl * 3 / 10
            }
            false => PAUSE,
        }
    }

    fn judge(&mut self, standing: RegistrationState) {
        let refusal = match standing {
            RegistrationState::Taken(since) if since > self.ttl * PATIENCE => {
                Some(Refusal::TakenId)
            }
            RegistrationState::Taken(_) | RegistrationState::Silent => return,
            RegistrationState::Outside => Some(Refusal::Full),
            RegistrationState::In => None,
        };
        if refusal != Some(Refusal::TakenId) && !self.follows {
            self.follows = true;
            self.follow();
        }
        if self.refusal != refusal {
            self.refusal = refusal;
            if let Some(refusal) = refusal {
                self.tell(Ok(NodeEvent::Refused(refusal)));
            }
        }
    }

    fn tell_reach(&mut self, is_reached: bool) {
        if self.was_reached != is_reached {
            self.was_reached = is_reached;
            self.tell(Ok(NodeEvent::Reach(is_reached)));
        }
    }

    fn tell(&self, news: NodeMessage) {
        // The caller may have been dropped.
        let _ = self.outbox.send(news);
    }

    /// Starts the thread that follows the cluster's topology. If another machine has the node's id,
    /// the thread is not started, because both machines would capture the same packets.
    fn follow(&self) {
        let topology = self.names.topology();
        let keys = Keys::One(topology.clone());
        let mut follower = Follower::new(Arc::clone(&self.client), keys);
        let outbox = self.outbox.clone();
        let ended = Arc::clone(&self.ended);
        thread::spawn(move || {
            let mut told = 0;
            while !ended.load(Ordering::Relaxed) {
                if follower.wait().is_err() {
                    thread::sleep(PAUSE);
                }
                let Some(kv) = follower.copy().get(&topology) else {
                    continue;
                };
                if kv.mod_revision != told {
                    told = kv.mod_revision;
                    if let Some(event) = topology_event(told, &kv.value) {
                        if outbox.send(Ok(event)).is_err() {
                            return;
                        }
                    }
                }
            }
        });
    }
}

/// The event for a topology. If this version can't read the topology (perhaps a later version wrote
/// it), the event is a message for the operator, and the node keeps its previous topology.
fn topology_event(revision: i64, value: &[u8]) -> Option<NodeEvent> {
    let revision = Revision(u64::try_from(revision).ok()?);
    Some(match Topology::decode(value) {
        Some(topology) => NodeEvent::Topology(revision, Box::new(topology)),
        None => NodeEvent::Denied(unreadable_topology(revision)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topology_of_a_later_version_is_told() {
        let event = topology_event(7, &[9; 40]);
        let told =
            matches!(event, Some(NodeEvent::Denied(said)) if said.contains("topology 7 can't"));
        assert!(told);
    }
}
