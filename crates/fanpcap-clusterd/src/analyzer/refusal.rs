//! Why an analyzer ends connections, and how often.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use fanpcap_cluster::record::MessageError;
use fanpcap_terminal::streams;

use super::connection_limits::{PROVEN, UNPROVEN};
use crate::tls::{self, Proof, Tls};

/// The reason for the refusal of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reason {
    /// The other side sent no message of this cluster.
    Foreign = 0,
    /// The messages have another version.
    Version = 1,
    /// One side has no key, or the two sides have different keys.
    Key = 2,
    /// One side refuses the other side's certificate, or the other side has none.
    Certificate = 3,
    /// Too many connections had not proven to come from a node, so a newer one replaced this one.
    Unproven = 4,
    /// There are too many connections that have proven to be nodes' connections.
    Full = 5,
    /// A message can't be read, although it begins like a message of the cluster.
    Unreadable = 6,
}

impl Reason {
    /// The names of the reasons in metrics and JSON.
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
    /// The connection broke, or took too long.
    Broken,
    /// The connection was refused for this reason, which the text describes.
    Refused(Reason, String),
}

impl Ended {
    pub(super) fn foreign() -> Self {
        Self::Refused(Reason::Foreign, "not a message of this cluster".to_owned())
    }

    /// A message that begins like a message of the cluster, but can't be read.
    pub(super) fn unreadable(error: MessageError) -> Self {
        Self::Refused(Reason::Unreadable, format!("it can't be read: {error}"))
    }

    pub(super) fn unproven() -> Self {
        let why = format!(
            "{UNPROVEN} connections had not proven to be a node's: for each new one, the oldest \
             one of the network with the most such connections ends"
        );
        Self::Refused(Reason::Unproven, why)
    }

    pub(super) fn full() -> Self {
        let why = format!(
            "{PROVEN} connections of nodes are open: for each new one, the oldest one of the \
             network with the most connections ends, or the new one if each network has few"
        );
        Self::Refused(Reason::Full, why)
    }

    /// Why a connection failed; `tls` are the credentials if the connection used TLS.
    pub(super) fn of(error: &io::Error, tls: Option<&Tls>) -> Self {
        let reason = match tls.map(|tls| tls.proof) {
            Some(Proof::Certificate) => Reason::Certificate,
            Some(Proof::Key) | None => Reason::Key,
        };
        let refused = |why| Self::Refused(reason, format!("TLS with the node: {why}"));
        tls::words(error).map_or(Self::Broken, refused)
    }

    /// A message whose head can't be read. The head is at the beginning of `bytes`.
    pub(super) fn of_head(error: MessageError, bytes: &[u8]) -> Self {
        match error {
            MessageError::Version(_) => Self::Refused(
                Reason::Version,
                "the message is of another version of fanpcap: update the analyzers, then the \
                 nodes"
                    .to_owned(),
            ),
            // A TLS handshake begins with these bytes (RFC 8446, section 5.1).
            MessageError::Magic if bytes.starts_with(&[22, 3]) => Self::Refused(
                Reason::Key,
                "the node uses TLS: set the same 'key_file' in both cluster.conf files".to_owned(),
            ),
            MessageError::Magic => Self::foreign(),
            MessageError::Kind(_) | MessageError::Length(_) | MessageError::Body => {
                Self::unreadable(error)
            }
        }
    }
}

/// Counts connections that were refused, or that broke.
#[derive(Debug, Default)]
pub(super) struct Refused {
    connections: AtomicU64,
    reasons: [AtomicU64; Reason::NAMES.len()],
}

impl Refused {
    /// The number of connections that broke or were refused.
    pub(super) fn all(&self) -> u64 {
        let refused: u64 = self.reasons().iter().map(|(_, count)| count).sum();
        self.connections.load(Ordering::Relaxed) + refused
    }

    /// The numbers of refused connections, with the names of the reasons.
    pub(super) fn reasons(&self) -> Vec<(&'static str, u64)> {
        let counts = self.reasons.iter();
        let counts = counts.map(|count| count.load(Ordering::Relaxed));
        Reason::NAMES.into_iter().zip(counts).collect()
    }

    /// Counts an ended connection. For each reason, reports the first, second, fourth, eighth
    /// refusal and so on.
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
