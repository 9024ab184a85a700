//! Watches: changes of the keys in a range, as they happen.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::time::Instant;

use serde::Deserialize;
use serde_json::{Value, json};
use ureq::BodyReader;

use crate::client::Client;
use crate::error::{CallError, Failure, code};
use crate::json;
use crate::kv::{KeyValue, Keys};
use crate::settings::Endpoint;

/// Maximum length of a watch's message, in bytes. etcd splits messages above 1.5 MB.
const MESSAGE: u64 = 16 << 20;

/// A change of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// The key now has this value.
    Put(KeyValue),
    /// The key was deleted at this revision.
    Delete(Vec<u8>, i64),
}

/// A watch at one endpoint. It ends with the connection.
pub struct Watch {
    endpoint: String,
    reader: BufReader<BodyReader<'static>>,
    /// The store's revision at this endpoint when the watch began.
    pub(crate) began: i64,
}

/// The reason why a watch has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchEnd {
    /// etcd has compacted revisions that the watch needs: read the range, then watch again.
    Compacted,
    /// Nothing came for [`crate::Limits::quiet`], or the connection broke.
    Broken(CallError),
}

#[derive(Deserialize)]
struct Message {
    result: Option<Outcome>,
    #[serde(default)]
    error: Value,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Outcome {
    header: LastHeader,
    created: bool,
    canceled: bool,
    cancel_reason: String,
    #[serde(deserialize_with = "json::number")]
    compact_revision: i64,
    events: Vec<Event>,
}

/// A header that may have no revision, for example in the answer to a watch of compacted revisions.
#[derive(Default, Deserialize)]
#[serde(default)]
struct LastHeader {
    #[serde(deserialize_with = "json::number")]
    revision: i64,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type", default)]
    kind: String,
    kv: KeyValue,
}

impl From<Event> for Change {
    fn from(event: Event) -> Self {
        match event.kind.as_str() {
            "DELETE" => Self::Delete(event.kv.key, event.kv.mod_revision),
            _ => Self::Put(event.kv),
        }
    }
}

impl Change {
    pub(crate) fn revision(&self) -> i64 {
        match self {
            Self::Put(kv) => kv.mod_revision,
            Self::Delete(_, revision) => *revision,
        }
    }
}

impl Client {
    /// Watches keys from the revision `from` on. Prefers the endpoint that answered last.
    ///
    /// # Errors
    /// Fails if no endpoint answers in time, or etcd refuses the call.
    pub fn watch(&self, keys: &Keys, from: i64) -> Result<Watch, CallError> {
        let mut request = keys.fields();
        request["start_revision"] = json!(from.to_string());
        let body = json!({"create_request": request}).to_string();
        let deadline = Instant::now() + self.limits().call;
        self.by_some_endpoint(deadline, |endpoint, _| {
            self.with_token(deadline, |token| self.open(endpoint, &body, token))
        })
    }

    fn open(&self, at: &Endpoint, body: &str, token: Option<&str>) -> Result<Watch, CallError> {
        let reader = self.gateway.stream(at, "/v3/watch", body, token)?;
        let mut watch = Watch {
            endpoint: at.to_string(),
            reader,
            began: 0,
        };
        let first = watch.message()?;
        watch.began = first.header.revision;
        if first.canceled {
            return Err(watch.refused(&first.cancel_reason));
        }
        if !first.created {
            return Err(watch.failed(Failure::Answer, "the watch does not begin"));
        }
        Ok(watch)
    }
}

impl Watch {
    /// Waits for the next changes, and returns them, the oldest first.
    ///
    /// # Errors
    /// Fails if the watch has ended.
    pub fn wait(&mut self) -> Result<Vec<Change>, WatchEnd> {
        let outcome = self.message().map_err(WatchEnd::Broken)?;
        if outcome.compact_revision > 0 {
            return Err(WatchEnd::Compacted);
        }
        if outcome.canceled {
            return Err(WatchEnd::Broken(self.refused(&outcome.cancel_reason)));
        }
        Ok(outcome.events.into_iter().map(Change::from).collect())
    }

    /// The next message, which is one line of JSON.
    fn message(&mut self) -> Result<Outcome, CallError> {
        let mut line = Vec::new();
        let read = (&mut self.reader)
            .take(MESSAGE)
            .read_until(b'\n', &mut line);
        if let Err(error) = read {
            return Err(self.failed(Failure::Unreachable, error));
        }
        if line.last() != Some(&b'\n') {
            return Err(self.failed(Failure::Unreachable, "the connection ended"));
        }
        let message: Message =
            serde_json::from_slice(&line).map_err(|error| self.failed(Failure::Answer, error))?;
        match message.result {
            Some(outcome) => Ok(outcome),
            None => {
                let reason = format!("the watch failed: {}", message.error);
                Err(self.failed(Failure::Unreachable, reason))
            }
        }
    }

    fn failed(&self, failure: Failure, reason: impl fmt::Display) -> CallError {
        CallError::new(failure, &self.endpoint, reason)
    }

    /// The error for a watch that etcd cancels. etcd 3.4 cancels a watch if the user has no
    /// permission for the keys, or if the token is unknown.
    fn refused(&self, reason: &str) -> CallError {
        let code = match reason.contains("permission denied") {
            true => code::PERMISSION_DENIED,
            false => code::UNAUTHENTICATED,
        };
        self.failed(Failure::Refused(code), reason)
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch({})", self.endpoint)
    }
}
