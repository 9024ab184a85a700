//! The table of cluster.conf's keys. Each row has a key's name, its value's type, and its engine.

use super::value::{Type, WEIGHT_MAX};

/// A key of cluster.conf.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum Key {
    Cluster,
    Secrets,
    Engine,
    Coordinators,
    Multicast,
    MulticastTtl,
    Heartbeat,
    Offline,
    Etcd,
    EtcdCa,
    EtcdCertificate,
    EtcdPrivate,
    EtcdUser,
    EtcdPasswordFile,
    EtcdUnencrypted,
    Lease,
    Nodes,
    Initial,
    Node,
    Address,
    Weight,
    Device,
    Beacon,
    Mode,
    Header,
    Select,
    Filter,
    Analyzers,
    Transport,
    RecordsCa,
    RecordsCertificate,
    RecordsPrivate,
    DicapPort,
    Dwell,
    HoldDown,
}

pub(crate) const ENGINES: &[&str] = &["embedded", "etcd", "fixed"];
pub(crate) const MODES: &[&str] = &["distribution", "capture"];
pub(crate) const TRANSPORTS: &[&str] = &["tcp", "dicap"];
pub(crate) const SELECTIONS: &[&str] = &["packet", "flow", "round_robin", "identification"];
/// The values of a key that allows something.
const ANSWERS: &[&str] = &["no", "yes"];

/// A row of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) key: Key,
    pub(crate) name: &'static str,
    pub(crate) takes: Type,
    /// The engine that the key is for; `None` for all engines.
    pub(crate) engine: Option<&'static str>,
    /// How often the key may occur in a file.
    pub(crate) times: usize,
}

/// A row for a key of all engines.
const fn row(key: Key, name: &'static str, takes: Type) -> Row {
    Row {
        key,
        name,
        takes,
        engine: None,
        times: 1,
    }
}

impl Row {
    const fn of(self, engine: &'static str) -> Self {
        Self {
            engine: Some(engine),
            ..self
        }
    }

    const fn times(self, times: usize) -> Self {
        Self { times, ..self }
    }
}

/// All keys. A test compares this table with cluster.conf(5).
pub(crate) static KEYS: [Row; 35] = [
    row(Key::Cluster, "cluster", Type::Name),
    row(Key::Secrets, "key_file", Type::Path).times(2),
    row(Key::Engine, "engine", Type::Choice(ENGINES)),
    row(Key::Coordinators, "coordinators", Type::Addresses).of("embedded"),
    row(Key::Multicast, "multicast", Type::Group).of("embedded"),
    row(Key::MulticastTtl, "multicast_ttl", Type::Number(1, 255)).of("embedded"),
    row(Key::Heartbeat, "heartbeat", Type::Time(100, 60_000)).of("embedded"),
    row(Key::Offline, "offline", Type::Time(300, 600_000)).of("embedded"),
    row(Key::Etcd, "etcd", Type::Urls).of("etcd"),
    row(Key::EtcdCa, "etcd_ca", Type::Path).of("etcd"),
    row(Key::EtcdCertificate, "etcd_certificate", Type::Path).of("etcd"),
    row(Key::EtcdPrivate, "etcd_key", Type::Path).of("etcd"),
    row(Key::EtcdUser, "etcd_user", Type::Name).of("etcd"),
    row(Key::EtcdPasswordFile, "etcd_password_file", Type::Path).of("etcd"),
    row(
        Key::EtcdUnencrypted,
        "etcd_unencrypted",
        Type::Choice(ANSWERS),
    )
    .of("etcd"),
    row(Key::Lease, "lease", Type::Time(2000, 600_000)).of("etcd"),
    row(Key::Nodes, "nodes", Type::Nodes).of("fixed"),
    row(Key::Initial, "initial", Type::Number(0, u32::MAX)).of("fixed"),
    row(Key::Node, "node", Type::Node),
    row(Key::Address, "address", Type::Ip),
    row(Key::Weight, "weight", Type::Number(1, WEIGHT_MAX)),
    row(Key::Device, "device", Type::Devices),
    row(Key::Beacon, "beacon", Type::Device),
    row(Key::Mode, "mode", Type::Choice(MODES)),
    row(Key::Header, "header", Type::Number(34, 234)),
    row(Key::Select, "select", Type::Choice(SELECTIONS)),
    row(Key::Filter, "filter", Type::Text),
    row(Key::Analyzers, "analyzers", Type::Addresses),
    row(Key::Transport, "transport", Type::Choice(TRANSPORTS)),
    row(Key::RecordsCa, "records_ca", Type::Path),
    row(Key::RecordsCertificate, "records_certificate", Type::Path),
    row(Key::RecordsPrivate, "records_key", Type::Path),
    row(Key::DicapPort, "dicap_port", Type::Number(1, 65_535)),
    row(Key::Dwell, "dwell", Type::Time(10, 60_000)),
    row(Key::HoldDown, "hold_down", Type::Time(0, 3_600_000)),
];

impl Key {
    pub(crate) fn row(self) -> &'static Row {
        &KEYS[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::super::value::shown;
    use super::*;

    const PAGE: &str = include_str!("../../../../docs/man/cluster.conf.5");

    #[test]
    fn rows_stand_in_the_order_of_the_keys() {
        for row in &KEYS {
            assert_eq!(row.key.row().name, row.name);
        }
    }

    /// The keys that cluster.conf(5) describes, each with its description.
    fn described() -> Vec<(&'static str, &'static str)> {
        let (_, keys) = PAGE.split_once(".SH KEYS\n").unwrap();
        let (keys, _) = keys.split_once("\n.SH ").unwrap();
        let of = |part: &'static str| {
            let (head, text) = part.split_once('\n')?;
            Some((head.strip_prefix(".BI \"")?.split_once(" = ")?.0, text))
        };
        keys.split(".TP\n").filter_map(of).collect()
    }

    #[test]
    fn the_manual_page_has_every_key_and_no_other() {
        let of_page: Vec<&str> = described().iter().map(|(key, _)| *key).collect();
        let of_table: Vec<&str> = KEYS.iter().map(|row| row.name).collect();
        assert_eq!(of_page, of_table);
    }

    #[test]
    fn the_manual_page_has_every_choice_and_limit() {
        for (row, (name, text)) in KEYS.iter().zip(described()) {
            let mut words = Vec::new();
            if let Type::Choice(choices) = row.takes {
                words.extend(choices.iter().map(|word| (*word).to_owned()));
            }
            if let Type::Number(min, max) = row.takes {
                words.extend([min, max].map(|limit| limit.to_string()));
            }
            if let Type::Time(min, max) = row.takes {
                words.extend([min, max].map(shown));
            }
            for word in words {
                assert!(text.contains(&word), "{name}: {word}");
            }
        }
    }
}
