//! Applies events to the model's cluster, and notes which packets become uncertain.

use fanpcap_buckets::layout::BUCKETS;

use super::{Model, Node, OFFLINE, SECOND, STEP, Table, USED};
use crate::loss_account::Span;
use crate::loss_account::tests::model_event::ModelEvent;

impl Model {
    pub(in crate::loss_account::tests) fn apply(&mut self, event: ModelEvent) {
        // The first node has no events, so its port loses no packet. If all ports lost a packet, no
        // node's counts would contain this packet.
        let others = |which: u8, nodes: usize| 1 + usize::from(which) % (nodes - 1).max(1);
        let at = |which| others(which, self.nodes.len());
        match event {
            ModelEvent::Join => {
                self.join();
                if let Some(node) = self.nodes.last_mut() {
                    node.is_faulty = true;
                }
            }
            ModelEvent::Restart(which) => self.restart(at(which)),
            ModelEvent::Die(which) => self.die(at(which)),
            ModelEvent::Move(from, to) => self.shift(at(from), usize::from(to) % self.nodes.len()),
            ModelEvent::Rest => self.run(3 * SECOND, false),
            ModelEvent::Pause(which) => {
                let at = at(which);
                if let Some(node) = self.nodes.get_mut(at) {
                    node.silent = self.now + 4 * SECOND;
                }
            }
            ModelEvent::Unheard(which, seconds) => self.unhear(at(which), seconds),
            ModelEvent::Hang(which, seconds) => self.hang(at(which), seconds),
            ModelEvent::Blind(which, seconds) => self.blind(at(which), seconds),
            ModelEvent::Fork(which, seconds) => self.fork(at(which), seconds),
        }
    }

    fn unhear(&mut self, at: usize, seconds: u8) {
        let runs = self.nodes.get(at).is_some_and(|node| node.runs);
        if !runs || self.is_any_unheard() || !self.is_judged(at, false) {
            return;
        }
        let heard = self.heard();
        let node = &mut self.nodes[at];
        (node.silent, node.is_faulty) = (self.now + u64::from(seconds) * SECOND, true);
        let held = self.held(at);
        self.doubt(|bucket| held[bucket], heard);
        self.run(OFFLINE + SECOND, true);
    }

    /// Whether a node that captures counts as dead, or will do so.
    fn is_any_unheard(&self) -> bool {
        self.unheard().next().is_some()
    }

    /// The nodes that capture, and that count as dead or will do so.
    fn unheard(&self) -> impl Iterator<Item = usize> {
        let long = self.now + OFFLINE - SECOND;
        let runs = self.nodes.iter().enumerate().filter(|(_, node)| node.runs);
        let unheard = runs.filter(move |(_, node)| node.is_ended || node.silent > long);
        unheard.map(|(at, _)| at)
    }

    fn blind(&mut self, at: usize, seconds: u8) {
        if !self.is_judged(at, true) {
            return;
        }
        if let Some(node) = self.nodes.get_mut(at) {
            node.blind = self.now + u64::from(seconds) * SECOND;
            node.is_faulty = true;
        }
    }

    /// Whether at most half of the ports are lossy after port `at` has become lossy (`is_bad`) or
    /// its node has ended. If two of three ports lose the same packets, the ledger uses the counts
    /// of these two.
    fn is_judged(&self, at: usize, is_bad: bool) -> bool {
        let is_lossy = |node: &Node| node.loss > 0 || node.blind + 20 * SECOND > self.now;
        let others = self.nodes.iter().enumerate();
        let others = others.filter(|(other, node)| *other != at && node.runs);
        let (bad, good): (Vec<_>, Vec<_>) = others.partition(|(_, node)| is_lossy(node));
        let bad = bad.len() + usize::from(is_bad);
        bad < 2 || bad <= good.len()
    }

    /// The time until which all nodes have reported.
    fn heard(&self) -> u64 {
        let runs = self.nodes.iter().filter(|node| node.runs);
        runs.map(|node| node.heard).min().unwrap_or(self.now)
    }

    /// Notes that packets of these buckets are uncertain if they came after the nodes' last reports
    /// (`heard`). If a node is silent now, packets before this node's next report are uncertain,
    /// too.
    fn doubt(&mut self, is_doubtful: impl Fn(usize) -> bool, heard: u64) {
        let runs = self.nodes.iter().filter(|node| node.runs);
        let silent = runs.map(|node| node.silent + SECOND).max();
        let until = silent.unwrap_or(0).max(self.now);
        let buckets = std::array::from_fn(is_doubtful);
        self.doubts.push((buckets, heard - SECOND..=until));
    }

    /// Restarts a node, as a reboot does. With an analyzer, the ledger learns what the node
    /// captured after its last report: see `end`.
    fn restart(&mut self, at: usize) {
        let runs = self.nodes.get(at).is_some_and(|node| node.runs);
        // With an analyzer, the ledger would not learn what an unheard node captured.
        let is_unheard = self.unheard().any(|node| node != at || self.analyzed);
        if !runs || is_unheard || !self.is_judged(at, false) {
            return;
        }
        let (heard, held) = (self.heard(), self.held(at));
        self.end(at);
        let (now, table) = (self.now, self.table);
        let node = &mut self.nodes[at];
        node.in_flight.clear();
        node.since = now + node.ahead;
        *node.seen = [0; BUCKETS];
        *node.captured = [0; BUCKETS];
        node.ring = 0;
        node.news.clear();
        (node.table, node.hung, node.silent) = (Some(table), 0, 0);
        node.reported = table.revision;
        (node.runs, node.is_ended, node.heard) = (true, false, now);
        // Until the node's first reports come, the ledger does not know which topology the node
        // uses.
        self.run(2 * SECOND, true);
        self.doubt(|bucket| held[bucket], heard);
    }

    /// Whether a node runs and does not count as dead. No report would have what a node captured
    /// while it counted as dead, if it died then.
    fn is_counted(&self, at: usize) -> bool {
        let node = self.nodes.get(at);
        node.is_some_and(|node| node.runs && !node.is_ended)
    }

    pub(super) fn end(&mut self, at: usize) {
        let exactly = |count: u64| Span::exactly(i64::try_from(count).unwrap());
        let captured = self
            .analyzed
            .then(|| Box::new(self.nodes[at].captured.map(exactly)));
        let node = &mut self.nodes[at];
        self.ledger.end(node.id, self.now + node.ahead, captured);
        (node.runs, node.is_ended, node.is_faulty) = (false, true, true);
    }

    /// The buckets that a node may have captured since its last report: those that this report's
    /// topology or a newer topology gives to the node.
    fn held(&self, at: usize) -> [bool; USED] {
        let reported = self.nodes[at].reported;
        let tables = self.tables.iter();
        let tables: Vec<&Table> = tables.filter(|it| it.revision >= reported).collect();
        std::array::from_fn(|bucket| tables.iter().any(|it| it.has(at, bucket)))
    }

    /// A machine dies. Or only its agent dies at first, the node's buckets move, and the node still
    /// captures until it counts as dead.
    fn die(&mut self, at: usize) {
        if !self.is_counted(at) || self.is_any_unheard() || !self.is_judged(at, false) {
            return;
        }
        let (heard, held) = (self.heard(), self.held(at));
        let captures = self.draw(2) == 0 && self.nodes[at].silent <= self.now;
        let dead = self.now + 3 * SECOND;
        let node = &mut self.nodes[at];
        (node.runs, node.is_faulty) = (captures, true);
        (node.hung, node.silent) = (dead + STEP, dead + STEP);
        self.replace(at);
        self.run(dead - self.now, true);
        if !self.nodes[at].is_ended {
            self.end(at);
        }
        // Until the other nodes' next reports.
        self.run(SECOND, true);
        self.doubt(|bucket| held[bucket], heard);
    }

    /// Gives all buckets of a node to any other node.
    fn replace(&mut self, at: usize) {
        let to = usize::try_from(self.draw(self.nodes.len() as u64)).unwrap();
        self.reassign(at, if to != at && self.is_able(to) { to } else { 0 });
    }

    fn hang(&mut self, at: usize, seconds: u8) {
        let runs = self.nodes.get(at).is_some_and(|node| node.runs);
        if !runs || self.is_any_unheard() || !self.is_judged(at, false) {
            return;
        }
        let (heard, table) = (self.heard(), self.nodes[at].table);
        let until = self.now + u64::from(seconds) * SECOND;
        let node = &mut self.nodes[at];
        (node.hung, node.silent, node.is_faulty) = (until, until, true);
        if seconds > 6 {
            self.run(OFFLINE + SECOND, true);
            self.replace(at);
        }
        let left = until.saturating_sub(self.now);
        self.run(left + 2 * SECOND, true);
        let owns = |bucket| table.is_none_or(|table| table.has(at, bucket));
        self.doubt(owns, heard);
    }

    fn shift(&mut self, from: usize, to: usize) {
        if self.is_able(from) && self.is_able(to) {
            // Another coordinator may lead by now.
            self.term += u64::from(self.draw(4) == 0);
            self.reassign(from, to);
        }
    }

    fn is_able(&self, at: usize) -> bool {
        let node = self.nodes.get(at);
        node.is_some_and(|node| node.runs && node.hung <= self.now)
    }

    /// Moves all buckets of a node to another node: writes a union first, and a stable topology
    /// after the new owner has captured for a while.
    fn reassign(&mut self, from: usize, to: usize) {
        let (heard, owners) = (self.heard(), self.table.owners);
        let new_owners = owners.map(|owner| if owner == from { to } else { owner });
        self.tell(owners, new_owners);
        self.run(SECOND * 6 / 10, true);
        self.tell(new_owners, new_owners);
        self.run(SECOND, true);
        let moved = |bucket: usize| owners[bucket] != new_owners[bucket];
        self.doubt(moved, heard);
    }

    /// For some seconds, the old coordinator reaches all nodes except `at`, and a new coordinator
    /// reaches only `at`. Then the new coordinator, whose term is greater, reaches all nodes. The
    /// new one knows none of the old one's changes; perhaps because it read an older file.
    fn fork(&mut self, at: usize, seconds: u8) {
        let runs = self.nodes.get(at).is_some_and(|node| node.runs);
        if !runs || self.is_any_unheard() {
            return;
        }
        let (heard, owners, epoch) = (self.heard(), self.table.owners, self.table.epoch);
        let other = at % (self.nodes.len() - 1) + 1;
        let [keeps, is_older, is_missed, rests, reads_old] = [(); 5].map(|()| self.draw(2) == 0);
        // The old coordinator may also move another node's buckets.
        let moves = keeps || self.draw(2) == 0;
        let is_moved = |owner| owner == at || moves && owner == other;
        let first = owners.map(|owner| if is_moved(owner) { 0 } else { owner });
        // The new coordinator may begin with a topology that keeps all owners.
        let second = if keeps { owners } else { [at; USED] };
        for faulty in [0, at, other] {
            self.nodes[faulty].is_faulty = true;
        }
        let hears_old = |node: usize| is_older || node != at;
        self.is_cut = is_missed;
        self.tell_to(hears_old, owners, first);
        self.run(SECOND * 6 / 10, true);
        self.tell_to(hears_old, first, first);
        self.run(if is_older { SECOND } else { STEP }, true);
        self.is_cut = false;
        self.table.epoch = epoch;
        self.term += 1;
        self.tell_to(|node| node == at, second, second);
        if !is_missed && reads_old {
            self.table = self.tables[self.tables.len() - 2];
        }
        self.run(u64::from(seconds) * SECOND, true);
        if rests {
            self.run(8 * SECOND, false);
            self.run(SECOND, true);
        }
        self.table = self.tables[self.tables.len() - 1];
        if keeps {
            self.send_table(|node| node != at);
        } else {
            // No union leads from the old coordinator's buckets to these owners.
            if !moves {
                self.tell([at; USED], owners);
                self.run(SECOND * 6 / 10, true);
            }
            self.tell(owners, owners);
        }
        self.run(SECOND, true);
        let is_moved = |bucket: usize| {
            [first, second]
                .iter()
                .any(|it| it[bucket] != owners[bucket])
        };
        self.doubt(is_moved, heard);
    }

    fn tell(&mut self, owners: [usize; USED], new_owners: [usize; USED]) {
        self.tell_to(|_| true, owners, new_owners);
    }

    /// Gives a new table to these nodes.
    fn tell_to(
        &mut self,
        reaches: impl Fn(usize) -> bool,
        owners: [usize; USED],
        new_owners: [usize; USED],
    ) {
        let last = self.tables.last().map_or(0, |table| table.revision);
        self.table = Table {
            revision: last.max(self.term << 32) + 1,
            epoch: self.table.epoch + 1,
            owners,
            new_owners,
        };
        self.tables.push(self.table);
        self.send_table(reaches);
    }

    fn send_table(&mut self, reaches: impl Fn(usize) -> bool) {
        for at in (0..self.nodes.len()).filter(|at| reaches(*at)) {
            let late = self.draw(SECOND / 4);
            let (now, table) = (self.now, self.table);
            let node = &mut self.nodes[at];
            node.news.push_back((node.hung.max(now) + late, table));
        }
    }
}
