//! The device string of pcap_create(): engine prefix, several devices, virtual devices.

use crate::driver::Driver;
use fanpcap_steer::nearest::nearest;

/// One of the devices that a device string names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The device's name in settings: `eth0:1`.
    pub name: String,
    /// The network interface: `eth0`.
    pub base: String,
}

impl Part {
    fn new(name: &str, exists: &impl Fn(&str) -> bool) -> Part {
        let base = match name.rsplit_once(':') {
            Some((base, number)) if is_virtual(base, number, exists) => base,
            _ => name,
        };
        Part {
            name: name.to_owned(),
            base: base.to_owned(),
        }
    }
}

/// A parsed device string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    text: String,
    engine: Option<Driver>,
    parts: Vec<Part>,
    /// Whether the device is one of several in the string.
    is_part: bool,
    /// Whether packet sockets replace the engine.
    is_fallback: bool,
}

impl Device {
    /// Parses a device string. `exists` returns whether an interface with that name exists.
    pub fn classify(text: &str, exists: impl Fn(&str) -> bool) -> Device {
        if exists(text) {
            let part = Part {
                name: text.to_owned(),
                base: text.to_owned(),
            };
            return Device::new(text, None, vec![part]);
        }
        let (engine, names) = match text.split_once(':') {
            None if Driver::named(text).is_some_and(Driver::names_group) => {
                (Driver::named(text), "")
            }
            Some((prefix, names)) => match Driver::named(prefix) {
                Some(engine) => (Some(engine), names),
                None => (None, text),
            },
            None => (None, text),
        };
        let parts = names
            .split('^')
            .map(|name| Part::new(name, &exists))
            .collect();
        Device::new(text, engine, parts)
    }

    /// The device string that `text` may mean, if an engine's name before its `:` is misspelt.
    pub fn meant(text: &str) -> Option<String> {
        let (prefix, names) = text.split_once(':')?;
        let near = nearest(prefix, Driver::all().map(Driver::name))?;
        (near != prefix).then(|| format!("{near}:{names}"))
    }

    fn new(text: &str, engine: Option<Driver>, parts: Vec<Part>) -> Device {
        Device {
            text: text.to_owned(),
            engine,
            parts,
            is_part: false,
            is_fallback: false,
        }
    }

    /// The device string of one device of a string that names several devices.
    #[must_use]
    pub fn of_part(&self, part: &Part) -> Device {
        Device {
            is_part: true,
            ..Device::new(&part.name, self.engine, vec![part.clone()])
        }
    }

    /// The same device, but read by packet sockets instead of the engine.
    #[must_use]
    pub fn falling_back(self) -> Device {
        Device {
            is_fallback: true,
            ..self
        }
    }

    /// Whether this device is one of several that the string names and that are read together.
    pub fn is_part(&self) -> bool {
        self.is_part
    }

    /// Whether packet sockets replace the engine.
    pub fn is_fallback(&self) -> bool {
        self.is_fallback
    }

    /// Whether the string names an engine but no device, which is allowed for `pfq`. Such a handle
    /// captures on its group's device.
    pub fn names_none(&self) -> bool {
        let is_unnamed = |part: &Part| part.name.is_empty();
        self.engine.is_some_and(Driver::names_group)
            && self.parts.len() == 1
            && self.parts.iter().all(is_unnamed)
    }

    /// Adds the device to a string that names no device.
    #[must_use]
    pub fn on(self, interface: &str) -> Device {
        let (name, base) = (interface.to_owned(), interface.to_owned());
        let parts = vec![Part { name, base }];
        Device { parts, ..self }
    }

    /// The same devices by the names that `primary` returns for their interfaces; interfaces for
    /// which it returns `None` keep their names.
    #[must_use]
    pub fn renamed(mut self, primary: impl Fn(&str) -> Option<String>) -> Device {
        for part in &mut self.parts {
            let Some(base) = primary(&part.base).filter(|base| *base != part.base) else {
                continue;
            };
            let number = part.name.strip_prefix(&part.base).unwrap_or_default();
            part.name = format!("{base}{number}");
            part.base = base;
        }
        self
    }

    /// The string as the application wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The engine that the prefix asks for.
    pub fn engine(&self) -> Option<Driver> {
        self.engine
    }

    /// The named devices. A string names several devices with `^` between them.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The name that the system's library gets: the interface of a virtual device. Prefixes of that
    /// library (`rpcap:eth0`) still work. Several devices have the unchanged string.
    pub fn system_name(&self) -> &str {
        match self.parts.as_slice() {
            // A handle without a device is never activated.
            _ if self.names_none() => ANY,
            [part] => &part.base,
            _ => &self.text,
        }
    }
}

fn is_virtual(base: &str, number: &str, exists: &impl Fn(&str) -> bool) -> bool {
    !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
        && !SYSTEM_DEVICES.contains(&base)
        && (base == ANY || exists(base))
}

/// libpcap's name for all devices.
pub const ANY: &str = "any";

/// Devices of the system's library in which `:NUMBER` does not mean a virtual device.
const SYSTEM_DEVICES: [&str; 2] = ["nflog", "nfqueue"];

#[cfg(test)]
mod tests {
    use super::*;

    fn classify(text: &str) -> Device {
        Device::classify(text, |name| {
            ["eth0", "eth1", "nflog", "a^b", "eth0.5"].contains(&name)
        })
    }

    #[test]
    fn ordinary_devices_stay_as_they_are() {
        for text in [
            "eth0",
            "any",
            "nflog:5",
            "nfqueue:3",
            "usbmon1",
            "gone:1",
            "a^b",
            "",
            "eth0.5",
        ] {
            let device = classify(text);
            assert_eq!((device.text(), device.system_name()), (text, text));
            assert_eq!((device.engine(), device.parts().len()), (None, 1), "{text}");
        }
    }

    #[test]
    fn a_virtual_device_is_its_interface_to_the_system_library() {
        for (text, base) in [
            ("eth0:1", "eth0"),
            ("any:1", "any"),
            ("eth0.5:23", "eth0.5"),
        ] {
            let device = classify(text);
            assert_eq!((device.text(), device.system_name()), (text, base));
        }
        for text in ["eth0:", "eth0:x", "eth0:1x", "eth9:1"] {
            assert_eq!(classify(text).system_name(), text);
        }
    }

    #[test]
    fn interfaces_behind_a_prefix_get_their_primary_names() {
        let primary = |name: &str| (name == "eth1").then(|| "lan0".to_owned());
        for (text, names) in [
            ("packet:eth1", vec![("lan0", "lan0")]),
            (
                "packet:eth1:3^eth0",
                vec![("lan0:3", "lan0"), ("eth0", "eth0")],
            ),
        ] {
            let device = classify(text).renamed(primary);
            let parts = device.parts().iter();
            let found: Vec<_> = parts
                .map(|it| (it.name.as_str(), it.base.as_str()))
                .collect();
            assert_eq!(found, names);
            assert_eq!(device.text(), text);
        }
    }

    #[test]
    fn a_misspelt_engine_has_its_name() {
        assert_eq!(
            Device::meant("xpd:eth0^eth1").as_deref(),
            Some("xdp:eth0^eth1")
        );
        for text in ["xdp:gone", "eth9:1", "nflog:5", "gone"] {
            assert_eq!(Device::meant(text), None, "{text}");
        }
    }

    #[test]
    fn prefixes_and_several_devices() {
        let device = classify("pfq:eth0:1^eth1");
        let parts: Vec<_> = device
            .parts()
            .iter()
            .map(|part| (&*part.name, &*part.base))
            .collect();
        assert_eq!(device.engine(), Driver::named("pfq"));
        assert_eq!(parts, [("eth0:1", "eth0"), ("eth1", "eth1")]);
        assert_eq!(device.system_name(), "pfq:eth0:1^eth1");
        assert_eq!(classify("pfq:eth0:1").system_name(), "eth0");
        assert_eq!(classify("xdp:eth0:1").system_name(), "eth0");
        assert_eq!(classify("eth0^eth1").parts().len(), 2);
        assert_eq!(classify("zc:0").system_name(), "0");
        assert_eq!(classify("rpcap:eth0").engine(), None);
        assert_eq!(classify("rpcap:eth0").system_name(), "rpcap:eth0");
    }

    #[test]
    fn pfq_alone_is_the_device_of_its_group() {
        for text in ["pfq:", "pfq"] {
            let device = classify(text);
            assert!(device.names_none(), "{text}");
            let device = device.on("eth1");
            assert_eq!((device.names_none(), device.system_name()), (false, "eth1"));
            assert_eq!(
                (device.text(), device.engine()),
                (text, Driver::named("pfq"))
            );
        }
        for text in ["pfq:eth0", "pfq:^", "tpacket:", ""] {
            assert!(!classify(text).names_none(), "{text}");
        }
    }
}
