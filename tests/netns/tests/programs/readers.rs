//! Reads the packet counts from each application's own output.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use fanpcap_testkit::{Capture, FlowKey, Transport};

use crate::{Output, answer};

/// The conversations with the number of packets of each. The number is 0 if the program does not
/// report it.
pub(crate) type Flows = BTreeMap<FlowKey, usize>;

/// Reads a pcap file.
pub(crate) fn savefile(output: &Output) -> Result<Flows> {
    Ok(Capture::read(&output.path)?.flows())
}

/// Reads lines such as `[date] mod=syn|cli=192.0.2.1/40000|srv=192.0.2.2/80|...`
pub(crate) fn p0f(output: &Output) -> Result<Flows> {
    let text = fs::read_to_string(&output.path)?;
    let end = |line: &str, name: &str| {
        let field = line.split('|').find_map(|field| field.strip_prefix(name))?;
        let (host, port) = field.split_once('/')?;
        socket(host, port)
    };
    let flow = |line: &str| {
        let flow = FlowKey::new(Some(Transport::Tcp), end(line, "cli=")?, end(line, "srv=")?);
        Some((flow, 0))
    };
    all(text.lines(), flow)
}

/// Reads lines such as `ACTIVE ... [192.0.2.1]:40000 <> [192.0.2.2]:80 proto:6 ... packets>:5 ...
/// packets<:4 ...`
pub(crate) fn softflowd(output: &Output) -> Result<Flows> {
    let lines = output.said.lines().filter(|line| line.contains(" proto:"));
    all(lines, |line| {
        let mut ends = line.split_whitespace().filter(|word| word.starts_with('['));
        let mut end = || {
            let (host, port) = ends.next()?.strip_prefix('[')?.split_once("]:")?;
            socket(host, port)
        };
        let field = |name| {
            line.split_whitespace()
                .find_map(|word| word.strip_prefix(name))
        };
        let flow = FlowKey::new(transport(field("proto:")?), end()?, end()?);
        let there: usize = field("packets>:")?.parse().ok()?;
        let back: usize = field("packets<:")?.parse().ok()?;
        Some((flow, there + back))
    })
}

/// Reads one line for each direction, such as `192.0.2.1,192.0.2.2,40000,80,tcp,10,1000`. Skips the
/// other lines.
pub(crate) fn pmacctd(output: &Output) -> Result<Flows> {
    let rows = output
        .said
        .lines()
        .map(|line| line.split(',').collect::<Vec<_>>());
    let rows = rows.filter(|row| row.len() == 7 && row[0].parse::<IpAddr>().is_ok());
    all(rows, |row| {
        let (from, to) = (socket(row[0], row[2])?, socket(row[1], row[3])?);
        Some((
            FlowKey::new(transport(row[4]), from, to),
            row[5].parse().ok()?,
        ))
    })
}

/// Reads argus records by `ra`, the reader that argus has.
pub(crate) fn argus(output: &Output) -> Result<Flows> {
    let command = format!(
        "ra -n -c , -r {} -s proto saddr sport daddr dport pkts",
        output.path.display()
    );
    let text = answer(&command)?;
    let rows = text
        .lines()
        .map(|line| line.split(',').map(str::trim).collect::<Vec<_>>());
    let rows = rows.filter(|row| row.len() == 6 && ["tcp", "udp"].contains(&row[0]));
    all(rows, |row| {
        let (from, to) = (socket(row[1], row[2])?, socket(row[3], row[4])?);
        Some((
            FlowKey::new(transport(row[0]), from, to),
            row[5].parse().ok()?,
        ))
    })
}

/// Reads the names of files, one for each direction, such as
/// `192.000.002.001.40000-192.000.002.002.00080`.
pub(crate) fn tcpflow(output: &Output) -> Result<Flows> {
    let names = fs::read_dir(&output.path)?.map(|entry| Ok(entry?.file_name()));
    let names = names.collect::<Result<Vec<_>>>()?;
    let names = names
        .iter()
        .filter_map(|name| name.to_str()?.split_once('-'));
    all(names, |(one, other)| {
        let ends = (tcpflow_end(one)?, tcpflow_end(other)?);
        Some((FlowKey::new(Some(Transport::Tcp), ends.0, ends.1), 0))
    })
}

fn tcpflow_end(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.rsplit_once('.')?;
    let octets = || {
        host.split('.')
            .map(|octet| octet.parse::<u8>().ok())
            .collect::<Option<Vec<_>>>()
    };
    let octets = octets().and_then(|octets| <[u8; 4]>::try_from(octets).ok());
    let address = octets.map(|octets| IpAddr::from(Ipv4Addr::from(octets)));
    Some(SocketAddr::new(
        address.or_else(|| host.parse().ok())?,
        port.parse().ok()?,
    ))
}

/// Reads all items. If several items describe one conversation, adds up their packets.
fn all<T>(
    items: impl Iterator<Item = T>,
    read: impl Fn(T) -> Option<(FlowKey, usize)>,
) -> Result<Flows> {
    let mut flows = Flows::new();
    for item in items {
        let (flow, packets) = read(item).context("a line that can't be read")?;
        *flows.entry(flow).or_insert(0) += packets;
    }
    Ok(flows)
}

fn transport(name: &str) -> Option<Transport> {
    match name {
        "tcp" | "6" => Some(Transport::Tcp),
        "udp" | "17" => Some(Transport::Udp),
        _ => None,
    }
}

fn socket(host: &str, port: &str) -> Option<SocketAddr> {
    Some(SocketAddr::new(host.parse().ok()?, port.parse().ok()?))
}
