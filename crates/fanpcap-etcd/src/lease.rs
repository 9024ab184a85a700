//! Leases: when the owner of a lease is gone, etcd removes the keys under the lease.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::Client;
use crate::error::{CallError, Failure};
use crate::json;

#[derive(Deserialize)]
struct Granted {
    #[serde(rename = "ID", deserialize_with = "json::number")]
    id: i64,
    /// The remaining time in seconds; 0 if the lease has ended.
    #[serde(rename = "TTL", default, deserialize_with = "json::number")]
    ttl: i64,
}

impl Client {
    /// Grants a new lease. If the lease is not kept alive, it lasts at least `ttl`, in whole
    /// seconds. etcd grants at least 1.5 times its election timeout. When etcd's leader changes,
    /// etcd gives each lease its full time again.
    ///
    /// # Errors
    /// Fails if no endpoint answers in time, or etcd refuses the call. If etcd granted the lease
    /// and only its answer was lost, the lease ends by itself after `ttl`.
    pub fn grant(&self, ttl: Duration) -> Result<i64, CallError> {
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let body = json!({"TTL": seconds.to_string()});
        let granted: Granted = self.call("/v3/lease/grant", &body)?;
        match granted.ttl > 0 {
            true => Ok(granted.id),
            false => Err(CallError::new(
                Failure::Answer,
                "lease/grant",
                "a lease without a time",
            )),
        }
    }

    /// Gives a lease its full time again. Returns `false` if the lease does not exist any more.
    ///
    /// # Errors
    /// Fails if no endpoint answers in time, or etcd refuses the call.
    pub fn keep_alive(&self, id: i64) -> Result<bool, CallError> {
        #[derive(Deserialize)]
        struct Kept {
            result: Granted,
        }
        let kept: Kept = self.call("/v3/lease/keepalive", &json!({"ID": id.to_string()}))?;
        Ok(kept.result.ttl > 0)
    }

    /// Ends a lease and removes the keys under it. A lease that has already ended is no error.
    ///
    /// # Errors
    /// Fails if no endpoint answers in time, or etcd refuses the call.
    pub fn revoke(&self, id: i64) -> Result<(), CallError> {
        let body = json!({"ID": id.to_string()});
        match self.call::<Value>("/v3/lease/revoke", &body) {
            Err(error) if error.reason.contains("lease not found") => Ok(()),
            other => other.map(drop),
        }
    }
}

/// A lease in etcd that its owner keeps alive. If the lease was lost, a new lease is granted.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) client: Arc<Client>,
    pub(crate) ttl: Duration,
    pub(crate) id: Option<i64>,
}

impl Lease {
    /// Keeps the lease alive. Returns the lease's number, and whether the lease is new.
    pub(crate) fn keep(&mut self) -> Result<(i64, bool), CallError> {
        if let Some(id) = self.id {
            if self.client.keep_alive(id)? {
                return Ok((id, false));
            }
        }
        let id = self.client.grant(self.ttl)?;
        self.id = Some(id);
        Ok((id, true))
    }
}
