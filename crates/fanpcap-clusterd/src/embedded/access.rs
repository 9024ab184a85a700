//! The credentials to speak for a cluster: the cluster's keys, and the process's own secret.

use std::time::Duration;

use anyhow::{Context, Result};
use fanpcap_cluster::control::{ClusterId, Endpoint, Keys, Peer};

use crate::conf::Conf;
use crate::credentials;
use crate::keyring::random;

/// The participant `me` of the cluster, with the keys that the settings name.
pub(super) fn endpoint(conf: &Conf, me: Peer) -> Result<Endpoint> {
    let cluster = ClusterId::of_name(&conf.cluster);
    let secret = random().context("reading /dev/urandom")?;
    Ok(Endpoint::new(me, cluster, keys(conf)?, secret))
}

/// Reads the keys anew. The first seals; both are believed.
pub(super) fn keys(conf: &Conf) -> Result<Keys> {
    let keys = credentials::keys(conf)?;
    keys.context("the settings name no key_file for the control messages")
}

/// Between attempts, pulses and ballots, where `heartbeat` is between heartbeats: a second for the
/// paper's five.
pub(super) fn beat(heartbeat: Duration) -> Duration {
    heartbeat / 5
}
