//! An operator's access to the embedded engine.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use fanpcap_cluster::control::{
    Cause, OperatorChange, OperatorEnd, Peer, Reply, Request, Role, Status,
};
use fanpcap_cluster::{ClusterStatus, LiveNode, View, unreadable_topology};

use super::access;
use super::sockets::ControlSockets;
use crate::conf::{Conf, Embedded};
use crate::coordination::OperatorSide;
use crate::keyring::random;

/// How long a command waits for the active coordinator. An election takes less time.
const LIMIT: Duration = Duration::from_secs(10);

/// An operator's access to the engine.
#[derive(Debug)]
pub struct EmbeddedOperator {
    conf: Conf,
    embedded: Embedded,
}

impl EmbeddedOperator {
    /// An operator's access to the coordinators in the settings.
    pub fn new(conf: &Conf, embedded: &Embedded) -> Self {
        Self {
            conf: conf.clone(),
            embedded: embedded.clone(),
        }
    }

    /// Asks the active coordinator for the cluster's status.
    ///
    /// # Errors
    /// Fails if the settings are not valid, a key can't be read, or no coordinator replies.
    pub fn status(&self) -> Result<Status> {
        match self.ask(Request::Status)? {
            Reply::Status(status) => Ok(*status),
            Reply::Unreadable(revision) => bail!(unreadable_topology(revision)),
            Reply::Granted | Reply::Refused(_) => bail!("the coordinator sent no status"),
        }
    }

    fn ask(&self, request: Request) -> Result<Reply> {
        let me = Peer {
            role: Role::Operator,
            id: u32::from_be_bytes(random()?),
        };
        let all = &self.embedded.coordinators;
        let endpoint = access::endpoint(&self.conf, me)?;
        let mut sockets = ControlSockets::towards(all, self.conf.address)?;
        let mut end = OperatorEnd::new(all.clone(), endpoint, request);
        while sockets.now() < LIMIT {
            end.tick(sockets.now());
            while let Some((to, datagram)) = end.outgoing() {
                sockets.send(to, &datagram);
            }
            if let Some(reply) = end.reply() {
                return Ok(reply);
            }
            let limit = end.wake().saturating_sub(sockets.now());
            let received = sockets.receive(limit, |now, from, datagram| {
                // Ignores refused datagrams, which were sent without the key or reply to an earlier
                // request.
                let _ = end.receive(now, from, datagram);
            });
            received.context("waiting for the coordinator's reply")?;
        }
        let tried: Vec<String> = all.iter().map(ToString::to_string).collect();
        let tried = tried.join(", ");
        bail!(
            "no active coordinator replied; asked {tried} with the keys of the settings: does \
             'fanpcap coordinator' run there? It leads some seconds after its start. If the \
             settings name several coordinators, it leads only after it has received a message \
             of a node or of another coordinator"
        )
    }
}

impl OperatorSide for EmbeddedOperator {
    fn look(&mut self) -> Result<ClusterStatus> {
        let status = self.status()?;
        let members = status.members.iter().map(|(member, _)| member);
        let live = members.map(|member| LiveNode {
            announcement: member.announcement,
            acknowledged: member.follows,
        });
        let refused = status.refused.iter().filter_map(|&(cause, count)| {
            // A newer coordinator may send causes that this version does not know.
            let name = Cause::NAMES.get(usize::try_from(cause).ok()?)?;
            Some((*name, count.into()))
        });
        Ok(ClusterStatus {
            unreadable: None,
            refused: refused.collect(),
            leader: Some(status.leader.address.to_string()),
            notes: status.notes,
            view: View {
                leads: true,
                live: live.collect(),
                topology: status.topology,
                desired: status.desired,
                // Only a coordinator reads this value. The operator's commands do not read it.
                is_outrun: false,
            },
        })
    }

    fn change(&mut self, change: &OperatorChange) -> Result<()> {
        match self.ask(Request::OperatorChange(*change))? {
            Reply::Refused(error) => Err(error.into()),
            Reply::Granted | Reply::Status(_) | Reply::Unreadable(_) => Ok(()),
        }
    }
}
