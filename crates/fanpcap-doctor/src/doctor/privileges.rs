//! Checks whether the calling user has the capabilities that captures need.

use std::fs;
use std::path::Path;

use fanpcap_linux::packet::apart;
use fanpcap_linux::process;

use super::finding::{Effect, Finding, MACHINE};

/// Facts of the calling process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Privileges {
    /// The effective capabilities, one bit each (capabilities(7)); `None` if unknown.
    pub(super) effective: Option<u64>,
    /// The effective user.
    pub(super) user: u32,
    /// Whether a handle of a poller gets its packet socket: by CAP_NET_RAW, or in namespaces of its
    /// own.
    pub(super) has_namespaces: bool,
}

/// The privileges that handles need in addition to those of packet sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    /// The settings ask for the XDP engine.
    pub(super) xdp: bool,
    /// The settings, or the device's name, ask for an engine whose packets come from a library of
    /// others.
    pub(super) library: bool,
    /// All handles get their packets from pollers: they need no privilege where a process may make
    /// namespaces.
    pub(super) nothing: bool,
}

/// socket(2).
const SOCK_RAW: i32 = 3;
const CAP_NET_ADMIN: u32 = 12;
const CAP_NET_RAW: u32 = 13;
const CAP_BPF: u32 = 39;
/// Includes `CAP_BPF`, a separate capability since Linux 5.8.
const CAP_SYS_ADMIN: u32 = 21;

impl Privileges {
    /// The privileges of this process.
    pub(super) fn read(root: &Path) -> Self {
        let status = fs::read(root.join("proc/self/status")).unwrap_or_default();
        let status = String::from_utf8_lossy(&status).into_owned();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let known = Self {
            effective: line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()),
            user: process::effective_user(),
            has_namespaces: false,
        };
        let has_namespaces = known.has(CAP_NET_RAW) || apart::open(SOCK_RAW).is_ok();
        Self {
            has_namespaces,
            ..known
        }
    }

    fn has(self, capability: u32) -> bool {
        let bit = |it: u32| self.effective.is_none_or(|all| all & (1 << it) != 0);
        bit(capability) || (capability == CAP_BPF && bit(CAP_SYS_ADMIN))
    }

    /// The finding that a capability is missing.
    pub(super) fn findings(self, needs: Needs) -> Option<Finding> {
        if needs.nothing && self.has_namespaces {
            return None;
        }
        if !self.has(CAP_NET_RAW) {
            let told = [
                "this user may not capture: CAP_NET_RAW is missing",
                "captures that the user starts get an error",
            ];
            return Some(self.finding("no-cap-net-raw", Effect::Refuses, told));
        }
        if needs.library && !self.has(CAP_NET_ADMIN) {
            let told = [
                "this user may not open the device on this engine: CAP_NET_ADMIN is missing",
                "captures that the user starts get an error",
            ];
            return Some(self.finding("no-cap-net-admin", Effect::Refuses, told));
        }
        if !self.has(CAP_BPF) {
            let told = [
                "this user may not load BPF programs: CAP_BPF is missing",
                "a group whose first member lacks it gets the kernel's mode hash instead of flow: flows change \
                 their member when a member joins or leaves, tunnels and IPv6 fragments are split; steering \
                 programs are refused",
            ];
            return Some(self.finding("no-cap-bpf", Effect::Distorts, told));
        }
        if needs.xdp && !self.has(CAP_NET_ADMIN) {
            let told = [
                "this user may not attach an XDP program: CAP_NET_ADMIN is missing",
                "captures read packet sockets instead of the XDP engine, which the settings ask for",
            ];
            return Some(self.finding("no-cap-net-admin", Effect::Costs, told));
        }
        None
    }

    fn finding(self, name: &'static str, effect: Effect, told: [&str; 2]) -> Finding {
        let capabilities = "+net_raw,+bpf,+net_admin";
        let user = self.user;
        let told = [
            told[0].to_owned(),
            told[1].to_owned(),
            match user {
                0 => "docker run --cap-add NET_RAW --cap-add BPF --cap-add NET_ADMIN ...    # or the command that started this container"
                    .to_owned(),
                _ => format!(
                    "sudo -E setpriv --reuid={user} --regid=$(id -g) --init-groups --inh-caps={capabilities} \
                     --ambient-caps={capabilities} \"$SHELL\"    # a shell that has the privileges"
                ),
            },
        ];
        Finding::new(name, effect, MACHINE, told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(effective: u64, needs: Needs) -> Option<(&'static str, Effect)> {
        let privileges = Privileges {
            effective: Some(effective),
            user: 1000,
            has_namespaces: true,
        };
        let found = privileges.findings(needs);
        found.map(|it| (it.name, it.effect))
    }

    fn name(effective: u64, xdp: bool) -> Option<&'static str> {
        let needs = Needs {
            xdp,
            ..Needs::default()
        };
        found(effective, needs).map(|it| it.0)
    }

    #[test]
    fn a_library_of_others_needs_more_and_a_pollers_member_nothing() {
        let bit = |it: u32| 1_u64 << it;
        let library = Needs {
            library: true,
            ..Needs::default()
        };
        let without = bit(CAP_NET_RAW) | bit(CAP_BPF);
        let expected = Some(("no-cap-net-admin", Effect::Refuses));
        assert_eq!(found(without, library), expected);
        assert_eq!(found(without | bit(CAP_NET_ADMIN), library), None);
        let nothing = Needs {
            nothing: true,
            ..library
        };
        assert_eq!(found(0, nothing), None);
        let without_namespaces = Privileges {
            effective: Some(0),
            ..Privileges::default()
        };
        let found = without_namespaces.findings(nothing);
        assert_eq!(found.map(|it| it.name), Some("no-cap-net-raw"));
    }

    #[test]
    fn the_capability_that_is_missing_is_named_with_what_it_takes_away() {
        let bit = |it: u32| 1_u64 << it;
        assert_eq!(name(0, false), Some("no-cap-net-raw"));
        assert_eq!(name(bit(CAP_NET_RAW), false), Some("no-cap-bpf"));
        assert_eq!(name(bit(CAP_NET_RAW) | bit(CAP_SYS_ADMIN), false), None);
        let both = bit(CAP_NET_RAW) | bit(CAP_BPF);
        assert_eq!(
            (name(both, false), name(both, true)),
            (None, Some("no-cap-net-admin"))
        );
        assert_eq!(name(both | bit(CAP_NET_ADMIN), true), None);
        let unknown = Privileges::default();
        let xdp = Needs {
            xdp: true,
            ..Needs::default()
        };
        assert_eq!(unknown.findings(xdp), None);
    }

    #[test]
    fn those_of_this_process_are_read() {
        assert!(Privileges::read(Path::new("/")).effective.is_some());
        let nowhere = Privileges::read(Path::new("/nowhere"));
        assert_eq!(nowhere.effective, None);
    }
}
