//! The values of the cluster's keys: JSON, so that `etcdctl get` shows them.
//!
//! Different versions of fanpcap can share a cluster. A version skips fields that a later version
//! has added, and keeps these fields if it changes the value. A field that is added here must have
//! a default, because earlier versions write values without it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use fanpcap_cluster::{Announcement, NODES, NodeId, Revision, Setup};
use fanpcap_select::Key;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::names::Names;
use crate::client::Client;
use crate::error::{CallError, Failure};
use crate::kv::{Keys, Replaced};

/// Maximum size in bytes of any value except a topology.
const VALUE: usize = 16 << 10;

/// Maximum number of drained nodes, and of nodes with an operator's weight, in a value that is
/// read. Operators' commands write at most half of this number.
const MOST: usize = 2 * NODES;

/// How many times a change is tried again if other clients change the value first.
const TRIES: usize = 32;

/// The value of a node's key.
#[derive(Serialize, Deserialize)]
struct NodeRecord {
    /// 16 hexadecimal digits, because some readers of JSON can't read 64-bit numbers.
    boot: String,
    weight: u16,
    address: SocketAddr,
    /// The fields of [`Setup`]. An earlier version writes none of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// Present only in capture mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    select: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<u8>,
}

impl NodeRecord {
    fn setup(&self) -> Option<Setup> {
        Some(Setup {
            version: self.version.as_ref()?.parse().ok()?,
            header: self.header,
            key: Key::named(self.select.as_ref()?)?,
            devices: self.devices,
        })
    }
}

/// Writes an announcement as a value.
pub(super) fn node(announcement: &Announcement) -> Vec<u8> {
    let setup = announcement.setup;
    let record = NodeRecord {
        boot: format!("{:016x}", announcement.boot),
        weight: announcement.weight,
        address: announcement.address,
        version: setup.map(|it| it.version.to_string()),
        header: setup.and_then(|it| it.header),
        select: setup.map(|it| it.key.name().to_owned()),
        devices: setup.and_then(|it| it.devices),
    };
    serde_json::to_vec(&record).unwrap_or_default()
}

/// Reads an announcement from a node's value.
pub(super) fn announcement(node: NodeId, value: &[u8]) -> Option<Announcement> {
    let record: NodeRecord = read(value)?;
    Some(Announcement {
        node,
        boot: u64::from_str_radix(&record.boot, 16).ok()?,
        weight: record.weight,
        address: record.address,
        setup: record.setup(),
    })
}

/// Writes an acknowledged revision as a value.
pub(super) fn ack(revision: Revision) -> Vec<u8> {
    revision.0.to_string().into_bytes()
}

/// Reads an acknowledged revision from a value.
pub(super) fn acknowledged(value: &[u8]) -> Option<Revision> {
    read(value).map(Revision)
}

fn read<'a, T: Deserialize<'a>>(value: &'a [u8]) -> Option<T> {
    let value = value.get(..value.len().min(VALUE + 1))?;
    (value.len() <= VALUE)
        .then(|| serde_json::from_slice(value).ok())
        .flatten()
}

/// The operator's changes to a running cluster.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Desired {
    /// Nodes that get no buckets.
    pub drained: BTreeSet<NodeId>,
    /// Weights that replace the weights in the nodes' announcements.
    pub weights: BTreeMap<NodeId, u16>,
    /// Fields that a later version has added. A change of the value keeps these fields.
    others: Map<String, Value>,
}

/// The value that stores a [`Desired`]. Node ids have 8 hexadecimal digits, as everywhere.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct DesiredRecord {
    drained: Vec<String>,
    weights: BTreeMap<String, u16>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl Desired {
    /// Reads the operator's changes and their mod revision; 0 if there are no changes yet.
    ///
    /// # Errors
    /// Fails if no endpoint answers in time, etcd refuses the call, or the value is not readable.
    pub fn read(client: &Client, names: &Names) -> Result<(Self, i64), CallError> {
        let key = names.desired();
        let Some(kv) = client.range(&Keys::One(key.clone()))?.kvs.pop() else {
            return Ok((Self::default(), 0));
        };
        let reason = "this version can't read the value";
        let desired = Self::from_value(&kv.value).ok_or_else(|| {
            CallError::new(Failure::Answer, String::from_utf8_lossy(&key), reason)
        })?;
        Ok((desired, kv.mod_revision))
    }

    /// Lets `change` modify the operator's changes, stores them, and returns them. If another
    /// client has changed the value meanwhile, `change` is called again with the newer value.
    ///
    /// # Errors
    /// As in [`Desired::read`].
    pub fn change(
        client: &Client,
        names: &Names,
        change: impl Fn(&mut Self),
    ) -> Result<Self, CallError> {
        let key = names.desired();
        for _ in 0..TRIES {
            let (before, revision) = Self::read(client, names)?;
            let mut desired = before.clone();
            change(&mut desired);
            if desired == before {
                return Ok(desired);
            }
            if let Replaced::Stored(_) = client.replace(&key, &desired.to_value(), 0, revision)? {
                return Ok(desired);
            }
        }
        let reason = "others change this key all the time";
        let key = String::from_utf8_lossy(&key);
        Err(CallError::new(Failure::Unreachable, key, reason))
    }

    fn to_value(&self) -> Vec<u8> {
        let weights = self.weights.iter();
        let record = DesiredRecord {
            drained: self.drained.iter().map(NodeId::to_string).collect(),
            weights: weights
                .map(|(node, weight)| (node.to_string(), *weight))
                .collect(),
            others: self.others.clone(),
        };
        serde_json::to_vec(&record).unwrap_or_default()
    }

    /// Reads the changes from a value; `None` if it is not readable or has too many nodes.
    pub(super) fn from_value(value: &[u8]) -> Option<Self> {
        let record: DesiredRecord = read(value)?;
        let node = |text: &str| u32::from_str_radix(text, 16).ok().map(NodeId);
        let weights = record.weights.iter();
        let desired = Self {
            drained: record
                .drained
                .iter()
                .map(|text| node(text))
                .collect::<Option<_>>()?,
            weights: weights
                .map(|(text, weight)| Some((node(text)?, *weight)))
                .collect::<Option<_>>()?,
            others: record.others,
        };
        (desired.drained.len() <= MOST && desired.weights.len() <= MOST).then_some(desired)
    }
}

#[cfg(test)]
mod tests {
    use fanpcap_cluster::Version;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_node_reads_as_it_was_written(
            id: u32,
            boot: u64,
            weight: u16,
            at: ([u8; 4], u16),
            setup: Option<([u8; 3], Option<u16>, Option<u8>)>,
            key in prop::sample::select(&Key::NAMES[..]),
        ) {
            let setup = setup.map(|(version, header, devices)| Setup {
                version: Version(version),
                header,
                key: key.0,
                devices,
            });
            let said = Announcement {
                node: NodeId(id),
                boot,
                weight,
                address: at.into(),
                setup,
            };
            prop_assert_eq!(announcement(NodeId(id), &node(&said)), Some(said));
        }

        #[test]
        fn what_is_desired_reads_as_it_was_written(
            drained in prop::collection::btree_set(any::<u32>(), 0..20),
            weights in prop::collection::btree_map(any::<u32>(), any::<u16>(), 0..20),
        ) {
            let desired = Desired {
                drained: drained.into_iter().map(NodeId).collect(),
                weights: weights.into_iter().map(|(id, weight)| (NodeId(id), weight)).collect(),
                ..Desired::default()
            };
            prop_assert_eq!(Desired::from_value(&desired.to_value()), Some(desired));
        }

        #[test]
        fn no_bytes_make_a_reader_panic(bytes: Vec<u8>) {
            let _ = announcement(NodeId(1), &bytes);
            let _ = acknowledged(&bytes);
            let _ = Desired::from_value(&bytes);
        }
    }

    /// What a later version may add to any value.
    const MORE: &str = "\"color\":\"blue\",\"lists\":[1,{\"deep\":null}],\"big\":1e3";

    #[test]
    fn a_later_versions_fields_are_skipped_and_kept() {
        let value = format!("{{\"drained\":[\"0000000a\"],{MORE},\"weights\":{{\"0b\":7}}}}");
        let mut desired = Desired::from_value(value.as_bytes()).unwrap();
        assert_eq!(desired.drained, [NodeId(10)].into());
        assert_eq!(desired.weights, [(NodeId(11), 7)].into());
        // An operator who uses this version drains another node.
        desired.drained.insert(NodeId(12));
        let written: Value = serde_json::from_slice(&desired.to_value()).unwrap();
        let drained: Value = vec!["0000000a", "0000000c"].into();
        let kept: Value = serde_json::from_str(&format!("{{{MORE}}}")).unwrap();
        assert_eq!(written["drained"], drained);
        for (name, value) in kept.as_object().unwrap() {
            assert_eq!(written[name], *value, "{name}");
        }
        assert_eq!(written.as_object().unwrap().len(), 5);
        let said = announcement(NodeId(1), &node_with(MORE)).unwrap();
        assert_eq!((said.boot, said.weight), (0x5b, 3));
    }

    fn node_with(more: &str) -> Vec<u8> {
        format!("{{\"boot\":\"5b\",{more},\"weight\":3,\"address\":\"10.0.0.1:0\"}}").into()
    }

    #[test]
    fn an_earlier_version_reads_what_it_knows() {
        // Values of an earlier version, which lack newer fields.
        for (value, drained, weights) in [
            ("{}", 0, 0),
            ("{\"drained\":[\"1\"]}", 1, 0),
            ("{\"weights\":{\"1\":2}}", 0, 1),
        ] {
            let desired = Desired::from_value(value.as_bytes()).unwrap();
            assert_eq!(
                (desired.drained.len(), desired.weights.len()),
                (drained, weights)
            );
            let again = Desired::from_value(&desired.to_value());
            assert_eq!(
                again,
                Some(desired),
                "the value is the same after it is written and read again"
            );
        }
        // Every version writes the fields of `least`. A value with fewer fields is not valid.
        let least = node_with("\"more\":0");
        assert!(announcement(NodeId(1), &least).is_some());
    }

    #[test]
    fn values_that_are_none_are_refused() {
        assert_eq!(
            acknowledged(&ack(Revision(u64::MAX))),
            Some(Revision(u64::MAX))
        );
        assert_eq!(acknowledged(b"-1"), None);
        assert_eq!(
            announcement(NodeId(1), b"{\"boot\":\"x\",\"weight\":1}"),
            None
        );
        assert_eq!(Desired::from_value(b"{}"), Some(Desired::default()));
        assert_eq!(Desired::from_value(&vec![b' '; VALUE + 1]), None);
        assert_eq!(Desired::from_value(b"{\"drained\":[\"node\"]}"), None);
    }
}
