//! Elections with the keys of etcd's own clients, so that `etcdctl elect` sees them.
//!
//! A candidate has a key below the election's name, under its lease. The candidate with the oldest
//! key, the one with the lowest create revision, leads (`clientv3/concurrency`).

use crate::client::Client;
use crate::error::CallError;
use crate::kv::{Compare, KeyValue, Replaced};

/// A candidate in an election.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// The candidate's key.
    pub key: Vec<u8>,
    /// The revision that created the key.
    pub create_revision: i64,
}

impl Candidate {
    /// The condition that this candidate's key exists. A leader leads as long as its key exists.
    pub fn still_stands(&self) -> Compare {
        Compare::CreateRevision(self.key.clone(), self.create_revision)
    }

    /// Whether this candidate leads among `candidates`.
    pub fn leads<'a>(&self, candidates: impl IntoIterator<Item = &'a KeyValue>) -> bool {
        leader(candidates).is_some_and(|first| {
            first.key == self.key && first.create_revision == self.create_revision
        })
    }
}

/// The candidate that leads.
pub fn leader<'a>(candidates: impl IntoIterator<Item = &'a KeyValue>) -> Option<&'a KeyValue> {
    candidates.into_iter().min_by_key(|one| one.create_revision)
}

impl Client {
    /// Makes a candidate in the election `name`, whose key is under `lease`. A second call with the
    /// same lease changes nothing.
    ///
    /// # Errors
    /// Fails if no endpoint answers in time, or etcd refuses the call.
    pub fn stand(&self, name: &str, lease: i64, value: &[u8]) -> Result<Candidate, CallError> {
        let key = format!("{name}/{lease:x}").into_bytes();
        let create_revision = match self.replace(&key, value, lease, 0)? {
            Replaced::Stored(revision) => revision,
            Replaced::Other(found) => found.map_or(0, |kv| kv.create_revision),
        };
        Ok(Candidate {
            key,
            create_revision,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_candidate_leads() {
        let kv = |key: &str, create_revision| KeyValue {
            key: key.into(),
            create_revision,
            ..KeyValue::default()
        };
        let all = [kv("c/1", 9), kv("c/2", 4), kv("c/3", 6)];
        let candidate = |key: &str, create_revision| Candidate {
            key: key.into(),
            create_revision,
        };
        assert_eq!(leader(&all).unwrap().key, b"c/2");
        assert!(candidate("c/2", 4).leads(&all));
        assert!(!candidate("c/2", 3).leads(&all));
        assert!(!candidate("c/3", 6).leads(&all));
        assert!(leader([]).is_none());
    }
}
