//! The engine on etcd: what `fanpcap-etcd` does, as the drivers ask for it.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use fanpcap_cluster::control::Wish;
use fanpcap_cluster::{Announcement, NodeEvent, Revision, Topology, View, Wishes};
use fanpcap_etcd::coordination::{self, CoordinatorLink, Desired, Look, Names, NodeLink};
use fanpcap_etcd::{CallError, Client, Credentials, Settings, TlsFiles};

use crate::conf::{Etcd, Placed};
use crate::coordination::{CoordinatorSide, NodeSide, OperatorSide, Picture, WriteError};

/// A node's side.
#[derive(Debug)]
pub struct EtcdNode(NodeLink);

/// A coordinator's side.
#[derive(Debug)]
pub struct EtcdCoordinator(CoordinatorLink);

/// A cluster's keys, for who is neither node nor coordinator.
#[derive(Debug)]
pub struct EtcdKeys {
    client: Client,
    names: Names,
}

impl EtcdNode {
    /// Connects with the cluster of this name. An etcd that is out of reach is waited for.
    ///
    /// # Errors
    ///
    /// The settings are no good, or a file can't be read.
    pub fn new(cluster: &str, conf: &Etcd) -> Result<Self> {
        let client = Arc::new(client(conf)?);
        let names = Names::new(cluster);
        Ok(Self(NodeLink::start(client, names, conf.lease)))
    }
}

impl NodeSide for EtcdNode {
    fn announce(&mut self, announcement: &Announcement) {
        self.0.announce(*announcement);
    }

    fn poll(&mut self, wait: Duration) -> Result<Vec<NodeEvent>> {
        self.0.poll(wait).map_err(refused)
    }

    fn acknowledge(&mut self, revision: Revision) {
        self.0.acknowledge(revision);
    }
}

/// A coordinator's lease is this much shorter than a node's: etcd may need a second to end a lease,
/// and a successor must lead within six seconds. etcd grants no lease below two seconds.
const SOONER: Duration = Duration::from_secs(1);
const LEAST: Duration = Duration::from_secs(2);

impl EtcdCoordinator {
    /// Stands for election in the cluster of this name. `who` is seen by who looks at the election.
    /// `wishes` are those of the settings; drained nodes and weights come from etcd.
    ///
    /// # Errors
    ///
    /// The settings are no good, or a file can't be read.
    pub fn new(cluster: &str, conf: &Etcd, who: &str, wishes: Wishes) -> Result<Self> {
        let client = Arc::new(client(conf)?);
        let names = Names::new(cluster);
        let ttl = conf.lease.saturating_sub(SOONER).max(LEAST);
        let link = CoordinatorLink::start(client, names, ttl, who, wishes);
        Ok(Self(link))
    }
}

impl CoordinatorSide for EtcdCoordinator {
    fn poll(&mut self, wait: Duration) -> Result<&View> {
        self.0.poll(wait).map_err(refused)
    }

    fn write(
        &mut self,
        topology: &Topology,
        replaces: Option<Revision>,
    ) -> Result<Revision, WriteError> {
        let written = self.0.write(topology, replaces);
        written.map_err(|error| match error {
            coordination::WriteError::NotLeading => WriteError::NotLeading,
            coordination::WriteError::Changed => WriteError::Changed,
            coordination::WriteError::Unknown(_) => WriteError::Unknown,
            coordination::WriteError::Refused(error) => WriteError::Engine(refused(error)),
        })
    }

    fn troubles(&self) -> Vec<String> {
        self.0.denied().map(str::to_owned).into_iter().collect()
    }

    fn resign(&mut self) {
        self.0.resign();
    }
}

impl EtcdKeys {
    /// The keys of the cluster of this name.
    ///
    /// # Errors
    ///
    /// The settings are no good, or a file can't be read.
    pub fn new(cluster: &str, conf: &Etcd) -> Result<Self> {
        Ok(Self {
            client: client(conf)?,
            names: Names::new(cluster),
        })
    }

    /// The present view, and who the coordinator that leads says it is.
    ///
    /// # Errors
    ///
    /// etcd is out of reach, or refuses.
    pub fn look(&self, wishes: &Wishes) -> Result<Look> {
        Ok(coordination::look(&self.client, &self.names, wishes)?)
    }

    /// Changes which nodes are drained and what weights they have. `change` may be called again.
    ///
    /// # Errors
    ///
    /// etcd is out of reach, or refuses.
    pub fn change(&self, change: impl Fn(&mut Desired)) -> Result<Desired> {
        Ok(Desired::change(&self.client, &self.names, change)?)
    }
}

impl OperatorSide for EtcdKeys {
    fn look(&mut self) -> Result<Picture> {
        let look = Self::look(self, &Wishes::default())?;
        Ok(Picture {
            view: look.view,
            leader: look.leader,
            notes: look.notes,
        })
    }

    fn wish(&mut self, wish: &Wish) -> Result<()> {
        let refused = Cell::new(None);
        self.change(|desired| {
            let mut wishes = Wishes {
                drained: std::mem::take(&mut desired.drained),
                weights: std::mem::take(&mut desired.weights),
                ..Wishes::default()
            };
            refused.set(wish.grant(&mut wishes).err());
            desired.drained = wishes.drained;
            desired.weights = wishes.weights;
        })?;
        refused.get().map_or(Ok(()), |error| Err(error.into()))
    }
}

/// The client that the settings ask for.
fn client(conf: &Etcd) -> Result<Client> {
    let endpoints = conf.endpoints.iter().map(|text| text.parse());
    let path = |file: &Placed<PathBuf>| file.value.clone();
    let own = conf.identity.as_ref();
    let own = own.map(|(certificate, key)| (path(certificate), path(key)));
    let credentials = match (&conf.user, conf.password()?) {
        (Some((user, file)), Some(secret)) => Some(Credentials {
            user: user.clone(),
            password: String::from_utf8(secret.bytes().to_vec())
                .with_context(|| format!("{}: no UTF-8", file.value.display()))?,
        }),
        _ => None,
    };
    let settings = Settings {
        endpoints: endpoints.collect::<Result<_, _>>()?,
        credentials,
        tls: conf.ca.as_ref().map(|ca| TlsFiles { ca: path(ca), own }),
        ..Settings::default()
    };
    Ok(Client::new(&settings)?)
}

fn refused(error: CallError) -> anyhow::Error {
    let (CallError::Unreachable { endpoint, .. }
    | CallError::Certificate { endpoint, .. }
    | CallError::Refused { endpoint, .. }
    | CallError::Answer { endpoint, .. }) = &error;
    anyhow!("{endpoint}: {error}")
}
