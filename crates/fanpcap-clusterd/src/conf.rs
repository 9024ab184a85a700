//! cluster.conf: the settings that all machines of a cluster share, and one machine's own settings.

mod value;
mod keys;
mod file;
mod secret;
mod check;
mod filter;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fanpcap_cluster::NodeId;
use fanpcap_config::report::{Fault, Place, Report};
use fanpcap_linux::file::directory::{open_regular, read_at_most};
use fanpcap_select::Selection;

use crate::shipping::RecordTransport;
use file::Entry;

pub(crate) use keys::SELECTIONS;
pub use secret::Secret;
pub(crate) use value::{WEIGHT_MAX, devices, node};

/// The default path of cluster.conf.
pub const PATH: &str = "/etc/fanpcap/cluster.conf";

/// Maximum size of a cluster.conf, in bytes.
const LONGEST: u64 = 1 << 20;

/// The checked settings of a cluster.conf.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conf {
    /// The cluster's name, which control messages and etcd's keys contain.
    pub cluster: String,
    /// Files with the keys of control messages. The first key signs; both keys are accepted.
    pub key_files: Vec<Located<PathBuf>>,
    /// The coordination engine of the cluster.
    pub engine: Engine,
    /// This machine's node id; `None` for the id that is stored in the state directory.
    pub node: Option<NodeId>,
    /// This machine's address on the control network; `None` if the routes choose the address.
    pub address: Option<IpAddr>,
    /// This node's weight: its share of the buckets, compared with the other nodes' shares.
    pub weight: u16,
    /// The monitored devices.
    pub devices: Vec<String>,
    /// The device on which the active coordinator sends beacons; `None` for no beacons.
    pub beacon: Option<String>,
    /// What the node does with its packets.
    pub mode: Mode,
    /// How many bytes of each packet, from the network header on, go to the analyzers.
    pub header: u16,
    /// How packets are selected. The coordinator chooses a random initial value. With the engine
    /// `fixed`, the settings contain the initial value.
    pub selection: Selection,
    /// The pcap filter of the cluster. Packets that do not pass the filter are dropped.
    pub filter: Option<Located<String>>,
    /// The addresses to which nodes send their counts and, in capture mode, their records.
    pub analyzers: Vec<SocketAddr>,
    /// How records get to the analyzers.
    pub transport: RecordTransport,
    /// The certificates for TLS between nodes and analyzers.
    pub records: Option<Records>,
    /// For how long a union continues after the last acknowledgement.
    pub dwell: Duration,
    /// How long a node that has come back waits until it gets buckets.
    pub hold_down: Duration,
}

/// A value and its place in the file, for errors that are found later.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// The value's place in the file.
    pub place: Place,
}

/// The certificates of nodes and analyzers, for TLS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Records {
    /// The authority that signs the certificates of both sides.
    pub ca: Located<PathBuf>,
    /// This side's certificate.
    pub certificate: Located<PathBuf>,
    /// The private key of `certificate`.
    pub key: Located<PathBuf>,
}

/// The program that reads the settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// A coordinator takes no records, so it needs no certificate for records.
    Coordinator,
    /// A node. It sends records.
    Node,
    /// An analyzer. It takes records.
    Analyzer,
}

/// What a node does with its packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The driver drops other nodes' packets. Applications on the node get the node's own packets.
    Distribution,
    /// The first bytes of the node's packets are sent to the analyzers.
    Capture,
}

/// The coordination engine of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Engine {
    /// The control protocol over UDP.
    Embedded(Embedded),
    /// etcd.
    Etcd(Box<Etcd>),
    /// The nodes' ids with their weights. They never change, and there is no coordinator.
    Fixed(Vec<(NodeId, u16)>),
}

/// Settings of the embedded engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Embedded {
    /// The addresses at which coordinators listen. May be empty if `multicast` is set.
    pub coordinators: Vec<SocketAddr>,
    /// Where nodes look for the coordinator by multicast, and the time to live of these messages.
    pub multicast: Option<(SocketAddr, u8)>,
    /// The time between a node's heartbeats.
    pub heartbeat: Duration,
    /// If a node has been silent for this long, it is offline.
    pub offline: Duration,
}

/// Settings of the engine on etcd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Etcd {
    /// `http://HOST:PORT` or `https://HOST:PORT` of each member.
    pub endpoints: Vec<String>,
    /// Certificates of the authorities that sign the members' certificates.
    pub ca: Option<Located<PathBuf>>,
    /// The certificate and the private key that this machine presents to etcd.
    pub identity: Option<(Located<PathBuf>, Located<PathBuf>)>,
    /// The user, and the file with the user's password.
    pub user: Option<(String, Located<PathBuf>)>,
    /// The time to live of a node's lease.
    pub lease: Duration,
}

impl Engine {
    /// Text that says where topologies come from.
    pub(crate) fn place(&self) -> String {
        let (what, all) = match self {
            Self::Fixed(_) => return "the settings".to_owned(),
            Self::Etcd(etcd) => ("etcd at", etcd.endpoints.clone()),
            Self::Embedded(embedded) => {
                let all = embedded.coordinators.iter().map(ToString::to_string);
                ("the active coordinator:", all.collect())
            }
        };
        match all.is_empty() {
            true => "a coordinator by multicast".to_owned(),
            false => format!("{what} {}", all.join(", ")),
        }
    }
}

impl Conf {
    /// Reads and checks a file, but does not read the files that it names.
    ///
    /// # Errors
    /// Fails at the first mistake. The error has the place in the file.
    pub fn load(path: &Path) -> Result<Self, Report> {
        let shown = path.display().to_string();
        let text = read(path).map_err(|why| {
            let hint = format!("name another file, or create {PATH} (see cluster.conf(5))");
            Fault::new("config-unreadable", why).hint(hint).unplaced()
        })?;
        Self::parse(&text, &shown)
    }

    /// Checks the text of a file that is called `source` in error messages.
    ///
    /// # Errors
    /// Fails at the first mistake. The error has the place in the file.
    pub fn parse(text: &str, source: &str) -> Result<Self, Report> {
        let entries: Vec<Entry> = file::parse(text, source)?;
        check::conf(&entries, source)
    }

    /// Reads the keys of control messages. The first key signs; both keys are accepted.
    ///
    /// # Errors
    /// Fails if a file can't be read or is too short, or if other users can read it.
    pub fn keys(&self) -> Result<Vec<Secret>, Report> {
        let read = |file: &Located<PathBuf>| file.secret(KEY_LEAST);
        self.key_files.iter().map(read).collect()
    }

    /// The certificates that `role` needs for records, if any.
    pub fn records(&self, role: Role) -> Option<&Records> {
        match role {
            Role::Coordinator => None,
            Role::Node | Role::Analyzer => self.records.as_ref(),
        }
    }

    /// Checks the files that the settings name and that `role` needs.
    ///
    /// # Errors
    /// Fails at the first file that can't be read, or that other users can read but must not.
    pub fn check_files(&self, role: Role) -> Result<(), Report> {
        self.keys()?;
        let mut files: Vec<(&Located<PathBuf>, bool)> = Vec::new();
        if let Some(Records {
            ca,
            certificate,
            key,
        }) = self.records(role)
        {
            files.extend([(ca, false), (certificate, false), (key, true)]);
        }
        if let Engine::Etcd(etcd) = &self.engine {
            files.extend(etcd.ca.iter().map(|ca| (ca, false)));
            if let Some((certificate, key)) = &etcd.identity {
                files.extend([(certificate, false), (key, true)]);
            }
        }
        for (file, private) in files {
            let checked = secret::check_file(&file.value, private);
            checked.map_err(|why| file.report(why))?;
        }
        match &self.engine {
            Engine::Etcd(etcd) => etcd.password().map(drop),
            Engine::Embedded(_) | Engine::Fixed(_) => Ok(()),
        }
    }
}

impl Etcd {
    /// Reads the user's password; `None` if no user is set.
    ///
    /// # Errors
    /// Fails if the file can't be read or is empty, or if other users can read it.
    pub fn password(&self) -> Result<Option<Secret>, Report> {
        let user = self.user.as_ref();
        user.map(|(_, file)| file.secret(1)).transpose()
    }
}

impl Located<PathBuf> {
    fn secret(&self, least: usize) -> Result<Secret, Report> {
        secret::read(&self.value, least).map_err(|why| self.report(why))
    }

    fn report(&self, why: String) -> Report {
        Fault::new("cluster-file-bad", why).report(self.place.clone())
    }
}

/// Minimum number of bytes of a key for control messages.
const KEY_LEAST: usize = fanpcap_cluster::control::KEY_BYTES;

fn read(path: &Path) -> Result<String, String> {
    let bytes = open_regular(path).and_then(|file| read_at_most(file, LONGEST));
    let bytes = bytes.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    // Bytes that are not UTF-8 become U+FFFD, which the parser refuses outside of comments.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
