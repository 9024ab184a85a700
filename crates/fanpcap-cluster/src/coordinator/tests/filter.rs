//! The topology has the filter of the settings only while no node is in capture mode.

use super::*;
use crate::coordination::{Setup, Version};

#[test]
fn a_filter_waits_for_the_end_of_capture_mode() {
    let filter = Filter {
        text: "ip".to_owned(),
        code: Vec::new(),
    };
    let setup = |header| Setup {
        version: Version([0, 1, 0]),
        header,
        key: Key::Flow,
        devices: None,
    };
    // Node 3 runs an earlier version, which does not send its mode.
    let mut lab = TestCluster::with(&[1, 2, 3]);
    lab.node(1).announcement.setup = Some(setup(None));
    lab.node(2).announcement.setup = Some(setup(Some(52)));
    lab.view.desired.filter = Some(filter.clone());
    lab.run(2000);
    assert_eq!(lab.changes, []);
    assert_eq!(lab.notes, [Condition::Unfiltered(vec![NodeId(2)])]);
    // The topology has no filter now. The cluster still changes the topology when node 3 dies.
    lab.lose(3);
    lab.run(2000);
    assert_eq!(lab.stages(), [Stage::Union, Stage::Stable]);
    assert_eq!(lab.notes.len(), 1, "{:?}", lab.notes);
    lab.node(2).announcement.setup = Some(setup(None));
    lab.run(500);
    assert_eq!(lab.topology().filter, Some(filter));
    assert!(lab.changes[2].to_string().contains("cause=filter"));
    assert_eq!(lab.coordinator.conditions().count(), 1, "it leads");
    // A node in capture mode joins. It can't follow a topology with a filter.
    lab.join(4);
    lab.node(4).announcement.setup = Some(setup(Some(52)));
    lab.run(2000);
    assert_eq!(lab.topology().filter, None);
    assert!(lab.share(4) > 0);
}
