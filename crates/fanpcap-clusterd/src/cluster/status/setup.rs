//! The versions and settings of a cluster's nodes, and notes on differences between them.

use std::collections::BTreeMap;

use fanpcap_cluster::{NodeId, Setup};
use fanpcap_select::Key;

use super::Row;

/// A node's mode, and in capture mode, how many bytes of each packet the node sends.
pub(crate) fn mode(setup: &Setup) -> String {
    match setup.header {
        None => "distribution".to_owned(),
        Some(header) => format!("capture {header}"),
    }
}

/// Notes for the operator on the nodes' versions and settings. `by` is the cluster's selection key.
pub(super) fn notes(rows: &[Row], by: Option<Key>) -> Vec<String> {
    let modes = differing(rows, |setup| Some(mode(setup))).map(|they| {
        format!("nodes differ in mode ({they}): write the same 'mode' and 'header' into all files")
    });
    let versions = differing(rows, |setup| Some(setup.version.to_string()));
    let versions = versions
        .map(|they| format!("nodes differ in version ({they}): install the same version on all"));
    let devices = differing(rows, |setup| Some(setup.devices?.to_string()));
    let devices = devices.map(|they| {
        format!(
            "nodes differ in their number of devices ({they}): a node misses the packets of a port \
             that its 'device' does not name"
        )
    });
    let others = rows.iter().filter_map(|row| {
        let (own, by) = (row.setup()?.key, by?);
        (own != by).then(|| {
            format!(
                "the settings of node {} say 'select = {}', but the cluster selects by '{}', as \
                 its coordinator's settings say: write the same value into all files",
                row.node,
                own.name(),
                by.name()
            )
        })
    });
    let notes = modes.into_iter().chain(versions).chain(devices);
    notes.chain(others).collect()
}

/// The values that live nodes have: the most frequent value first, and then each other value with
/// its nodes. `None` if all have the same value. Nodes that report no value are left out.
fn differing(rows: &[Row], value: impl Fn(&Setup) -> Option<String>) -> Option<String> {
    let mut groups: BTreeMap<String, Vec<NodeId>> = BTreeMap::new();
    for (value, row) in rows
        .iter()
        .filter_map(|row| Some((value(&row.setup()?)?, row)))
    {
        groups.entry(value).or_default().push(row.node);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, nodes)| std::cmp::Reverse(nodes.len()));
    let ((most, _), others) = groups.split_first()?;
    let other = |(value, nodes): &(String, Vec<NodeId>)| {
        let nodes: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
        format!(", but {value} of {}", nodes.join(", "))
    };
    let others: String = others.iter().map(other).collect();
    (!others.is_empty()).then(|| format!("{most}{others}"))
}
