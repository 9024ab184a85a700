//! Exports what a cluster captured as IPFIX messages (RFC 7011) with PSAMP records (RFC 5476).
//!
//! One exporter is one **observation domain**: a node, or an analyzer. It encodes each packet as a
//! data record, in one of two [`Form`]s, and says in options records how packets were selected:
//!
//! * a **selection sequence** (`selectionSequenceId`) is a revision of the cluster's topology;
//! * a **selector** (`selectorId`) is a bucket.
//!
//! So a collector knows by which table a node captured each packet. For each bucket, it can compare
//! how many packets each node observed and how many it selected.
//!
//! This crate does no I/O and reads no clock. It passes messages to a function of the caller, which
//! uses UDP, TCP or TLS.
//!
//! ```
//! use std::time::Duration;
//! use fanpcap_ipfix::{Exporter, Form, Packet, Transport};
//!
//! let mut exporter = Exporter::new(7, Form::Sections, Transport::Udp);
//! let mut messages: Vec<Vec<u8>> = Vec::new();
//! let mut send = |message: &[u8]| messages.push(message.to_vec());
//! let now = Duration::from_secs(1_700_000_000);
//! let frame = [0; 60];
//! let (revision, bucket, digest) = (1, 9, 3);
//! let packet = Packet { time: now, wire_len: 60, frame: &frame, revision, bucket, digest };
//! exporter.packet(now, &packet, &mut send);
//! exporter.flush(now, &mut send);
//! // The templates, then the packet.
//! assert_eq!(messages.len(), 2);
//! ```
#![forbid(unsafe_code)]

mod record;
mod message;
mod template;
mod section;
mod flow;
mod report;
mod exporter;

pub use exporter::{Exporter, Form, Totals, Transport};
pub use record::{Algorithm, Packet, Selector, Statistics};
