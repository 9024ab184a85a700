//! A node's announcement as AVPs.

use super::super::avp::{List, NODE, code};
use super::super::fields::{BodyError, Fields};
use super::{Member, topology};
use crate::coordination::{Announcement, Setup, Version};
use crate::identity::{NodeId, Revision};

impl Member {
    pub(super) fn write<'a>(&self, to: &'a mut List) -> &'a mut List {
        let Announcement {
            node,
            boot,
            weight,
            address,
            setup,
        } = self.announcement;
        to.put(code::NODE_ID, node.0)
            .put_wide(code::BOOT, boot)
            .put(code::WEIGHT, u32::from(weight))
            .put_address(NODE, address);
        if let Some(Setup {
            version: Version([major, minor, patch]),
            header,
            key,
            devices,
        }) = setup
        {
            let version = u32::from_be_bytes([0, major, minor, patch]);
            to.put(code::VERSION, version)
                .put(code::HEADER, header.map_or(0, u32::from))
                .put(code::SELECTION_TYPE, topology::key_number(key));
            if let Some(devices) = devices {
                to.put(code::DEVICES, u32::from(devices));
            }
        }
        if let Some(revision) = self.follows {
            to.put_wide(code::FOLLOWS, revision.0);
        }
        to
    }

    pub(super) fn read(from: Fields<'_>) -> Result<Self, BodyError> {
        let announcement = Announcement {
            node: NodeId(from.one(code::NODE_ID)?),
            boot: from.wide(code::BOOT)?,
            weight: from.short(code::WEIGHT)?,
            address: from.address(NODE)?,
            setup: setup(from),
        };
        let follows = from.all(code::FOLLOWS).next().is_some();
        let follows = follows.then(|| from.wide(code::FOLLOWS)).transpose()?;
        Ok(Self {
            announcement,
            follows: follows.map(Revision),
        })
    }
}

/// A node's version and settings. `None` if the node did not send them, or if a later version sent
/// values that this version does not know.
fn setup(from: Fields<'_>) -> Option<Setup> {
    let [_, major, minor, patch] = from.one(code::VERSION).ok()?.to_be_bytes();
    let header = from.short(code::HEADER).ok()?;
    let devices = from.one(code::DEVICES).ok();
    Some(Setup {
        version: Version([major, minor, patch]),
        header: Some(header).filter(|header| *header > 0),
        key: topology::key(from.one(code::SELECTION_TYPE).ok()?).ok()?,
        devices: devices.and_then(|devices| u8::try_from(devices).ok()),
    })
}
