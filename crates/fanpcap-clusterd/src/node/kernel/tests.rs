//! Marks, while updates come in the stream.

use fanpcap_select::in_line::{InLine, Kind};
use fanpcap_select::{Claim, Selection};
use fanpcap_testkit::{Veth, netns};

use super::*;

const CLUSTER: u32 = 7;

fn orders(revision: u64) -> Orders {
    Orders {
        revision: Revision(revision),
        epoch: 1,
        slot: None,
        selection: Selection::default(),
        claims: Claims::new(|_| Claim::Mine),
        goal: None,
        analyzers: Vec::new(),
    }
}

/// An update that was announced comes.
fn update(kernel: &Kernel, sequence: u64) {
    let selector = kernel.selector().unwrap();
    let frame = InLine {
        kind: Kind::Update,
        cluster: CLUSTER,
        sequence,
        time_ns: 1,
        number: 77,
    };
    selector.announce(Kind::Update, sequence, 77);
    let before = selector.counts().causes.updates;
    let frame = frame.encode([0xff; 6], [2; 6]);
    selector.program().run(&frame, &[], 1).unwrap();
    assert_eq!(selector.counts().causes.updates, before + 1);
}

fn mark(kernel: &Kernel) -> u32 {
    kernel.selector().unwrap().control().mark()
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn a_mark_is_given_once() {
    netns::within_new(|| {
        let veth = Veth::new("near", "far", 1)?;
        let device = Device::find(veth.far)?;
        let mut kernel = Kernel::take(vec![device], CLUSTER, Action::PassToNext)?;
        let goal = Claims::none();
        let first = kernel.prepare(&orders(1), &goal)?.context("prepared")?;
        let before = mark(&kernel);
        // The update comes when the next orders have drawn their mark.
        let drawn = kernel.next_mark();
        update(&kernel, 5);
        assert_ne!(mark(&kernel), drawn);
        assert_eq!(mark(&kernel), before, "taken back");
        kernel.load(&orders(2))?;
        assert_eq!(kernel.revision(), Some(Revision(2)));
        // It comes before they draw one.
        let second = kernel.prepare(&orders(3), &goal)?.context("prepared")?;
        update(&kernel, 6);
        assert_eq!(mark(&kernel), second.mark);
        assert!(second.mark > first.mark);
        let third = kernel.prepare(&orders(4), &goal)?.context("prepared")?;
        assert!(third.mark > second.mark);
        assert_eq!(
            kernel.revision(),
            Some(Revision(3)),
            "until the next update"
        );
        update(&kernel, 7);
        assert_eq!(kernel.revision(), Some(Revision(4)));
        kernel
            .devices
            .into_iter()
            .try_for_each(|it| it.detach().map(drop))?;
        Ok(())
    })
    .unwrap();
}
