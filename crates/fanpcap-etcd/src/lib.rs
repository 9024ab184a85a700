//! A client for etcd 3.4 or later, which uses etcd's JSON gateway: plain HTTP/1.1 instead of gRPC.
//!
//! [`Client`] asks one endpoint after the other, until one answers or the call's deadline has
//! passed. So a call may reach etcd twice. A member whose process was paused may execute the call
//! much later, when it goes on. Therefore changes that must not be repeated are transactions that
//! compare revisions, like [`Client::replace`].
#![forbid(unsafe_code)]

mod error;
mod settings;
mod json;
mod tls;
mod gateway;
mod client;
mod kv;
mod lease;
mod watch;
mod follow;
mod election;
pub mod coordination;

pub use client::Client;
pub use election::{Candidate, leader};
pub use error::{CallError, Failure, SetupError};
pub use follow::Follower;
pub use kv::{Compare, KeyValue, Keys, Operation, Range, Replaced, Txn};
pub use settings::{Credentials, Endpoint, Limits, Settings, TlsFiles};
pub use watch::{Change, Watch, WatchEnd};
