//! A device of the poller, with the engine that takes its packets, such as `packet:eth0`.

use fanpcap_linux::interface;
use fanpcap_poller::kind::SourceKind;
use std::fmt;

/// The name of such a value in the help.
pub(crate) const PLACE: &str = "ENGINE:DEV";

/// An engine and a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) kind: SourceKind,
    pub(super) device: String,
}

impl Place {
    /// Reads an engine's name, a colon and a device's name.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let Some((engine, device)) = text.split_once(':').filter(|it| !it.1.is_empty()) else {
            let device = text.trim_end_matches(':');
            return Err(format!(
                "write the engine and the device: {}",
                either(|name| format!("{name}:{device}"))
            ));
        };
        let kind = SourceKind::named(engine);
        let unknown = || {
            let known = either(str::to_owned);
            format!("no engine of the poller has the name '{engine}': write {known}")
        };
        Ok(Self {
            kind: kind.ok_or_else(unknown)?,
            device: device.to_owned(),
        })
    }
}

/// All engines, each with each device, for the completions of shells.
pub(crate) fn places() -> Vec<String> {
    let devices = interface::names();
    let of_kind = |kind: SourceKind| {
        let place = move |device: &String| format!("{}:{device}", kind.name());
        devices.iter().map(place).collect::<Vec<_>>()
    };
    SourceKind::ALL.into_iter().flat_map(of_kind).collect()
}

/// The engines in words: one or the other.
fn either(word: impl Fn(&str) -> String) -> String {
    let words = SourceKind::ALL.map(|kind| word(kind.name()));
    words.join(" or ")
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
            ("dpdk:eth0", "'dpdk': write packet or afxdp"),
            (":eth0", "'': write packet"),
        ] {
            let error = Place::parse(wrong).unwrap_err();
            assert!(error.contains(expected), "{wrong}: {error}");
        }
    }
}
