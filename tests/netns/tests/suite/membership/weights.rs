//! Members of unequal weights: each has its share of buckets and of flows, and a newcomer takes its
//! share from all others.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use fanpcap_netns::{DEVICE, Wire, on_wire};
use fanpcap_testkit::await_for;
use fanpcap_testkit::await_for::LIMIT;

use super::load::{FLOWS, Load};
use super::recorder::Recorder;
use super::records;
use super::table::{BUCKETS, Owners, Table};

#[test]
#[ignore = "needs root: run by make test"]
fn members_have_shares_by_their_weights() -> Result<()> {
    on_wire(1, |wire| {
        let start = |mode| Recorder::start_as(wire, DEVICE, 7, mode, &[]);
        let mut members = vec![start("flow")?];
        let table = Table::of(members[0].pid()?)?;
        members.push(start("flow+weight=3")?);
        let before = await_shares(&table, &[1024, 3072])?;
        ensure_flows_are_shared(&members, &[1024, 3072])?;
        members.push(start("flow+weight=2")?);
        let after = await_shares(&table, &[683, 2048, 1365])?;
        let moved = before.moved(&after);
        ensure!(moved.len() == 1365, "{} buckets moved", moved.len());
        ensure!(moved.iter().all(|(_, to)| *to == 2), "{moved:?}");
        ensure_flows_are_shared(&members, &[683, 2048, 1365])?;
        ensure_others_are_refused(wire)?;
        members.iter_mut().try_for_each(Recorder::stop)
    })
}

/// Waits until the slots own these numbers of buckets. If the shares of two slots round equally,
/// either slot may have one bucket more.
fn await_shares(table: &Table, shares: &[usize]) -> Result<Owners> {
    let slots = (0..=u8::MAX).zip(shares.iter().copied());
    let wanted: BTreeMap<u8, usize> = slots.collect();
    await_for("each member's share", LIMIT, || {
        let owners = table.owners();
        let has = owners.shares();
        let is_right = has.len() == wanted.len()
            && has
                .iter()
                .all(|(slot, count)| wanted[slot].abs_diff(*count) <= 1);
        Ok(is_right.then_some(owners))
    })
}

/// Sends frames of all flows. Checks that each flow has one member, and that each member's number
/// of flows matches its buckets.
fn ensure_flows_are_shared(members: &[Recorder], shares: &[usize]) -> Result<()> {
    let counts = || -> Result<Vec<u64>> {
        let all = members.iter().map(|member| records::count(&member.file));
        all.collect()
    };
    let before = counts()?;
    let load = Load::start()?;
    load.await_each_flow()?;
    let sent = load.stop()?.count() as u64 + before.iter().sum::<u64>();
    await_for("all frames", LIMIT, || {
        Ok((counts()?.iter().sum::<u64>() == sent).then_some(()))
    })?;
    let mut seen = BTreeSet::new();
    let members = members.iter().zip(before);
    for ((member, skipped), share) in members.zip(shares) {
        let got = records::read(&member.file)?;
        let got = got.iter().skip(usize::try_from(skipped)?);
        let flows: BTreeSet<u32> = got.map(|got| got.number % FLOWS).collect();
        let (all, part) = (f64::from(FLOWS), *share as f64 / BUCKETS as f64);
        let sigma = (all * part * (1.0 - part)).sqrt();
        let is_right = (flows.len() as f64 - all * part).abs() <= 4.0 * sigma;
        ensure!(is_right, "{} flows of {share} buckets", flows.len());
        ensure!(seen.is_disjoint(&flows), "a flow has two members");
        seen.extend(flows);
    }
    ensure!(seen.len() == FLOWS as usize, "{} flows", seen.len());
    Ok(())
}

/// Checks that options which a group can't honour are refused.
fn ensure_others_are_refused(wire: &Wire) -> Result<()> {
    for (mode, text) in [
        ("flow+rollover", "a steered group takes no '+rollover'"),
        ("flow+class=2", "is for groups on the engine xdp"),
        ("hash+weight=2", "is for steered groups"),
    ] {
        let refused = Recorder::start_as(wire, DEVICE, 7, mode, &[]);
        let said = refused
            .err()
            .map_or_else(String::new, |it| format!("{it:#}"));
        ensure!(said.contains(text), "{mode}: {said}");
    }
    Ok(())
}
