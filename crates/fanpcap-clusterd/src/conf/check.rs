//! Checks all settings of a cluster.conf together.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use fanpcap_config::report::{Fault, Report, quote};
use fanpcap_select::{Key as SelectionKey, Selection};

use super::file::Entry;
use super::keys::Key;
use super::value::Value;
use super::{Conf, Embedded, Engine, Etcd, Located, Mode, Records};
use crate::shipping::RecordTransport;

/// The value of a key, as an `Option`. The last word is the variant that values of the key have.
macro_rules! value {
    ($found:expr, $key:expr, $variant:ident) => {
        match $found.entry($key).map(|entry| &entry.value) {
            Some(Value::$variant(value)) => Some(value.clone()),
            _ => None,
        }
    };
}

/// Checks the settings of a file together.
pub(super) fn conf(entries: &[Entry], source: &str) -> Result<Conf, Report> {
    let found = FileEntries { entries, source };
    let engine = found.engine()?;
    found.check_engine()?;
    let conf = Conf {
        cluster: value!(found, Key::Cluster, Name).ok_or_else(|| {
            let example = "cluster = NAME";
            found.missing("the cluster's name is missing", example)
        })?,
        key_files: found.files(Key::Secrets),
        engine,
        node: value!(found, Key::Node, Node),
        address: value!(found, Key::Address, Ip),
        weight: found.number(Key::Weight, 1),
        devices: value!(found, Key::Device, Names).unwrap_or_default(),
        beacon: value!(found, Key::Beacon, Name),
        mode: found.mode(),
        header: found.number(Key::Header, 52),
        selection: found.selection(),
        filter: found.filter(),
        analyzers: found.addresses(Key::Analyzers),
        transport: found.transport(),
        records: found.records()?,
        dwell: found.time(Key::Dwell, 250),
        hold_down: found.time(Key::HoldDown, 60_000),
    };
    found.check_mode(&conf)?;
    found.check_beacon(&conf)?;
    found.check_node(&conf)?;
    found.check_turns(&conf)?;
    Ok(conf)
}

/// The settings that only the mode 'capture' has.
const OF_CAPTURE: [Key; 3] = [Key::Header, Key::Transport, Key::DicapPort];

struct FileEntries<'a> {
    entries: &'a [Entry],
    source: &'a str,
}

impl<'a> FileEntries<'a> {
    fn entry(&self, key: Key) -> Option<&'a Entry> {
        self.entries.iter().find(|entry| entry.row.key == key)
    }

    fn filter(&self) -> Option<Located<String>> {
        let place = self.entry(Key::Filter)?.at.clone();
        let value = value!(self, Key::Filter, Name)?;
        Some(Located { value, place })
    }

    fn word(&self, key: Key) -> Option<&'static str> {
        value!(self, key, Choice)
    }

    fn number(&self, key: Key, otherwise: u16) -> u16 {
        let number = value!(self, key, Number);
        number.map_or(otherwise, |it| u16::try_from(it).unwrap_or(u16::MAX))
    }

    fn time(&self, key: Key, otherwise: u64) -> Duration {
        value!(self, key, Time).unwrap_or(Duration::from_millis(otherwise))
    }

    fn addresses(&self, key: Key) -> Vec<SocketAddr> {
        value!(self, key, Addresses).unwrap_or_default()
    }

    fn files(&self, key: Key) -> Vec<Located<PathBuf>> {
        let file = |entry: &Entry| {
            let (Value::Path(path), true) = (&entry.value, entry.row.key == key) else {
                return None;
            };
            Some(Located {
                value: path.clone(),
                place: entry.at.clone(),
            })
        };
        self.entries.iter().filter_map(file).collect()
    }

    fn file(&self, key: Key) -> Option<Located<PathBuf>> {
        self.files(key).pop()
    }

    fn engine_name(&self) -> &'static str {
        self.word(Key::Engine).unwrap_or("embedded")
    }

    fn engine(&self) -> Result<Engine, Report> {
        match self.engine_name() {
            "etcd" => self.etcd().map(|etcd| Engine::Etcd(Box::new(etcd))),
            "fixed" => value!(self, Key::Nodes, Nodes)
                .map(Engine::Fixed)
                .ok_or_else(|| self.missing("no node is named", "nodes = a1, a2, a3*2")),
            _ => self.embedded().map(Engine::Embedded),
        }
    }

    fn embedded(&self) -> Result<Embedded, Report> {
        let ttl = self.number(Key::MulticastTtl, 1);
        let group = self.addresses(Key::Multicast).pop();
        let embedded = Embedded {
            coordinators: self.coordinators()?,
            multicast: group.map(|it| (it, u8::try_from(ttl).unwrap_or(u8::MAX))),
            heartbeat: self.time(Key::Heartbeat, 5000),
            offline: self.time(Key::Offline, 15_000),
        };
        if embedded.coordinators.is_empty() && embedded.multicast.is_none() {
            let example = "coordinators = 10.0.0.1:7700";
            return Err(self.missing("no coordinator is named", example));
        }
        if self.entry(Key::Secrets).is_none() {
            let example = "key_file = /etc/fanpcap/cluster.key";
            return Err(self.missing("the key of control messages is missing", example));
        }
        if embedded.offline < embedded.heartbeat * 2 {
            let key = match self.entry(Key::Offline) {
                Some(_) => Key::Offline,
                None => Key::Heartbeat,
            };
            let message = "'offline' is shorter than two heartbeats";
            return self.refuse(
                key,
                message,
                "one lost heartbeat must not take a node offline",
            );
        }
        Ok(embedded)
    }

    /// The coordinators' addresses. If an address occurs twice, one of the two is probably wrong.
    fn coordinators(&self) -> Result<Vec<SocketAddr>, Report> {
        let all = self.addresses(Key::Coordinators);
        let is_twice = |at: usize| all[..at].contains(&all[at]);
        match (0..all.len()).find(|&at| is_twice(at)) {
            None => Ok(all),
            Some(at) => {
                let message = format!("coordinator {} is named twice", all[at]);
                self.refuse(Key::Coordinators, message, "name each one once")
            }
        }
    }

    fn etcd(&self) -> Result<Etcd, Report> {
        let endpoints = value!(self, Key::Etcd, Urls).ok_or_else(|| {
            let example = "etcd = https://10.0.0.1:2379";
            self.missing("no endpoint of etcd is named", example)
        })?;
        let certificate = self.together(Key::EtcdCertificate, Key::EtcdPrivate)?;
        let user = self.together(Key::EtcdUser, Key::EtcdPasswordFile)?;
        let pair = (self.file(Key::EtcdCertificate), self.file(Key::EtcdPrivate));
        let login = value!(self, Key::EtcdUser, Name).zip(self.file(Key::EtcdPasswordFile));
        let is_secure = |url: &String| url.starts_with("https:");
        let ca = self.file(Key::EtcdCa);
        if ca.is_none() && endpoints.iter().any(is_secure) {
            let message = "the certificate that signs etcd's certificates is missing";
            return Err(self.missing(message, "etcd_ca = /etc/fanpcap/etcd-ca.pem"));
        }
        if (certificate || ca.is_some()) && !endpoints.iter().all(is_secure) {
            let hint = "write https:// for each endpoint";
            return self.refuse(Key::Etcd, "certificates need https", hint);
        }
        self.check_unencrypted(&endpoints, user)?;
        Ok(Etcd {
            endpoints,
            ca,
            identity: pair.0.zip(pair.1),
            user: login.filter(|_| user),
            lease: self.time(Key::Lease, 5000),
        })
    }

    /// Refuses to send secrets over a network where others can read them, unless a setting allows
    /// it. The secrets are the hash's initial value, and a password. On a loopback address only a
    /// password is refused, because another process may listen there in place of etcd.
    fn check_unencrypted(&self, endpoints: &[String], password: bool) -> Result<(), Report> {
        let is_refused = |url: &&String| {
            let host = url.strip_prefix("http://");
            host.is_some_and(|host| password || !is_loopback(host))
        };
        let Some(url) = endpoints.iter().find(is_refused) else {
            return Ok(());
        };
        if self.word(Key::EtcdUnencrypted) == Some("yes") {
            return Ok(());
        }
        let what = match password {
            true => "the password and the secret value of the selection",
            false => "the secret value of the selection",
        };
        let message = format!("{what} would go to {url} unencrypted");
        let hint = "write https:// and 'etcd_ca', or 'etcd_unencrypted = yes' if nobody else can \
                    read this network";
        self.refuse(Key::Etcd, message, hint)
    }

    /// The certificates for TLS between nodes and analyzers.
    fn records(&self) -> Result<Option<Records>, Report> {
        self.together(Key::RecordsCa, Key::RecordsCertificate)?;
        self.together(Key::RecordsCertificate, Key::RecordsPrivate)?;
        let certificate = self.file(Key::RecordsCertificate);
        let pair = certificate.zip(self.file(Key::RecordsPrivate));
        let records = |(ca, (certificate, key))| Records {
            ca,
            certificate,
            key,
        };
        Ok(self.file(Key::RecordsCa).zip(pair).map(records))
    }

    fn mode(&self) -> Mode {
        match self.word(Key::Mode) {
            Some("capture") => Mode::Capture,
            _ => Mode::Distribution,
        }
    }

    fn transport(&self) -> RecordTransport {
        let port = Some(self.number(Key::DicapPort, 0)).filter(|port| *port > 0);
        match self.word(Key::Transport) {
            Some("dicap") => RecordTransport::Dicap(port),
            _ => RecordTransport::Tcp,
        }
    }

    fn selection(&self) -> Selection {
        // In distribution mode, applications need whole connections. In capture mode, an analyzer
        // merges all nodes' packets, so they may be selected one by one.
        let otherwise = match self.mode() {
            Mode::Distribution => SelectionKey::Flow,
            Mode::Capture => SelectionKey::Packet,
        };
        let key = self.word(Key::Select).and_then(SelectionKey::named);
        Selection {
            key: key.unwrap_or(otherwise),
            initial: value!(self, Key::Initial, Number).unwrap_or(0),
        }
    }

    /// Refuses settings that only another engine uses, because they would have no effect.
    fn check_engine(&self) -> Result<(), Report> {
        let engine = self.engine_name();
        let is_others = |entry: &&Entry| entry.row.engine.is_some_and(|it| it != engine);
        let Some(entry) = self.entries.iter().find(is_others) else {
            return Ok(());
        };
        let other = entry.row.engine.unwrap_or_default();
        let name = quote(entry.row.name);
        let message = format!("{name} is for engine '{other}', not '{engine}'");
        let hint = format!("remove it, or write 'engine = {other}'");
        self.refuse(entry.row.key, message, hint)
    }

    /// Refuses a mode without the settings that it needs, and refuses settings of the other mode.
    fn check_mode(&self, conf: &Conf) -> Result<(), Report> {
        let has = |key: Key| self.entry(key).is_some();
        match conf.mode {
            Mode::Capture if !has(Key::Analyzers) => {
                let hint = "write where they are: 'analyzers = 10.0.0.9:7710'";
                self.refuse(Key::Mode, "mode 'capture' needs analyzers", hint)
            }
            Mode::Capture if has(Key::DicapPort) && conf.transport == RecordTransport::Tcp => {
                let message = "'dicap_port' is for transport 'dicap'";
                let hint = "remove it, or write 'transport = dicap'";
                self.refuse(Key::DicapPort, message, hint)
            }
            Mode::Capture if has(Key::Filter) => {
                let message = "'filter' is for mode 'distribution', not 'capture'";
                let hint = "remove it, and filter the analyzers' files";
                self.refuse(Key::Filter, message, hint)
            }
            Mode::Capture => Ok(()),
            Mode::Distribution => match OF_CAPTURE.into_iter().find(|key| has(*key)) {
                Some(key) => {
                    let name = quote(key.row().name);
                    let message = format!("{name} is for mode 'capture', not 'distribution'");
                    self.refuse(key, message, "remove it, or write 'mode = capture'")
                }
                None => Ok(()),
            },
        }
    }

    /// Refuses beacons that no coordinator would send. Also refuses beacons without a key, because
    /// forged beacons could not be recognized.
    fn check_beacon(&self, conf: &Conf) -> Result<(), Report> {
        if conf.beacon.is_none() {
            return Ok(());
        }
        if matches!(conf.engine, Engine::Fixed(_)) {
            let message = "engine 'fixed' has no coordinator that could send beacons";
            let hint = "remove it, or write 'engine = embedded'";
            return self.refuse(Key::Beacon, message, hint);
        }
        if conf.key_files.is_empty() {
            let message = "beacons need a key that all machines of the cluster have";
            let hint = "write 'key_file = /etc/fanpcap/cluster.key' on all machines";
            return self.refuse(Key::Beacon, message, hint);
        }
        Ok(())
    }

    /// Refuses a node that is not in the list of engine `fixed`, because it would get no packets.
    fn check_node(&self, conf: &Conf) -> Result<(), Report> {
        let (Engine::Fixed(nodes), Some(own)) = (&conf.engine, conf.node) else {
            return Ok(());
        };
        if nodes.iter().any(|(node, _)| *node == own) {
            return Ok(());
        }
        let message = format!("node {own} is not in 'nodes', so it would get no packet");
        let hint = "add it to 'nodes' on all machines, or set 'node' to one of 'nodes'";
        self.refuse(Key::Node, message, hint)
    }

    /// Refuses `round_robin` with several devices, because their packets have no certain order.
    fn check_turns(&self, conf: &Conf) -> Result<(), Report> {
        if conf.devices.len() < 2 || conf.selection.key != SelectionKey::RoundRobin {
            return Ok(());
        }
        let message = "'select = round_robin' with several devices: the order of different \
                       devices' packets is not certain";
        let hint = "name one device, or write 'select = packet' or 'select = flow'";
        self.refuse(Key::Device, message, hint)
    }

    /// Whether both settings are given. It is a mistake to give only one of them.
    fn together(&self, one: Key, other: Key) -> Result<bool, Report> {
        let (given, without) = match (self.entry(one), self.entry(other)) {
            (Some(_), Some(_)) => return Ok(true),
            (None, None) => return Ok(false),
            (Some(_), None) => (one, other),
            (None, Some(_)) => (other, one),
        };
        let [name, needed] = [given, without].map(|key| quote(key.row().name));
        let message = format!("{name} without {needed}");
        self.refuse(given, message, "write both, or neither")
    }

    /// The report that the file lacks a setting.
    fn missing(&self, what: &str, example: &str) -> Report {
        let message = format!("{}: {what}", self.source);
        let fault = Fault::new("cluster-setting-missing", message);
        fault.hint(format!("write '{example}'")).unplaced()
    }

    /// The report that the setting `key` does not fit the other settings.
    fn refuse<T>(
        &self,
        key: Key,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Result<T, Report> {
        let fault = Fault::new("cluster-settings-bad", message).hint(hint);
        Err(match self.entry(key) {
            Some(entry) => fault.report(entry.place.clone()),
            None => fault.unplaced(),
        })
    }
}

/// Whether `HOST:PORT` is this machine.
fn is_loopback(authority: &str) -> bool {
    let host = authority
        .rsplit_once(':')
        .map_or(authority, |(host, _)| host);
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let address: Result<IpAddr, _> = address.parse();
    address.map_or(host == "localhost", |it| it.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests;
