//! Values of cluster.conf: their types, parsing and limits.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use fanpcap_cluster::{ANALYZERS, NODES, NodeId};
use fanpcap_config::report::{Fault, offset_in, quote};
use fanpcap_config::settings::number;
use fanpcap_steer::nearest::nearest;

/// A value that was checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    Name(String),
    Names(Vec<String>),
    Path(PathBuf),
    Number(u32),
    Time(Duration),
    Choice(&'static str),
    Ip(IpAddr),
    Addresses(Vec<SocketAddr>),
    Urls(Vec<String>),
    Node(NodeId),
    Nodes(Vec<(NodeId, u16)>),
}

/// The type of a key's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Type {
    /// Letters, digits, `.`, `_` and `-`.
    Name,
    Device,
    Devices,
    Text,
    Path,
    /// A number with this minimum and this maximum.
    Number(u32, u32),
    /// A time with this minimum and this maximum, in milliseconds.
    Time(u32, u32),
    /// A word of this list.
    Choice(&'static [&'static str]),
    Ip,
    /// A multicast address and a port.
    Group,
    /// Addresses with ports.
    Addresses,
    Urls,
    Node,
    /// The ids of nodes, each with its weight if the weight is not 1.
    Nodes,
}

/// Maximum number of endpoints of an engine.
const ENDPOINTS: usize = 16;
/// Maximum length of a name, in bytes.
const NAME_MAX: usize = 64;
/// Maximum length of a device's name, in bytes (linux/if.h, IFNAMSIZ).
const DEVICE_MAX: usize = 15;
/// Maximum number of devices of a node.
const DEVICES: usize = 8;
pub(crate) const WEIGHT_MAX: u32 = 1000;

impl Type {
    pub(crate) fn value(self, text: &str) -> Result<Value, Fault> {
        match self {
            Self::Name => name(text).map(Value::Name),
            Self::Device => device(text).map(Value::Name),
            Self::Devices => devices(text).map(Value::Names),
            Self::Text => Ok(Value::Name(text.to_owned())),
            Self::Path => path(text).map(Value::Path),
            Self::Number(min, max) => number(text, min, max).map(Value::Number),
            Self::Time(min, max) => time(text, min, max).map(Value::Time),
            Self::Choice(words) => choice(text, words).map(Value::Choice),
            Self::Ip => ip(text).map(Value::Ip),
            Self::Group => group(text).map(|it| Value::Addresses(vec![it])),
            Self::Addresses => list(text, ANALYZERS, address).map(Value::Addresses),
            Self::Urls => list(text, ENDPOINTS, url).map(Value::Urls),
            Self::Node => node(text).map(Value::Node),
            Self::Nodes => nodes(text).map(Value::Nodes),
        }
    }
}

fn fault(message: String, hint: impl Into<String>) -> Fault {
    Fault::new("cluster-value-bad", message).hint(hint)
}

fn name(text: &str) -> Result<String, Fault> {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(is_known) {
        return Ok(text.to_owned());
    }
    let hint = format!("write up to {NAME_MAX} letters, digits, '.', '_' and '-'");
    Err(fault(format!("{} is no name", quote(text)), hint))
}

fn device(text: &str) -> Result<String, Fault> {
    let is_bad = |c: char| c.is_whitespace() || c == '/' || c.is_control();
    if (1..=DEVICE_MAX).contains(&text.len()) && !text.contains(is_bad) {
        return Ok(text.to_owned());
    }
    let message = format!("{} is no device name", quote(text));
    Err(Fault::new("device-name-bad", message).hint("write one such as eth0"))
}

/// Parses the names of a node's devices.
pub(crate) fn devices(text: &str) -> Result<Vec<String>, Fault> {
    let names = list(text, DEVICES, device)?;
    let is_twice = |at: &usize| names[..*at].contains(&names[*at]);
    match (0..names.len()).find(is_twice) {
        None => Ok(names),
        Some(at) => Err(fault(
            format!("device {} is named twice", quote(&names[at])),
            "name each one once",
        )),
    }
}

fn path(text: &str) -> Result<PathBuf, Fault> {
    let path = PathBuf::from(text);
    if path.is_absolute() && !text.contains('\0') {
        return Ok(path);
    }
    let message = format!("{} is no absolute path", quote(text));
    Err(fault(message, "write a path that begins with /"))
}

/// Parses a time such as `250ms` or `5s`.
fn time(text: &str, min: u32, max: u32) -> Result<Duration, Fault> {
    let range = || format!("write a time from {} to {}", shown(min), shown(max));
    let (digits, unit) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(digits), _) => (digits, 1),
        (None, Some(digits)) => (digits, 1000),
        (None, None) => (text, 0),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if unit == 0 || !is_number {
        let message = format!("{} is no time", quote(text));
        return Err(fault(message, format!("{}, as in 250ms or 5s", range())));
    }
    let time = digits.parse().ok().and_then(|it: u32| it.checked_mul(unit));
    match time {
        Some(time) if (min..=max).contains(&time) => Ok(Duration::from_millis(time.into())),
        _ => {
            let message = format!("{} is out of range", quote(text));
            Err(Fault::new("out-of-range", message).hint(range()))
        }
    }
}

/// Formats a time as a user writes it.
pub(super) fn shown(milliseconds: u32) -> String {
    match milliseconds % 1000 {
        0 => format!("{}s", milliseconds / 1000),
        _ => format!("{milliseconds}ms"),
    }
}

fn choice(text: &str, words: &'static [&'static str]) -> Result<&'static str, Fault> {
    let lower = text.to_ascii_lowercase();
    if let Some(word) = words.iter().find(|word| **word == lower) {
        return Ok(word);
    }
    let near = nearest(&lower, words.iter().copied()).map(str::to_owned);
    let otherwise = format!("write one of {}", words.join(", "));
    let message = format!("unknown value {}", quote(text));
    Err(Fault::new("cluster-value-bad", message).nearest(near, otherwise))
}

fn ip(text: &str) -> Result<IpAddr, Fault> {
    let message = || format!("{} is no IP address", quote(text));
    let parsed = text.parse().map_err(|_| message());
    let ip: IpAddr = parsed.map_err(|message| fault(message, "write one such as 10.0.0.5"))?;
    ensure_reachable(text, ip).map(|()| ip)
}

/// Refuses 0.0.0.0 and ::, to which other machines can't send.
fn ensure_reachable(text: &str, ip: IpAddr) -> Result<(), Fault> {
    if !ip.is_unspecified() {
        return Ok(());
    }
    let message = format!("{} is the address of no machine", quote(text));
    Err(fault(
        message,
        "write the address at which other machines reach this one",
    ))
}

fn address(text: &str) -> Result<SocketAddr, Fault> {
    let parsed = text.parse().ok().filter(|it: &SocketAddr| it.port() != 0);
    let address = parsed.ok_or_else(|| {
        let message = format!("{} is no address with a port", quote(text));
        fault(message, "write one such as 10.0.0.5:7700 or [fd00::5]:7700")
    })?;
    ensure_reachable(text, address.ip()).map(|()| address)
}

fn group(text: &str) -> Result<SocketAddr, Fault> {
    let address = address(text)?;
    if address.ip().is_multicast() {
        return Ok(address);
    }
    let message = format!("{} is no multicast address", quote(text));
    Err(fault(message, "write one such as 239.255.70.1:7700"))
}

fn url(text: &str) -> Result<String, Fault> {
    let rest = text
        .strip_prefix("https://")
        .or(text.strip_prefix("http://"));
    let is_host = |rest: &str| {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]_".contains(&byte);
        !rest.is_empty() && rest.bytes().all(is_known)
    };
    if rest.is_some_and(|rest| is_host(rest.trim_end_matches('/'))) {
        return Ok(text.trim_end_matches('/').to_owned());
    }
    let message = format!("{} is no endpoint", quote(text));
    Err(fault(message, "write one such as https://10.0.0.5:2379"))
}

/// Parses a node's id, as [`NodeId`] prints it: one to eight hexadecimal digits, not 0.
pub(crate) fn node(text: &str) -> Result<NodeId, Fault> {
    let is_id = (1..=8).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_hexdigit());
    let id = u32::from_str_radix(text, 16).ok();
    match id.filter(|id| is_id && *id != 0) {
        Some(id) => Ok(NodeId(id)),
        None => Err(fault(
            format!("{} is no node id", quote(text)),
            "write up to eight hexadecimal digits, not all 0",
        )),
    }
}

fn nodes(text: &str) -> Result<Vec<(NodeId, u16)>, Fault> {
    let one = |item: &str| {
        let (id, weight) = item.split_once('*').unwrap_or((item, "1"));
        let at = id.len() + 1;
        let weight = number(weight, 1, WEIGHT_MAX).map_err(|fault| fault.shift(at))?;
        Ok((node(id)?, u16::try_from(weight).unwrap_or(u16::MAX)))
    };
    let nodes: Vec<(NodeId, u16)> = list(text, NODES, one)?;
    let mut ids: Vec<NodeId> = nodes.iter().map(|(id, _)| *id).collect();
    ids.sort_unstable();
    match ids.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(fault(
            format!("node {} is named twice", pair[0]),
            "give each node an id of its own",
        )),
        None => Ok(nodes),
    }
}

/// Parses a list of at most `most` items, separated by commas.
fn list<T>(text: &str, most: usize, one: fn(&str) -> Result<T, Fault>) -> Result<Vec<T>, Fault> {
    let items: Vec<&str> = text.split(',').map(str::trim).collect();
    if items.len() > most {
        let message = format!("{} items, more than {most}", items.len());
        return Err(Fault::new("out-of-range", message).hint("remove some"));
    }
    let parse = |item: &str| one(item).map_err(|fault| fault.shift(offset_in(text, item)));
    items.into_iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(takes: Type, text: &str) -> (usize, String) {
        let fault = takes.value(text).unwrap_err();
        (fault.offset, fault.to_string())
    }

    #[test]
    fn values_of_each_type() {
        let time = Type::Time(10, 60_000);
        assert_eq!(
            time.value("250ms"),
            Ok(Value::Time(Duration::from_millis(250)))
        );
        assert_eq!(time.value("5s"), Ok(Value::Time(Duration::from_secs(5))));
        assert_eq!(Type::Node.value("00A1"), Ok(Value::Node(NodeId(0xa1))));
        let nodes = vec![(NodeId(1), 1), (NodeId(2), 30)];
        assert_eq!(Type::Nodes.value("1, 2*30"), Ok(Value::Nodes(nodes)));
        let urls = vec!["https://[fd00::1]:2379".to_owned()];
        assert_eq!(
            Type::Urls.value("https://[fd00::1]:2379/"),
            Ok(Value::Urls(urls))
        );
        assert!(Type::Group.value("239.255.70.1:7700").is_ok());
        assert!(Type::Path.value("/etc/x").is_ok());
        let devices = ["eth1", "eth2"].map(str::to_owned).to_vec();
        assert_eq!(Type::Devices.value("eth1,eth2"), Ok(Value::Names(devices)));
    }

    #[test]
    fn what_is_wrong_is_shown_at_its_place() {
        let time = Type::Time(10, 60_000);
        for text in ["", "5", "s", "ms", "-1s", "1.5s", "5 s", "5m"] {
            assert!(refused(time, text).1.contains("is no time"), "{text}");
        }
        for text in ["9ms", "61s", "4294967296s", "99999999s"] {
            let (_, said) = refused(time, text);
            assert!(said.ends_with("from 10ms to 60s"), "{text}: {said}");
        }
        assert_eq!(refused(Type::Nodes, "1, x").0, 3);
        assert_eq!(refused(Type::Nodes, "1, 2*0").0, 5);
        assert!(
            refused(Type::Nodes, "a1, A1")
                .1
                .contains("000000a1 is named twice")
        );
        assert_eq!(refused(Type::Addresses, "1.2.3.4:5, 1.2.3.4").0, 11);
        let choice = Type::Choice(&["embedded", "etcd"]);
        assert!(refused(choice, "etdc").1.ends_with("did you mean 'etcd'?"));
        for text in ["", "0", "g", "123456789", "+1"] {
            assert!(refused(Type::Node, text).1.contains("node id"), "{text}");
        }
        for (takes, text) in [
            (Type::Name, "a b"),
            (Type::Device, "eth0/1"),
            (Type::Device, "abcdefghijklmnop"),
            (Type::Devices, "eth1,"),
            (Type::Devices, "eth1, eth2, eth1"),
            (Type::Devices, "1, 2, 3, 4, 5, 6, 7, 8, 9"),
            (Type::Path, "x"),
            (Type::Ip, "10.0.0"),
            (Type::Group, "10.0.0.1:5"),
            (Type::Urls, "etcd:2379"),
            (Type::Urls, "https://"),
            (Type::Urls, "https://a/b"),
            (Type::Addresses, "10.0.0.1:0"),
            (Type::Addresses, "0.0.0.0:5"),
            (Type::Addresses, "[::]:5"),
            (Type::Ip, "0.0.0.0"),
        ] {
            takes.value(text).unwrap_err();
        }
        let many = vec!["1.2.3.4:5"; ANALYZERS + 1].join(",");
        assert!(refused(Type::Addresses, &many).1.contains("more than 16"));
    }
}
