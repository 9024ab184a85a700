//! A range of keys, followed through broken connections and compactions.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::client::Client;
use crate::error::CallError;
use crate::kv::{KeyValue, Keys};
use crate::watch::{Change, Watch, WatchEnd};

/// A copy of a range of keys that follows etcd.
///
/// A silent watch may be at a member that was stopped or cut off. So each silence of
/// [`crate::Limits::quiet`] ends the watch, and the next watch continues from the last revision
/// received, at an endpoint that answers.
#[derive(Debug)]
pub struct Follower {
    client: Arc<Client>,
    keys: Keys,
    /// The store's revision of the copy; `None` before the first reading.
    revision: Option<i64>,
    watch: Option<Watch>,
    copy: BTreeMap<Vec<u8>, KeyValue>,
}

impl Follower {
    /// Follows keys. Nothing is read yet.
    pub fn new(client: Arc<Client>, keys: Keys) -> Self {
        Self {
            client,
            keys,
            revision: None,
            watch: None,
            copy: BTreeMap::new(),
        }
    }

    /// The keys as of the last message.
    pub fn copy(&self) -> &BTreeMap<Vec<u8>, KeyValue> {
        &self.copy
    }

    /// Waits for changes, at most [`crate::Limits::quiet`] if etcd is in reach. Returns whether
    /// there were any.
    ///
    /// # Errors
    ///
    /// etcd is out of reach, or refuses. The copy stays as it is, and the next call tries again.
    pub fn wait(&mut self) -> Result<bool, CallError> {
        let Some(revision) = self.revision else {
            self.read()?;
            return Ok(true);
        };
        let watch = match &mut self.watch {
            Some(watch) => watch,
            none => {
                let watch = self.client.watch(&self.keys, revision + 1)?;
                // The store was restored from a backup, or this member is behind. A range, which
                // the majority answers, tells which.
                if watch.began < revision {
                    return self.read_if_older(revision);
                }
                none.insert(watch)
            }
        };
        match watch.wait() {
            Ok(changes) => {
                self.revision = Some(revision.max(changes.revision));
                let any = !changes.changes.is_empty();
                changes.changes.into_iter().for_each(|one| self.apply(one));
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
