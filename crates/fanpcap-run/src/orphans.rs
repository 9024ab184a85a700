//! Ends processes that copies leave behind, in their process groups and in the background. When
//! this command ends, none of these processes is left.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, Instant};

use fanpcap_linux::process::child::{self, SIGCONT, SIGKILL, SIGTERM};
use fanpcap_linux::process::stat::{self, Stat};

use super::guard::Guard;
use super::processes::GRACE;

/// Interval of searches for background processes while no process ends.
const PERIOD: Duration = Duration::from_secs(1);

/// Processes left behind by copies.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    own: u32,
    /// Children of this command that do not belong to copies.
    foreign: BTreeSet<u32>,
    /// Process groups of copies that have ended.
    groups: BTreeMap<u32, Ending>,
    /// Orphans outside the process groups of their copies, each with its own process group.
    background: BTreeMap<u32, u32>,
    /// Orphans that must end.
    ending: BTreeMap<u32, Ending>,
    /// Copies that have ended since the last search.
    ended: Vec<usize>,
    looked: Option<Instant>,
    /// Number of searches in a row that found no process to end.
    clean: u32,
}

/// When a process or a process group was sent SIGTERM, and when SIGKILL.
#[derive(Debug, Default)]
struct Ending {
    told: Option<Instant>,
    killed: Option<Instant>,
}

impl Ending {
    /// Sends the signal that is due. Returns false if SIGKILL has had no effect within [`GRACE`].
    fn go_on(&mut self, signal: impl Fn(i32) -> io::Result<()>) -> bool {
        let now = Instant::now();
        if self.told.is_none() {
            self.told = Some(now);
            // Either call fails if the process has just ended.
            let _ = signal(SIGTERM).and_then(|()| signal(SIGCONT));
        } else if self.killed.is_none() && self.told.is_some_and(|told| now >= told + GRACE) {
            self.killed = Some(now);
            let _ = signal(SIGKILL);
        }
        self.killed.is_none_or(|killed| now < killed + GRACE)
    }
}

impl Orphans {
    /// Treats the present children of this command as not belonging to copies.
    pub(crate) fn new() -> Self {
        let own = std::process::id();
        let children = stat::all().into_iter().filter(|one| one.parent == own);
        Self {
            own,
            foreign: children.map(|one| one.pid).collect(),
            ..Self::default()
        }
    }

    /// Marks a child that does not belong to a copy.
    pub(crate) fn spare(&mut self, pid: u32) {
        self.foreign.insert(pid);
    }

    /// Notes that a copy has ended: the rest of the process group of `leader` must end too.
    pub(crate) fn end(&mut self, copy: usize, leader: u32) {
        self.groups.insert(leader, Ending::default());
        self.ended.push(copy);
        self.clean = 0;
    }

    /// Whether no process is left.
    pub(crate) fn is_clean(&self) -> bool {
        // A process that is orphaned during a search is found only by the next search. So two
        // searches in a row must find nothing.
        self.clean > 1
    }

    /// Whether process groups of ended copies remain.
    pub(crate) fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Kills the process groups of ended copies, and all orphans that got a signal to end.
    pub(crate) fn kill(&mut self) {
        let groups = self.groups.iter_mut().map(|(&group, ending)| {
            ending.killed.get_or_insert_with(Instant::now);
            child::signal_group(group, SIGKILL)
        });
        // Errors are ignored: the groups may have ended just now.
        let _ = groups.filter(Result::is_err).count();
        let orphans = self.ending.iter_mut().map(|(&pid, ending)| {
            ending.killed.get_or_insert_with(Instant::now);
            child::signal(pid, SIGKILL)
        });
        let _ = orphans.filter(Result::is_err).count();
    }

    /// Continues to end the rest of the process groups and, if `all` is set, all orphans. `copies`
    /// are the processes of running copies. Returns messages to print.
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
            // If this fails, the next search finds the process again.
            let _ = child::reap(one.pid);
        }
        // The children of a copy that has ended are orphans. They can be assigned to the copy only
        // after its end is noted.
        let is_unnoted = |one: &Stat| copies.contains(&one.pid) && one.has_ended();
        let mut said = match processes.iter().any(is_unnoted) {
            true => Vec::new(),
            false => self.find(&alive, copies, guard),
        };
        said.extend(self.end_groups(&processes, guard));
        if all {
            said.extend(self.end_orphans(&alive));
        }
        let nothing = ended.is_empty() && self.groups.is_empty();
        let nothing = nothing && alive.iter().all(|one| self.foreign.contains(&one.pid));
        self.clean = if nothing { self.clean + 1 } else { 0 };
        said
    }

    /// Finds new orphans in the background, and returns a message about them.
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
            "{who} went to the background ({}), and this command will end it when the run ends: use the program's foreground option",
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
            // A process in the process group of an ended copy is ended with that group.
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
