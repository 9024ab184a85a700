//! Finds how a group differs from the group that a newcomer asked for.

use super::error::JoinError;
use crate::engine_error::EngineError;
use crate::page::GroupDir;
use crate::roster::Roster;
use fanpcap_config::device::ANY;
use fanpcap_config::driver::Driver;
use fanpcap_config::mode::{Mode, ModeKind, described};
use fanpcap_config::report::harmless_text;
use fanpcap_config::settings::GroupChoice;
use fanpcap_linux::interface;
use fanpcap_linux::packet::{Address, ETH_P_SILENT};

/// The assumption about a mode's options if no page shows them. Packet diag does not report
/// options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// The options are those that were asked for.
    ForIt,
    /// The options differ, because the kernel has refused the join.
    AgainstIt,
}

/// Finds a difference between the group, as packet diag and the pages describe it, and `asked`.
pub(super) fn conflict(
    group: u16,
    asked: &GroupChoice,
    own: Address,
    doubt: Doubt,
) -> Option<JoinError> {
    let roster = Roster::look().ok()?;
    let other = roster.members(group).next()?;
    let has = other.fanout?;
    if other.has_lost_device() {
        let member = member_elsewhere(group, own.ifindex);
        return Some(JoinError::GoneDevice { group, member });
    }
    if other.ifindex != own.ifindex {
        let (has, wants) = (device(other.ifindex), device(own.ifindex));
        return Some(JoinError::OtherDevice { group, has, wants });
    }
    if (other.protocol == ETH_P_SILENT) != (own.protocol == ETH_P_SILENT) {
        // Packet diag does not show which engine fills the rings, so the error names the engine
        // that can take devices.
        let engine = Driver::of_devices();
        let [has, wants] = [other.protocol, own.protocol]
            .map(|protocol| (protocol == ETH_P_SILENT).then_some(engine.as_str()));
        return Some(EngineError::other(group, has, wants).into());
    }
    if other.protocol != own.protocol {
        let (has, wants) = (other.protocol, own.protocol);
        return Some(JoinError::OtherProtocol { group, has, wants });
    }
    // Use only pages of members: any other page belongs to a newcomer, perhaps to this one.
    let mut members = roster.members_with_pages(group).into_iter();
    let runs = match members.find_map(|member| member.page) {
        Some(record) if record.mode == asked.mode => return None,
        Some(record) => described(record.mode, record.title()),
        None if has.mode != asked.mode.kind.kernel_type() => kernel_mode(has.mode),
        None if doubt == Doubt::ForIt => return None,
        None => format!("{} with other options", kernel_mode(has.mode)),
    };
    let asked = asked.shown_mode();
    Some(JoinError::OtherMode { group, asked, runs })
}

/// Name and process id of a member that has the group on another device than `ifindex`.
fn member_elsewhere(group: u16, ifindex: u32) -> Option<(String, u32)> {
    let others = GroupDir::on_other_devices(group, ifindex).into_iter();
    let member = others.flat_map(|it| it.records()).next()?;
    Some((harmless_text(&member.program), member.pid))
}

/// The name of a mode's number in packet diag, without options.
fn kernel_mode(number: u8) -> String {
    match Mode::from_kernel(number, 0) {
        Some(mode) if mode.kind == ModeKind::Program => "a steering program".to_owned(),
        Some(mode) => mode.to_string(),
        None => format!("a mode of another library (number {number})"),
    }
}

pub(super) fn device(ifindex: u32) -> String {
    match ifindex {
        0 => ANY.to_owned(),
        index => interface::name(index)
            .map_or_else(|| format!("interface {index}"), |name| harmless_text(&name)),
    }
}
