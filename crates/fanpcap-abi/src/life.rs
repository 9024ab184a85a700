//! Implements the traits of the crate `fanpcap` for a handle, with the system's library, our reader
//! and the group.

use crate::away::{Away, AwayPort};
use crate::handles::{self, Entry};
use crate::pcap_handle::PcapHandle;
use crate::system::{self, NOT_ACTIVATED};
use crate::{apart, enter, take_over};
use fanpcap::gone;
use fanpcap::handle::{Joined, Life, Member, Notes, Return, Setting, System};
use fanpcap::request::Request;
use fanpcap_bpf::Classic;
use fanpcap_config::device::ANY;
use fanpcap_config::settings::{GroupChoice, OnEngine, Polled};
use fanpcap_config::steering::{PcapCompiler, Steering};
use fanpcap_group::guard::GroupGuard;
use fanpcap_group::identity::Stranger;
use fanpcap_group::join::{
    self, EngineAsk, JoinError, JoinRequest, PerDevice, Prepared, ProgramError, Runs,
};
use fanpcap_group::membership::Membership;
use fanpcap_group::record::{MemberCounters, NoFlow};
use fanpcap_group::rejecting::Rejections;
use fanpcap_group::replace::replace;
use fanpcap_group::steered::{Filtering, SteerError, Steered, Unchanging};
use fanpcap_linux::interface;
use fanpcap_linux::netlink::host_use;
use fanpcap_linux::packet::{self, Address, Filter, renew, ring};
use fanpcap_nic::placing::{self, PlaceError, Until, Want};
use fanpcap_reader::DISAPPEARED;
use std::ffi::c_int;
use std::io::{self, ErrorKind};
use std::mem;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl System for PcapHandle {
    fn activate(self) -> c_int {
        match handles::is_apart(self) {
            true => apart::activate(|| self.activate()),
            false => self.activate(),
        }
    }

    fn set(self, setting: Setting) {
        // The setters can't fail here: the handle is not activated.
        let _ = match setting {
            Setting::Snaplen(bytes) => self.set(|of| of.pcap_set_snaplen, bytes),
            Setting::BufferSize(bytes) => self.set(|of| of.pcap_set_buffer_size, bytes),
            Setting::Protocol(protocol) => {
                self.set(|of| of.pcap_set_protocol_linux, protocol.into())
            }
        };
    }

    fn error(self) -> String {
        self.error()
    }

    fn fail(self, text: &str) -> c_int {
        self.fail(text)
    }

    fn is_activated(self) -> bool {
        self.datalink() != NOT_ACTIVATED
    }

    fn compiler(self) -> PcapCompiler<'static> {
        &system::compile
    }

    fn finds(self, device: &str) -> bool {
        handles::is_apart(self) || !matches!(interface::find(device), Ok(None))
    }

    fn is_on_interfaces(self) -> bool {
        let request = self.request();
        let device = request.as_ref().map(|request| request.system_name());
        self.ifindex() != 0 || device.is_none_or(|device| device == ANY)
    }

    fn is_of_one_interface(self) -> bool {
        self.ifindex() != 0 || handles::is_apart(self)
    }

    fn host_use(self) -> Option<&'static str> {
        host_use::of(self.ifindex()).unwrap_or(Some("the kernel does not list its routes"))
    }

    fn bind(self) -> io::Result<()> {
        let socket = self.socket().ok_or(ErrorKind::NotConnected)?;
        let address = packet::address(socket)?;
        let protocol = protocol(self);
        packet::bind(
            socket,
            Address {
                protocol,
                ..address
            },
        )
    }

    fn kernel_filter(self) -> io::Result<Option<Filter>> {
        Filter::of(self.socket().ok_or(ErrorKind::NotConnected)?)
    }
}

impl Life for PcapHandle {
    fn request(self) -> Option<Arc<Request>> {
        handles::with(self, |entry| Arc::clone(&entry.request))
    }

    fn remember(self, request: Arc<Request>) {
        drop(handles::with_new(self, |entry| {
            mem::replace(&mut entry.request, request)
        }));
    }

    fn notes(self) -> Notes {
        handles::with(self, |entry| entry.notes).unwrap_or_default()
    }

    fn note(self, change: impl FnOnce(&mut Notes)) {
        handles::with(self, |entry| change(&mut entry.notes));
    }

    fn others(self) -> Option<Arc<[Self]>> {
        handles::with(self, |entry| entry.others.clone()).flatten()
    }

    fn place(self, device: &str, wants: &[Want], until: Until) -> Result<(), PlaceError> {
        let placed = placing::place(device, wants, until)?;
        drop(handles::with(self, |entry| entry.placed.replace(placed)));
        Ok(())
    }

    fn take_over(all: &[Self]) -> Result<(), String> {
        match all {
            [p] if p.notes().on_engine.is_none() => {
                take_over::take_over(*p);
                Ok(())
            }
            [p] => take_over::take_over_on_engine(*p),
            _ => take_over::take_over_several(all),
        }
    }

    fn is_read_by_us(self) -> bool {
        self.has_reader()
    }

    fn truncate(self, reader_of: Self) {
        take_over::truncate(self, reader_of);
    }

    fn publish_counters(self) {
        take_over::publish_counters(self);
    }

    fn refilter(
        self,
        steered: &mut Unchanging<'_>,
        own: io::Result<Option<Filter>>,
    ) -> Result<Filtering, SteerError> {
        let no_socket = || SteerError::Read(ErrorKind::NotConnected.into());
        steered.refilter(self.socket().ok_or_else(no_socket)?, own)
    }
}

impl Member for PcapHandle {
    fn prepare(self, choice: &GroupChoice, asked: &OnEngine) -> Result<(), JoinError> {
        let name = asked.engine.name();
        let prepared = Arc::new(join::prepare(name, self.ifindex(), choice, asked.outgoing)?);
        drop(handles::with(self, |entry| {
            entry.prepared.replace(prepared)
        }));
        Ok(())
    }

    fn forget(self) {
        drop(handles::with(self, |entry| entry.prepared.take()));
    }

    fn join(self, choice: &GroupChoice, together: &[Self]) -> Result<(), JoinError> {
        let socket = self.socket().ok_or(JoinError::NotPacket)?;
        let others = Others::of(self, together)?;
        let prepared = handles::with(self, |entry| entry.prepared.clone()).flatten();
        // If the statistics can't be read, zeros are reported.
        let counted = self.statistics().unwrap_or_default();
        let counted = MemberCounters {
            received: counted.received.into(),
            dropped: counted.dropped.into(),
        };
        // A handle that comes back has a new socket. What its library has counted is of the old
        // one.
        let is_new = self.is_away();
        let mut member = join::join(JoinRequest {
            socket,
            choice,
            protocol: protocol(self),
            before: if is_new {
                MemberCounters::default()
            } else {
                counted
            },
            per_device: others.per_device(),
            engine: engine(self, prepared.as_deref()),
        })?;
        if is_new {
            member.note_earlier_sockets(counted);
        }
        let fd = socket.as_raw_fd();
        let prepared = handles::with_new(self, |entry| {
            entry.member = Some((member, fd));
            entry.prepared.take()
        });
        drop(prepared);
        Ok(())
    }

    fn enter(self, choice: Option<&GroupChoice>, asked: &Polled) -> Result<u64, JoinError> {
        let request = self.request().ok_or(JoinError::NotPacket)?;
        enter::enter(self, &request, self.notes(), choice, asked)
    }

    fn foresee(self, choice: &GroupChoice) -> Result<(), JoinError> {
        let socket = self.socket().ok_or(JoinError::NotPacket)?;
        join::foresee(socket, choice, protocol(self))
    }

    fn runs(self, group: u16) -> Runs {
        let address = self.socket().map(packet::address);
        match address {
            Some(Ok(address)) => join::runs(address.ifindex, group),
            Some(Err(_)) | None => Runs::Nothing,
        }
    }

    fn program_text(self, group: u16) -> Option<String> {
        join::program_text(self.socket()?, group)
    }

    fn group(self) -> Option<Joined> {
        if let Some(polled) = handles::polled(self) {
            return Some(polled.joined);
        }
        let identity = handles::identity(self)?;
        let membership = handles::membership(self);
        Some(Joined {
            group: identity.known_group(),
            mode: identity.mode(),
            weight: membership.as_ref().and_then(|it| it.weight()),
            class: membership.map_or(0, |it| it.class()),
        })
    }

    fn replace_program(self, steering: &Arc<Steering>) -> Result<(), String> {
        let digest = |entry: &mut Entry| Some(entry.member.as_ref()?.0.digest());
        let has = handles::with(self, digest).flatten();
        let has_it = has == Some(steering.digest());
        let Some(identity) = handles::identity(self).filter(|_| !has_it) else {
            return Ok(());
        };
        let busy = |error| ProgramError::of(identity.group(), error).to_string();
        let guard = GroupGuard::take(&identity).map_err(busy)?;
        let members = handles::members(self, &identity);
        if members.is_empty() {
            return Err("pcap_fanout: the handle has no steering program to replace".to_owned());
        }
        let replaced = replace(&guard, &members, steering, &handles::copy_socket);
        // A waiting reader may have computed the end of its wait for the old steering program, so
        // wake it.
        handles::nudge_readers();
        replaced.map_err(|error| error.to_string())
    }

    fn stranger(self) -> Option<Stranger> {
        handles::identity(self)?.stranger()
    }

    fn ring_bytes(self) -> Option<u64> {
        if let Some(polled) = handles::polled(self) {
            return polled.io.bytes();
        }
        let membership = handles::membership(self)?;
        membership.io().map(|(_, rings)| rings.bytes() as u64)
    }

    fn note_no_flow(self, why: NoFlow) {
        handles::with(self, |entry| {
            if let Some((member, _)) = &entry.member {
                member.note_no_flow(why);
            }
        });
    }

    fn steered(self) -> Option<Arc<Steered>> {
        handles::steered(self)
    }

    fn rejections(self) -> Option<Rejections> {
        handles::rejections(self)
    }

    fn filter_on_engine(self, filter: &[Classic], number: u32) -> bool {
        let membership = handles::membership(self);
        let rings = membership.as_ref().and_then(|it| it.io());
        rings.is_some_and(|(slot, rings)| rings.filter(slot, filter, number))
    }
}

impl Return for PcapHandle {
    fn expect_return(self, origin: &str) -> Result<(), String> {
        let socket = self.socket().ok_or("the handle has no socket")?;
        if handles::is_apart(self) {
            return Err(apart::NOT_WAITING.to_owned());
        }
        let away = Away::new(socket, origin, gone::come_back::<Self>);
        let away = away.map_err(|error| error.to_string())?;
        let selectable = self.with_reader(|reader| reader.control().be_selectable());
        selectable
            .unwrap_or(Err(ErrorKind::NotConnected.into()))
            .map_err(|error| error.to_string())?;
        drop(handles::with_new(self, |entry| {
            entry.away.replace(Arc::new(away))
        }));
        Ok(())
    }

    fn is_away(self) -> bool {
        handles::away(self).is_some_and(|away| away.is_away())
    }

    fn leave(self) -> Result<(), String> {
        let away = handles::away(self).ok_or("the handle does not wait")?;
        let failed = |error: io::Error| {
            let why = match error.kind() == ErrorKind::PermissionDenied {
                true => " needs CAP_NET_RAW (tcpdump: -Z root)".to_owned(),
                false => format!(": {error}"),
            };
            let origin = &away.origin;
            format!("{DISAPPEARED}; waiting for it ({origin}){why}")
        };
        let socket = self.socket().ok_or("the handle has no socket")?;
        let (version, geometry) = ring::of(socket).map_err(failed)?;
        // The system's library adds the socket's last counts to its own. The page must have them.
        let last = self.statistics();
        let mut member = handles::with(self, |entry| entry.member.take()).flatten();
        if let Some((member, _)) = &mut member {
            let engine = member.membership().and_then(|it| it.counted());
            if let (None, Ok(last)) = (&engine, last) {
                member.handle_stats(last.received, last.dropped);
            }
            let past = engine.unwrap_or_else(|| member.read_so_far());
            handles::with(self, |entry| {
                entry.past.received = entry.past.received.saturating_add(past.received);
                entry.past.dropped = entry.past.dropped.saturating_add(past.dropped);
            });
            member.depart();
        }
        let polled = handles::with(self, |entry| {
            let polled = entry.polled.take()?;
            let [received, dropped] = polled.io.counted();
            entry.past.received = entry.past.received.saturating_add(received);
            entry.past.dropped = entry.past.dropped.saturating_add(dropped);
            entry.device_drops.add_missed(polled.io.missed());
            Some(polled)
        });
        if let Some(Some(polled)) = &polled {
            away.note_steering(polled.io.steering());
        }
        let port = Arc::new(AwayPort(Arc::clone(&away)));
        away.is_away.store(true, Ordering::Relaxed);
        // SAFETY: only the reading thread calls this function.
        let filter = self.with_reader(|reader| unsafe { reader.leave(port) });
        let replaced = renew::replace(socket, (version, &geometry)).map_err(failed);
        // The membership ends after the socket is closed.
        drop(member);
        drop(polled);
        replaced?;
        if let Some(request) = self.request() {
            away.show(request.system_name(), socket);
        }
        match filter.flatten() {
            Some(filter) => Filter::of_code(filter).attach(socket).map_err(failed),
            None => Ok(()),
        }
    }

    fn let_go(self) {
        if let Some(away) = handles::away(self) {
            // SAFETY: only the reading thread calls this function.
            self.with_reader(|reader| unsafe { reader.let_go(Arc::new(AwayPort(away))) });
        }
    }

    fn is_back(self) -> Result<bool, String> {
        let away = handles::away(self).ok_or("the handle does not wait")?;
        let request = self.request().ok_or("the handle has no device")?;
        away.finds(request.system_name())
    }

    fn bind_silently(self) -> io::Result<()> {
        let socket = self.socket().ok_or(ErrorKind::NotConnected)?;
        let ifindex = self.ifindex();
        let protocol = packet::ETH_P_SILENT;
        packet::bind(socket, Address { ifindex, protocol })?;
        // Another device of the name may have replaced the one that `is_back` has found.
        if !handles::away(self).is_some_and(|away| away.fits(socket)) {
            return Err(ErrorKind::AddrNotAvailable.into());
        }
        match self.notes().is_promiscuous {
            true => renew::make_promiscuous(socket, ifindex),
            false => Ok(()),
        }
    }

    fn renew_reader(self) -> Result<(), String> {
        let input = take_over::input(self).map_err(|error| error.to_string())?;
        // SAFETY: only the reading thread calls this function.
        self.with_reader(|reader| unsafe { reader.renew(input) });
        if let Some(away) = handles::away(self) {
            away.end();
        }
        Ok(())
    }
}

/// The other devices of a handle's group.
enum Others {
    None,
    /// The handle is on the group's first device. These are the indices of the other devices.
    After(Vec<u32>),
    /// The group's first device belongs to another handle, which has this membership.
    Before(Arc<Membership>),
}

impl Others {
    /// `together` are the handles on all devices of the group, if the group has several.
    fn of(p: PcapHandle, together: &[PcapHandle]) -> Result<Self, JoinError> {
        match together.split_first() {
            None => Ok(Self::None),
            Some((first, others)) if *first == p => {
                let index =
                    |other: &PcapHandle| Some(packet::address(other.socket()?).ok()?.ifindex);
                let indices = others.iter().map(index).collect::<Option<_>>();
                indices.map(Self::After).ok_or(JoinError::NotPacket)
            }
            Some((first, _)) => {
                let membership = handles::membership(*first);
                membership.map(Self::Before).ok_or(JoinError::NotPacket)
            }
        }
    }

    fn per_device(&self) -> PerDevice<'_> {
        match self {
            Self::None => PerDevice::Only,
            Self::After(others) => PerDevice::First(others),
            Self::Before(membership) => PerDevice::Behind(membership),
        }
    }
}

/// An activated handle's requirements for the engine that will fill its rings.
fn engine(p: PcapHandle, prepared: Option<&Prepared>) -> Option<EngineAsk<'_>> {
    let (asked, prepared) = p.notes().on_engine.zip(prepared)?;
    Some(EngineAsk {
        prepared,
        ask: enter::ask(p, p.notes(), asked.outgoing),
        steal: asked.steal,
    })
}

impl PcapHandle {
    /// The index of the device; 0 for all devices, or if the device has no index.
    fn ifindex(self) -> u32 {
        let request = self.request();
        let device = request.as_ref().map(|request| request.system_name());
        device.and_then(interface::index).unwrap_or(0)
    }
}

/// The protocol that a handle captures, `ETH_P_*`.
fn protocol(p: PcapHandle) -> u16 {
    p.notes().protocol.unwrap_or(packet::ETH_P_ALL)
}
