//! A node's lease in etcd, and the keys under it: the announcement and the acknowledgement.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fanpcap_cluster::{Announcement, Refusal, Revision};

use super::names::Names;
use super::record;
use crate::client::Client;
use crate::error::CallError;
use crate::kv::{Keys, Operation, Replaced};
use crate::lease::Lease;

/// The node's key is checked once in this many rounds, because it may have been deleted.
const LOOK: u32 = 10;

/// How many times one round tries to replace a key that others change at the same time.
const TRIES: usize = 4;

/// Whether the node is in the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RegistrationState {
    /// The node has not announced itself yet.
    Silent,
    /// The node's key is in etcd.
    In,
    /// The node's key is in etcd, but the cluster was already full when the node came.
    Outside,
    /// Another machine has had the node's id for at least this long.
    Taken(Duration),
}

/// A node's lease and keys in etcd. Each round stores the values that etcd does not have.
#[derive(Debug)]
pub(super) struct Registration {
    lease: Lease,
    names: Names,
    said: Stored<Announcement>,
    acked: Stored<Revision>,
    rounds: u32,
    taken_since: Option<Instant>,
    is_outside: bool,
    /// Whether a note in etcd says that another machine has this node's id.
    has_noted: bool,
}

/// A key's value: the value to store, and the value in etcd.
#[derive(Debug)]
struct Stored<T> {
    wanted: Option<T>,
    stored: Option<T>,
    /// The mod revision of the value that will be replaced.
    revision: i64,
}

impl<T> Default for Stored<T> {
    fn default() -> Self {
        Self {
            wanted: None,
            stored: None,
            revision: 0,
        }
    }
}

impl<T: Copy + PartialEq> Stored<T> {
    /// The value to store; `None` if etcd already has it.
    fn due(&self) -> Option<T> {
        self.wanted.filter(|_| self.wanted != self.stored)
    }
}

impl Registration {
    pub(super) fn new(client: Arc<Client>, names: Names, ttl: Duration) -> Self {
        Self {
            lease: Lease {
                client,
                ttl,
                id: None,
            },
            names,
            said: Stored::default(),
            acked: Stored::default(),
            rounds: 0,
            taken_since: None,
            is_outside: false,
            has_noted: false,
        }
    }

    pub(super) fn announce(&mut self, announcement: Announcement) {
        self.said.wanted = Some(announcement);
    }

    /// Sets the newest topology by which the node captures. Stores the acknowledgement again even
    /// if it has not changed, because etcd may have been restored from a backup.
    pub(super) fn acknowledge(&mut self, revision: Revision) {
        self.acked.wanted = Some(revision);
        self.acked.stored = None;
    }

    /// Keeps the lease alive, and stores values that etcd does not have.
    pub(super) fn round(&mut self) -> Result<RegistrationState, CallError> {
        let Some(announcement) = self.said.wanted else {
            return Ok(RegistrationState::Silent);
        };
        let lease = self.keep_lease()?;
        self.look(announcement)?;
        if self.said.due().is_some() && !self.store_announcement(announcement, lease)? {
            let since = *self.taken_since.get_or_insert_with(Instant::now);
            return Ok(RegistrationState::Taken(since.elapsed()));
        }
        self.taken_since = None;
        self.store_ack(announcement, lease)?;
        Ok(match self.is_outside {
            true => RegistrationState::Outside,
            false => RegistrationState::In,
        })
    }

    /// While another machine has this node's id, stores this node's announcement under a key of its
    /// own, for commands that show the cluster.
    pub(super) fn note_clone(&mut self, refusal: Option<Refusal>) -> Result<(), CallError> {
        let is_clone = refusal == Some(Refusal::TakenId);
        let Some((announcement, lease)) = self.said.wanted.zip(self.lease.id) else {
            return Ok(());
        };
        let key = self.names.clone_of(announcement.node, announcement.boot);
        if is_clone && !self.has_noted {
            let value = record::node(&announcement);
            self.lease.client.replace(&key, &value, lease, 0)?;
        } else if !is_clone && self.has_noted {
            let delete = Operation::Delete(Keys::One(key));
            self.lease.client.txn(&[], &[delete], &[])?;
        }
        self.has_noted = is_clone;
        Ok(())
    }

    /// Returns the lease's number. If etcd has lost the lease, grants a new one, which has no keys.
    fn keep_lease(&mut self) -> Result<i64, CallError> {
        let (lease, is_new) = self.lease.keep()?;
        if is_new {
            self.said.stored = None;
            self.acked.stored = None;
            self.has_noted = false;
        }
        Ok(lease)
    }

    /// Every [`LOOK`] rounds, checks whether the node's key is still in etcd, and whether the
    /// cluster was full before the node came.
    fn look(&mut self, announcement: Announcement) -> Result<(), CallError> {
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds % LOOK == 0 && self.said.stored.is_some() {
            let key = self.names.node(announcement.node);
            let all = self.lease.client.range(&self.names.nodes())?.kvs;
            let own = all.iter().find(|kv| kv.key == key);
            if own.map(|kv| kv.lease) != self.lease.id {
                self.said.stored = None;
                self.acked.stored = None;
            }
            self.is_outside = own.is_some_and(|own| self.names.is_outside(own, &all));
        }
        Ok(())
    }

    /// Stores the announcement. Returns `false` if another machine has the node's key.
    fn store_announcement(&mut self, said: Announcement, lease: i64) -> Result<bool, CallError> {
        let key = self.names.node(said.node);
        let value = record::node(&said);
        for _ in 0..TRIES {
            let replaces = self.said.revision;
            match self.lease.client.replace(&key, &value, lease, replaces)? {
                Replaced::Stored(revision) => {
                    self.said.revision = revision;
                    self.said.stored = Some(said);
                    // The next round checks whether the cluster was full before the node came.
                    self.rounds = LOOK - 1;
                    return Ok(true);
                }
                Replaced::Other(None) => self.said.revision = 0,
                Replaced::Other(Some(kv)) => {
                    let other = record::announcement(said.node, &kv.value);
                    if other.map(|other| other.boot) != Some(said.boot) {
                        return Ok(false);
                    }
                    // This node stored the key before its process was restarted.
                    self.said.revision = kv.mod_revision;
                }
            }
        }
        Ok(false)
    }

    fn store_ack(&mut self, announcement: Announcement, lease: i64) -> Result<(), CallError> {
        let Some(revision) = self.acked.due() else {
            return Ok(());
        };
        let key = self.names.ack(announcement.node);
        let value = record::ack(revision);
        for _ in 0..TRIES {
            let replaces = self.acked.revision;
            match self.lease.client.replace(&key, &value, lease, replaces)? {
                Replaced::Stored(stored) => {
                    self.acked.revision = stored;
                    self.acked.stored = Some(revision);
                    break;
                }
                Replaced::Other(found) => {
                    self.acked.revision = found.map_or(0, |kv| kv.mod_revision);
                }
            }
        }
        Ok(())
    }
}
