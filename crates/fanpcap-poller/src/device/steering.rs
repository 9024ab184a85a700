//! The steering programs that newcomers ask for.

use super::refused;
use fanpcap_poll::message::{Refused, Steering};
use fanpcap_steer::ir::Tree;
use fanpcap_steer::{Balance, ForEngine, GroupOptions, modes};

/// A steering program for a group.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) tree: Tree,
    pub(super) digest: u64,
    pub(super) balance: Option<Balance>,
}

/// Compiles what a newcomer asks for; `None` if it asks for nothing.
pub(super) fn compile(steering: &Steering) -> Result<Option<Compiled>, Refused> {
    match steering {
        Steering::Any => Ok(None),
        Steering::Mode(text) => of_mode(text).map(Some),
        Steering::Program(text) => of_text(text, GroupOptions::default()).map(Some),
    }
}

/// The mode of a group whose first member asks for nothing.
pub(super) fn default() -> Result<Compiled, Refused> {
    of_mode("flow")
}

fn of_mode(text: &str) -> Result<Compiled, Refused> {
    let (name, option) = text.split_once('+').unwrap_or((text, ""));
    let balance = match option {
        "" => None,
        "balance" => Some(Balance::Idle),
        "balance=all" => Some(Balance::All),
        _ => return Err(refused("poller-steering", NO_OPTION)),
    };
    let source = modes::source(name).ok_or_else(|| refused("poller-steering", NO_MODE))?;
    let options = GroupOptions {
        balance,
        ..GroupOptions::default()
    };
    of_text(source, options)
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
        balance: options.balance,
    })
}

const NO_MODE: &str = "the poller has no such mode: 'flow', 'flow_2_tuple' and their like are modes \
                       of pollers; the kernel's modes are not";
const NO_OPTION: &str = "the poller's groups have the options '+balance' and '+balance=all' only";
