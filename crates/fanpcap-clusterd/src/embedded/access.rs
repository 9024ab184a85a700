//! The credentials of a participant: the cluster's keys, and the process's own secret.

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

/// Reads the cluster's keys from their files. The first key seals messages; both keys open them.
pub(super) fn keys(conf: &Conf) -> Result<Keys> {
    let keys = credentials::keys(conf)?;
    keys.context("the settings name no key_file for the control messages")
}

/// The time between attempts to join, a leader's pulses, or ballots: 1/5 of a heartbeat interval.
pub(super) fn beat(heartbeat: Duration) -> Duration {
    heartbeat / 5
}
