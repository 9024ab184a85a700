//! Counts flows that stayed at one member, flows that were split, and flows that the kernel's
//! `hash` splits.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use crate::conversation::Part;
use crate::frame::Frame;
use crate::scene::{Outcome, Scene};

pub(crate) const MEMBERS: usize = 8;

/// Sends the frames twice: past a group under `flow`, and past a group under the kernel's `hash`.
pub(crate) fn both_modes(scene: &Scene<'_>, parts: &[Part]) -> Result<(Outcome, Outcome)> {
    let frames: Vec<Frame> = parts.iter().map(|part| part.frame.clone()).collect();
    let flow = scene.share("flow", MEMBERS, &frames)?;
    let hash = scene.share("hash", MEMBERS, &frames)?;
    flow.ensure_all_came()?;
    hash.ensure_all_came()?;
    Ok((flow, hash))
}

/// Flows or datagrams: the name of each one's kind, and its key.
pub(crate) type Things<K> = BTreeSet<(&'static str, K)>;

pub(crate) fn flows(parts: &[Part]) -> Things<usize> {
    parts.iter().map(|part| (part.kind, part.flow)).collect()
}

pub(crate) fn datagrams(parts: &[Part]) -> Things<(usize, usize)> {
    parts.iter().filter_map(datagram).collect()
}

pub(crate) fn datagram(part: &Part) -> Option<(&'static str, (usize, usize))> {
    Some((part.kind, (part.flow, part.datagram?)))
}

/// Flows that reached several members. Datagrams whose first fragment did not come first are not
/// counted.
pub(crate) fn flows_split(parts: &[Part], outcome: &Outcome) -> Things<usize> {
    split(parts, outcome, |part| {
        (!part.late).then_some((part.kind, part.flow))
    })
}

pub(crate) fn split_without_errors(parts: &[Part], outcome: &Outcome) -> Things<usize> {
    split(parts, outcome, |part| {
        (!part.error).then_some((part.kind, part.flow))
    })
}

pub(crate) fn datagrams_split(parts: &[Part], outcome: &Outcome) -> Things<(usize, usize)> {
    split(parts, outcome, datagram)
}

pub(crate) fn split<K: Ord + Copy>(
    parts: &[Part],
    outcome: &Outcome,
    thing: impl Fn(&Part) -> Option<(&'static str, K)>,
) -> Things<K> {
    let mut homes: BTreeMap<_, BTreeSet<usize>> = BTreeMap::new();
    for (part, owner) in parts.iter().zip(&outcome.owners) {
        if let Some(thing) = thing(part) {
            homes.entry(thing).or_default().extend(owner);
        }
    }
    let several = homes.into_iter().filter(|(_, homes)| homes.len() > 1);
    several.map(|(thing, _)| thing).collect()
}

/// The number of late datagrams, whose first fragment did not come first, and the number of those
/// that did not reach their flow's member.
pub(crate) fn late_datagrams(parts: &[Part], outcome: &Outcome) -> (usize, usize) {
    let owned = || parts.iter().zip(&outcome.owners);
    let homes: BTreeMap<usize, Option<usize>> = owned()
        .filter(|(part, _)| !part.late)
        .map(|(part, owner)| (part.flow, *owner))
        .collect();
    let late: BTreeMap<_, _> = owned()
        .filter(|(part, _)| part.late)
        .map(|(part, owner)| (datagram(part), (part.flow, *owner)))
        .collect();
    let astray = late
        .values()
        .filter(|(flow, owner)| homes.get(flow) != Some(owner));
    (late.len(), astray.count())
}

pub(crate) fn beside<K>(what: &str, all: &Things<K>, flow: &Things<K>, hash: &Things<K>) -> String {
    let kinds: BTreeSet<_> = all.iter().map(|(kind, _)| *kind).collect();
    let count = |things: &Things<K>, kind| things.iter().filter(|(of, _)| *of == kind).count();
    let line = |kind| {
        let [all, flow, hash] = [all, flow, hash].map(|things| count(things, kind));
        format!("\n  {kind:38} {all:8} {flow:12} {hash:12}")
    };
    let head = format!(
        "{what:40} {:>8} {:>12} {:>12}",
        "all", "split: flow", "hash"
    );
    head + &kinds.into_iter().map(line).collect::<String>()
}
