//! Values of settings: their types, parsing and checks.

use super::on_engine::Steal;
use crate::driver::Driver;
use crate::fanout::Fanout;
use crate::report::{Fault, offset_in, quote};
use crate::source::Source;
use fanpcap_steer::nearest::nearest;

/// A checked value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A number within the key's range.
    Number(u32),
    /// A ring's size in bytes, from 1 MiB to 1 GiB.
    Size(i32),
    /// `yes` or `no`.
    YesNo(bool),
    /// Whether the host loses the packets.
    Steal(Steal),
    /// Whether a handle whose device is gone waits for its return.
    Waits(bool),
    /// A list of CPUs, as the first and last of each range.
    Cpus(Vec<(u32, u32)>),
    /// An engine.
    Driver(Driver),
    /// A fan-out mode or a steering program.
    Fanout(Fanout),
    /// A member's name.
    Name(String),
}

impl Value {
    pub(super) fn number(&self) -> Option<u32> {
        let Value::Number(number) = self else {
            return None;
        };
        Some(*number)
    }

    pub(super) fn group(&self) -> Option<u16> {
        u16::try_from(self.number()?).ok()
    }
}

/// The type of a key's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// A number from the first to the second, inclusive.
    Number(u32, u32),
    /// A ring's size.
    Size,
    YesNo,
    Steal,
    /// `wait` or `error`.
    Gone,
    Cpus,
    Driver,
    /// A fan-out mode or a steering program.
    Fanout,
    Name,
}

impl Takes {
    pub(super) fn value(self, written: Source) -> Result<Value, Fault> {
        let text = written.text();
        match self {
            Takes::Number(min, max) => number(text, min, max).map(Value::Number),
            Takes::Size => size(text).map(Value::Size),
            Takes::YesNo => yes_no(text).map(Value::YesNo),
            Takes::Gone => waits(text).map(Value::Waits),
            Takes::Steal => steal(text).map(Value::Steal),
            Takes::Cpus => cpus(text).map(Value::Cpus),
            Takes::Driver => engine(text).map(Value::Driver),
            Takes::Fanout => Fanout::parse(written).map(Value::Fanout),
            Takes::Name => member_name(text).map(Value::Name),
        }
    }
}

/// Checks a device's name: not empty and without blanks.
pub(super) fn device(text: &str) -> Result<String, Fault> {
    if text.is_empty() || text.contains(char::is_whitespace) {
        let message = format!("{} is no device name", quote(text));
        return Err(Fault::new("device-name-bad", message).hint("write one such as eth0"));
    }
    Ok(text.to_owned())
}

pub(super) fn group(text: &str) -> Result<u16, Fault> {
    let group = number(text, 0, GROUP_MAX)?;
    Ok(u16::try_from(group).expect("GROUP_MAX is that of u16"))
}

/// Parses a decimal number from `min` to `max`.
///
/// # Errors
/// The text is not a number, or the number is out of range.
pub fn number(text: &str, min: u32, max: u32) -> Result<u32, Fault> {
    let range = || format!("write a number from {min} to {max}");
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        let message = format!("{} is not a number", quote(text));
        return Err(Fault::new("not-a-number", message).hint(range()));
    }
    match text.parse() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => {
            let message = format!("{} is out of range", quote(text));
            Err(Fault::new("out-of-range", message).hint(range()))
        }
    }
}

fn cpus(text: &str) -> Result<Vec<(u32, u32)>, Fault> {
    let range = |item: &str| {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let cpu = |part: &str| {
            let at = offset_in(text, part.trim_start());
            number(part.trim(), 0, CPU_MAX).map_err(|fault| fault.shift(at))
        };
        let (first, last) = (cpu(first)?, cpu(last)?);
        if first > last {
            let message = format!("CPU range {} runs backwards", quote(item.trim()));
            let at = offset_in(text, item.trim_start());
            let hint = format!("write {last}-{first}");
            return Err(Fault::new("cpu-range-backwards", message)
                .hint(hint)
                .shift(at));
        }
        Ok((first, last))
    };
    text.split(',').map(range).collect()
}

/// Parses a ring's size. For a size with another unit, such as `32MB`, proposes `32M`.
fn size(text: &str) -> Result<i32, Fault> {
    bytes(text).ok_or_else(|| {
        let near = text
            .trim_end_matches(['i', 'I', 'b', 'B', ' '])
            .replace(' ', "");
        let near = Some(near).filter(|near| bytes(near).is_some());
        let message = format!("{} is no size of a ring", quote(text));
        Fault::new("ring-size-bad", message).nearest(near, "write 1M to 1G, such as 64M")
    })
}

/// Parses a size in bytes, which may end in `K`, `M` or `G`; `None` if it is no ring's size.
fn bytes(text: &str) -> Option<i32> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => Some(0),
        "K" | "k" => Some(10),
        "M" | "m" => Some(20),
        "G" | "g" => Some(30),
        _ => None,
    };
    let bytes = shift.and_then(|shift| Some(i64::from(number(digits, 0, u32::MAX).ok()?) << shift));
    let bytes = bytes.filter(|bytes| (RING_MIN..=RING_MAX).contains(bytes));
    bytes.and_then(|bytes| i32::try_from(bytes).ok())
}

fn yes_no(text: &str) -> Result<bool, Fault> {
    match text.to_ascii_lowercase().as_str() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => {
            let message = format!("{} is neither yes nor no", quote(text));
            Err(Fault::new("not-yes-or-no", message).hint("write yes or no"))
        }
    }
}

fn waits(text: &str) -> Result<bool, Fault> {
    match text.to_ascii_lowercase().as_str() {
        "wait" => Ok(true),
        "error" => Ok(false),
        _ => {
            let message = format!("{} is neither wait nor error", quote(text));
            Err(Fault::new("not-wait-or-error", message).hint("write wait or error"))
        }
    }
}

fn steal(text: &str) -> Result<Steal, Fault> {
    match text.to_ascii_lowercase().as_str() {
        "force" => Ok(Steal::Force),
        _ => yes_no(text)
            .map(|yes| if yes { Steal::Yes } else { Steal::No })
            .map_err(|fault| fault.hint("write yes or no, or force on the default route's device")),
    }
}

fn engine(text: &str) -> Result<Driver, Fault> {
    let lower = text.to_ascii_lowercase();
    Driver::named(&lower).ok_or_else(|| {
        let names: Vec<&str> = Driver::all().map(Driver::name).collect();
        let near = nearest(&lower, names.clone()).map(str::to_owned);
        let otherwise = format!("the drivers are {}", names.join(", "));
        Fault::new("driver-unknown", format!("unknown driver {}", quote(text)))
            .nearest(near, otherwise)
    })
}

fn member_name(text: &str) -> Result<String, Fault> {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_name = (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(is_known);
    if !is_name {
        let message = format!("{} is no member's name", quote(text));
        let hint = format!("write up to {NAME_MAX} letters, digits, '.', '_' and '-'");
        return Err(Fault::new("member-name-bad", message).hint(hint));
    }
    Ok(text.to_owned())
}

/// The longest name of a member, in bytes.
const NAME_MAX: usize = 64;
const RING_MIN: i64 = 1 << 20;
const RING_MAX: i64 = 1 << 30;
pub(super) const GROUP_MAX: u32 = 65_535;
pub(super) const CPU_MAX: u32 = 8191;
