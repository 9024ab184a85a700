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
    held: Option<(i64, Candidate)>,
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
            held: None,
        }
    }

    /// Keeps the lease alive; stands again after it was lost.
    pub(super) fn round(&mut self) -> Result<Term, CallError> {
        let begun = Instant::now();
        if let Some((lease, candidate)) = &self.held {
            if self.client.keep_alive(*lease)?.is_some() {
                return Ok(Term {
                    candidate: candidate.clone(),
                    until: begun + self.ttl,
                });
            }
            self.held = None;
        }
        let lease = self.client.grant(self.ttl)?.id;
        let candidate = self.client.stand(&self.election, lease, &self.value)?;
        self.held = Some((lease, candidate.clone()));
        Ok(Term {
            candidate,
            until: begun + self.ttl,
        })
    }

    /// Ends the lease, so that another candidate leads.
    pub(super) fn resign(&mut self) -> Result<(), CallError> {
        match self.held.take() {
            Some((lease, _)) => self.client.revoke(lease),
            None => Ok(()),
        }
    }
}
