//! Follows a range of keys, even if connections break or etcd compacts revisions.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::client::Client;
use crate::error::CallError;
use crate::kv::{KeyValue, Keys};
use crate::watch::{Change, Watch, WatchEnd};

/// A copy of a range of keys, which follows the changes in etcd.
///
/// If a watch is silent, the member that serves it may have been stopped or cut off. So a silence
/// of [`crate::Limits::quiet`] ends the watch. The next watch uses an endpoint that answers, and
/// continues after the last revision that was received.
#[derive(Debug)]
pub struct Follower {
    client: Arc<Client>,
    keys: Keys,
    /// The revision of etcd's store that the copy shows; `None` before the first reading.
    revision: Option<i64>,
    watch: Option<Watch>,
    copy: BTreeMap<Vec<u8>, KeyValue>,
}

impl Follower {
    /// Follows keys. The first [`Follower::wait`] reads them.
    pub fn new(client: Arc<Client>, keys: Keys) -> Self {
        Self {
            client,
            keys,
            revision: None,
            watch: None,
            copy: BTreeMap::new(),
        }
    }

    /// The keys and values, with all changes that have come so far.
    pub fn copy(&self) -> &BTreeMap<Vec<u8>, KeyValue> {
        &self.copy
    }

    /// Waits for changes. If etcd answers, the wait takes at most [`crate::Limits::quiet`]. Returns
    /// whether changes came.
    ///
    /// # Errors
    /// Fails if etcd is out of reach, or refuses the call. The copy is then unchanged; call again.
    pub fn wait(&mut self) -> Result<bool, CallError> {
        let Some(revision) = self.revision else {
            self.read()?;
            return Ok(true);
        };
        let watch = match &mut self.watch {
            Some(watch) => watch,
            none => {
                let watch = self.client.watch(&self.keys, revision + 1)?;
                // Either etcd's store was restored from a backup, or this etcd member is behind the
                // others. A read from a majority of the members shows which of the two is true.
                if watch.began < revision {
                    return self.read_if_older(revision);
                }
                none.insert(watch)
            }
        };
        match watch.wait() {
            Ok(changes) => {
                // The revision in the message's header is not used: the next message may have
                // changes of that revision.
                let newest = changes.iter().map(Change::revision).max();
                self.revision = newest.max(Some(revision));
                let any = !changes.is_empty();
                changes.into_iter().for_each(|one| self.apply(one));
                Ok(any)
            }
            Err(end) => {
                self.watch = None;
                if end == WatchEnd::Compacted {
                    self.revision = None;
                }
                Ok(false)
            }
        }
    }

    fn read(&mut self) -> Result<(), CallError> {
        let range = self.client.range(&self.keys)?;
        let kvs = range.kvs.into_iter().map(|kv| (kv.key.clone(), kv));
        self.copy = kvs.collect();
        self.revision = Some(range.revision);
        Ok(())
    }

    fn read_if_older(&mut self, known: i64) -> Result<bool, CallError> {
        if self.client.range(&self.keys)?.revision < known {
            self.read()?;
            return Ok(true);
        }
        Ok(false)
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Put(kv) => self.copy.insert(kv.key.clone(), kv),
            Change::Delete(key, _) => self.copy.remove(&key),
        };
    }
}
