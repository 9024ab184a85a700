//! The mode of a member as text. For a member that asks for no mode, the text contains the mode
//! that the member gets, and the reason. The library follows the same rules when the member joins.

use std::fmt::Display;

use fanpcap_config::device::ANY;
use fanpcap_config::fanout::Script;
use fanpcap_config::settings::GroupChoice;
use fanpcap_config::steering::{PcapCompiler, Steering};
use fanpcap_group::join::{self, JoinError, ProgramError, Runs};
use fanpcap_linux::interface;

/// The mode of a member, or the title of its steering program. `default` is the mode if the
/// settings give none.
pub fn mode_text(joined: &GroupChoice, default: Option<&DefaultMode>) -> String {
    if let Some(default) = default {
        return default.text.clone();
    }
    let mode = joined.mode.to_string();
    let Some(steering) = &joined.steering else {
        return mode;
    };
    let options = mode.find('+').map_or("", |at| &mode[at..]);
    let weight = joined.weight.map(|weight| format!("+weight={weight}"));
    let weight = weight.unwrap_or_default();
    let class = match joined.class {
        0 => String::new(),
        class => format!("+class={class}"),
    };
    format!("{}{options}{weight}{class}", steering.title())
}

/// The mode of a member whose settings name no mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultMode {
    /// The mode, or the title of the steering program.
    pub text: String,
    /// Why the member gets this mode.
    pub why: String,
    /// Whether the mode is a steering program.
    pub is_program: bool,
}

impl DefaultMode {
    /// The default mode of a new member on a device. An unknown device counts as one with Ethernet
    /// frames.
    pub fn of(device: Option<&str>, group: Option<u16>, pcap: PcapCompiler<'_>) -> Self {
        let ifindex = match device {
            Some(ANY) => Some(0),
            device => device.and_then(interface::index),
        };
        let runs = ifindex
            .zip(group)
            .map(|(ifindex, group)| join::runs(ifindex, group));
        match runs {
            Some(Runs::Kernel(mode)) => Self::own(&mode, false),
            Some(Runs::Program(mode, Some(running))) => {
                let options = if mode.defrag { "+defrag" } else { "" };
                Self::own(&format!("{}{options}", running.title), true)
            }
            Some(Runs::Program(_, None)) => Self::own(&"flow", true),
            Some(Runs::Nothing) | None => Self::first(ifindex, pcap),
        }
    }

    /// The default mode of a new member whose packets come from a poller. Only the poller knows
    /// whether the group exists.
    pub fn of_poller() -> Self {
        Self {
            text: "flow".to_owned(),
            why: "the default, unless the group has another mode".to_owned(),
            is_program: true,
        }
    }

    fn own(mode: &dyn Display, is_program: bool) -> Self {
        Self {
            text: mode.to_string(),
            why: "the group's own".to_owned(),
            is_program,
        }
    }

    fn first(ifindex: Option<u32>, pcap: PcapCompiler<'_>) -> Self {
        let tried = try_flow(ifindex, pcap);
        let is_program = tried.is_ok();
        let text = if is_program { "flow" } else { "hash" };
        let why = tried.map_or_else(|error| reason(&error), |()| "the default".to_owned());
        Self {
            text: text.to_owned(),
            why,
            is_program,
        }
    }
}

fn try_flow(ifindex: Option<u32>, pcap: PcapCompiler<'_>) -> Result<(), JoinError> {
    let flow = Steering::compile(&Script::default_mode(), pcap);
    flow.map_or(Ok(()), |flow| join::try_to_load(ifindex, &flow))
}

/// Why `flow` can't be loaded, in few words.
fn reason(error: &JoinError) -> String {
    let JoinError::Program(error) = error else {
        return format!("flow: {error}");
    };
    if let ProgramError::NotEthernet { device } = error {
        return format!("flow reads only Ethernet frames, and {device} has other frames");
    }
    if let ProgramError::Steer { error, .. } = error {
        return format!("flow: {error}");
    }
    if matches!(error, ProgramError::AllDevices) {
        return "flow reads only Ethernet frames, and any has other frames too".to_owned();
    }
    "flow needs CAP_BPF".to_owned()
}
