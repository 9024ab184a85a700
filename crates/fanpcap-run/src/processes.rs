//! Process groups and the descendants of their processes.

use std::collections::BTreeSet;
use std::time::Duration;

use fanpcap_linux::process::stat;

/// The time from SIGTERM to SIGKILL.
pub(crate) const GRACE: Duration = Duration::from_secs(3);

/// `groups`, and the process groups of all descendants of their processes. Finds a descendant only
/// while all processes between it and a process of `groups` live.
pub(crate) fn with_descendants(groups: &BTreeSet<u32>) -> BTreeSet<u32> {
    let processes = stat::all();
    let mut groups = groups.clone();
    loop {
        let members = processes.iter().filter(|one| groups.contains(&one.group));
        let members: BTreeSet<u32> = members.map(|one| one.pid).collect();
        let children = processes.iter().filter(|one| members.contains(&one.parent));
        let before = groups.len();
        groups.extend(children.map(|one| one.group));
        if groups.len() == before {
            return groups;
        }
    }
}
