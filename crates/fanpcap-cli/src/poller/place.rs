//! A device of the poller, with the engine that takes its packets, such as `packet:eth0`.

use fanpcap_dpdk::DeviceName;
use fanpcap_linux::interface;
use fanpcap_poller::kind::SourceKind;
use std::fmt;

/// The name of such a value in the help.
pub(crate) const PLACE: &str = "ENGINE:DEV";

/// An engine and a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) kind: SourceKind,
    /// The name by which members open the device.
    pub(super) device: String,
    /// What DPDK opens, if it is a device of DPDK.
    pub(super) of_dpdk: Option<DeviceName>,
}

impl Place {
    /// Reads an engine's name, a colon and a device's name.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let Some((engine, device)) = text.split_once(':').filter(|it| !it.1.is_empty()) else {
            let device = text.trim_end_matches(':');
            let on_device = |kind: SourceKind| format!("{}:{device}", kind.name());
            let engines = SourceKind::ALL.into_iter();
            let engines = engines.filter(|it| it.has_interface());
            return Err(format!(
                "write the engine and the device: {}",
                either(engines.map(on_device))
            ));
        };
        let unknown = || {
            let known = either(SourceKind::ALL.iter().map(|it| it.name().to_owned()));
            format!("no engine of the poller has the name '{engine}': write {known}")
        };
        let kind = SourceKind::named(engine).ok_or_else(unknown)?;
        if kind.has_interface() {
            return Ok(Self {
                kind,
                device: device.to_owned(),
                of_dpdk: None,
            });
        }
        let name = DeviceName::parse(device);
        let name = name.map_err(|error| format!("DPDK has no device '{device}': {error}"))?;
        Ok(Self {
            kind,
            device: name.name().to_owned(),
            of_dpdk: Some(name),
        })
    }

    /// Whether members know both by the same name.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.kind == other.kind && self.device == other.device
    }
}

/// All engines, each with each device, for the completions of shells.
pub(crate) fn places() -> Vec<String> {
    let devices = interface::names();
    let of_kind = |kind: SourceKind| {
        let place = move |device: &String| format!("{}:{device}", kind.name());
        devices.iter().map(place).collect::<Vec<_>>()
    };
    let kinds = SourceKind::ALL.into_iter().filter(|it| it.has_interface());
    kinds.flat_map(of_kind).collect()
}

/// Words in a text: one or the other.
fn either(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(" or ")
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.name(), self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_an_engine_and_a_device() {
        for text in ["packet:eth0", "afxdp:veth:1"] {
            assert_eq!(Place::parse(text).unwrap().to_string(), text);
        }
        for (wrong, expected) in [
            ("eth0", "packet:eth0 or afxdp:eth0"),
            ("packet:", "write the engine and the device"),
            (
                "xdp:eth0",
                "'xdp': write packet or afxdp or netmap or zc or dpdk",
            ),
            ("dpdk:eth0", "no device 'eth0': write a PCI address"),
            (":eth0", "'': write packet"),
        ] {
            let error = Place::parse(wrong).unwrap_err();
            assert!(error.contains(expected), "{wrong}: {error}");
        }
    }
}
