//! Tests of the loop on an engine in memory, whose writes may fail.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use fanpcap_cluster::coordinator::Timing;
use fanpcap_cluster::{Announcement, LiveNode, NodeId, Topology, View};
use fanpcap_testkit::Scratch;

use super::*;

/// The state of an engine in memory. If `fails` is set, the next write fails.
#[derive(Default)]
struct Shared {
    view: View,
    fails: Option<WriteError>,
    has_resigned: bool,
}

struct Side(Rc<RefCell<Shared>>, View);

impl CoordinatorSide for Side {
    fn poll(&mut self, _: Duration) -> Result<&View> {
        self.1 = self.0.borrow().view.clone();
        Ok(&self.1)
    }

    fn write(
        &mut self,
        topology: &Topology,
        replaces: Option<Revision>,
    ) -> Result<Revision, WriteError> {
        let mut shared = self.0.borrow_mut();
        if let Some(error) = shared.fails.take() {
            return Err(error);
        }
        let revision = Revision(replaces.map_or(1, |revision| revision.0 + 1));
        shared.view.topology = Some((revision, Box::new(topology.clone())));
        for live in &mut shared.view.live {
            live.acknowledged = Some(revision);
        }
        Ok(revision)
    }

    fn resign(&mut self) {
        self.0.borrow_mut().has_resigned = true;
    }
}

fn node(id: u32) -> LiveNode {
    LiveNode {
        announcement: Announcement {
            node: NodeId(id),
            boot: 1,
            weight: 1,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 9)),
            setup: None,
        },
        acknowledged: None,
    }
}

/// Runs the loop for `millis` milliseconds. Returns the messages that were logged, and the result.
fn run(shared: &Rc<RefCell<Shared>>, millis: u64) -> (Vec<String>, Result<()>) {
    let said = Rc::new(RefCell::new(Vec::new()));
    let heard = Rc::clone(&said);
    let side = Box::new(Side(Rc::clone(shared), View::default()));
    let core = Coordinator::new(Timing::default());
    let mut driver = Driver::new(side, core, None, move |line: &str| {
        heard.borrow_mut().push(line.to_owned());
    });
    let mut now = Duration::ZERO;
    while now < Duration::from_millis(millis) {
        if let Err(error) = driver.step(|| now) {
            return (said.take(), Err(error));
        }
        now += TICK / 2;
    }
    driver.resign();
    (said.take(), Ok(()))
}

fn shared(leads: bool, nodes: &[u32]) -> Rc<RefCell<Shared>> {
    let view = View {
        leads,
        live: nodes.iter().copied().map(node).collect(),
        ..View::default()
    };
    Rc::new(RefCell::new(Shared {
        view,
        ..Shared::default()
    }))
}

#[test]
fn each_change_leaves_a_line() {
    let shared = shared(true, &[1, 2]);
    let (said, done) = run(&shared, 2000);
    done.unwrap();
    let leads = [
        "this coordinator is the active one",
        "no live node has a weight",
    ];
    assert!(
        said[0].starts_with(leads[0]) && said[1].starts_with(leads[1]),
        "{said:?}"
    );
    let first = "audit topology=1 replaces=- epoch=1 phase=stable cause=first moved=0/4096 \
                 joined=00000001,00000002";
    assert_eq!(said[2..], [first]);
    assert!(shared.borrow().has_resigned);
    shared.borrow_mut().view.desired.drained.insert(NodeId(2));
    let (said, done) = run(&shared, 1000);
    done.unwrap();
    let union = "audit topology=2 replaces=1 epoch=2 phase=union cause=drain moved=2048/4096 \
                 weights=00000002:0";
    assert_eq!(
        said[1..],
        [
            union,
            "audit topology=3 replaces=2 epoch=3 phase=stable cause=settled moved=0/4096"
        ]
    );
}

#[test]
fn a_standby_writes_nothing() {
    let shared = shared(false, &[1, 2]);
    let (said, done) = run(&shared, 2000);
    done.unwrap();
    assert_eq!(said, [""; 0]);
    assert_eq!(shared.borrow().view.topology, None);
}

#[test]
fn who_comes_late_looks_again() {
    let shared = shared(true, &[1]);
    shared.borrow_mut().fails = Some(WriteError::Changed);
    let (said, done) = run(&shared, 2000);
    done.unwrap();
    assert!(
        said.iter()
            .any(|line| line.starts_with("not written: epoch=1")),
        "{said:?}"
    );
    assert!(shared.borrow().view.topology.is_some());
}

#[test]
fn an_engine_that_refuses_ends_the_coordinator() {
    let shared = shared(true, &[1]);
    let error = "writing: permission denied".into();
    shared.borrow_mut().fails = Some(WriteError::Engine(error));
    let (_, done) = run(&shared, 2000);
    done.unwrap_err();
}

/// The file with metrics still exists when the process has ended.
#[test]
fn the_last_metrics_say_that_it_leads_no_more() {
    let scratch = Scratch::new().unwrap();
    let file = scratch.file("metrics");
    let has = |line: &str| {
        let text = std::fs::read_to_string(&file).unwrap();
        let line = format!("\nfanpcap_coordinator_{line}\n");
        text.contains(&line)
    };
    let shared = shared(true, &[1, 2]);
    let side = Box::new(Side(Rc::clone(&shared), View::default()));
    let core = Coordinator::new(Timing::default());
    let metrics = Metrics::new(file.clone(), "lab");
    let mut driver = Driver::new(side, core, Some(metrics), |_: &str| {});
    let mut now = Duration::ZERO;
    while shared.borrow().view.topology.is_none() {
        assert!(now < Duration::from_secs(10), "no topology");
        driver.step(|| now).unwrap();
        now += TICK / 2;
    }
    assert!(has("leads{cluster=\"lab\"} 1"));
    assert!(has("node_buckets{cluster=\"lab\",node=\"00000001\"} 0"));
    driver.resign();
    assert!(has("leads{cluster=\"lab\"} 0"));
    assert!(has("topologies_written_total{cluster=\"lab\"} 1"));
    assert!(!std::fs::read_to_string(&file).unwrap().contains("_node_"));
}
