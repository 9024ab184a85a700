//! What a node says of itself, as AVPs.

use super::super::avp::{List, NODE, code};
use super::super::fields::{BodyError, Fields};
use super::Member;
use crate::coordination::Announcement;
use crate::identity::{NodeId, Revision};

impl Member {
    pub(super) fn write(&self, to: &mut List) {
        let Announcement {
            node,
            boot,
            weight,
            address,
        } = self.announcement;
        to.put(code::NODE_ID, node.0)
            .put_wide(code::BOOT, boot)
            .put(code::WEIGHT, u32::from(weight))
            .put_address(NODE, address);
        if let Some(revision) = self.follows {
            to.put_wide(code::FOLLOWS, revision.0);
        }
    }

    pub(super) fn read(from: Fields<'_>) -> Result<Self, BodyError> {
        let announcement = Announcement {
            node: NodeId(from.one(code::NODE_ID)?),
            boot: from.wide(code::BOOT)?,
            weight: from.short(code::WEIGHT)?,
            address: from.address(NODE)?,
        };
        let follows = from.all(code::FOLLOWS).next().is_some();
        let follows = follows.then(|| from.wide(code::FOLLOWS)).transpose()?;
        Ok(Self {
            announcement,
            follows: follows.map(Revision),
        })
    }
}
