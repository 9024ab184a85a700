//! The options after the name of a mode: options of the group, such as `+defrag`, and of the
//! member, such as `+weight=3`.

use super::{Mode, ModeKind};
use crate::driver::Driver;
use crate::report::{Fault, offset_in, quote};
use fanpcap_steer::nearest::nearest;
use fanpcap_steer::{Balance, GroupOptions};

/// A mode with its options, and the options of the member that asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) mode: Mode,
    /// The member's weight, compared with the weights of the other members. `None` if no weight is
    /// given.
    pub(crate) weight: Option<u16>,
    /// The group's options: whether the group is sticky, and whether it is balanced.
    pub(crate) group: GroupOptions,
    /// The member's class, 1 to 63, and the byte at which the option begins; `None`: the default
    /// class.
    pub(crate) class: Option<(u8, usize)>,
}

impl Options {
    /// No options.
    pub(crate) fn of(kind: ModeKind) -> Self {
        Self {
            mode: kind.into(),
            weight: None,
            group: GroupOptions::default(),
            class: None,
        }
    }

    /// Reads the options in `text`, which begin after the first `+`.
    pub(crate) fn parse(kind: ModeKind, text: &str) -> Result<Self, Fault> {
        let mut options = Self::of(kind);
        for word in text.split('+').skip(1) {
            let at = offset_in(text, word.trim_start());
            let added = options.add(word.trim(), at);
            added.map_err(|fault| fault.shift(at))?;
        }
        Ok(options)
    }

    fn add(&mut self, word: &str, at: usize) -> Result<(), Fault> {
        let lower = word.to_ascii_lowercase();
        let (name, value) = match lower.split_once('=') {
            Some((name, value)) => (name.trim_end(), Some(value.trim())),
            None => (lower.as_str(), None),
        };
        match (name, value) {
            ("defrag", None) => self.mode.defrag = true,
            ("rollover", None) => self.add_rollover()?,
            ("weight", value) => self.add_weight(word, value)?,
            ("sticky", value) => self.add_sticky(word, value)?,
            ("balance", value) => self.add_balance(word, value)?,
            ("class", value) => self.add_class(word, value, at)?,
            _ => return Err(refuse_option(word, name)),
        }
        match self.group {
            GroupOptions {
                flows: Some(_),
                balance: Some(Balance::All),
            } => Err(Fault::new(
                "balance-all-and-sticky",
                "'+balance=all' moves flows, and '+sticky' keeps them where they are",
            )
            .hint("write '+balance', or leave '+sticky' out")),
            _ => Ok(()),
        }
    }

    fn add_rollover(&mut self) -> Result<(), Fault> {
        match self.mode.kind {
            ModeKind::Rollover => Err(Fault::new(
                "rollover-twice",
                "'rollover' takes no option '+rollover'",
            )
            .hint("write 'rollover' alone")),
            ModeKind::Program => Err(Fault::new(
                "rollover-in-steered-group",
                "a steered group takes no '+rollover': the kernel would give packets to members that are gone",
            )
            .hint("leave it out, or write 'hash+rollover'")),
            ModeKind::Hash | ModeKind::Lb | ModeKind::Rnd | ModeKind::Cpu | ModeKind::Qm => {
                self.mode.rollover = true;
                Ok(())
            }
        }
    }

    fn add_weight(&mut self, word: &str, value: Option<&str>) -> Result<(), Fault> {
        let weight = number(word, value, 1, WEIGHT_MAX.into())?;
        let weight = u16::try_from(weight).unwrap_or(WEIGHT_MAX);
        self.ensure_steered(word, "weighs all members alike")?;
        once(&mut self.weight, weight, "weight-twice", |before| {
            format!("a member has one weight, not {before} and {weight}")
        })
    }

    fn add_sticky(&mut self, word: &str, value: Option<&str>) -> Result<(), Fault> {
        let flows = match value {
            None => FLOWS,
            value => number(word, value, FLOWS_MIN, FLOWS_MAX)?,
        };
        self.ensure_steered(word, "remembers no flow")?;
        once(&mut self.group.flows, flows, "sticky-twice", |before| {
            format!("a group remembers one number of flows, not {before} and {flows}")
        })
    }

    fn add_balance(&mut self, word: &str, value: Option<&str>) -> Result<(), Fault> {
        let balance = match value {
            None => Balance::Idle,
            Some("all") => Balance::All,
            Some(_) => {
                return Err(
                    Fault::new("balance-value", "'+balance' takes no value but 'all'")
                        .hint("write '+balance', or '+balance=all' to move live flows too"),
                );
            }
        };
        self.ensure_steered(word, "moves no flows by load")?;
        once(&mut self.group.balance, balance, "balance-twice", |_| {
            "a group is balanced in one way, not by '+balance' and '+balance=all'".to_owned()
        })
    }

    /// Adds the member's class. Does not check that the engine and the steering program have
    /// classes, because the engine and the steering program are not known yet.
    fn add_class(&mut self, word: &str, value: Option<&str>, at: usize) -> Result<(), Fault> {
        let class = number(word, value, 1, CLASS_MAX.into())?;
        let class = u8::try_from(class).unwrap_or(CLASS_MAX);
        if self.mode.kind != ModeKind::Program {
            return Err(class_needs_engine(class));
        }
        let mut kept = self.class.replace((class, at)).map(|(class, _)| class);
        once(&mut kept, class, "class-twice", |before| {
            format!("a member has one class, not {before} and {class}")
        })
    }

    /// Refuses an option that only steered groups have, if the mode is a kernel mode.
    fn ensure_steered(&self, word: &str, why: &str) -> Result<(), Fault> {
        if self.mode.kind == ModeKind::Program {
            return Ok(());
        }
        let (mode, quoted) = (self.mode.kind.name(), quote(&format!("+{word}")));
        let message = format!("{quoted} is for steered groups: under '{mode}' the kernel {why}");
        let word = word.to_ascii_lowercase().replace(char::is_whitespace, "");
        Err(Fault::new("option-of-steered-groups", message)
            .hint(format!("write 'flow+{word}', or leave it out")))
    }
}

/// Keeps the value of an option. Refuses the value if the option already has another value.
fn once<T: Copy + PartialEq>(
    kept: &mut Option<T>,
    value: T,
    slug: &'static str,
    message: impl Fn(T) -> String,
) -> Result<(), Fault> {
    match kept.replace(value) {
        Some(before) if before != value => {
            Err(Fault::new(slug, message(before)).hint("keep one of them"))
        }
        _ => Ok(()),
    }
}

/// The options of a group, as they appear in titles of steering programs.
pub(crate) fn group_text(options: GroupOptions) -> String {
    let sticky = match options.flows {
        None => String::new(),
        Some(FLOWS) => "+sticky".to_owned(),
        Some(flows) => format!("+sticky={flows}"),
    };
    sticky
        + match options.balance {
            None => "",
            Some(Balance::Idle) => "+balance",
            Some(Balance::All) => "+balance=all",
        }
}

/// The byte of `path` at which the options of `file:PATH` begin. In a path, text after a `+` is an
/// option if it has an option's name.
pub(crate) fn begin(path: &str) -> usize {
    let mut end = path.len();
    while let Some(at) = path[..end].rfind('+') {
        let name = path[at + 1..end].split('=').next().unwrap_or_default();
        let name = name.trim().to_ascii_lowercase();
        if !NAMES.contains(&name.as_str()) {
            break;
        }
        end = at;
    }
    end
}

/// The number after the `=` of an option.
fn number(word: &str, value: Option<&str>, min: u32, max: u32) -> Result<u32, Fault> {
    let number = value.and_then(|value| value.parse().ok());
    number
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| {
            let (quoted, name) = (quote(&format!("+{word}")), word.split('=').next());
            let name = name.unwrap_or_default().trim_end().to_ascii_lowercase();
            let message = format!("{quoted} takes a number from {min} to {max}");
            Fault::new("option-number", message).hint(format!("write '+{name}={}'", 2 * min))
        })
}

/// The fault of a class in a group of packet sockets: such groups have no classes.
pub(crate) fn class_needs_engine(class: u8) -> Fault {
    let engines = Driver::of_devices();
    let message = format!(
        "'+class={class}' is for groups on the engine {engines}: the kernel gives a packet to one member of all"
    );
    Fault::new("option-needs-xdp", message)
        .hint(format!("add 'driver@DEVICE = {engines}', or leave it out"))
}

/// The fault of a class in a group whose steering program gives no packets to classes.
pub(crate) fn not_classified(class: u8) -> Fault {
    let message =
        format!("members of '+class={class}' would get no packet: the program has no 'classify'");
    Fault::new("class-without-classify", message).hint(format!(
        "write 'classify {class}' in it, or leave '+class={class}' out"
    ))
}

/// The fault of a word after `+` that is not an option of this version.
fn refuse_option(written: &str, name: &str) -> Fault {
    if written.is_empty() {
        return Fault::new("option-empty", "no option after '+'").hint(OPTIONS);
    }
    let quoted = quote(&format!("+{written}"));
    if WITHOUT_VALUE.contains(&name) {
        let message = format!("option {quoted} takes no value");
        return Fault::new("option-with-value", message).hint(format!("write '+{name}'"));
    }
    let near = nearest(name, NAMES).map(|near| {
        let value = written.find('=').filter(|_| !WITHOUT_VALUE.contains(&near));
        format!("+{near}{}", value.map_or("", |at| &written[at..]))
    });
    Fault::new("option-unknown", format!("unknown option {quoted}")).nearest(near, OPTIONS)
}

/// The largest weight of a member.
pub const WEIGHT_MAX: u16 = 1000;
/// The largest class, in `+class=N` and in `classify N`.
const CLASS_MAX: u8 = 63;
/// The number of flows that a sticky group remembers by default, and the limits of this number. In
/// a map smaller than the lower limit, the per-CPU lists of free entries may hold most of the
/// entries (kernel/bpf/bpf_lru_list.h).
const FLOWS: u32 = 65_536;
const FLOWS_MIN: u32 = 1024;
const FLOWS_MAX: u32 = 1 << 24;
const WITHOUT_VALUE: [&str; 2] = ["defrag", "rollover"];
const NAMES: [&str; 6] = ["defrag", "rollover", "weight", "class", "sticky", "balance"];
const OPTIONS: &str = "the options are +defrag, +rollover (kernel modes), +sticky, +balance, +weight=N (steered groups), +class=N (on xdp)";
