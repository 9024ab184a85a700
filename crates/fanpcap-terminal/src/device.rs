//! The device on a command line: `DEV`, or `-i DEV` as other capture programs have it.

use clap::{Args, ValueHint};

/// The device of a command line, in one of these two forms. A command that needs a device makes
/// the argument `device` required; `-i` then satisfies it.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceArgument {
    /// The device
    #[arg(value_name = "DEV", value_hint = ValueHint::Other, conflicts_with = "interface")]
    device: Option<String>,
    /// The device, written as for tcpdump
    #[arg(short = 'i', long, alias = "device", value_name = "DEV", value_hint = ValueHint::Other)]
    interface: Option<String>,
}

impl DeviceArgument {
    /// The device; `None` if the command line names none.
    pub fn name(&self) -> Option<&str> {
        self.device.as_deref().or(self.interface.as_deref())
    }

    /// The device of a command that can't do without.
    ///
    /// # Panics
    /// The command line names no device, although the command requires the argument.
    pub fn required(&self) -> &str {
        self.name().expect("clap refuses a line without the device")
    }
}

impl From<&str> for DeviceArgument {
    fn from(name: &str) -> Self {
        Self {
            device: Some(name.to_owned()),
            interface: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    #[command(mut_arg("device", |it| it.required(true)))]
    struct Line {
        #[command(flatten)]
        device: DeviceArgument,
    }

    #[test]
    fn both_forms_name_the_device_once() {
        let read = |line: &str| {
            let line = Line::try_parse_from(line.split(' '));
            line.map(|it| it.device.required().to_owned())
        };
        for line in [
            "x eth0",
            "x -i eth0",
            "x --interface eth0",
            "x --device=eth0",
        ] {
            assert_eq!(read(line).unwrap(), "eth0", "{line}");
        }
        for line in ["x", "x eth0 eth1", "x eth0 -i eth1"] {
            assert!(read(line).is_err(), "{line}");
        }
    }
}
