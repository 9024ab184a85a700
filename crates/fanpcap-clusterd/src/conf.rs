//! cluster.conf: the settings of all machines of a cluster, and those of a single machine.

mod value;
mod keys;
mod file;
mod secret;
mod check;
mod filter;

use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fanpcap_cluster::NodeId;
use fanpcap_config::report::{Fault, Place, Report};
use fanpcap_linux::file::directory::open_regular;
use fanpcap_select::Selection;

use crate::shipping::RecordTransport;
use file::Entry;

pub(crate) use keys::SELECTIONS;
pub use secret::Secret;
pub(crate) use value::{WEIGHT_MAX, devices, node};

/// The default path of cluster.conf.
pub const PATH: &str = "/etc/fanpcap/cluster.conf";

/// Longest cluster.conf, in bytes.
const LONGEST: u64 = 1 << 20;

/// A cluster.conf, checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conf {
    /// The cluster's name: in each control message, and in etcd's keys.
    pub cluster: String,
    /// Files with the keys of control messages. The first one signs; both are accepted.
    pub key_files: Vec<Located<PathBuf>>,
    /// What coordinates the cluster.
    pub engine: Engine,
    /// This machine's node id; `None`: the one that is kept in the state directory.
    pub node: Option<NodeId>,
    /// This machine's address on the control network; `None`: the one that the routes choose.
    pub address: Option<IpAddr>,
    /// This node's weight: its share of the buckets, compared with the others.
    pub weight: u16,
    /// The monitored devices.
    pub devices: Vec<String>,
    /// Where the active coordinator sends beacons; `None`: it sends none.
    pub beacon: Option<String>,
    /// What the node does with its packets.
    pub mode: Mode,
    /// Bytes of each packet, from the network header on, that go to the analyzers.
    pub header: u16,
    /// How packets are selected. The coordinator draws the initial value, except with `fixed`.
    pub selection: Selection,
    /// The pcap filter that packets must pass.
    pub filter: Option<Located<String>>,
    /// Where counts go, and records in capture mode.
    pub analyzers: Vec<SocketAddr>,
    /// How records get to the analyzers.
    pub transport: RecordTransport,
    /// Certificates for the connections with records, by TLS.
    pub records: Option<Records>,
    /// How long a union lasts after the last acknowledgement.
    pub dwell: Duration,
    /// How long a node that came back waits for its buckets.
    pub hold_down: Duration,
}

/// A value with its place in the file, for errors that are found later.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// The value's place.
    pub place: Place,
}

/// The certificates of nodes and analyzers, for TLS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Records {
    /// The authority that signs the certificates of both sides.
    pub ca: Located<PathBuf>,
    /// Own certificate.
    pub certificate: Located<PathBuf>,
    /// Its private key.
    pub key: Located<PathBuf>,
}

/// Who reads the settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Takes no records, so that it needs no certificate for them.
    Coordinator,
    /// Sends records.
    Node,
    /// Takes records.
    Analyzer,
}

/// What a node does with its packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Packets of other nodes are dropped in the driver; the node's own go on to any application.
    Distribution,
    /// The node's packets are sent to the analyzers, by their first bytes.
    Capture,
}

/// What coordinates a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Engine {
    /// The control protocol over UDP.
    Embedded(Embedded),
    /// etcd.
    Etcd(Box<Etcd>),
    /// Nothing: the nodes and their weights never change.
    Fixed(Vec<(NodeId, u16)>),
}

/// Settings of the embedded engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Embedded {
    /// Where coordinators listen. May be empty if `multicast` is set.
    pub coordinators: Vec<SocketAddr>,
    /// Where nodes look for the coordinator, and the packets' time to live.
    pub multicast: Option<(SocketAddr, u8)>,
    /// The time between a node's heartbeats.
    pub heartbeat: Duration,
    /// After how long a silent node is offline.
    pub offline: Duration,
}

/// Settings of the engine on etcd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Etcd {
    /// `http://HOST:PORT` or `https://HOST:PORT` of each member.
    pub endpoints: Vec<String>,
    /// Certificates of the authorities that sign the members' certificates.
    pub ca: Option<Located<PathBuf>>,
    /// Own certificate and its key.
    pub identity: Option<(Located<PathBuf>, Located<PathBuf>)>,
    /// User, and the file with the password.
    pub user: Option<(String, Located<PathBuf>)>,
    /// Time to live of a node's lease.
    pub lease: Duration,
}

impl Engine {
    /// Where topologies come from.
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
    /// Reads and checks a file, but not the files that it names.
    ///
    /// # Errors
    ///
    /// The first mistake, with its place.
    pub fn load(path: &Path) -> Result<Self, Report> {
        let shown = path.display().to_string();
        let text = read(path).map_err(|why| {
            let hint = format!("name another file, or write {PATH}: cluster.conf(5)");
            Fault::new("config-unreadable", why).hint(hint).unplaced()
        })?;
        Self::parse(&text, &shown)
    }

    /// Checks the text of a file that is called `source` in error messages.
    ///
    /// # Errors
    ///
    /// The first mistake, with its place.
    pub fn parse(text: &str, source: &str) -> Result<Self, Report> {
        let entries: Vec<Entry> = file::parse(text, source)?;
        check::conf(&entries, source)
    }

    /// Reads the keys of control messages. The first one signs; both are accepted.
    ///
    /// # Errors
    ///
    /// A file can't be read, is too short, or other users can read it.
    pub fn keys(&self) -> Result<Vec<Secret>, Report> {
        let read = |file: &Located<PathBuf>| file.secret(KEY_LEAST);
        self.key_files.iter().map(read).collect()
    }

    /// The certificates for records, for machines that send or receive them.
    pub fn records(&self, role: Role) -> Option<&Records> {
        match role {
            Role::Coordinator => None,
            Role::Node | Role::Analyzer => self.records.as_ref(),
        }
    }

    /// Checks the files that the settings name and that `role` needs.
    ///
    /// # Errors
    ///
    /// The first that can't be read, or that other users can read and must not.
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
    /// Reads the user's password; `None` where no user is set.
    ///
    /// # Errors
    ///
    /// The file can't be read, is empty, or other users can read it.
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

/// Fewest bytes of a control message's key.
const KEY_LEAST: usize = fanpcap_cluster::control::KEY_BYTES;

fn read(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let failed = |error: std::io::Error| format!("cannot read {shown}: {error}");
    let file = open_regular(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(LONGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    match bytes.len() as u64 {
        // Bytes that are not UTF-8 become U+FFFD, which the parser refuses outside of comments.
        0..=LONGEST => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        _ => Err(format!("{shown} is longer than {LONGEST} bytes")),
    }
}
