//! The engine on etcd: connects nodes, coordinators and commands with `fanpcap-etcd`.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use fanpcap_cluster::control::OperatorChange;
use fanpcap_cluster::{
    Announcement, ClusterStatus, DesiredState, NodeEvent, Revision, Topology, View, WriteError,
    unreadable_topology,
};
use fanpcap_etcd::coordination::{self, CoordinatorLink, Desired, Names, NodeLink};
use fanpcap_etcd::{CallError, Client, Credentials, Settings, TlsFiles};

use crate::conf::{Etcd, Located};
use crate::coordination::{CoordinatorSide, NodeSide, OperatorSide};

/// Connects a node with the cluster of this name. If etcd is out of reach, the node keeps trying.
///
/// # Errors
/// Fails if the settings are not valid, or if a file can't be read.
pub fn node(cluster: &str, conf: &Etcd) -> Result<NodeLink> {
    let client = Arc::new(client(conf)?);
    Ok(NodeLink::start(client, Names::new(cluster), conf.lease))
}

impl NodeSide for NodeLink {
    fn announce(&mut self, announcement: &Announcement) {
        Self::announce(self, *announcement);
    }

    fn poll(&mut self, wait: Duration) -> Result<Vec<NodeEvent>> {
        Self::poll(self, wait).map_err(refused)
    }

    fn acknowledge(&mut self, revision: Revision) {
        Self::acknowledge(self, revision);
    }
}

/// A coordinator's lease is this much shorter than a node's, because etcd may end a lease a second
/// late, and a successor must lead within six seconds. etcd grants no lease of less than two
/// seconds.
const SOONER: Duration = Duration::from_secs(1);
const LEAST: Duration = Duration::from_secs(2);

/// Stands for election in the cluster of this name. `who` is the coordinator's name in the
/// election, which commands show. `desired` has the settings; drained nodes and weights come from
/// etcd.
///
/// # Errors
/// Fails if the settings are not valid, or if a file can't be read.
pub fn coordinator(
    cluster: &str,
    conf: &Etcd,
    who: &str,
    desired: DesiredState,
) -> Result<CoordinatorLink> {
    let client = Arc::new(client(conf)?);
    let names = Names::new(cluster);
    let ttl = conf.lease.saturating_sub(SOONER).max(LEAST);
    Ok(CoordinatorLink::start(client, names, ttl, who, desired))
}

impl CoordinatorSide for CoordinatorLink {
    fn poll(&mut self, wait: Duration) -> Result<&View> {
        Self::poll(self, wait).map_err(refused)
    }

    fn write(
        &mut self,
        topology: &Topology,
        replaces: Option<Revision>,
    ) -> Result<Revision, WriteError> {
        Self::write(self, topology, replaces)
    }

    fn troubles(&self) -> Vec<String> {
        let unreadable = self.unreadable.map(|revision| {
            let why = unreadable_topology(revision);
            format!("{why}; until then this coordinator does not stand for election")
        });
        self.denied.iter().cloned().chain(unreadable).collect()
    }

    fn resign(&mut self) {
        Self::resign(self);
    }
}

/// Access to a cluster's keys in etcd, for processes that are neither nodes nor coordinators.
#[derive(Debug)]
pub struct EtcdKeys {
    client: Client,
    names: Names,
}

impl EtcdKeys {
    /// Access to the keys of the cluster of this name.
    ///
    /// # Errors
    /// Fails if the settings are not valid, or if a file can't be read.
    pub fn new(cluster: &str, conf: &Etcd) -> Result<Self> {
        Ok(Self {
            client: client(conf)?,
            names: Names::new(cluster),
        })
    }
}

impl OperatorSide for EtcdKeys {
    fn look(&mut self) -> Result<ClusterStatus> {
        let desired = DesiredState::default();
        Ok(coordination::look(&self.client, &self.names, &desired)?)
    }

    fn change(&mut self, change: &OperatorChange) -> Result<()> {
        let refused = Cell::new(None);
        Desired::change(&self.client, &self.names, |desired| {
            let mut state = DesiredState {
                drained: std::mem::take(&mut desired.drained),
                weights: std::mem::take(&mut desired.weights),
                ..DesiredState::default()
            };
            refused.set(change.apply(&mut state).err());
            desired.drained = state.drained;
            desired.weights = state.weights;
        })?;
        refused.get().map_or(Ok(()), |error| Err(error.into()))
    }
}

fn client(conf: &Etcd) -> Result<Client> {
    let endpoints = conf.endpoints.iter().map(|text| text.parse());
    let path = |file: &Located<PathBuf>| file.value.clone();
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
    anyhow!("{}: {error}", error.endpoint)
}
