//! Keys and values: reads ranges, replaces values, makes transactions.

use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::{Value, json};

use crate::client::Client;
use crate::error::CallError;
use crate::json;

/// A key with its value and its revisions.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct KeyValue {
    /// The key.
    #[serde(deserialize_with = "json::bytes")]
    pub key: Vec<u8>,
    /// The value of the key.
    #[serde(deserialize_with = "json::bytes")]
    pub value: Vec<u8>,
    /// The revision that created the key.
    #[serde(deserialize_with = "json::number")]
    pub create_revision: i64,
    /// The revision that last changed the key.
    #[serde(deserialize_with = "json::number")]
    pub mod_revision: i64,
    /// The lease that the key is under; 0 if there is none.
    #[serde(deserialize_with = "json::number")]
    pub lease: i64,
}

/// One key, or all keys with a prefix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Keys {
    /// This key.
    One(Vec<u8>),
    /// All keys with this prefix.
    Prefix(Vec<u8>),
}

impl Keys {
    /// The fields `key` and `range_end` of a request.
    pub(crate) fn fields(&self) -> Value {
        match self {
            Self::One(key) => json!({"key": json::encode(key)}),
            Self::Prefix(prefix) => {
                let end = json::encode(&after_prefix(prefix));
                json!({"key": json::encode(prefix), "range_end": end})
            }
        }
    }
}

/// The first key after all keys that begin with `prefix`; a zero byte if there is no such key.
fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

/// The contents of a range, and the revision of the store.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Range {
    /// The store's revision.
    #[serde(rename = "header", deserialize_with = "json::revision")]
    pub revision: i64,
    /// The keys, in the order of their bytes.
    #[serde(default)]
    pub kvs: Vec<KeyValue>,
}

/// A condition of a transaction on a key's revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Compare {
    /// The revision that created the key; 0 if there is no such key.
    CreateRevision(Vec<u8>, i64),
    /// The revision that last changed the key; 0 if there is no such key.
    ModRevision(Vec<u8>, i64),
}

impl Compare {
    fn to_json(&self) -> Value {
        let (key, target, field, revision) = match self {
            Self::CreateRevision(key, revision) => (key, "CREATE", "create_revision", revision),
            Self::ModRevision(key, revision) => (key, "MOD", "mod_revision", revision),
        };
        json!({
            "key": json::encode(key), "target": target, "result": "EQUAL",
            field: revision.to_string(),
        })
    }
}

/// An operation of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Stores a value. The key is put under `lease`, if `lease` is not 0.
    Put {
        /// The key.
        key: Vec<u8>,
        /// The new value.
        value: Vec<u8>,
        /// The lease; 0 for none.
        lease: i64,
    },
    /// Removes keys.
    Delete(Keys),
    /// Reads keys.
    Get(Keys),
}

impl Operation {
    fn to_json(&self) -> Value {
        match self {
            Self::Put { key, value, lease } => json!({"request_put": {
                "key": json::encode(key),
                "value": json::encode(value),
                "lease": lease.to_string(),
            }}),
            Self::Delete(keys) => json!({"request_delete_range": keys.fields()}),
            Self::Get(keys) => json!({"request_range": keys.fields()}),
        }
    }
}

/// The result of [`Client::replace`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Replaced {
    /// The value was stored at this revision.
    Stored(i64),
    /// Another client has changed the key. This is its present value; `None` if the key is gone.
    Other(Option<KeyValue>),
}

/// The result of a transaction.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Txn {
    /// Whether all conditions were true.
    #[serde(default)]
    pub succeeded: bool,
    /// The store's revision. Keys that the transaction wrote have this revision as mod revision.
    #[serde(rename = "header", deserialize_with = "json::revision")]
    pub revision: i64,
    /// The contents that each [`Operation::Get`] read, in the order of the operations.
    #[serde(default, rename = "responses", deserialize_with = "ranges")]
    pub ranges: Vec<Range>,
}

fn ranges<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Range>, D::Error> {
    #[derive(Deserialize)]
    struct Response {
        response_range: Option<Range>,
    }
    let all = Vec::<Response>::deserialize(deserializer)?.into_iter();
    Ok(all.filter_map(|response| response.response_range).collect())
}

impl Client {
    /// Reads keys. The read is linearizable: etcd confirms it with a majority of its members.
    ///
    /// # Errors
    /// Fails if no endpoint answers in time, or etcd refuses the call.
    pub fn range(&self, keys: &Keys) -> Result<Range, CallError> {
        self.call("/v3/kv/range", &keys.fields())
    }

    /// Replaces the key's value if its mod revision is `replaces`. With `replaces` 0, stores the
    /// value only if the key does not exist.
    ///
    /// # Errors
    /// Fails if no endpoint answers in time, or etcd refuses the call. After an error, etcd may
    /// have stored the value nevertheless, but never over a later value.
    pub fn replace(
        &self,
        key: &[u8],
        value: &[u8],
        lease: i64,
        replaces: i64,
    ) -> Result<Replaced, CallError> {
        let put = Operation::Put {
            key: key.to_vec(),
            value: value.to_vec(),
            lease,
        };
        let read = Operation::Get(Keys::One(key.to_vec()));
        let known = Compare::ModRevision(key.to_vec(), replaces);
        let txn = self.txn(&[known], &[put], &[read])?;
        if txn.succeeded {
            return Ok(Replaced::Stored(txn.revision));
        }
        let found = txn.ranges.into_iter().flat_map(|range| range.kvs).next();
        Ok(match found {
            // An earlier attempt of this call stored the value, and the answer was lost.
            Some(kv) if kv.value == value && kv.lease == lease => Replaced::Stored(kv.mod_revision),
            other => Replaced::Other(other),
        })
    }

    /// Does `then` if all conditions are true, else `otherwise`. The whole transaction is atomic.
    ///
    /// # Errors
    /// Fails if no endpoint answers in time, or etcd refuses the call. etcd may have done the
    /// transaction. A repeated call is safe if `then` makes one of `conditions` false.
    pub fn txn(
        &self,
        conditions: &[Compare],
        then: &[Operation],
        otherwise: &[Operation],
    ) -> Result<Txn, CallError> {
        let list =
            |operations: &[Operation]| Value::from_iter(operations.iter().map(Operation::to_json));
        let body = json!({
            "compare": Value::from_iter(conditions.iter().map(Compare::to_json)),
            "success": list(then),
            "failure": list(otherwise),
        });
        self.call("/v3/kv/txn", &body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_key() {
        assert_eq!(after_prefix(b"a/"), b"a0");
        assert_eq!(after_prefix(b"a\xff\xff"), b"b");
        assert_eq!(after_prefix(b"\xff"), b"\0");
    }
}
