//! The table of cluster.conf's keys. Each row has a key's name, its value's type, and its engine.

use super::value::{Type, WEIGHT_MAX};

const ENGINES: &[&str] = &["embedded", "etcd", "fixed"];
const MODES: &[&str] = &["distribution", "capture"];
const TRANSPORTS: &[&str] = &["tcp", "dicap"];
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

/// Declares the keys and their rows. A row has no engine, and its key may occur once, unless the
/// row says something else.
macro_rules! keys {
    ($($key:ident: $name:literal, $takes:expr $(, $field:ident = $value:expr)?;)*) => {
        /// A key of cluster.conf.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        pub(crate) enum Key {
            $($key,)*
        }

        /// All keys. A test compares this table with cluster.conf(5).
        pub(crate) static KEYS: &[Row] = &[$(Row {
            $($field: $value,)?
            ..row(Key::$key, $name, $takes)
        },)*];
    };
}

const fn row(key: Key, name: &'static str, takes: Type) -> Row {
    Row {
        key,
        name,
        takes,
        engine: None,
        times: 1,
    }
}

keys! {
    Cluster: "cluster", Type::Name;
    Secrets: "key_file", Type::Path, times = 2;
    Engine: "engine", Type::Choice(ENGINES);
    Coordinators: "coordinators", Type::Addresses, engine = Some("embedded");
    Multicast: "multicast", Type::Group, engine = Some("embedded");
    MulticastTtl: "multicast_ttl", Type::Number(1, 255), engine = Some("embedded");
    Heartbeat: "heartbeat", Type::Time(100, 60_000), engine = Some("embedded");
    Offline: "offline", Type::Time(300, 600_000), engine = Some("embedded");
    Etcd: "etcd", Type::Urls, engine = Some("etcd");
    EtcdCa: "etcd_ca", Type::Path, engine = Some("etcd");
    EtcdCertificate: "etcd_certificate", Type::Path, engine = Some("etcd");
    EtcdPrivate: "etcd_key", Type::Path, engine = Some("etcd");
    EtcdUser: "etcd_user", Type::Name, engine = Some("etcd");
    EtcdPasswordFile: "etcd_password_file", Type::Path, engine = Some("etcd");
    EtcdUnencrypted: "etcd_unencrypted", Type::Choice(ANSWERS), engine = Some("etcd");
    Lease: "lease", Type::Time(2000, 600_000), engine = Some("etcd");
    Nodes: "nodes", Type::Nodes, engine = Some("fixed");
    Initial: "initial", Type::Number(0, u32::MAX), engine = Some("fixed");
    Node: "node", Type::Node;
    Address: "address", Type::Ip;
    Weight: "weight", Type::Number(1, WEIGHT_MAX);
    Device: "device", Type::Devices;
    Beacon: "beacon", Type::Device;
    Mode: "mode", Type::Choice(MODES);
    Header: "header", Type::Number(34, 234);
    Select: "select", Type::Choice(SELECTIONS);
    Filter: "filter", Type::Text;
    Analyzers: "analyzers", Type::Addresses;
    Transport: "transport", Type::Choice(TRANSPORTS);
    RecordsCa: "records_ca", Type::Path;
    RecordsCertificate: "records_certificate", Type::Path;
    RecordsPrivate: "records_key", Type::Path;
    DicapPort: "dicap_port", Type::Number(1, 65_535);
    Dwell: "dwell", Type::Time(10, 60_000);
    HoldDown: "hold_down", Type::Time(0, 3_600_000);
}

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
        for row in KEYS {
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
