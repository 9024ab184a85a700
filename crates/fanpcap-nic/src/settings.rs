//! All settings of a device, as `fanpcap tune` reads and writes them.

use crate::channels;
use crate::device::Device;
use crate::error::DeviceError;
use crate::interrupts;
use crate::irqbalance::{self, DIRECTORY};
use crate::journal;
use crate::knob::{self, Knob, Knobs, Placement, Setting};
use fanpcap_linux::ethtool::{Pause, Rings, Transform};
use fanpcap_linux::process::cpu;
use std::io;
use std::path::Path;

/// All settings of a device.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a>(pub &'a Device);

impl Knobs for Settings<'_> {
    fn read(&self, knob: &Knob) -> Result<String, DeviceError> {
        let Knob::Setting(setting) = knob else {
            return Placement(self.0).read(knob);
        };
        self.get(setting)
    }

    fn write(&self, knob: &Knob, value: &str) -> Result<(), DeviceError> {
        let Knob::Setting(setting) = knob else {
            return Placement(self.0).write(knob, value);
        };
        self.set(setting, value)
    }

    fn complete(&self, knob: &Knob, wanted: &str) -> Result<String, DeviceError> {
        let Knob::Setting(setting) = knob else {
            return Placement(self.0).complete(knob, wanted);
        };
        let ethtool = &self.0.ethtool;
        Ok(match setting {
            Setting::Rings => rings_text(rings(ethtool.rings().map_err(refused)?, wanted)?),
            Setting::Pause => pause_text(pause(ethtool.pause().map_err(refused)?, wanted)?),
            Setting::Rps(_) | Setting::Xps(_) => cpu::list_text(&some_cpus(wanted)?),
            Setting::Table => match wanted.strip_prefix(EQUAL) {
                None => table_text(&table(wanted)?),
                Some(queues) => {
                    let entries = ethtool.rss().map_err(refused)?.table.len();
                    let queues = queues.parse().map_err(|_| knob::wrong(wanted))?;
                    table_text(&equal(entries, queues))
                }
            },
            Setting::Key if wanted == SYMMETRIC => {
                let len = ethtool.rss().map_err(refused)?.key.len();
                hex(&symmetric_key(len))
            }
            Setting::Irqbalance if wanted == ALL => table_text(&self.interrupts()?),
            Setting::Feature(_)
            | Setting::Key
            | Setting::Transform
            | Setting::FlowHash(_)
            | Setting::Irqbalance => wanted.to_owned(),
        })
    }

    fn dropped_with(&self, knob: &Knob) -> Vec<Knob> {
        let mut all = Placement(self.0).dropped_with(knob);
        if *knob == Knob::Channels {
            all.push(Setting::Table.into());
            all.extend(self.of_queues());
        }
        all
    }
}

impl Settings<'_> {
    fn get(&self, setting: &Setting) -> Result<String, DeviceError> {
        let ethtool = &self.0.ethtool;
        let rss = || ethtool.rss().map_err(refused);
        match setting {
            Setting::Feature(name) => {
                let features = ethtool.features().map_err(refused)?;
                let found = features.iter().find(|it| it.name == *name);
                let found = found.ok_or(DeviceError::Absent)?;
                Ok(knob::on_or_off(found.is_on).to_owned())
            }
            Setting::Rings => Ok(rings_text(ethtool.rings().map_err(refused)?)),
            Setting::Pause => Ok(pause_text(ethtool.pause().map_err(refused)?)),
            Setting::Table => present(table_text(&rss()?.table)),
            Setting::Key => present(hex(&rss()?.key)),
            Setting::Transform => Ok(transform_text(rss()?.transform)),
            Setting::FlowHash(flow) => {
                let fields = ethtool.flow_hash(*flow as u32).map_err(refused)?;
                Ok(fields_text(fields))
            }
            Setting::Irqbalance => self.left_alone(),
            Setting::Rps(queue) => self.mask(&rps_file(*queue)),
            Setting::Xps(queue) => self.mask(&xps_file(*queue)),
        }
    }

    fn set(&self, setting: &Setting, value: &str) -> Result<(), DeviceError> {
        let ethtool = &self.0.ethtool;
        let wrong = || knob::wrong(value);
        let done = match setting {
            Setting::Feature(name) => ethtool.set_feature(name, knob::is_on(value)?),
            Setting::Rings => ethtool.set_rings(rings(ethtool.rings().map_err(refused)?, value)?),
            Setting::Pause => ethtool.set_pause(pause(ethtool.pause().map_err(refused)?, value)?),
            Setting::Table => self.set_table(&table(value)?),
            Setting::Key => ethtool.set_rss_key(&bytes(value).ok_or_else(wrong)?),
            Setting::Transform => ethtool.set_rss_transform(transform(value).ok_or_else(wrong)?),
            Setting::FlowHash(flow) => {
                let fields = fields(value).ok_or_else(wrong)?;
                ethtool.set_flow_hash(*flow as u32, fields)
            }
            Setting::Irqbalance => return self.leave_alone(value),
            Setting::Rps(queue) => return self.set_mask(&rps_file(*queue), value),
            Setting::Xps(queue) => return self.set_mask(&xps_file(*queue), value),
        };
        done.map_err(refused)
    }

    /// The numbers of the device's interrupts.
    fn interrupts(&self) -> Result<Vec<u32>, DeviceError> {
        let found = interrupts::of_device(self.0)?;
        Ok(found.iter().map(|it| it.number).collect())
    }

    fn left_alone(&self) -> Result<String, DeviceError> {
        let own = self.interrupts()?;
        let all = irqbalance::left_alone(Path::new(DIRECTORY)).map_err(absent)?;
        own_of(own, all).map(|own| table_text(&own))
    }

    /// Sets which of the device's interrupts irqbalance leaves alone. Keeps the interrupts of other
    /// devices in irqbalance's list.
    fn leave_alone(&self, wanted: &str) -> Result<(), DeviceError> {
        let own = self.interrupts()?;
        let wanted = match wanted {
            "" => Vec::new(),
            _ => table(wanted)?,
        };
        let directory = Path::new(DIRECTORY);
        let change = || {
            let mut all = irqbalance::left_alone(directory)?;
            all.retain(|number| !own.contains(number));
            all.extend(wanted);
            irqbalance::leave_alone(directory, &all)
        };
        let changed = journal::change_irqbalance(change).map_err(io::Error::other);
        changed.and_then(|changed| changed).map_err(absent)
    }

    fn mask(&self, file: &str) -> Result<String, DeviceError> {
        let text = self.0.read(file).map_err(gone)?;
        Ok(cpu::list_text(&cpu::mask(&text).unwrap_or_default()))
    }

    fn set_mask(&self, file: &str, cpus: &str) -> Result<(), DeviceError> {
        let mask = cpu::mask_text(&some_cpus(cpus)?);
        self.0.write(file, &mask).map_err(gone)
    }

    /// Sets the indirection table. If `table` equals the driver's default, resets the table
    /// instead, because drivers refuse to reduce the channels while a user's table is set.
    fn set_table(&self, table: &[u32]) -> io::Result<()> {
        let ethtool = &self.0.ethtool;
        let queues = ethtool.receive_queues().unwrap_or(0);
        if table == equal(table.len(), queues) {
            let _ = ethtool.set_rss_table(&[]);
            if ethtool.rss()?.table == table {
                return Ok(());
            }
        }
        ethtool.set_rss_table(table)
    }

    /// The settings that each queue has: RPS for receive queues, XPS for transmit queues.
    pub(crate) fn of_queues(&self) -> impl Iterator<Item = Knob> + use<> {
        let rps = self.0.queues("rx-").map(Setting::Rps);
        rps.chain(self.0.queues("tx-").map(Setting::Xps))
            .map(Knob::from)
    }
}

/// The prefix of a value that requests a table in which the first queues have equal numbers of
/// entries. For example, `equal:4` requests such a table for four queues.
pub const EQUAL: &str = "equal:";

/// The value that requests all interrupts of the device.
pub const ALL: &str = "all";

/// The value that requests a key that gives both directions of a flow the same hash.
pub const SYMMETRIC: &str = "symmetric";

/// The key 6D:5A, repeated (Woo and Park, "Scalable TCP session monitoring with symmetric
/// receive-side scaling", 2012).
pub fn symmetric_key(len: usize) -> Vec<u8> {
    [0x6d, 0x5a].into_iter().cycle().take(len).collect()
}

/// The default table of all drivers (`ethtool_rxfh_indir_default()`).
pub(crate) fn equal(entries: usize, queues: u32) -> Vec<u32> {
    (0..queues.max(1)).cycle().take(entries).collect()
}

/// Those interrupts of a device that are in irqbalance's list. `Absent` if the list has no room for
/// all the device's interrupts in addition to those of other devices. Such a device is tuned
/// without irqbalance.
fn own_of(mut own: Vec<u32>, mut all: Vec<u32>) -> Result<Vec<u32>, DeviceError> {
    let others = own.iter().filter(|&number| !all.contains(number));
    let others: Vec<u32> = others.copied().collect();
    own.retain(|number| all.contains(number));
    all.extend(&others);
    match others.is_empty() || irqbalance::takes(&all) {
        true => Ok(own),
        false => Err(DeviceError::Absent),
    }
}

/// The value, or `Absent` for an empty text: drivers that do not report the value give an empty
/// text.
fn present(text: String) -> Result<String, DeviceError> {
    (!text.is_empty())
        .then_some(text)
        .ok_or(DeviceError::Absent)
}

fn refused(error: io::Error) -> DeviceError {
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => DeviceError::Absent,
        _ => DeviceError::System(error),
    }
}

/// `Absent` if no irqbalance runs, or if this process may not query it.
fn absent(error: io::Error) -> DeviceError {
    let none = [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied];
    match none.contains(&error.kind()) {
        true => DeviceError::Absent,
        false => DeviceError::System(error),
    }
}

/// `Absent` if a queue's files are gone: the queue is gone too.
fn gone(error: io::Error) -> DeviceError {
    match error.raw_os_error() {
        Some(libc::ENOENT) => DeviceError::Absent,
        _ => DeviceError::System(error),
    }
}

fn rps_file(queue: u32) -> String {
    format!("queues/rx-{queue}/rps_cpus")
}

fn xps_file(queue: u32) -> String {
    format!("queues/tx-{queue}/xps_cpus")
}

/// Reads a list of CPUs, which may be empty. Returns the CPUs in rising order.
fn some_cpus(text: &str) -> Result<Vec<usize>, DeviceError> {
    match text {
        "" => Ok(Vec::new()),
        _ => knob::cpus(text),
    }
}

const RINGS: [&str; 2] = ["rx", "tx"];
const PAUSE: [&str; 3] = ["autoneg", "rx", "tx"];

fn rings_text(rings: Rings) -> String {
    channels::list_text(RINGS, [rings.rx, rings.tx])
}

fn rings(rings: Rings, text: &str) -> Result<Rings, DeviceError> {
    let wanted = channels::list(text, RINGS, |number| number.parse().ok());
    let wanted = wanted.map(|[rx, tx]| Rings {
        rx: rx.unwrap_or(rings.rx),
        tx: tx.unwrap_or(rings.tx),
        ..rings
    });
    let is_in_range = |it: &Rings| it.rx <= it.most[0] && it.tx <= it.most[1];
    wanted.filter(is_in_range).ok_or_else(|| knob::wrong(text))
}

fn pause_text(pause: Pause) -> String {
    channels::list_text(
        PAUSE,
        [pause.autoneg, pause.rx, pause.tx].map(knob::on_or_off),
    )
}

fn pause(pause: Pause, text: &str) -> Result<Pause, DeviceError> {
    let wanted = channels::list(text, PAUSE, |value| knob::is_on(value).ok());
    let [autoneg, rx, tx] = wanted.ok_or_else(|| knob::wrong(text))?;
    Ok(Pause {
        autoneg: autoneg.unwrap_or(pause.autoneg),
        rx: rx.unwrap_or(pause.rx),
        tx: tx.unwrap_or(pause.tx),
    })
}

/// A table as the text of [`Setting::Table`].
pub fn table_text(table: &[u32]) -> String {
    let entries: Vec<String> = table.iter().map(u32::to_string).collect();
    entries.join(",")
}

/// Reads the text of [`Setting::Table`].
///
/// # Errors
/// [`DeviceError::Value`].
pub fn table(text: &str) -> Result<Vec<u32>, DeviceError> {
    let entries: Result<_, _> = text.split(',').map(str::parse).collect();
    entries.map_err(|_| knob::wrong(text))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

fn transform_text(transform: Transform) -> String {
    match transform {
        Transform::None => "none".to_owned(),
        Transform::SymmetricXor => "symmetric-xor".to_owned(),
        Transform::SymmetricOrXor => "symmetric-or-xor".to_owned(),
        Transform::Other(number) => number.to_string(),
    }
}

fn transform(text: &str) -> Option<Transform> {
    Some(match text {
        "none" => Transform::None,
        "symmetric-xor" => Transform::SymmetricXor,
        "symmetric-or-xor" => Transform::SymmetricOrXor,
        number => Transform::Other(number.parse().ok()?),
    })
}

/// ethtool(8)'s letter for each field of the hash, with the field's bit, from `RXH_L2DA` on.
const FIELDS: [(char, u32); 8] = [
    ('m', 1),
    ('v', 2),
    ('t', 3),
    ('s', 4),
    ('d', 5),
    ('f', 6),
    ('n', 7),
    ('r', 31),
];

fn fields_text(fields: u64) -> String {
    let set = FIELDS.iter().filter(|it| (fields >> it.1) & 1 == 1);
    set.map(|it| it.0).collect()
}

fn fields(text: &str) -> Option<u64> {
    text.chars().try_fold(0, |fields, letter| {
        let found = FIELDS.iter().find(|it| it.0 == letter)?;
        Some(fields | (1 << found.1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_are_written() {
        assert_eq!(table_text(&table("0,1,2").unwrap()), "0,1,2");
        assert!(table("0,x").is_err() && table("").is_err());
        assert_eq!(table_text(&equal(5, 2)), "0,1,0,1,0");
        assert_eq!(hex(&symmetric_key(5)), "6d5a6d5a6d");
        assert_eq!(bytes("6d5a"), Some(vec![0x6d, 0x5a]));
        assert_eq!(bytes("6dxx"), None);
        for text in ["none", "symmetric-xor", "symmetric-or-xor", "7"] {
            assert_eq!(transform_text(transform(text).unwrap()), text);
        }
        assert_eq!(fields_text(fields("sdfn").unwrap()), "sdfn");
        assert_eq!(fields("sdx"), None);
    }

    #[test]
    fn irqbalance_is_asked_where_its_list_has_room_for_all() {
        assert_eq!(own_of(vec![24, 41], vec![7, 24]).unwrap(), [24]);
        let many: Vec<u32> = (1000..1100).collect();
        let refused = own_of(many.clone(), vec![7]).unwrap_err();
        assert!(matches!(refused, DeviceError::Absent));
        assert!(own_of(vec![41], many.clone()).is_err());
        // If irqbalance's options list all these interrupts already, no message needs to name them.
        assert_eq!(own_of(many.clone(), many.clone()).unwrap(), many);
        assert_eq!(own_of(Vec::new(), many).unwrap(), []);
    }

    #[test]
    fn only_what_is_named_changes() {
        let now = Rings {
            rx: 256,
            tx: 512,
            most: [4096, 4096],
        };
        assert_eq!(rings_text(rings(now, "rx=1024").unwrap()), "rx=1024,tx=512");
        assert!(rings(now, "rx=8192").is_err() && rings(now, "rx").is_err());
        let on = pause(Pause::default(), "autoneg=on,rx=on,tx=on").unwrap();
        assert_eq!(
            pause_text(pause(on, "rx=off").unwrap()),
            "autoneg=on,rx=off,tx=on"
        );
    }

    #[test]
    fn the_loopback_device_has_features_and_steering_and_no_rings() {
        let lo = Device::open("lo").unwrap();
        let settings = Settings(&lo);
        let rings = settings.read(&Setting::Rings.into()).unwrap_err();
        assert!(matches!(rings, DeviceError::Absent));
        let loopback = settings.read(&Setting::Feature("loopback".to_owned()).into());
        assert_eq!(loopback.unwrap(), "on");
        assert!(settings.read(&Setting::Rps(0).into()).is_ok());
        assert!(
            settings
                .read(&Setting::Rps(99).into())
                .unwrap_err()
                .is_gone()
        );
    }
}
