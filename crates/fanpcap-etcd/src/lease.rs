//! Leases: keys that vanish when their owner does.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use crate::client::Client;
use crate::error::CallError;
use crate::json::Number;

/// A lease that etcd granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// Its number.
    pub id: i64,
    /// How long it lasts without being kept alive. etcd grants at least 1.5 times its election
    /// timeout, and starts each lease anew when its leader changes.
    pub ttl: Duration,
}

#[derive(Deserialize)]
struct Granted {
    #[serde(rename = "ID")]
    id: Number,
    #[serde(rename = "TTL", default)]
    ttl: Number,
}

#[derive(Deserialize)]
struct Kept {
    result: Granted,
}

impl Granted {
    fn lease(&self) -> Option<Lease> {
        let seconds = u64::try_from(self.ttl.0).ok().filter(|ttl| *ttl > 0)?;
        Some(Lease {
            id: self.id.0,
            ttl: Duration::from_secs(seconds),
        })
    }
}

impl Client {
    /// A new lease that lasts at least so long, in whole seconds.
    ///
    /// # Errors
    ///
    /// No endpoint answered in time, or etcd refused. A lease of a lost answer ends by itself.
    pub fn grant(&self, ttl: Duration) -> Result<Lease, CallError> {
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let body = json!({"TTL": Number(i64::try_from(seconds).unwrap_or(i64::MAX))});
        let granted: Granted = self.call("/v3/lease/grant", &body)?;
        granted.lease().ok_or_else(|| CallError::Answer {
            endpoint: "lease/grant".to_owned(),
            reason: "a lease without a time".to_owned(),
        })
    }

    /// Starts a lease's time anew; `None` if etcd has no such lease any more.
    ///
    /// # Errors
    ///
    /// No endpoint answered in time, or etcd refused.
    pub fn keep_alive(&self, id: i64) -> Result<Option<Lease>, CallError> {
        let kept: Kept = self.call("/v3/lease/keepalive", &json!({"ID": Number(id)}))?;
        Ok(kept.result.lease())
    }

    /// Ends a lease, and so the keys under it. One that is gone already is fine.
    ///
    /// # Errors
    ///
    /// No endpoint answered in time, or etcd refused.
    pub fn revoke(&self, id: i64) -> Result<(), CallError> {
        let revoked =
            self.call::<serde_json::Value>("/v3/lease/revoke", &json!({"ID": Number(id)}));
        match revoked {
            Err(CallError::Refused { message, .. }) if message.contains("lease not found") => {
                Ok(())
            }
            other => other.map(|_| ()),
        }
    }
}
