//! The settings for the coordinator's frames in the mirrored stream.

use fanpcap_cluster::control::ClusterId;
use fanpcap_cluster::control::stream::FrameNumbers;
use fanpcap_config::report::Report;
use fanpcap_linux::wait::clock::realtime_ns;

use crate::conf::Conf;

/// The number that identifies the cluster in frames.
pub(crate) fn cluster(conf: &Conf) -> u32 {
    let [a, b, c, d, ..] = ClusterId::of_name(&conf.cluster).0.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// The numbers of frames, for each of the cluster's keys; empty if the cluster has no key.
pub(crate) fn numbers(conf: &Conf) -> Result<Vec<FrameNumbers>, Report> {
    let id = ClusterId::of_name(&conf.cluster);
    let keys = conf.keys()?.into_iter();
    Ok(keys
        .map(|key| FrameNumbers::new(key.bytes().to_vec(), id))
        .collect())
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    realtime_ns() / 1_000_000_000
}
