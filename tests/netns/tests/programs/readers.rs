//! What each program found, read from its own output.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use fanpcap_testkit::{Capture, FlowKey, Transport};

use crate::{Output, answer};

type Flows = Result<BTreeSet<FlowKey>>;

/// A pcap file.
pub(crate) fn savefile(output: &Output) -> Flows {
    Ok(Capture::read(&output.path)?.flows().into_keys().collect())
}

/// `[date] mod=syn|cli=192.0.2.1/40000|srv=192.0.2.2/80|...`
pub(crate) fn p0f(output: &Output) -> Flows {
    let text = fs::read_to_string(&output.path)?;
    let end = |line: &str, name: &str| {
        let field = line.split('|').find_map(|field| field.strip_prefix(name))?;
        let (host, port) = field.split_once('/')?;
        socket(host, port)
    };
    let flow = |line: &str| {
        Some(FlowKey::new(
            Some(Transport::Tcp),
            end(line, "cli=")?,
            end(line, "srv=")?,
        ))
    };
    all(text.lines(), flow)
}

/// `ACTIVE ... [192.0.2.1]:40000 <> [192.0.2.2]:80 proto:6 ...`
pub(crate) fn softflowd(output: &Output) -> Flows {
    let lines = output.said.lines().filter(|line| line.contains(" proto:"));
    all(lines, |line| {
        let mut ends = line.split_whitespace().filter(|word| word.starts_with('['));
        let mut end = || {
            let (host, port) = ends.next()?.strip_prefix('[')?.split_once("]:")?;
            socket(host, port)
        };
        let proto = line.split_once(" proto:")?.1.split_whitespace().next()?;
        Some(FlowKey::new(transport(proto), end()?, end()?))
    })
}

/// `192.0.2.1,192.0.2.2,40000,80,tcp,10,1000` between other lines.
pub(crate) fn pmacctd(output: &Output) -> Flows {
    let rows = output
        .said
        .lines()
        .map(|line| line.split(',').collect::<Vec<_>>());
    let rows = rows.filter(|row| row.len() == 7 && row[0].parse::<IpAddr>().is_ok());
    all(rows, |row| {
        Some(FlowKey::new(
            transport(row[4]),
            socket(row[0], row[2])?,
            socket(row[1], row[3])?,
        ))
    })
}

/// Argus records, by its own reader.
pub(crate) fn argus(output: &Output) -> Flows {
    let command = format!(
        "ra -n -c , -r {} -s proto saddr sport daddr dport",
        output.path.display()
    );
    let text = answer(&command)?;
    let rows = text
        .lines()
        .map(|line| line.split(',').map(str::trim).collect::<Vec<_>>());
    let rows = rows.filter(|row| row.len() == 5 && ["tcp", "udp"].contains(&row[0]));
    all(rows, |row| {
        Some(FlowKey::new(
            transport(row[0]),
            socket(row[1], row[2])?,
            socket(row[3], row[4])?,
        ))
    })
}

/// A file for each direction: `192.000.002.001.40000-192.000.002.002.00080`.
pub(crate) fn tcpflow(output: &Output) -> Flows {
    let names = fs::read_dir(&output.path)?.map(|entry| Ok(entry?.file_name()));
    let names = names.collect::<Result<Vec<_>>>()?;
    let names = names
        .iter()
        .filter_map(|name| name.to_str()?.split_once('-'));
    all(names, |(one, other)| {
        Some(FlowKey::new(
            Some(Transport::Tcp),
            tcpflow_end(one)?,
            tcpflow_end(other)?,
        ))
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

fn all<T>(items: impl Iterator<Item = T>, flow: impl Fn(T) -> Option<FlowKey>) -> Flows {
    items
        .map(|item| flow(item).context("a line that can't be read"))
        .collect()
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
