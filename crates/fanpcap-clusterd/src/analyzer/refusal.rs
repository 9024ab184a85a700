//! Why an analyzer ends a connection, and how often it has.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use fanpcap_cluster::record::MessageError;
use fanpcap_terminal::streams;

use super::connection_limits::{PROVEN, UNPROVEN};
use crate::tls::{self, Proof, Tls};

/// What a connection lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reason {
    /// It brings no messages of this cluster.
    Foreign = 0,
    /// Its messages are of another version.
    Version = 1,
    /// One side has no key, or another one.
    Key = 2,
    /// One side refuses the other's certificate, or there is none.
    Certificate = 3,
    /// Too many connections had proven nothing, and a newer one displaced it.
    Unproven = 4,
    /// Too many have proven to be nodes'.
    Full = 5,
    /// A message that begins as the cluster's do can't be read.
    Unreadable = 6,
}

impl Reason {
    /// Their names in metrics and JSON.
    pub(super) const NAMES: [&str; 7] = [
        "foreign",
        "version",
        "key",
        "certificate",
        "unproven",
        "full",
        "unreadable",
    ];
}

/// Why the analyzer ended a connection.
#[derive(Debug)]
pub(super) enum Ended {
    /// It broke, or took too long.
    Broken,
    /// It was refused: the reason, and the reason in words.
    Refused(Reason, String),
}

impl Ended {
    pub(super) fn foreign() -> Self {
        Self::Refused(Reason::Foreign, "not a message of this cluster".to_owned())
    }

    /// A message whose head is right up to the version.
    pub(super) fn unreadable(error: MessageError) -> Self {
        Self::Refused(Reason::Unreadable, format!("it can't be read: {error}"))
    }

    /// Connections that have proven nothing are too many.
    pub(super) fn unproven() -> Self {
        let why = format!(
            "{UNPROVEN} connections had not proven to be a node's, so that the oldest one of \
             whoever has most of them ends for each new one"
        );
        Self::Refused(Reason::Unproven, why)
    }

    /// Connections of nodes are too many.
    pub(super) fn full() -> Self {
        let why = format!(
            "{PROVEN} connections of nodes are open, so that the oldest one of whoever has most of \
             them ends for each new one, or the new one if all have few"
        );
        Self::Refused(Reason::Full, why)
    }

    /// The reason of a failed connection; `tls` are the credentials, if it used TLS.
    pub(super) fn of(error: &io::Error, tls: Option<&Tls>) -> Self {
        let reason = match tls.map(|tls| tls.proof) {
            Some(Proof::Certificate) => Reason::Certificate,
            Some(Proof::Key) | None => Reason::Key,
        };
        let refused = |why| Self::Refused(reason, format!("TLS with the node: {why}"));
        tls::words(error).map_or(Self::Broken, refused)
    }

    /// A message whose head, the first of `bytes`, can't be read.
    pub(super) fn of_head(error: MessageError, bytes: &[u8]) -> Self {
        match error {
            MessageError::Version(_) => Self::Refused(
                Reason::Version,
                "the message is of another version of fanpcap: update the analyzers, then the \
                 nodes"
                    .to_owned(),
            ),
            // A handshake of TLS (RFC 8446, section 5.1).
            MessageError::Magic if bytes.starts_with(&[22, 3]) => Self::Refused(
                Reason::Key,
                "it speaks TLS: set the same 'key_file' in cluster.conf on both sides".to_owned(),
            ),
            MessageError::Magic => Self::foreign(),
            MessageError::Kind(_) | MessageError::Length(_) | MessageError::Body => {
                Self::unreadable(error)
            }
        }
    }
}

/// What the intake has refused.
#[derive(Debug, Default)]
pub(super) struct Refused {
    /// Connections that broke.
    connections: AtomicU64,
    /// Connections that were ended, by reason.
    reasons: [AtomicU64; Reason::NAMES.len()],
}

impl Refused {
    /// Connections that broke, and all refused ones.
    pub(super) fn all(&self) -> u64 {
        let refused: u64 = self.reasons().iter().map(|(_, count)| count).sum();
        self.connections.load(Ordering::Relaxed) + refused
    }

    /// Refused connections, by the names of the reasons.
    pub(super) fn reasons(&self) -> Vec<(&'static str, u64)> {
        let counts = self.reasons.iter();
        let counts = counts.map(|count| count.load(Ordering::Relaxed));
        Reason::NAMES.into_iter().zip(counts).collect()
    }

    /// Counts a connection. Reports the first, second, fourth, eighth refusal and so on.
    pub(super) fn count(&self, ended: &Ended, from: SocketAddr) {
        let Ended::Refused(reason, why) = ended else {
            self.connections.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let count = self.reasons[*reason as usize].fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            streams::note(&format!(
                "fanpcap analyzer: refused from {from}, {count} so far: {why}\n"
            ));
        }
    }
}
