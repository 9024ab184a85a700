//! Replaces the steering program of a group whose engine runs it. No member has a filtering part,
//! so any steering program may replace any other.

use crate::exchange::{self, Next};
use crate::guard::GroupGuard;
use crate::join::EngineError;
use crate::member::OwnMember;
use crate::record::shortened;
use crate::steered::SteerError;
use crate::table::at;
use fanpcap_config::steering::Steering;
use fanpcap_engine::{Engine, OnDevice};
use fanpcap_linux::file::sealed;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Replaces the steering program of a group. `members` are all members that the process has in the
/// group.
pub(super) fn replace(
    guard: &GroupGuard,
    members: &[OwnMember],
    (engine, on_device): (&'static dyn Engine, &dyn OnDevice),
    steering: &Arc<Steering>,
) -> Result<(), EngineError> {
    let [first, ..] = members else {
        return Ok(());
    };
    let (shared, group) = (&first.shared, first.identity.group());
    let table = shared.table();
    let at_device = steering
        .for_engine()
        .ok_or_else(|| EngineError::Unsteered {
            engine: engine.name(),
            group,
            mode: steering.title().to_owned(),
        })?;
    let class = table.class_of_members();
    if let Some(class) = class.filter(|_| !steering.classifies()) {
        return Err(EngineError::Unclassified { group, class });
    }
    let loader = {
        let _device_guard = guard.device_guard().map_err(EngineError::Lock)?;
        on_device.loader().map_err(EngineError::Serve)?
    };
    let next = loader.load(at_device, steering.text(), shared.map())?;
    let text = sealed::create(steering.text()).map_err(EngineError::of_store(engine))?;
    let title =
        sealed::create(&shortened(steering.title())).map_err(EngineError::of_store(engine))?;
    let counts = u64::from(next.counts);
    // Before the BPF programs are exchanged, set the table's flag if the next BPF program has
    // counters. If the process dies during the exchange, members may then publish counters that do
    // not exist. In the other order, existing counters could stay unpublished.
    table.set(at::COUNTS, table.get(at::COUNTS) | counts);
    let device_guard = guard.device_guard().map_err(EngineError::Lock)?;
    if exchange::is_under_way(shared) {
        exchange::finish(shared, &device_guard).map_err(EngineError::Serve)?;
    }
    let next = Next {
        digest: steering.digest(),
        programs: &next.programs,
        text: text.as_fd(),
        title: title.as_fd(),
    };
    exchange::exchange(shared, &device_guard, &next).map_err(EngineError::Serve)?;
    table.set(at::COUNTS, counts);
    for own in members {
        switch(own, steering).map_err(EngineError::Lock)?;
    }
    Ok(())
}

/// Notes the steering program for a member of the process. Nothing is attached to its socket.
fn switch(own: &OwnMember, steering: &Arc<Steering>) -> Result<(), SteerError> {
    let prepared = own.steered.prepare(steering, own.shared.map())?;
    own.steered
        .switch_to(steering, prepared, [own.shared.map(); 2])
}
