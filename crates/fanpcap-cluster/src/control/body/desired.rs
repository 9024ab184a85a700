//! The operator's changes and the desired state, as AVPs.

use std::fmt;

use fanpcap_select::Selection;

use super::super::avp::{ANALYZER, List, code};
use super::super::fields::{BodyError, Fields};
use super::topology::{key, key_number};
use crate::coordination::DesiredState;
use crate::identity::NodeId;
use crate::topology::{ANALYZERS, NODES};

/// The maximum number of nodes that a reader accepts for each kind of change. It is greater than
/// [`OperatorChange::MOST`], so that every reader can read all allowed changes.
const NAMED: usize = 2 * NODES;

/// A change by the operator's commands `drain` and `weight`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperatorChange {
    /// The node gets no buckets.
    Drain(NodeId),
    /// The node gets buckets again.
    Restore(NodeId),
    /// This weight replaces the one that the node announces. `None` restores the announced weight.
    Weight(NodeId, Option<u16>),
}

/// There are already [`OperatorChange::MOST`] other nodes with a change of this kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooManyChanges;

impl fmt::Display for TooManyChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "earlier commands have drained {most} nodes, or set the weights of {most} nodes, which \
             is the limit: undo the changes of nodes that are gone ('fanpcap cluster status' lists \
             the changes)",
            most = OperatorChange::MOST
        )
    }
}

impl std::error::Error for TooManyChanges {}

impl OperatorChange {
    /// The maximum number of drained nodes, and of nodes whose weight an operator has set.
    pub const MOST: usize = NODES;

    /// The node that is changed.
    pub fn node(&self) -> NodeId {
        match self {
            Self::Drain(node) | Self::Restore(node) | Self::Weight(node, _) => *node,
        }
    }

    /// Applies the change to `desired`. Returns whether that changes `desired`.
    ///
    /// # Errors
    /// Fails, and leaves `desired` as it is, if too many nodes would have changes of this kind.
    pub fn apply(&self, desired: &mut DesiredState) -> Result<bool, TooManyChanges> {
        let DesiredState {
            drained, weights, ..
        } = desired;
        match self {
            Self::Drain(node) if drained.contains(node) => Ok(false),
            Self::Drain(_) if drained.len() >= Self::MOST => Err(TooManyChanges),
            Self::Drain(node) => Ok(drained.insert(*node)),
            Self::Restore(node) => Ok(drained.remove(node)),
            Self::Weight(node, None) => Ok(weights.remove(node).is_some()),
            Self::Weight(node, Some(_))
                if weights.len() >= Self::MOST && !weights.contains_key(node) =>
            {
                Err(TooManyChanges)
            }
            Self::Weight(node, Some(weight)) => Ok(weights.insert(*node, *weight) != Some(*weight)),
        }
    }

    pub(super) fn write<'a>(&self, to: &'a mut List) -> &'a mut List {
        match self {
            Self::Drain(node) => to.put(code::DRAINED, node.0),
            Self::Restore(node) => to.put(code::RESTORED, node.0),
            Self::Weight(node, Some(weight)) => to
                .put(code::WEIGHTED, node.0)
                .put(code::WEIGHTED, u32::from(*weight)),
            Self::Weight(node, None) => to.put(code::UNWEIGHTED, node.0),
        }
    }

    pub(super) fn read(from: Fields<'_>) -> Result<Self, BodyError> {
        let first = from.0.first().ok_or(BodyError::Missing(code::DRAINED))?;
        let node = NodeId(first.value);
        Ok(match first.code {
            code::DRAINED => Self::Drain(node),
            code::RESTORED => Self::Restore(node),
            code::UNWEIGHTED => Self::Weight(node, None),
            code::WEIGHTED => {
                let (node, weight) = weighted(from)
                    .next()
                    .ok_or(BodyError::Missing(code::WEIGHTED))??;
                Self::Weight(node, Some(weight))
            }
            other => return Err(BodyError::Value(other)),
        })
    }
}

/// The nodes whose weight an operator has set, with these weights.
fn weighted(from: Fields<'_>) -> impl Iterator<Item = Result<(NodeId, u16), BodyError>> {
    let values: Vec<u32> = from.all(code::WEIGHTED).collect();
    let pair = |pair: &[u32]| match *pair {
        [node, weight] => match u16::try_from(weight) {
            Ok(weight) => Ok((NodeId(node), weight)),
            Err(_) => Err(BodyError::Value(code::WEIGHTED)),
        },
        _ => Err(BodyError::Missing(code::WEIGHTED)),
    };
    let pairs: Vec<_> = values.chunks(2).map(pair).collect();
    pairs.into_iter()
}

pub(super) fn write_all(to: &mut List, desired: &DesiredState) {
    let DesiredState {
        selection,
        analyzers,
        filter: _,
        drained,
        weights,
    } = desired;
    to.put(code::SELECTION_TYPE, key_number(selection.key));
    to.put(code::INITIAL, selection.initial);
    for analyzer in analyzers {
        to.put_address(ANALYZER, *analyzer);
    }
    for node in drained {
        to.put(code::DRAINED, node.0);
    }
    for (node, weight) in weights {
        to.put(code::WEIGHTED, node.0);
        to.put(code::WEIGHTED, u32::from(*weight));
    }
}

pub(super) fn read_all(from: Fields<'_>) -> Result<DesiredState, BodyError> {
    let desired = DesiredState {
        selection: Selection {
            key: key(from.one(code::SELECTION_TYPE)?)?,
            initial: from.one(code::INITIAL)?,
        },
        analyzers: from.addresses(ANALYZER, ANALYZERS)?,
        filter: None,
        drained: from.all(code::DRAINED).map(NodeId).collect(),
        weights: weighted(from).collect::<Result<_, _>>()?,
    };
    if desired.drained.len() > NAMED || desired.weights.len() > NAMED {
        return Err(BodyError::Count(code::DRAINED));
    }
    Ok(desired)
}
