//! Processes that copies leave behind, in their process groups and in the background, and their
//! end. None of them outlives this command.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

use fanpcap_linux::process::child::{self, SIGCONT, SIGKILL, SIGTERM};
use fanpcap_linux::process::stat::{self, Stat};

use super::guard::Guard;
use super::processes::GRACE;

/// How often it is looked for processes in the background while nothing ends.
const PERIOD: Duration = Duration::from_secs(1);

/// Processes that nobody else looks after.
#[derive(Debug)]
pub(crate) struct Orphans {
    own: u32,
    /// Children that are not of copies.
    foreign: BTreeSet<u32>,
    /// Groups of copies that have ended.
    groups: BTreeMap<u32, Ending>,
    /// Orphans outside of their copies' groups, with their groups.
    background: BTreeMap<u32, u32>,
    /// Orphans that are to end.
    ending: BTreeMap<u32, Ending>,
    /// Copies that have ended since it was looked for orphans.
    ended: Vec<usize>,
    looked: Option<Instant>,
    /// Looks in a row that found nothing.
    clean: u32,
}

/// Something that is told to end.
#[derive(Debug, Default)]
struct Ending {
    told: Option<Instant>,
    killed: Option<Instant>,
}

impl Ending {
    /// Does what is due; false when nothing helps.
    fn go_on(&mut self, signal: impl Fn(i32) -> io::Result<()>) -> bool {
        let now = Instant::now();
        if self.told.is_none() {
            self.told = Some(now);
            // Both may fail for one that has just ended.
            let _ = signal(SIGTERM).and_then(|()| signal(SIGCONT));
        } else if self.killed.is_none() && self.told.is_some_and(|told| now >= told + GRACE) {
            self.killed = Some(now);
            let _ = signal(SIGKILL);
        }
        self.killed.is_none_or(|killed| now < killed + GRACE)
    }
}

impl Orphans {
    /// Children that there are now are not of copies.
    pub(crate) fn new() -> Self {
        let own = std::process::id();
        let children = stat::all().into_iter().filter(|one| one.parent == own);
        Self {
            own,
            foreign: children.map(|one| one.pid).collect(),
            groups: BTreeMap::new(),
            background: BTreeMap::new(),
            ending: BTreeMap::new(),
            ended: Vec::new(),
            looked: None,
            clean: 0,
        }
    }

    /// This child is not of copies.
    pub(crate) fn spare(&mut self, pid: u32) {
        self.foreign.insert(pid);
    }

    /// A copy has ended: so will the rest of its group, that `leader` has led.
    pub(crate) fn end(&mut self, copy: usize, leader: u32) {
        self.groups.insert(leader, Ending::default());
        self.ended.push(copy);
        self.clean = 0;
    }

    /// Whether nothing is left.
    pub(crate) fn is_clean(&self) -> bool {
        // What is orphaned while it is looked is seen by the next look.
        self.clean > 1
    }

    /// Whether there are groups of copies that have ended.
    pub(crate) fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Kills all that is told to end, at once.
    pub(crate) fn kill(&mut self) {
        let groups = self.groups.iter_mut().map(|(&group, ending)| {
            ending.killed.get_or_insert_with(Instant::now);
            child::signal_group(group, SIGKILL)
        });
        // They may have ended just now.
        let _ = groups.filter(Result::is_err).count();
        let orphans = self.ending.iter_mut().map(|(&pid, ending)| {
            ending.killed.get_or_insert_with(Instant::now);
            child::signal(pid, SIGKILL)
        });
        let _ = orphans.filter(Result::is_err).count();
    }

    /// Goes on to end what is to end: what is left of groups, and all orphans if there are no
    /// `copies` any more, which are told by their processes. Tells what is to be said.
    pub(crate) fn tend(&mut self, copies: &[u32], all: bool, guard: &mut Guard) -> Vec<String> {
        let pressed = all || self.has_groups() || !self.ended.is_empty();
        if !pressed && self.looked.is_some_and(|looked| looked.elapsed() < PERIOD) {
            return Vec::new();
        }
        self.looked = Some(Instant::now());
        let processes = stat::all();
        let is_ours = |one: &&Stat| {
            one.parent == self.own && !self.foreign.contains(&one.pid) && !copies.contains(&one.pid)
        };
        let (ended, alive): (Vec<&Stat>, Vec<&Stat>) = processes
            .iter()
            .filter(is_ours)
            .partition(|one| one.has_ended());
        for one in &ended {
            // Its end is seen again if this should fail.
            let _ = child::reap(one.pid);
        }
        let mut said = self.find(&alive, copies, guard);
        said.extend(self.end_groups(&processes, guard));
        if all {
            said.extend(self.end_orphans(&alive));
        }
        let nothing = ended.is_empty() && self.groups.is_empty();
        let nothing = nothing && alive.iter().all(|one| self.foreign.contains(&one.pid));
        self.clean = if nothing { self.clean + 1 } else { 0 };
        said
    }

    /// Notes what has gone to the background.
    fn find(&mut self, alive: &[&Stat], copies: &[u32], guard: &mut Guard) -> Vec<String> {
        let mut new = Vec::new();
        for one in alive {
            let of_copy = copies.contains(&one.group) || self.groups.contains_key(&one.group);
            if !of_copy && self.background.insert(one.pid, one.group).is_none() {
                guard.watch(one.group);
                new.push(one.pid.to_string());
            }
        }
        let gone = |pid: &u32| !alive.iter().any(|one| one.pid == *pid);
        let gone: Vec<u32> = self.background.keys().copied().filter(gone).collect();
        for pid in gone {
            if let Some(group) = self.background.remove(&pid) {
                if !self.background.values().any(|of| *of == group) {
                    guard.forget(group);
                }
            }
        }
        let ended: Vec<String> = self.ended.drain(..).map(|copy| copy.to_string()).collect();
        if new.is_empty() {
            return Vec::new();
        }
        let who = match &ended[..] {
            [] => "a process of a copy".to_owned(),
            [copy] => format!("copy {copy}"),
            copies => format!("copies {}", copies.join(", ")),
        };
        vec![format!(
            "{who} went to the background ({}), where it ends with this command: use the program's foreground option",
            new.join(", ")
        )]
    }

    fn end_groups(&mut self, processes: &[Stat], guard: &mut Guard) -> Vec<String> {
        let mut said = Vec::new();
        self.groups.retain(|&group, ending| {
            let is_there = processes
                .iter()
                .any(|one| one.group == group && !one.has_ended());
            let goes_on = is_there && ending.go_on(|signal| child::signal_group(group, signal));
            if is_there && !goes_on {
                said.push(format!("process group {group} can't be ended"));
            }
            if !goes_on {
                guard.forget(group);
            }
            goes_on
        });
        said
    }

    fn end_orphans(&mut self, alive: &[&Stat]) -> Vec<String> {
        let mut said = Vec::new();
        for one in alive {
            // Members of a group end with it.
            if self.groups.contains_key(&one.group) {
                continue;
            }
            let ending = self.ending.entry(one.pid).or_default();
            if !ending.go_on(|signal| child::signal(one.pid, signal)) {
                said.push(format!("process {} can't be ended", one.pid));
                self.foreign.insert(one.pid);
            }
        }
        said
    }
}
