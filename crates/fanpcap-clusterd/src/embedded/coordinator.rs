//! A coordinator's side of the embedded engine.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fanpcap_cluster::control::{
    COORDINATORS, ClusterId, CoordinatorEnd, CoordinatorSettings, Peer, Role,
};
use fanpcap_cluster::{DesiredState, Revision, Topology, View, WriteError, unreadable_topology};
use fanpcap_terminal::server::not_listening;

use super::access;
use super::sockets::ControlSockets;
use super::store::Store;
use crate::conf::{Conf, Embedded};
use crate::coordination::CoordinatorSide;

/// A coordinator's side of the engine.
#[derive(Debug)]
pub struct EmbeddedCoordinator {
    end: CoordinatorEnd,
    sockets: ControlSockets,
    store: Store,
    unstored: Option<Unstored>,
}

/// The error of the last attempt to write the coordinator's state file.
#[derive(Debug)]
struct Unstored {
    error: io::Error,
    /// When the coordinator tries to write the file again, by the clock of `sockets`.
    next: Duration,
}

/// The time between attempts to write the state file.
const RETRY: Duration = Duration::from_millis(500);

impl EmbeddedCoordinator {
    /// Opens the coordinator at the first address in the settings that belongs to this machine.
    /// `desired` comes from the settings. Drained nodes and weights come from another coordinator,
    /// or from this coordinator's file in `directory`.
    ///
    /// # Errors
    /// Fails if the settings are not valid, a key can't be read, or a socket can't be opened.
    pub fn new(
        conf: &Conf,
        embedded: &Embedded,
        desired: DesiredState,
        directory: &Path,
    ) -> Result<Self> {
        let (number, address, sockets) = bind(&embedded.coordinators)?;
        let others = embedded
            .coordinators
            .iter()
            .filter(|other| **other != address);
        let beat = access::beat(embedded.heartbeat);
        let settings = CoordinatorSettings {
            others: others.copied().collect(),
            multicast: embedded.multicast.map(|(group, _)| group),
            desired,
            pulse: beat,
            silence: beat * 3,
            ballot: beat,
            announce: embedded.heartbeat,
            offline: embedded.offline,
            settle: beat * 2,
            retry: beat / 2,
            ..CoordinatorSettings::new(number, address)
        };
        if let Some((_, ttl)) = embedded.multicast {
            let set = sockets.set_multicast_ttl(ttl);
            set.context("setting the time to live of multicast messages")?;
        }
        let me = Peer {
            role: Role::Coordinator,
            id: u32::from(number),
        };
        let endpoint = access::endpoint(conf, me)?;
        let (store, stored) = Store::open(directory, ClusterId::of_name(&conf.cluster), number)?;
        let end = CoordinatorEnd::new(sockets.now(), settings, endpoint, stored);
        Ok(Self {
            end,
            sockets,
            store,
            unstored: None,
        })
    }

    /// Stores the changed state, and then sends messages. While the file can't be written, nothing
    /// is sent, so that a standby takes over.
    fn flush(&mut self) {
        self.store();
        while let Some((to, datagram)) = self.end.outgoing() {
            self.sockets.send(to, &datagram);
        }
    }

    fn store(&mut self) {
        let now = self.sockets.now();
        let is_early = self.unstored.as_ref().is_some_and(|it| now < it.next);
        let Some(state) = self.end.to_store() else {
            return;
        };
        if is_early {
            self.end.note_store_failure();
            return;
        }
        match self.store.write(&state) {
            Ok(()) => {
                self.end.note_stored(&state);
                self.unstored = None;
            }
            Err(error) => {
                self.end.note_store_failure();
                let next = now + RETRY;
                self.unstored = Some(Unstored { error, next });
            }
        }
    }
}

/// Opens a socket on the first address that this machine has. Its index is this coordinator's
/// number.
fn bind(addresses: &[SocketAddr]) -> Result<(u8, SocketAddr, ControlSockets)> {
    if addresses.len() > usize::from(COORDINATORS) {
        bail!("a cluster has at most {COORDINATORS} coordinators");
    }
    for (number, address) in (0..).zip(addresses) {
        match ControlSockets::new(*address) {
            Ok(sockets) => return Ok((number, *address, sockets)),
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {}
            Err(error) => {
                return Err(not_listening(*address, &error));
            }
        }
    }
    let all: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    bail!(
        "this machine has none of the addresses in 'coordinators': {}; run the coordinator on \
         a machine that has one",
        all.join(", ")
    )
}

impl CoordinatorSide for EmbeddedCoordinator {
    fn poll(&mut self, wait: Duration) -> Result<&View> {
        let until = self.sockets.now() + wait;
        loop {
            // While `flush` writes the state file, datagrams wait. So they are read before `tick`
            // counts their senders as silent.
            let limit = until
                .min(self.end.wake())
                .saturating_sub(self.sockets.now());
            let (sockets, end) = (&mut self.sockets, &mut self.end);
            let received = sockets.receive(limit, |now, from, datagram| {
                // This error needs no handling: `end` has counted the refused datagram.
                let _ = end.receive(now, from, datagram);
            });
            received.context("waiting for control messages")?;
            self.end.tick(self.sockets.now());
            self.flush();
            let now = self.sockets.now();
            if now >= until {
                return Ok(self.end.view(now));
            }
        }
    }

    fn write(
        &mut self,
        topology: &Topology,
        replaces: Option<Revision>,
    ) -> Result<Revision, WriteError> {
        let now = self.sockets.now();
        let written = self.end.write(now, topology, replaces);
        self.flush();
        if self.unstored.is_some() {
            return Err(WriteError::Unstored);
        }
        written
    }

    fn troubles(&self) -> Vec<String> {
        let unstored = self.unstored.iter().map(|Unstored { error, .. }| {
            let path = self.store.0.display();
            format!("{path} can't be written, so this coordinator is silent: {error}")
        });
        let refused = self.end.refused_machines();
        let refused = refused.iter().map(ToString::to_string);
        let unreadable = self.end.unreadable().map(|revision| {
            let why = unreadable_topology(revision);
            format!("{why}; until then this coordinator writes no topology")
        });
        unstored.chain(unreadable).chain(refused).collect()
    }

    fn publish(&mut self, notes: Vec<String>) {
        self.end.set_notes(notes);
    }

    fn all_refused(&self) -> Vec<(&'static str, u64)> {
        self.end.all_refused().collect()
    }

    fn reload(&mut self, conf: &Conf) -> Result<()> {
        self.end.endpoint_mut().set_keys(access::keys(conf)?);
        Ok(())
    }

    fn resign(&mut self) {
        self.end.resign(self.sockets.now());
        self.flush();
    }
}
