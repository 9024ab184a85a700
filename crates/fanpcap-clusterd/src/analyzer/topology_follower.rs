//! Follows the cluster's topology, which the analyzer only reads.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::bail;
use fanpcap_cluster::{Revision, Topology, unreadable_topology};
use fanpcap_terminal::streams;

use super::clock::Clock;
use crate::conf::Conf;
use crate::coordination::OperatorSide;
use crate::engine;

/// The time between two readings of the topology.
const EVERY: Duration = Duration::from_secs(1);

/// The result of reading the topology.
#[derive(Debug)]
pub(super) enum TopologyUpdate {
    /// A topology that is newer than the previous topology.
    Topology(Revision, Box<Topology>),
    /// At this time (nanoseconds since 1970), the engine had no newer topology.
    Current(u64),
    /// The engine is out of reach or refuses access; the text is the reason.
    Blind(String),
}

/// Reads the cluster's topology in a separate thread. An analyzer that can't read topologies still
/// removes doubles by the nodes' marks in the records, and refuses no record.
#[derive(Debug)]
pub(super) struct TopologyFollower {
    /// What the thread that reads the topology has found.
    pub(super) updates: Receiver<TopologyUpdate>,
    hurry: Sender<Option<Conf>>,
    asked: Option<Revision>,
}

impl TopologyFollower {
    pub(super) fn start(conf: Conf, clock: Clock) -> Self {
        let (to, updates) = channel();
        let (hurry, asked) = channel();
        let failed = to.clone();
        let watch = move || watch(conf, clock, &to, &asked);
        let thread = thread::Builder::new().name("topology".to_owned());
        if let Err(error) = thread.spawn(watch) {
            // The send can't fail, because this function still has the receiver.
            let _ = failed.send(TopologyUpdate::Blind(format!("no thread: {error}")));
        }
        Self {
            updates,
            hurry,
            asked: None,
        }
    }

    /// Makes the thread read at once, because a node follows `revision`, which the analyzer lacks.
    pub(super) fn look_for(&mut self, revision: Revision) {
        if self.asked != Some(revision) {
            self.asked = Some(revision);
            // If the thread could not be started, the send fails. That error was already reported.
            let _ = self.hurry.send(None);
        }
    }

    /// From now on, uses the keys of these settings.
    pub(super) fn reload(&self, conf: Conf) {
        // If the thread could not be started, the send fails. That error was already reported.
        let _ = self.hurry.send(Some(conf));
    }
}

fn watch(mut conf: Conf, clock: Clock, to: &Sender<TopologyUpdate>, wake: &Receiver<Option<Conf>>) {
    let mut side: Option<Box<dyn OperatorSide>> = None;
    let mut newest = None;
    let mut said = None;
    loop {
        let begun = clock.now();
        let updates = match look(&conf, &mut side, &mut newest) {
            Ok(topology) => {
                said = None;
                topology
                    .into_iter()
                    .chain([TopologyUpdate::Current(begun)])
                    .collect()
            }
            Err(error) => {
                let why = streams::words(&error);
                if said.as_ref() != Some(&why) {
                    streams::note(&format!("fanpcap analyzer: follows no topology: {why}\n"));
                }
                said = Some(why.clone());
                vec![TopologyUpdate::Blind(why)]
            }
        };
        for update in updates {
            if to.send(update).is_err() {
                return;
            }
        }
        match wake.recv_timeout(EVERY) {
            Ok(Some(new)) => (conf, side) = (new, None),
            Ok(None) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Reads once. Returns the topology if it is newer than `newest`.
fn look(
    conf: &Conf,
    side: &mut Option<Box<dyn OperatorSide>>,
    newest: &mut Option<Revision>,
) -> anyhow::Result<Option<TopologyUpdate>> {
    let status = match side {
        Some(side) => side.look()?,
        None => side.insert(engine::operator_side(conf)?).look()?,
    };
    if let Some(revision) = status.unreadable {
        bail!(unreadable_topology(revision));
    }
    let topology = status.view.topology;
    let newer = topology.filter(|(revision, _)| newest.is_none_or(|newest| *revision > newest));
    Ok(newer.map(|(revision, topology)| {
        *newest = Some(revision);
        TopologyUpdate::Topology(revision, topology)
    }))
}

#[cfg(test)]
mod tests {
    use anyhow::Result;
    use fanpcap_cluster::control::OperatorChange;
    use fanpcap_cluster::{NodeId, View};

    use super::*;
    use fanpcap_cluster::ClusterStatus;

    /// An engine that writes nothing. At every second call, this engine is out of reach.
    struct Fake {
        revision: u64,
        reach: bool,
        is_later: bool,
    }

    impl OperatorSide for Fake {
        fn look(&mut self) -> Result<ClusterStatus> {
            self.reach = !self.reach;
            if !self.reach {
                bail!("out of reach");
            }
            self.revision += 1;
            let conf = Conf::parse("cluster = a\nengine = fixed\nnodes = a1\n", "c")?;
            let mut status = engine::operator_side(&conf)?.look()?;
            let (_, topology) = status.view.topology.take().expect("fixed");
            assert_eq!(topology.nodes[0].node, NodeId(0xa1));
            status.view = View {
                topology: Some((Revision(self.revision / 2), topology)),
                ..View::default()
            };
            status.unreadable = self.is_later.then_some(Revision(9));
            Ok(status)
        }

        fn change(&mut self, _: &OperatorChange) -> Result<()> {
            panic!("an observer writes nothing")
        }
    }

    #[test]
    fn newer_topologies_are_told_once_and_outages_are_no_end() {
        let conf = Conf::parse("cluster = a\nengine = fixed\nnodes = a1\n", "c").unwrap();
        let fake = Fake {
            revision: 3,
            reach: false,
            is_later: false,
        };
        let mut side: Option<Box<dyn OperatorSide>> = Some(Box::new(fake));
        let mut newest = None;
        let mut looks = Vec::new();
        for _ in 0..8 {
            looks.push(match look(&conf, &mut side, &mut newest) {
                Ok(Some(TopologyUpdate::Topology(revision, _))) => revision.0,
                Ok(_) => 0,
                Err(_) => 99,
            });
        }
        assert_eq!(looks, [2, 99, 0, 99, 3, 99, 0, 99]);
    }

    #[test]
    fn a_topology_that_cannot_be_read_is_not_taken_for_none() {
        let conf = Conf::parse("cluster = a\nengine = fixed\nnodes = a1\n", "c").unwrap();
        let fake = Fake {
            revision: 3,
            reach: false,
            is_later: true,
        };
        let mut side: Option<Box<dyn OperatorSide>> = Some(Box::new(fake));
        let error = look(&conf, &mut side, &mut None).unwrap_err().to_string();
        assert!(error.starts_with("topology 9 can't be read"), "{error}");
    }
}
