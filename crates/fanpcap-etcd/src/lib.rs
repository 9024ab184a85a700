//! etcd, version 3.4 or later, by its JSON gateway: plain HTTP/1.1 instead of gRPC.
//!
//! [`Client`] asks one endpoint after the other until one answers or the call's deadline is over.
//! A call may so be made twice. Each writing call here is harmless when it is repeated: puts write
//! the same value again, and what must happen once is a transaction that compares revisions.
#![forbid(unsafe_code)]

mod error;
mod settings;
mod json;
mod tls;
mod gateway;
mod client;
mod kv;
mod lease;

pub use client::Client;
pub use error::{CallError, SetupError};
pub use kv::{Compare, KeyValue, Keys, Operation, Range, Txn};
pub use lease::Lease;
pub use settings::{Credentials, Endpoint, Limits, Settings, TlsFiles};
