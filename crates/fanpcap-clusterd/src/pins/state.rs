//! The agent's state that is stored in a file, in addition to the pinned objects.

use fanpcap_cluster::Revision;

/// What an agent stores for the next agent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct AgentState {
    /// The BPF program and its maps; `None` before the first BPF program.
    pub(crate) set: Option<ProgramSet>,
    /// The marks and topologies of two tables: the table in use, and the table that the agent
    /// prepared last. The agent may have died before it switched to the prepared table.
    pub(crate) loaded: Vec<(u32, Revision)>,
    /// Whether an agent has made the device promiscuous; `false` if it was promiscuous before.
    pub(crate) promiscuous: bool,
}

/// The parameters of a BPF program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProgramSet {
    /// The kernel's number of the BPF program.
    pub(crate) program: u32,
    /// A hash of the BPF program's code without the filter. If the cluster needs code with another
    /// hash, the agent replaces this BPF program.
    pub(crate) code: u64,
    /// The number of receive queues that have their own counters.
    pub(crate) lanes: u32,
    /// How many bytes of each packet the node ships; 0 in distribution mode, which ships nothing.
    pub(crate) bytes: u16,
    /// When the counters began at 0, in nanoseconds since 1970.
    pub(crate) since: u64,
    /// A hash of the filter; 0 if there is no filter.
    pub(crate) filter: u64,
}

const HEAD: &str = "fanpcap node 1";

impl AgentState {
    /// The topology whose table has this mark.
    pub(crate) fn revision(&self, mark: u32) -> Option<Revision> {
        let found = self.loaded.iter().find(|(known, _)| *known == mark);
        found.map(|(_, revision)| *revision)
    }

    /// Notes that the table of `revision` has the mark `mark`. `current` is the mark in use.
    pub(crate) fn begin(&mut self, mark: u32, revision: Revision, current: u32) {
        self.loaded.retain(|(known, _)| *known == current);
        self.loaded.push((mark, revision));
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("{HEAD}\n");
        if let Some(set) = &self.set {
            let ProgramSet {
                program,
                code,
                lanes,
                bytes,
                since,
                filter,
            } = set;
            text += &format!("set {program} {code} {lanes} {bytes} {since}\n");
            if *filter != 0 {
                text += &format!("filter {filter}\n");
            }
        }
        for (mark, revision) in &self.loaded {
            text += &format!("loaded {mark} {revision}\n");
        }
        if self.promiscuous {
            text += "promiscuous\n";
        }
        text
    }

    /// Reads the state from a file's text; `None` if the text has another format.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        lines.next().filter(|line| *line == HEAD)?;
        let mut state = Self::default();
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["set", program, code, lanes, bytes, since] => {
                    state.set = Some(ProgramSet {
                        program: program.parse().ok()?,
                        code: code.parse().ok()?,
                        lanes: lanes.parse().ok()?,
                        bytes: bytes.parse().ok()?,
                        since: since.parse().ok()?,
                        filter: 0,
                    });
                }
                ["filter", filter] => state.set.as_mut()?.filter = filter.parse().ok()?,
                ["loaded", mark, revision] => {
                    let revision = Revision(revision.parse().ok()?);
                    state.loaded.push((mark.parse().ok()?, revision));
                }
                ["promiscuous"] => state.promiscuous = true,
                ["set" | "filter" | "loaded" | "promiscuous", ..] => return None,
                // Skips a line that only later builds write. A file that only a later build can use
                // has another first line.
                _ => {}
            }
        }
        Some(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let set = ProgramSet {
            program: 9,
            code: u64::MAX,
            lanes: 16,
            bytes: 52,
            since: 7,
            filter: 0,
        };
        let other = ProgramSet { filter: 8, ..set };
        let loaded = vec![(u32::MAX, Revision(u64::MAX)), (0, Revision(1))];
        for set in [None, Some(set), Some(other)] {
            for promiscuous in [false, true] {
                let loaded = loaded.clone();
                let state = AgentState {
                    set,
                    loaded,
                    promiscuous,
                };
                assert_eq!(AgentState::parse(&state.text()), Some(state));
            }
        }
        for line in ["loaded x 1", "filter 1", "set 1 2 3", "loaded 1"] {
            assert_eq!(
                AgentState::parse(&format!("{HEAD}\n{line}")),
                None,
                "{line}"
            );
        }
        assert_eq!(AgentState::parse(""), None);
        assert_eq!(AgentState::parse("fanpcap node 2\n"), None);
    }

    #[test]
    fn lines_of_a_later_build_are_skipped() {
        let state = AgentState {
            loaded: vec![(4, Revision(5))],
            promiscuous: true,
            ..AgentState::default()
        };
        let text = state.text().replacen("loaded", "color blue\n\nloaded", 1);
        assert_eq!(AgentState::parse(&text), Some(state));
    }

    #[test]
    fn the_kernels_mark_says_which_topology_is_loaded() {
        let mut state = AgentState::default();
        state.begin(1, Revision(10), 0);
        state.begin(2, Revision(20), 1);
        assert_eq!(state.revision(1), Some(Revision(10)), "not switched yet");
        assert_eq!(state.revision(2), Some(Revision(20)));
        state.begin(3, Revision(30), 2);
        assert_eq!(state.revision(1), None);
        assert_eq!(state.revision(2), Some(Revision(20)));
    }
}
