//! Replaces the steering program of a group on the XDP engine. No member has a filtering part, so
//! that any steering program may follow any other.

use crate::exchange::{self, Next};
use crate::join::XdpError;
use crate::member::OwnMember;
use crate::on_xdp::{OnXdp, counts_by_them};
use crate::record::shortened;
use crate::steered::SteerError;
use crate::table::at;
use crate::turn::Turn;
use fanpcap_config::steering::Steering;
use fanpcap_linux::file::sealed;
use fanpcap_xdp::Capture;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Replaces the steering program of the group of `members`, which are all of the process's.
pub(super) fn replace(
    turn: &Turn,
    members: &[OwnMember],
    on_xdp: &OnXdp,
    steering: &Arc<Steering>,
) -> Result<(), XdpError> {
    let [first, ..] = members else {
        return Ok(());
    };
    let shared = &first.shared;
    let at_xdp = steering.at_xdp().ok_or_else(|| XdpError::Unsteered {
        group: first.identity.group(),
        mode: steering.title().to_owned(),
    })?;
    let class = shared.table().class_of_members();
    if let Some(class) = class.filter(|_| !steering.classifies()) {
        let group = first.identity.group();
        return Err(XdpError::Unclassified { group, class });
    }
    let dock = {
        let _at_dock = turn.at_dock().map_err(XdpError::Lock)?;
        on_xdp.dock(shared.ifindex()).map_err(XdpError::Serve)?
    };
    let compile = |capture: &Capture| at_xdp.object(capture);
    let given = on_xdp.count_maps().given(shared.map());
    let loaded = on_xdp
        .program()
        .load_next(dock.device().maps(), &given, &compile);
    let (received, sent) = loaded.map_err(XdpError::Program)?;
    let text = sealed::create(steering.text()).map_err(XdpError::Locker)?;
    let title = sealed::create(shortened(steering.title())).map_err(XdpError::Locker)?;
    let table = shared.table();
    let counts = u64::from(counts_by_them(&received));
    // Who dies within the exchange leaves it to be told more often than needed, not less.
    table.set(at::COUNTS, table.get(at::COUNTS) | counts);
    let at_dock = turn.at_dock().map_err(XdpError::Lock)?;
    if exchange::is_under_way(shared) {
        exchange::finish(shared, &at_dock).map_err(XdpError::Serve)?;
    }
    let next = Next {
        digest: steering.digest(),
        received: received.as_fd(),
        sent: sent.as_ref().map(AsFd::as_fd),
        text: text.as_fd(),
        title: title.as_fd(),
    };
    exchange::exchange(shared, &at_dock, &next).map_err(XdpError::Serve)?;
    table.set(at::COUNTS, counts);
    for own in members {
        switch(own, steering).map_err(XdpError::Lock)?;
    }
    Ok(())
}

/// Notes the steering program for a member of the process. Nothing is attached to its socket.
fn switch(own: &OwnMember, steering: &Arc<Steering>) -> Result<(), SteerError> {
    let prepared = own.steered.prepare(steering)?;
    own.steered.switch_to(steering, prepared, own.shared.map())
}
