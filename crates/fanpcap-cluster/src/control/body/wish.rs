//! What the operator wants, as AVPs: one wish, and all that stand.

use fanpcap_select::Selection;

use super::super::avp::{ANALYZER, List, code};
use super::super::fields::{BodyError, Fields};
use super::topology::{key, key_number};
use crate::coordination::Wishes;
use crate::identity::NodeId;
use crate::topology::{ANALYZERS, NODES};

/// Most nodes that wishes name, of each kind of wish: what a cluster can have, twice.
const NAMED: usize = 2 * NODES;

/// What the operator wants of the cluster, beside what stands in the coordinators' settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// The node is to have no buckets.
    Drain(NodeId),
    /// The node is to have buckets again.
    Restore(NodeId),
    /// This weight counts in the place of what the node says; `None`: the node's own counts again.
    Weight(NodeId, Option<u16>),
}

impl Wish {
    /// Changes what stands. Returns whether that is another now.
    ///
    /// A wish for one node more than wishes may name changes nothing.
    pub fn grant(&self, wishes: &mut Wishes) -> bool {
        let before = wishes.clone();
        match self {
            Self::Drain(node) if wishes.drained.len() < NAMED => {
                wishes.drained.insert(*node);
            }
            Self::Restore(node) => {
                wishes.drained.remove(node);
            }
            Self::Weight(node, Some(weight)) if wishes.weights.len() < NAMED => {
                wishes.weights.insert(*node, *weight);
            }
            Self::Weight(node, None) => {
                wishes.weights.remove(node);
            }
            Self::Drain(_) | Self::Weight(..) => {}
        }
        *wishes != before
    }

    pub(super) fn write(&self, to: &mut List) {
        match self {
            Self::Drain(node) => {
                to.put(code::DRAINED, node.0);
            }
            Self::Restore(node) => {
                to.put(code::RESTORED, node.0);
            }
            Self::Weight(node, Some(weight)) => {
                to.put(code::WEIGHTED, node.0);
                to.put(code::WEIGHTED, u32::from(*weight));
            }
            Self::Weight(node, None) => {
                to.put(code::UNWEIGHTED, node.0);
            }
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

fn write_selection(to: &mut List, selection: Selection) {
    let Selection { key, initial } = selection;
    to.put(code::SELECTION_TYPE, key_number(key));
    to.put(code::INITIAL, initial);
}

fn read_selection(from: Fields<'_>) -> Result<Selection, BodyError> {
    Ok(Selection {
        key: key(from.one(code::SELECTION_TYPE)?)?,
        initial: from.one(code::INITIAL)?,
    })
}

/// The nodes with the weights that the operator gave them.
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

pub(super) fn write_all(to: &mut List, wishes: &Wishes) {
    let Wishes {
        selection,
        analyzers,
        drained,
        weights,
    } = wishes;
    write_selection(to, *selection);
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

pub(super) fn read_all(from: Fields<'_>) -> Result<Wishes, BodyError> {
    let wishes = Wishes {
        selection: read_selection(from)?,
        analyzers: from.addresses(ANALYZER, ANALYZERS)?,
        drained: from.all(code::DRAINED).map(NodeId).collect(),
        weights: weighted(from).collect::<Result<_, _>>()?,
    };
    if wishes.drained.len() > NAMED || wishes.weights.len() > NAMED {
        return Err(BodyError::Count(code::DRAINED));
    }
    Ok(wishes)
}
