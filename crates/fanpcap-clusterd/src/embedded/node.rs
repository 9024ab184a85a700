//! A node's side of the embedded engine.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use fanpcap_cluster::control::{Cause, NodeEnd, NodeSettings, Peer, Role};
use fanpcap_cluster::{Announcement, NodeEvent, Revision};

use super::access;
use super::sockets::ControlSockets;
use crate::conf::{Conf, Embedded};
use crate::coordination::NodeSide;

/// A node's side of the engine.
#[derive(Debug)]
pub struct EmbeddedNode {
    end: NodeEnd,
    sockets: ControlSockets,
}

impl EmbeddedNode {
    /// Opens a node with this announcement. It joins the cluster at the first [`NodeSide::poll`].
    ///
    /// # Errors
    /// Fails if the settings are not valid, a key can't be read, or a socket can't be opened.
    pub fn new(conf: &Conf, embedded: &Embedded, announcement: Announcement) -> Result<Self> {
        let me = Peer {
            role: Role::Node,
            id: announcement.node.0,
        };
        let endpoint = access::endpoint(conf, me)?;
        let group = embedded.multicast.map(|(group, _)| group);
        let others: Vec<SocketAddr> = embedded.coordinators.iter().copied().chain(group).collect();
        let mut sockets = ControlSockets::towards(&others, conf.address)?;
        if let Some(group) = group {
            sockets.listen(group, conf.address)?;
        }
        let settings = NodeSettings {
            coordinators: embedded.coordinators.clone(),
            heartbeat: embedded.heartbeat,
            retry: access::beat(embedded.heartbeat),
            silence: embedded.offline,
        };
        let end = NodeEnd::new(settings, endpoint, announcement);
        Ok(Self { end, sockets })
    }

    /// How many control messages were refused for `cause`.
    pub fn refused(&self, cause: Cause) -> u64 {
        self.end.refused(cause)
    }

    fn flush(&mut self) {
        while let Some((to, datagram)) = self.end.outgoing() {
            self.sockets.send(to, &datagram);
        }
    }
}

impl NodeSide for EmbeddedNode {
    fn announce(&mut self, announcement: &Announcement) {
        self.end.announce(*announcement);
        self.flush();
    }

    fn poll(&mut self, wait: Duration) -> Result<Vec<NodeEvent>> {
        let until = self.sockets.now() + wait;
        loop {
            self.end.tick(self.sockets.now());
            self.flush();
            let news: Vec<NodeEvent> = std::iter::from_fn(|| self.end.event()).collect();
            let now = self.sockets.now();
            if !news.is_empty() || now >= until {
                return Ok(news);
            }
            let limit = until.min(self.end.wake()).saturating_sub(now);
            let (sockets, end) = (&mut self.sockets, &mut self.end);
            let received = sockets.receive(limit, |now, from, datagram| {
                // `end` counts refused datagrams.
                let _ = end.receive(now, from, datagram);
            });
            received.context("waiting for control messages")?;
        }
    }

    fn acknowledge(&mut self, revision: Revision) {
        self.end.acknowledge(revision);
        self.flush();
    }

    fn forged(&self) -> u64 {
        self.refused(Cause::Key) + self.refused(Cause::Seal)
    }

    fn reload(&mut self, conf: &Conf) -> Result<()> {
        self.end.endpoint_mut().set_keys(access::keys(conf)?);
        Ok(())
    }
}
