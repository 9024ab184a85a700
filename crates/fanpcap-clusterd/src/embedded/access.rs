//! What lets a process speak for a cluster: its keys, and a secret of its own.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

use anyhow::{Context, Result};
use fanpcap_cluster::control::{ClusterId, Endpoint, Key, Keys, Peer};

use crate::conf::Conf;

/// The participant `me` of the cluster, with the keys that the settings name.
pub(super) fn endpoint(conf: &Conf, me: Peer) -> Result<Endpoint> {
    let cluster = ClusterId::of_name(&conf.cluster);
    Ok(Endpoint::new(me, cluster, keys(conf)?, random()?))
}

/// Reads the keys anew. The first signs; both are believed.
pub(super) fn keys(conf: &Conf) -> Result<Keys> {
    let secrets = conf.keys()?;
    let mut keys = secrets
        .iter()
        .map(|secret| Key::new(secret.bytes().to_vec()));
    let first = keys.next().flatten();
    Ok(Keys {
        current: first.context("the settings name no key_file for the control messages")?,
        other: keys.next().flatten(),
    })
}

/// Bytes that nobody can guess.
pub(super) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut source = File::open("/dev/urandom").context("opening /dev/urandom")?;
    source
        .read_exact(&mut bytes)
        .context("reading /dev/urandom")?;
    Ok(bytes)
}

/// Between attempts, pulses and ballots, where `heartbeat` is between heartbeats: a second for the
/// paper's five.
pub(super) fn beat(heartbeat: Duration) -> Duration {
    heartbeat / 5
}
