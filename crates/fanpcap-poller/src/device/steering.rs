//! The steering programs that newcomers ask for.

use super::refusals::refused;
use fanpcap_poll::message::{self, Program, Refused, Steering};
use fanpcap_steer::ir::Tree;
use fanpcap_steer::{Balance, ForEngine, GroupOptions, modes};

/// A steering program for a group.
#[derive(Debug)]
pub(super) struct Compiled {
    /// The program as it is in messages.
    pub(super) program: Program,
    pub(super) tree: Tree,
    pub(super) digest: u64,
    pub(super) options: GroupOptions,
    /// The mode's name, or the beginning of the steering program, with the group's options.
    pub(super) title: String,
}

impl Compiled {
    /// Whether a group can be on several devices. The flows that `+sticky` remembers, and the loads
    /// that `+balance` levels, are those of one device.
    pub(super) fn spans(&self) -> bool {
        self.options == GroupOptions::default()
    }
}

/// The most flows that a group may remember.
const FLOWS_MAX: u32 = 1 << 20;

/// The number of flows of `+sticky` without a number.
const FLOWS: u32 = 1 << 16;

/// The steering program with which a group begins whose first member says this. If that member asks
/// for nothing, the group has the mode `flow`.
pub(super) fn first(steering: &Steering) -> Program {
    match steering {
        Steering::Program(program) | Steering::Former(program) => program.clone(),
        Steering::Any => Program {
            text: modes::source("flow").unwrap_or_default().to_owned(),
            flows: None,
            balance: None,
        },
    }
}

/// Compiles a steering program.
pub(super) fn compile(program: &Program) -> Result<Compiled, Refused> {
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
    let no_filters = |_: &str| Err("the poller has no filters in steering programs".to_owned());
    let tree = fanpcap_steer::tree(&program.text, &no_filters);
    let tree = tree.map_err(|error| refused("poller-steering", &error.to_string()))?;
    // The digest of all engines with a table. The limits of BPF programs hold here, too.
    let compiled = ForEngine::of(tree.clone(), options);
    let compiled = compiled.map_err(|error| refused("poller-steering", &error.to_string()))?;
    Ok(Compiled {
        program: program.clone(),
        tree,
        digest: compiled.digest(),
        options,
        title: title(&program.text, options),
    })
}

/// The title of a group, for its watchers.
fn title(text: &str, options: GroupOptions) -> String {
    let sticky = options.flows.map(|flows| match flows {
        FLOWS => "+sticky".to_owned(),
        flows => format!("+sticky={flows}"),
    });
    let balance = options.balance.map_or("", |balance| match balance {
        Balance::Idle => "+balance",
        Balance::All => "+balance=all",
    });
    let options = sticky.unwrap_or_default() + balance;
    if let Some(name) = modes::name_of(text) {
        return format!("{name}{options}");
    }
    // The options precede the text, because a long text is cut at its end.
    let words = Some(options.as_str()).into_iter();
    let words = words.chain(text.split_whitespace());
    let words: Vec<&str> = words.filter(|it| !it.is_empty()).collect();
    shortened(&words.join(" "))
}

/// A text of more than [`TITLE_MAX`] bytes is cut, and ends with a mark.
fn shortened(text: &str) -> String {
    if text.len() <= TITLE_MAX {
        return text.to_owned();
    }
    let mut end = TITLE_MAX - CUT.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned() + CUT
}

/// As long as titles on member pages.
const TITLE_MAX: usize = 64;
const CUT: &str = "…";

const MANY_FLOWS: &str =
    "a poller remembers at most 1048576 flows of a group: write +sticky=1048576";
