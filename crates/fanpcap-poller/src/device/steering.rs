//! The steering programs that newcomers ask for.

use super::refusals::refused;
use fanpcap_poll::message::{self, Program, Refused, Steering};
use fanpcap_steer::ir::Tree;
use fanpcap_steer::{Balance, ForEngine, GroupOptions, modes};

/// A steering program for a group.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) tree: Tree,
    pub(super) digest: u64,
    pub(super) options: GroupOptions,
}

/// The most flows that a group may remember.
const FLOWS_MAX: u32 = 1 << 20;

/// Compiles what a newcomer asks for; `None` if it asks for nothing.
pub(super) fn compile(steering: &Steering) -> Result<Option<Compiled>, Refused> {
    match steering {
        Steering::Any => Ok(None),
        Steering::Program(program) => {
            let options = GroupOptions {
                flows: program.flows,
                balance: program.balance.map(|balance| match balance {
                    message::Balance::Idle => Balance::Idle,
                    message::Balance::All => Balance::All,
                }),
            };
            if program.flows.is_some_and(|flows| flows > FLOWS_MAX) {
                return Err(refused("poller-steering", MANY_FLOWS));
            }
            let Program { text, .. } = program;
            of_text(text, options).map(Some)
        }
    }
}

/// The mode of a group whose first member asks for nothing.
pub(super) fn default() -> Result<Compiled, Refused> {
    of_text(
        modes::source("flow").unwrap_or_default(),
        GroupOptions::default(),
    )
}

fn of_text(text: &str, options: GroupOptions) -> Result<Compiled, Refused> {
    let no_filters = |_: &str| Err("the poller has no filters in steering programs".to_owned());
    let tree = fanpcap_steer::tree(text, &no_filters);
    let tree = tree.map_err(|error| refused("poller-steering", &error.to_string()))?;
    // The digest of all engines with a table. The limits of BPF programs hold here, too.
    let compiled = ForEngine::of(tree.clone(), options);
    let compiled = compiled.map_err(|error| refused("poller-steering", &error.to_string()))?;
    Ok(Compiled {
        tree,
        digest: compiled.digest(),
        options,
    })
}

const MANY_FLOWS: &str =
    "a poller remembers at most 1048576 flows of a group: write +sticky=1048576";
