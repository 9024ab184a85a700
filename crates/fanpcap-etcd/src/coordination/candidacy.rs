//! A coordinator's lease and its place in the election.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::election::Candidate;
use crate::error::CallError;

/// A coordinator that stands for election.
#[derive(Debug)]
pub(super) struct Candidacy {
    client: Arc<Client>,
    election: String,
    /// What the coordinator's key holds: who it is.
    value: Vec<u8>,
    ttl: Duration,
    lease: Option<i64>,
}

/// A candidate, and until when its lease lasts at least.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Term {
    pub(super) candidate: Candidate,
    pub(super) until: Instant,
}

impl Candidacy {
    pub(super) fn new(
        client: Arc<Client>,
        election: String,
        value: Vec<u8>,
        ttl: Duration,
    ) -> Self {
        Self {
            client,
            election,
            value,
            ttl,
            lease: None,
        }
    }

    /// Keeps the lease alive. Stands again where the lease was lost, or somebody has deleted the
    /// coordinator's key.
    pub(super) fn round(&mut self) -> Result<Term, CallError> {
        let until = Instant::now() + self.ttl;
        let lease = self.keep_lease()?;
        let candidate = self.client.stand(&self.election, lease, &self.value)?;
        Ok(Term { candidate, until })
    }

    fn keep_lease(&mut self) -> Result<i64, CallError> {
        if let Some(lease) = self.lease {
            if self.client.keep_alive(lease)?.is_some() {
                return Ok(lease);
            }
        }
        let lease = self.client.grant(self.ttl)?.id;
        self.lease = Some(lease);
        Ok(lease)
    }

    /// Ends the lease, so that another candidate leads.
    pub(super) fn resign(&mut self) -> Result<(), CallError> {
        match self.lease.take() {
            Some(lease) => self.client.revoke(lease),
            None => Ok(()),
        }
    }
}
